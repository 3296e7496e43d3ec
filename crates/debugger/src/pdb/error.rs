//! Errors of opening a prompt, of its commands, and of its connection.

use std::time::Duration;

/// The reason why the connection has ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The other side closed.
    #[error("the connection was closed")]
    Closed,
    /// The other side has ended the session, and answers nothing any more.
    #[error("the worker process ended, or the relay closed the session")]
    Terminated,
    /// The system's error message, or the flaw of the received bytes.
    #[error("the connection broke: {0}")]
    Broken(String),
}

/// The reason why a request has no answer, or a command failed.
#[derive(Debug)]
pub(in crate::pdb) enum PdbError {
    /// The debugger's, the relay's or the prompt's own sentence.
    Refused(String),
    /// An interrupt came first.
    Interrupted,
    Lost(Lost),
}

impl From<Lost> for PdbError {
    fn from(lost: Lost) -> Self {
        Self::Lost(lost)
    }
}

impl PdbError {
    /// The prompt's own error for a command.
    pub(in crate::pdb) fn refused(sentence: impl Into<String>) -> Self {
        Self::Refused(sentence.into())
    }
}

/// The reason why there is no session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PromptError {
    /// A sentence of the relay or the debugger.
    #[error("{0}")]
    Refused(String),
    /// The relay has no route to the debugger, with its sentence.
    #[error("{0}")]
    Unreachable(String),
    /// The target does not exist, with the relay's sentence.
    #[error("{0}")]
    NotFound(String),
    /// The connection broke.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The resumed task has ended before it stopped.
    #[error("the task has ended before it stopped")]
    TaskEnded,
    /// No stop came within this time after the attach.
    #[error("attached, but the task did not stop within {} s", .0.as_secs())]
    Late(Duration),
    /// The session ended before the task stopped.
    #[error("attached, but the task did not stop: it was let go in the meantime")]
    NoStop,
}

impl From<PdbError> for PromptError {
    fn from(failure: PdbError) -> Self {
        match failure {
            PdbError::Refused(sentence) => Self::Refused(sentence),
            PdbError::Interrupted => Self::Refused("interrupted".to_owned()),
            PdbError::Lost(lost) => Self::Lost(lost),
        }
    }
}
