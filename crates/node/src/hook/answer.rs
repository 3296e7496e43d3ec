//! Why a worker's hook does not answer.

use std::io;

use serde::Deserialize;

use ray_relay_base::wire::text::one_line;

/// Why a hook does not answer. `Display` is the beginning of a sentence.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    /// The worker has no hook.
    #[error("the worker has no hook (`ray_relay.setup`)")]
    Absent,
    /// The listener is another user's process, and is not contacted.
    #[error("the socket of the worker's hook belongs to another process, of the user {0}")]
    OtherOwner(u32),
    /// There is a hook, and it does not answer.
    #[error(
        "the worker's hook does not answer: C code keeps Python's lock (GIL) there, or the machine is too busy"
    )]
    Silent,
    /// The process does not run.
    #[error("the worker is stopped by a signal (SIGSTOP), until it gets SIGCONT")]
    Stopped,
    /// The hook refuses, with its reason.
    #[error("{0}")]
    Refused(String),
    /// The owner of the worker's job has forbidden it.
    #[error("{0}")]
    Forbidden(String),
    /// The hook closed the connection, as it does when its process ends.
    #[error("the worker's hook has broken off: the worker may just have ended")]
    Closed,
    /// The agent may not connect, or the connection broke.
    #[error("the worker's hook cannot be reached ({0}); run the agent as the workers' user")]
    Broken(io::Error),
}

/// The hook's answer to a request that it does not fulfil.
#[derive(Deserialize)]
pub(super) struct Failed {
    error: String,
    #[serde(default)]
    forbidden: bool,
}

impl From<Failed> for NoAnswer {
    fn from(failed: Failed) -> Self {
        let why = one_line(&failed.error);
        match failed.forbidden {
            true => Self::Forbidden(why),
            false => Self::Refused(why),
        }
    }
}
