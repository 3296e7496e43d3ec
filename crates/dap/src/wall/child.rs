//! Child sessions that debugpy asks for, for the subprocesses of a task.
//!
//! Pure. Of what the worker says only the number of the process is used. debugpy makes the configuration of the arguments of
//! the `attach` that it was sent; here it is made, in the same way, of those that the client sent to the relay.

use std::ops::RangeInclusive;

use serde_json::{Map, Value, json};

use crate::attach::{Pass, RelayEndpoint, way_back};
use ray_relay_base::wire::dap::message::{KEPT_SUBPROCESS, event, request};
use ray_relay_base::wire::dap::names::{Command, Event, Reverse};
use ray_relay_base::wire::json::typed_at;
use ray_relay_ray::ray::registry::BreakpointId;

/// Numbers that a kernel gives a process: Linux none above `PID_MAX_LIMIT`.
const PROCESSES: RangeInclusive<u64> = 1..=1 << 22;

/// What of an `attach` is not for the sessions that come of it: what debugpy leaves out (1.8.0 to 1.8.22), and what is the
/// relay's.
const NOT_INHERITED: [&str; 12] = [
    "processId",
    "listen",
    "preLaunchTask",
    "postDebugTask",
    "request",
    "restart",
    "args",
    "processName",
    "pythonArgs",
    "subProcessId",
    "rayRelay",
    "rayRelayToken",
];

/// A session that a worker's debugger asks for.
#[derive(Debug)]
pub(crate) struct Child {
    /// The number of the process.
    process: u64,
    /// The number of the request; `None`: it was an event.
    seq: Option<Value>,
    /// Whether the configuration has the address at its top.
    at_top: bool,
    /// An agent says that it keeps it.
    kept: bool,
}

/// The numbers of the relay's own requests to a client begin here: far above those of debugpy, and each with that of a process.
const OWN_SEQ: u64 = 0x7000_0000;

impl Child {
    /// A session with a subprocess that is parked, or that was named to a client that is gone. `asked`: the arguments of the
    /// client's own `attach`; `by_request`: it is to be opened by `startDebugging`.
    pub(crate) fn again(process: u32, asked: &Value, by_request: bool) -> Self {
        let process = u64::from(process);
        Self {
            process,
            seq: by_request.then(|| (OWN_SEQ + process).into()),
            at_top: asked.get("connect").is_none() && asked.get("port").is_some(),
            kept: false,
        }
    }

    /// Whether `message` is the client's answer to a request of the [relay's own](Self::again), of which the worker's debugger
    /// knows nothing.
    pub(crate) fn is_answer_to_own(message: &Value) -> bool {
        let asked: u64 = typed_at(message, "request_seq");
        typed_at::<&str>(message, "type") == "response"
            && typed_at::<&str>(message, "command") == Reverse::StartDebugging.as_str()
            && PROCESSES.contains(&asked.wrapping_sub(OWN_SEQ))
    }

    /// An agent says that it keeps its session.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept
    }

    /// The number of the process.
    pub(crate) fn process(&self) -> u32 {
        u32::try_from(self.process).unwrap_or_default()
    }

    /// The client has an answer to give that is for the relay alone.
    pub(crate) fn is_own_request(&self) -> bool {
        let seq = self.seq.as_ref().and_then(Value::as_u64);
        seq == Some(OWN_SEQ + self.process)
    }

    /// What `message` (`startDebugging`, or the event `debugpyAttach`) asks for; `None` where that is no session with a
    /// subprocess.
    pub(crate) fn read(message: &Value) -> Option<Self> {
        let reverse = typed_at::<&str>(message, "type") == "request";
        let (asks, theirs) = match reverse {
            true => (
                message.get("arguments")?,
                message.pointer("/arguments/configuration")?,
            ),
            false => (message.get("body")?, message.get("body")?),
        };
        let attaches = match asks.get("request") {
            None | Some(Value::Null) => !reverse,
            Some(asks) => asks == Command::Attach.as_str(),
        };
        let process = typed_at::<Option<u64>>(theirs, "subProcessId").filter(|_| attaches)?;
        let seq = message.get("seq").filter(|seq| seq.is_number()).cloned();
        // Older versions leave the address where the client had it.
        let at_top = theirs.get("connect").is_none() && theirs.get("port").is_some();
        (PROCESSES.contains(&process) && (seq.is_some() || !reverse)).then_some(Self {
            process,
            seq: seq.filter(|_| reverse),
            at_top,
            kept: typed_at(theirs, KEPT_SUBPROCESS),
        })
    }

    /// The message by which the client is to open it, for a client whose own `attach` had the arguments `asked`. The session
    /// comes back to the relay that was `dialled`, and presents `pass` for `id`.
    pub(crate) fn message(
        self,
        asked: &Value,
        dialled: &RelayEndpoint,
        id: BreakpointId,
        pass: Pass<'_>,
    ) -> Value {
        let mut ours = match asked {
            Value::Object(keys) => keys.clone(),
            _ => Map::new(),
        };
        for key in NOT_INHERITED {
            ours.shift_remove(key);
        }
        ours.insert("name".into(), format!("Subprocess {}", self.process).into());
        ours.insert("subProcessId".into(), self.process.into());
        dialled.put_into(&mut ours, self.at_top);
        let mut relay = way_back(id, pass);
        if let Some(root) = asked.pointer("/rayRelay/localRoot") {
            relay["localRoot"] = root.clone();
        }
        ours.insert("rayRelay".into(), relay);
        if let Some(seq) = self.seq {
            let arguments = json!({"request": Command::Attach, "configuration": ours});
            return request(seq, Reverse::StartDebugging, arguments);
        }
        ours.insert("request".into(), Command::Attach.as_str().into());
        event(Event::DebugpyAttach, Value::Object(ours))
    }
}
