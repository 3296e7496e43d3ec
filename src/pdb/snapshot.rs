//! Stack and locals of a task that waits, without releasing it.
//!
//! debugpy lets a task run on when a client that has said `configurationDone` leaves; one that has not said it leaves no
//! trace. Before `configurationDone` the debugger already evaluates expressions, in a thread of its own, and Python lets
//! any thread look at the frames of the others. (Measured with debugpy 1.8.22; `variables` is refused there, as no
//! thread is suspended.)

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::wire::{PromptMessage, Wire};
use super::{PromptError, probe};
use crate::memory::{Account, Taken};
use crate::wire::dap::codec::weight;
use crate::wire::dap::mappings;
use crate::wire::dap::names::Command;

/// All of a snapshot, in characters of values.
const ROOM: usize = 2_000_000;

/// How long the debugger may take to answer a goodbye.
const GOODBYE: Duration = Duration::from_secs(2);

/// How long an attach to what is parked may take.
const VISIT: Duration = Duration::from_secs(30);

/// How much is looked at.
#[derive(Debug, Clone)]
pub struct SnapshotLimits {
    /// Longest value, in characters.
    pub value: usize,
    /// Names of a frame.
    pub names: usize,
    /// Frames of a thread.
    pub frames: usize,
    /// Values of variables, which are made by the program's own `__repr__`.
    pub locals: bool,
    /// What may differ between processes beside their variables: the environment, versions of packages, states of random numbers.
    pub process: bool,
    /// Lines of source before the one where a frame stands, and as many behind it.
    pub around: usize,
    /// The deadline of the whole snapshot.
    pub patience: Duration,
    /// What it holds of what the debugger says is taken from here.
    pub account: Account,
}

impl Default for SnapshotLimits {
    fn default() -> Self {
        Self {
            value: 1000,
            names: 200,
            frames: 100,
            locals: true,
            process: false,
            around: 0,
            patience: Duration::from_secs(30),
            account: Account::default(),
        }
    }
}

/// The threads that wait at a breakpoint: `[{"name", "frames": [{"file", "line", "function", "source", "locals"}]}]`,
/// oldest frame first; with `"exception"` and `"raised"` (frames too) where a post-mortem waits. Where lines around were asked
/// for, a frame has them as `"lines"`, of which `"first"` is the number of the first, and the types of its locals as `"types"`. With
/// the memory for that.
///
/// # Errors
/// [`PromptError`].
pub async fn snapshot<S>(
    stream: S,
    client: &str,
    limits: &SnapshotLimits,
) -> Result<(Value, Taken), PromptError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut wire = Wire::new(stream, &limits.account);
    let looked = timeout(limits.patience, look(&mut wire, client, limits)).await;
    // A goodbye frees the worker at once for the next debugger.
    leave(wire).await;
    match looked {
        Ok(looked) => looked,
        Err(_) => Err(PromptError::Refused(format!(
            "the debugger of the worker does not answer within {} s; the task still waits",
            limits.patience.as_secs()
        ))),
    }
}

/// Goes on with what is parked, at the relay behind `stream` which knows by `relay` what is meant, and leaves before it has
/// configured: it is parked as it was, at that relay. What is held of it is taken from `account`.
///
/// # Errors
/// [`PromptError`].
pub(crate) async fn visit<S>(
    stream: S,
    client: &str,
    relay: Value,
    account: &Account,
) -> Result<(), PromptError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut wire = Wire::new(stream, account);
    let attached = timeout(VISIT, attach(&mut wire, client, Some(relay))).await;
    leave(wire).await;
    attached.unwrap_or(Err(PromptError::NoStop))
}

async fn leave<S: AsyncRead + AsyncWrite + Unpin>(mut wire: Wire<S>) {
    let goodbye = json!({"restart": false, "terminateDebuggee": false});
    let _ = timeout(GOODBYE, ask(&mut wire, Command::Disconnect, goodbye)).await;
    wire.close().await;
}

