//! Stack and locals of a waiting task, without releasing it.
//!
//! debugpy resumes a task when a client disconnects that has sent `configurationDone`; a client that has not sent it
//! leaves no trace. Before `configurationDone` the debugger already evaluates expressions, in a thread of its own or
//! in the one that waits for the client, and Python lets any thread read the frames of the others. So the probe runs
//! the program's code in a thread of its own, with deadlines. (Measured with debugpy 1.8.22; `variables` is refused
//! there, as no thread is suspended.)

mod rank;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

pub use self::rank::rank;
use super::structure::{self, Rendering};
use super::wire::{BeforeStop, PromptMessage, Wire};
use super::{PromptError, probe};
use ray_relay_base::memory::{Account, Reservation};
use ray_relay_base::wire::dap::codec::weight;
use ray_relay_base::wire::dap::mappings;
use ray_relay_base::wire::dap::message::result_of;
use ray_relay_base::wire::dap::names::Command;

/// Size of a snapshot, in characters of values.
const MAX_SNAPSHOT_CHARS: usize = 2_000_000;

/// Timeout of the response to `disconnect`.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout of the debugger's response: the probe takes 5 s at most, unless native code holds the GIL.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of an attach to a park.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(30);

/// Limits of a snapshot.
#[derive(Debug, Clone)]
pub struct SnapshotLimits {
    /// Longest value, in characters.
    pub value: usize,
    /// Names per frame.
    pub names: usize,
    /// Frames per thread.
    pub frames: usize,
    /// Values inside of variables, such as attributes, of all frames.
    pub inside: usize,
    /// Whether values of variables are included.
    pub locals: bool,
    /// How values are rendered.
    pub rendering: Rendering,
    /// Whether to include what may differ between processes in addition to their variables: the environment, versions
    /// of packages, states of random numbers.
    pub process: bool,
    /// Lines of source before a frame's current line, and as many behind it.
    pub around: usize,
    /// The deadline of the whole snapshot.
    pub patience: Duration,
    /// The account for messages of the debugger.
    pub account: Account,
}

impl Default for SnapshotLimits {
    fn default() -> Self {
        Self {
            value: 1000,
            names: 200,
            frames: 100,
            inside: 600,
            locals: true,
            rendering: Rendering::default(),
            process: false,
            around: 0,
            patience: Duration::from_secs(30),
            account: Account::default(),
        }
    }
}

/// Returns the threads that wait at a breakpoint: `[{"name", "frames": [{"file", "line", "function", "source",
/// "locals"}]}]`, oldest frame first; with `"exception"` and `"raised"` (frames too) for a post-mortem. If lines
/// around were requested, a frame has them as `"lines"`, with the number of the first as `"first"`, and the types of
/// its locals as `"types"`. Returns the memory for that, too.
///
/// # Errors
/// [`PromptError`].
pub async fn snapshot<S>(
    stream: S,
    client: &str,
    limits: &SnapshotLimits,
) -> Result<(Value, Reservation), PromptError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut wire = Wire::new(stream, &limits.account);
    let looked = timeout(limits.patience, look(&mut wire, client, limits)).await;
    // Disconnecting frees the worker at once for the next debugger.
    leave(wire).await;
    match looked {
        Ok(looked) => looked,
        Err(_) => Err(PromptError::Refused(format!(
            "the debugger of the worker does not answer within {} s; the task still waits",
            limits.patience.as_secs()
        ))),
    }
}

/// Resumes a park at the relay behind `stream`, which identifies it by `relay`, and disconnects before configuring: it
/// stays parked, now at that relay. Memory is charged to `account`.
///
/// # Errors
/// [`PromptError`].
pub async fn visit<S>(
    stream: S,
    client: &str,
    relay: Value,
    account: &Account,
) -> Result<(), PromptError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut wire = Wire::new(stream, account);
    let attached = timeout(ATTACH_TIMEOUT, attach(&mut wire, client, Some(relay))).await;
    leave(wire).await;
    attached.unwrap_or(Err(PromptError::NoStop))
}

