//! What the lead of a family asks of the tasks of its sessions: by the connections that these have, and unseen by their clients.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::oneshot;

use ray_relay_base::wire::dap::mappings::ClientFiles;
use ray_relay_base::wire::dap::names::Command;
use ray_relay_debugger::pdb::ComparisonKey;
use ray_relay_ray::ray::registry::BreakpointId;

/// Questions that wait for one session.
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
    /// Tells where it stands, as its own client is shown it.
    Place,
    /// Completes what is typed, by the arguments of that request.
    Complete(Box<Value>),
    /// Shows its files as the client has them.
    Map(ClientFiles),
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
    /// Ends the expressions whose answers nothing waits for any more.
    Interrupt,
}

impl Wish {
    /// Has the process say its rank, which comes with the value of every expression.
    pub fn rank() -> Self {
        Self::Evaluate(Expression {
            text: "None".into(),
            statement: false,
            limit: 8,
            key: None,
        })
    }

    /// The request by which the protocol has it; of an evaluation and a place the one that tells.
    pub fn command(&self) -> Command {
        match self {
            Self::Evaluate(_) => Command::Evaluate,
            Self::Place => Command::StackTrace,
            Self::Complete(_) => Command::Completions,
            // As the debugger is told of it.
            Self::Map(_) => Command::Evaluate,
            Self::Continue => Command::Continue,
            Self::Next => Command::Next,
            Self::StepIn => Command::StepIn,
            Self::StepOut => Command::StepOut,
            Self::Pause => Command::Pause,
            Self::Interrupt => Command::Cancel,
        }
    }

    /// Whether the task runs on by it.
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

/// Where a task is paused, as it answers [`Wish::Place`].
#[derive(Debug, Serialize, Deserialize)]
pub struct TaskPlace {
    /// Line.
    pub line: u32,
    /// Path, as the client knows it.
    pub path: String,
    /// Whether the client of its session has the file.
    pub own: bool,
}

/// What came of it: the value, or nothing where none was asked for; an error is a clause about the task.
pub type Answer = Result<String, String>;

/// Reports that wait for the lead's client; more are dropped.
pub(super) const MAX_REPORTS: usize = 256;

/// What a session of the family reports to the lead's client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// What a breakpoint has logged in its task.
    Logged {
        /// The session.
        session: u64,
        /// A line, or several.
        text: String,
    },
    /// A breakpoint of the client's goes by ranks, and the process has none: a sentence.
    Unranked {
        /// The sentence.
        text: String,
    },
    /// A session that the client was asked to open is late, or was refused: a sentence.
    NotOpened {
        /// The sentence.
        text: String,
        /// Its breakpoint, where another session has that: it is opened once it is free.
        taken: Option<BreakpointId>,
    },
}

/// A question to one session.
#[derive(Debug)]
pub struct Asked {
    /// What is asked for.
    pub wish: Wish,
    /// Where the answer goes. The asker may no longer wait for it.
    pub answer: oneshot::Sender<Answer>,
}
