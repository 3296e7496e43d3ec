//! A debug session with a task through a relay, for `debug`, `exec` and `dap`.
//!
//! The port speaks DAP to a client that speaks it first, so a session is a plain (or TLS) connection to it. The attach
//! arguments name the task under `rayRelay`.

use std::borrow::Cow;

use hyper::StatusCode;
use serde_json::{Value, json};

use super::RelayArgs;
use super::failure::{Exit, Fails};
use super::relay_client::RelayError;
use ray_relay_base::wire::json::put;
use ray_relay_base::wire::text::replaced;
use ray_relay_debugger::pdb::{Lost, PromptEnd, PromptError};
use ray_relay_ray::ray::registry::{BreakpointId, names_worker};

/// Printed while the relay opens a debugger in a running task.
pub(super) const OPENS_DEBUGGER: &str =
    "Opens a debugger in a task that runs, which takes some seconds (Ctrl-C ends).\n";

/// Why a session failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum WorkerSessionError {
    /// The relay refuses the session, with this sentence.
    #[error("{0}")]
    Refused(String),
    /// The relay cannot reach the task's debugger, with this sentence.
    #[error("{0}")]
    Unreachable(String),
    /// The requested task does not exist, with this sentence.
    #[error("{0}")]
    NotFound(String),
    /// The connection to the relay is lost.
    #[error("the session broke off: {0}")]
    Lost(Lost),
    /// The connection to the relay was lost before the task had stopped.
    #[error("no session came about: {0}")]
    NotOpened(Lost),
    /// The worker process ended, or the relay ended the session.
    #[error("the session is over: the worker process ended, or the relay closed it")]
    Terminated,
    /// The task has ended before all commands were run.
    #[error("the task has ended, and there are commands left")]
    TaskEnded,
    /// The request failed, with this sentence.
    #[error("{0}")]
    Failed(String),
    /// The command line is incomplete.
    #[error("{0}")]
    Usage(&'static str),
    /// There is no such row in the list.
    #[error("nothing in the list is called {0}")]
    Unknown(String),
}

impl Fails for WorkerSessionError {
    fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            Self::Refused(_) => Exit::NotPermitted,
            Self::Unreachable(_) | Self::Lost(_) | Self::NotOpened(_) => Exit::Unreachable,
            Self::NotFound(_) | Self::Unknown(_) => Exit::NotFound,
            Self::Terminated | Self::TaskEnded | Self::Failed(_) => Exit::Failed,
        }
    }

    fn next_step(&self) -> Option<Cow<'static, str>> {
        let step = match self {
            Self::Lost(_) => {
                "the task runs on without a debugger; `ray-relay list` shows what waits"
            }
            Self::NotOpened(_) => {
                "is that a relay, and does it want https:// or http://? A task that waited still waits"
            }
            Self::Unknown(_) => "`ray-relay list` shows what waits",
            _ => return None,
        };
        Some(step.into())
    }
}

impl WorkerSessionError {
    /// Converts the relay's refusal about a task.
    ///
    /// # Errors
    /// The refusal is not about a task.
    pub(super) fn of_refusal(why: RelayError) -> Result<Self, RelayError> {
        match why {
            RelayError::Refused {
                status, message, ..
            } if status != StatusCode::UNAUTHORIZED && status != StatusCode::BAD_REQUEST => {
                Ok(Self::of_status(status.as_u16(), message))
            }
            why => Err(why),
        }
    }

    /// Converts the relay's answer with this status and sentence.
    pub(super) fn of_status(status: u16, message: String) -> Self {
        match StatusCode::from_u16(status) {
            Ok(StatusCode::NOT_FOUND) => Self::NotFound(message),
            Ok(StatusCode::BAD_GATEWAY) => Self::Unreachable(message),
            _ => Self::Refused(message),
        }
    }
}

