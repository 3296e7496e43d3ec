//! Requests of a family's lead to the tasks of its sessions: sent on their connections, and invisible to their clients.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::oneshot;

use ray_relay_base::wire::dap::mappings::ClientFiles;
use ray_relay_base::wire::dap::names::Command;
use ray_relay_debugger::pdb::ComparisonKey;
use ray_relay_ray::ray::registry::BreakpointId;

/// Queue of requests to one session.
pub(super) const MAX_QUESTIONS: usize = 8;

/// An expression that a task evaluates in the frame in which it is paused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expression {
    /// Python, as a user has typed it or an editor watches it.
    pub text: Arc<str>,
    /// Whether it may be a statement as well.
    pub statement: bool,
    /// Largest number of characters of its value that are reported.
    pub limit: usize,
    /// Key of the checksums by which answers without text are compared. `None`: it is compared with no other.
    pub key: Option<ComparisonKey>,
}

/// A request to one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// Reports the value of an expression.
    Evaluate(Expression),
    /// Returns its location, as its own client sees it.
    Place,
    /// Completes an expression, by the arguments of that request.
    Complete(Box<Value>),
    /// Maps its files to the client's.
    Map(ClientFiles),
    /// Resumes.
    Continue,
    /// Runs to its next line.
    Next,
    /// Runs into the next call.
    StepIn,
    /// Runs to where it was called.
    StepOut,
    /// Pauses at its next line.
    Pause,
    /// Interrupts the expressions whose answers no client waits for any more.
    Interrupt,
}

impl Wish {
    /// Asks for the process's rank, which comes with the value of every expression.
    pub fn rank() -> Self {
        Self::Evaluate(Expression {
            text: "None".into(),
            statement: false,
            limit: 8,
            key: None,
        })
    }

    /// The matching request of the protocol.
    pub fn command(&self) -> Command {
        match self {
            Self::Evaluate(_) => Command::Evaluate,
            Self::Place => Command::StackTrace,
            Self::Complete(_) => Command::Completions,
            // Sent to the debugger as an evaluation.
            Self::Map(_) => Command::Evaluate,
            Self::Continue => Command::Continue,
            Self::Next => Command::Next,
            Self::StepIn => Command::StepIn,
            Self::StepOut => Command::StepOut,
            Self::Pause => Command::Pause,
            Self::Interrupt => Command::Cancel,
        }
    }

    /// Whether it resumes the task.
    pub fn lets_run(&self) -> bool {
        match self {
            Self::Continue | Self::Next | Self::StepIn | Self::StepOut => true,
            Self::Evaluate(_)
            | Self::Place
            | Self::Complete(_)
            | Self::Map(_)
            | Self::Pause
            | Self::Interrupt => false,
        }
    }
}

/// Location of a paused task, the answer to [`Wish::Place`].
#[derive(Debug, Serialize, Deserialize)]
pub struct TaskPlace {
    /// Line.
    pub line: u32,
    /// Path on the client's machine.
    pub path: String,
    /// Whether the client of its session has the file.
    pub own: bool,
}

/// Answer to a request: the value, empty if it has none; the error is a clause about the task.
pub type Answer = Result<String, String>;

/// Queue of reports to the lead's client; more are dropped.
pub(super) const MAX_REPORTS: usize = 256;

/// A session's report to the lead's client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// Output of a logpoint in its task.
    Logged {
        /// The session.
        session: u64,
        /// One or more lines.
        text: String,
    },
    /// A breakpoint selects ranks, and the process has none: a sentence.
    Unranked {
        /// The sentence.
        text: String,
    },
    /// A session that the client was asked to open is late, or was refused: a sentence.
    NotOpened {
        /// The sentence.
        text: String,
        /// Its breakpoint, if another session holds that: it is opened once it is free.
        taken: Option<BreakpointId>,
    },
}

/// A request to one session.
#[derive(Debug)]
pub struct Asked {
    /// The request.
    pub wish: Wish,
    /// Receives the answer; the caller may be gone.
    pub answer: oneshot::Sender<Answer>,
}
