//! Why a prompt has no session, why a command of it is not obeyed, and how its connection ended.

use std::time::Duration;

/// The connection is over, and how.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The other side closed.
    #[error("the connection was closed")]
    Closed,
    /// The other side has said that the session is over, and answers nothing any more.
    #[error("the worker process ended, or the relay closed the session")]
    Terminated,
    /// The system's words, or what is wrong with what came.
    #[error("the connection broke: {0}")]
    Broken(String),
}

/// Why a request has no answer, or a command is not obeyed.
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
    /// What the prompt itself says to a command that cannot be obeyed.
    pub(in crate::pdb) fn refused(sentence: impl Into<String>) -> Self {
        Self::Refused(sentence.into())
    }
}

/// Why there is no session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PromptError {
    /// The relay's, or the debugger's, sentence.
    #[error("{0}")]
    Refused(String),
    /// The relay has no way to the debugger, as this sentence says.
    #[error("{0}")]
    Unreachable(String),
    /// What is to be debugged is not there, as the relay's sentence says.
    #[error("{0}")]
    NotFound(String),
    /// The connection broke.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The task, which ran, has ended before it stopped.
    #[error("the task has ended before it stopped")]
    TaskEnded,
    /// No stop came for so long after the attach.
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
