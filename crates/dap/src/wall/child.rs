//! Child sessions that debugpy requests for the subprocesses of a task.
//!
//! Pure. Uses only the pid of the worker's request. debugpy derives the configuration from the `attach` that it
//! received; here it is derived in the same way from the client's own.

use std::ops::RangeInclusive;

use serde_json::{Map, Value, json};

use crate::attach::{Pass, RelayEndpoint, way_back};
use ray_relay_base::wire::dap::message::{KEPT_SUBPROCESS, event, request};
use ray_relay_base::wire::dap::names::{Command, Event, Reverse};
use ray_relay_base::wire::json::typed_at;
use ray_relay_ray::ray::registry::BreakpointId;

/// Valid pids: Linux has none above `PID_MAX_LIMIT`.
const PID_RANGE: RangeInclusive<u64> = 1..=1 << 22;

/// Keys of an `attach` that child sessions do not inherit: those that debugpy omits (1.8.0 to 1.8.22), and the relay's
/// own.
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

/// A child session that a worker's debugger requests.
#[derive(Debug)]
pub(crate) struct Child {
    /// The pid.
    process: u64,
    /// The `seq` of the request; `None`: it was an event.
    seq: Option<Value>,
    /// Whether the configuration has the address at the top level.
    at_top: bool,
    /// Whether an agent reports that it keeps its session.
    kept_by_agent: bool,
}

/// First `seq` of the relay's own requests to a client: far above those of debugpy, plus the pid.
const OWN_SEQ: u64 = 0x7000_0000;

impl Child {
    /// Requests a session again: with a parked subprocess, or one that was announced to a lost client. `arguments` are
    /// those of the client's own `attach`; `by_request`: by `startDebugging`.
    pub(crate) fn again(process: u32, arguments: &Value, by_request: bool) -> Self {
        let process = u64::from(process);
        Self {
            process,
            seq: by_request.then(|| (OWN_SEQ + process).into()),
            at_top: arguments.get("connect").is_none() && arguments.get("port").is_some(),
            kept_by_agent: false,
        }
    }

    /// Whether `message` is the client's answer to a request of the [relay's own](Self::again), which the worker's
    /// debugger must not see.
    pub(crate) fn is_answer_to_own(message: &Value) -> bool {
        let seq: u64 = typed_at(message, "request_seq");
        typed_at::<&str>(message, "type") == "response"
            && typed_at::<&str>(message, "command") == Reverse::StartDebugging.as_str()
            && PID_RANGE.contains(&seq.wrapping_sub(OWN_SEQ))
    }

    /// Whether an agent keeps its session.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept_by_agent
    }

    /// The pid.
    pub(crate) fn process(&self) -> u32 {
        u32::try_from(self.process).unwrap_or_default()
    }

    /// Whether the client's answer is for the relay alone.
    pub(crate) fn is_own_request(&self) -> bool {
        let seq = self.seq.as_ref().and_then(Value::as_u64);
        seq == Some(OWN_SEQ + self.process)
    }

    /// Parses `message` (`startDebugging`, or the event `debugpyAttach`); `None` if it requests no session with a
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
        // Older versions keep the address where the client had it.
        let at_top = theirs.get("connect").is_none() && theirs.get("port").is_some();
        (PID_RANGE.contains(&process) && (seq.is_some() || !reverse)).then_some(Self {
            process,
            seq: seq.filter(|_| reverse),
            at_top,
            kept_by_agent: typed_at(theirs, KEPT_SUBPROCESS),
        })
    }

    /// Builds the message that makes the client open it, from the arguments `attach` of the client's own. The session
    /// comes back to the relay that was `dialled`, and presents `pass` for `id`.
    pub(crate) fn message(
        self,
        attach: &Value,
        dialled: &RelayEndpoint,
        id: BreakpointId,
        pass: Pass<'_>,
    ) -> Value {
        let mut ours = match attach {
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
        if let Some(root) = attach.pointer("/rayRelay/localRoot") {
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