impl From<PromptError> for WorkerSessionError {
    fn from(error: PromptError) -> Self {
        match error {
            PromptError::Refused(sentence) => Self::Refused(replaced(&sentence).into_owned()),
            PromptError::Unreachable(sentence) => {
                Self::Unreachable(replaced(&sentence).into_owned())
            }
            PromptError::NotFound(sentence) => Self::NotFound(replaced(&sentence).into_owned()),
            PromptError::Lost(lost) => Self::NotOpened(lost),
            PromptError::TaskEnded => Self::NotFound(error.to_string()),
            PromptError::NoStop | PromptError::Late(_) => Self::Failed(error.to_string()),
        }
    }
}

/// Converts the end of a session; an unexpected end is an error.
pub(super) fn unexpected(end: PromptEnd) -> Result<(), WorkerSessionError> {
    match end {
        PromptEnd::Left | PromptEnd::TaskEnded | PromptEnd::Killed => Ok(()),
        PromptEnd::Terminated => Err(WorkerSessionError::Terminated),
        PromptEnd::Lost(lost) => Err(WorkerSessionError::Lost(lost)),
    }
}

/// The task that a command requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RequestedTask {
    /// A paused task: its id, or a name.
    Named(String),
    /// One of many: its id, and the record of the command for all of them.
    Member(String, String),
    /// A running task, at no breakpoint: its name or worker id, and the reason for the audit log.
    Running(String, Option<String>),
    /// The next task that stops, with that name if given.
    Next(Option<String>),
}

/// The `rayRelay` block of the attach arguments.
pub(super) fn relay_block(which: &RequestedTask) -> Value {
    match which {
        RequestedTask::Named(name) if name.parse::<BreakpointId>().is_ok() => {
            json!({ "breakpoint": name })
        }
        RequestedTask::Named(name) if is_worker_id(name) => json!({ "worker": name }),
        RequestedTask::Named(name) => json!({ "task": name }),
        RequestedTask::Member(id, group) => json!({ "breakpoint": id, "group": group }),
        RequestedTask::Running(name, reason) => {
            let key = if is_worker_id(name) { "worker" } else { "task" };
            json!({ "running": true, (key): name, "reason": reason })
        }
        RequestedTask::Next(None) => json!({ "next": true }),
        RequestedTask::Next(Some(name)) => json!({ "next": true, "task": name }),
    }
}

/// Whether `name` is a Ray worker id or a prefix of one; 48 digits are a task id. Eight digits may be an id of the
/// relay's, which looks for such a worker itself.
fn is_worker_id(name: &str) -> bool {
    names_worker(name) && ![BreakpointId::LEN, 48].contains(&name.len())
}

/// The same, with the token for the relay in `args`.
///
/// # Errors
/// The token cannot be obtained or sent.
pub(super) async fn authorized_block(
    args: &RelayArgs,
    which: &RequestedTask,
) -> Result<Value, RelayError> {
    let mut block = relay_block(which);
    if let Some(token) = args.shown_token().await? {
        put(&mut block, "token", token.as_str());
    }
    Ok(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_name_and_next_are_distinguished() {
        let block_for = |name: &str| relay_block(&RequestedTask::Named(name.into()));
        assert_eq!(block_for("0123abcd"), json!({"breakpoint": "0123abcd"}));
        assert_eq!(block_for("Trainer.step"), json!({"task": "Trainer.step"}));
        let worker = "1f2e3d4c".repeat(7);
        assert_eq!(block_for(&worker), json!({ "worker": worker }));
        let task = "1f2e3d4c".repeat(6);
        assert_eq!(block_for(&task), json!({ "task": task }));
        let running = relay_block(&RequestedTask::Running(
            "train_*".into(),
            Some("hangs".into()),
        ));
        let expected = json!({"running": true, "task": "train_*", "reason": "hangs"});
        assert_eq!(running, expected);
        // The short form of an id in `ray-relay tasks`.
        let running = relay_block(&RequestedTask::Running("1f2e3d4c1f2e".into(), None));
        let expected = json!({"running": true, "worker": "1f2e3d4c1f2e", "reason": null});
        assert_eq!(running, expected);
        let next = relay_block(&RequestedTask::Next(Some("train*".into())));
        assert_eq!(next, json!({"next": true, "task": "train*"}));
    }
}