async fn leave<S: AsyncRead + AsyncWrite + Unpin>(mut wire: Wire<S>) {
    let goodbye = json!({"restart": false, "terminateDebuggee": false});
    let _ = timeout(
        DISCONNECT_TIMEOUT,
        ask(&mut wire, Command::Disconnect, goodbye),
    )
    .await;
    wire.close().await;
}

async fn look<S>(
    wire: &mut Wire<S>,
    client: &str,
    limits: &SnapshotLimits,
) -> Result<(Value, Reservation), PromptError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    attach(wire, client, None).await?;
    // Without a frame, as no thread is suspended; never `configurationDone`.
    let evaluate = json!({"expression": expression(limits), "context": "clipboard"});
    let body = timeout(ANSWER_TIMEOUT, ask(wire, Command::Evaluate, evaluate)).await;
    let late = |_| {
        PromptError::Refused(format!(
            "the debugger of the worker does not answer within {} s: native code may hold Python's lock (GIL); the task is as it was",
            ANSWER_TIMEOUT.as_secs()
        ))
    };
    let body = body.map_err(late)??;
    let result = result_of(body);
    let mut reserved = wire.keep();
    // The parsed values need memory in addition to the text.
    let held = reserved.resize(reserved.bytes() + weight(result.as_bytes()));
    held.map_err(|short| PromptError::Refused(short.to_string()))?;
    Ok((read(&result)?, reserved))
}

/// Attaches, up to the point where a client would configure.
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
    while let BeforeStop::Output(_) = wire.before_initialized(attach).await? {}
    Ok(())
}

/// The expression whose value [`read`] parses, for a debugger with another client attached.
pub fn expression(limits: &SnapshotLimits) -> String {
    let rest = json!({
        "limit": limits.value, "names": limits.names, "frames": limits.frames,
        "inside": limits.inside, "locals": limits.locals, "process": limits.process, "around": limits.around, "room": MAX_SNAPSHOT_CHARS,
    });
    probe::expression(&structure::question("snapshot", &limits.rendering, rest))
}

/// The probe's answer. A worker may send anything.
#[derive(Debug, Deserialize)]
struct SnapshotAnswer {
    threads: Vec<ThreadAnswer>,
}

#[derive(Debug, Deserialize, Serialize)]
struct ThreadAnswer {
    name: String,
    frames: Vec<FrameAnswer>,
    /// Its activity in the debugger, other than waiting, such as an expression.
    #[serde(skip_serializing)]
    does: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exception: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    raised: Option<Vec<FrameAnswer>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<bool>,
}

#[derive(Debug, Deserialize, Serialize)]
struct FrameAnswer {
    file: String,
    line: u32,
    function: String,
    source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lines: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    types: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    locals: Option<Map<String, Value>>,
    /// What is known of each local besides its text: its checksum, and what is inside of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    about: Option<Map<String, Value>>,
    /// Rendered without code of the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    variables: Option<Vec<Map<String, Value>>>,
}

/// The activity of the first thread that is in the debugger and not waiting, according to `result`; `None`: there is
/// none.
pub fn busy(result: &str) -> Option<String> {
    let answer: SnapshotAnswer = probe::answer(result)?;
    answer.threads.into_iter().find_map(|thread| thread.does)
}

/// The threads in a debugger's `result`.
///
/// # Errors
/// [`PromptError::Refused`].
pub fn read(result: &str) -> Result<Value, PromptError> {
    let answer = probe::answer(result);
    let threads =
        answer.and_then(|answer: SnapshotAnswer| serde_json::to_value(answer.threads).ok());
    threads.ok_or_else(|| {
        PromptError::Refused(
            "the debugger of the worker gives no stack; is debugpy older than 1.8?".to_owned(),
        )
    })
}

async fn ask<S>(
    wire: &mut Wire<S>,
    command: Command,
    arguments: Value,
) -> Result<Value, PromptError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let seq = wire.send(command, arguments).await?;
    loop {
        if let PromptMessage::Answer { to, body, .. } = wire.read().await?
            && to == seq
        {
            return body.map_err(PromptError::Refused);
        }
    }
}

#[cfg(test)]
mod tests;