async fn look<S>(
    wire: &mut Wire<S>,
    client: &str,
    limits: &SnapshotLimits,
) -> Result<(Value, Taken), PromptError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    attach(wire, client, None).await?;
    // Without a frame, as no thread is suspended; never `configurationDone`.
    let evaluate = json!({"expression": expression(limits), "context": "clipboard"});
    let body = ask(wire, Command::Evaluate, evaluate).await?;
    let result = body["result"].as_str().unwrap_or_default();
    let mut taken = wire.keep();
    // Beside the text there is what is read of it.
    let held = taken.resize(taken.bytes() + weight(result.as_bytes()));
    held.map_err(|short| PromptError::Refused(short.to_string()))?;
    Ok((read(result)?, taken))
}

/// Up to where a client would configure.
async fn attach<S>(
    wire: &mut Wire<S>,
    client: &str,
    relay: Option<Value>,
) -> Result<(), PromptError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let hello = json!({"clientID": "ray-relay", "clientName": client, "adapterID": "debugpy", "pathFormat": "path"});
    ask(wire, Command::Initialize, hello).await?;
    let mut arguments = json!({"name": client, "request": Command::Attach, "type": "debugpy", "justMyCode": false, "pathMappings": mappings::none()});
    if let Some(relay) = relay {
        arguments["rayRelay"] = relay;
    }
    let attach = wire.send(Command::Attach, arguments).await?;
    while wire.before_initialized(attach).await?.is_some() {}
    Ok(())
}

/// The expression whose value [`read`] reads, for a debugger that another has attached to.
pub(crate) fn expression(limits: &SnapshotLimits) -> String {
    probe::expression(&json!({
        "op": "snapshot", "limit": limits.value, "names": limits.names, "frames": limits.frames,
        "locals": limits.locals, "process": limits.process, "around": limits.around, "room": ROOM,
    }))
}

/// The threads that a debugger tells by `result`.
///
/// # Errors
/// [`PromptError::Refused`].
pub(crate) fn read(result: &str) -> Result<Value, PromptError> {
    match probe::answer(result).map(|mut found| found["threads"].take()) {
        Some(threads @ Value::Array(_)) => Ok(threads),
        _ => Err(PromptError::Refused(
            "the debugger of the worker gives no stack; is debugpy older than 1.8?".to_owned(),
        )),
    }
}

async fn ask<S>(
    wire: &mut Wire<S>,
    command: Command,
    arguments: Value,
) -> Result<Value, PromptError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let asked = wire.send(command, arguments).await?;
    loop {
        if let PromptMessage::Answer { to, body, .. } = wire.read().await?
            && to == asked
        {
            return body.map_err(PromptError::Refused);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::pdb::testing::printed;

    /// A thread that waits in a helper of debugpy's while it handles an exception; what is asked of it, and which of its
    /// own methods were called for that.
    const PROGRAM: &str = "
import threading, types
called = []
class Noisy:
    def __repr__(self):
        called.append(type(self).__name__)
        return 'noisy'
class Failed(Noisy, Exception):
    pass
helper = types.ModuleType('debugpy')
exec('def waits(ready, go): ready.set(); go.wait()', helper.__dict__)
def fails(ready, go):
    value = Noisy()
    try:
        raise Failed()
    except Failed:
        helper.waits(ready, go)
ready, go = threading.Event(), threading.Event()
threading.Thread(target=fails, args=(ready, go)).start()
ready.wait()
answer = EXPRESSION
go.set()
print(answer)
print(sorted(set(called)))
";

    fn asked(locals: bool) -> Option<(Value, String)> {
        let limits = SnapshotLimits {
            locals,
            ..SnapshotLimits::default()
        };
        let program = PROGRAM.replace("EXPRESSION", &expression(&limits));
        let said = String::from_utf8(printed(&program)?).unwrap();
        let mut lines = said.lines();
        let threads = read(lines.next().unwrap()).unwrap();
        Some((threads, lines.next().unwrap().to_owned()))
    }

    #[test]
    fn without_variables_no_code_of_the_program_runs() {
        let Some((threads, called)) = asked(false) else {
            return;
        };
        assert_eq!(threads[0]["exception"], "Failed", "{threads}");
        assert_eq!(threads[0]["raised"][0]["function"], "fails", "{threads}");
        assert_eq!(called, "[]");
        let (threads, called) = asked(true).unwrap();
        assert_eq!(threads[0]["exception"], "Failed: noisy", "{threads}");
        assert_eq!(called, "['Failed', 'Noisy']");
    }
}
