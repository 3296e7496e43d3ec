//! What the lead of a family asks of the tasks of its sessions: by the connections that these have, and unseen by their clients.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::wire::dap::names::Command;

/// Questions that wait for one session.
pub(super) const WAITING: usize = 8;

/// What a task is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// Tells the value of an expression where it stands, of which so many characters are wanted.
    Evaluate {
        /// What a person has typed, or watches.
        text: Arc<str>,
        /// It may be a statement as well.
        statement: bool,
        /// Characters.
        limit: usize,
    },
    /// Tells where it stands, as its own client is shown it.
    Place,
    /// Runs on.
    Continue,
    /// Runs to its next line.
    Next,
    /// Runs into the next call.
    StepIn,
    /// Runs to where it was called.
    StepOut,
    /// Stops at its next line.
    Pause,
}

impl Wish {
    /// The request by which the protocol has it; of an evaluation and a place the one that tells.
    pub(crate) fn command(&self) -> Command {
        match self {
            Self::Evaluate { .. } => Command::Evaluate,
            Self::Place => Command::StackTrace,
            Self::Continue => Command::Continue,
            Self::Next => Command::Next,
            Self::StepIn => Command::StepIn,
            Self::StepOut => Command::StepOut,
            Self::Pause => Command::Pause,
        }
    }

    /// Whether the task runs on by it.
    pub(crate) fn lets_run(&self) -> bool {
        match self {
            Self::Continue | Self::Next | Self::StepIn | Self::StepOut => true,
            Self::Evaluate { .. } | Self::Place | Self::Pause => false,
        }
    }
}

/// What came of it: the value, or nothing where none was asked for; an error is a clause about the task.
pub type Answer = Result<String, String>;

/// Lines that wait for the lead's client; more are counted.
pub(super) const LOGGED: usize = 256;

/// What a breakpoint has logged in the task of this session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    /// The session.
    pub session: u64,
    /// A line, or several.
    pub text: String,
}

/// A question to one session.
#[derive(Debug)]
pub struct Asked {
    /// What is asked for.
    pub wish: Wish,
    /// Where the answer goes. The asker may no longer wait for it.
    pub answer: oneshot::Sender<Answer>,
}
