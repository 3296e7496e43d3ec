//! The prompt: its state, and what it is asked.
//!
//! In the order in which a session meets them: `open` attaches, `line` takes what is typed apart, `inspect`, `breaks`
//! and `run` do it by what `request` asks the debugger, `keep` has breakpoints outlive the prompt, `complete` answers Tab, `leave` ends, and `park` is for a prompt
//! without a person for a while.

mod answers;
mod breaks;
mod complete;
mod inspect;
mod keep;
mod leave;
mod line;
mod open;
mod park;
mod request;
mod run;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};

pub use self::open::Options;

use self::line::{Mode, Task};
use super::breakpoints::PromptBreakpoints;
use super::error::Lost;
use super::output::Piece;
use super::wire::Wire;
use ray_relay_base::memory::Taken;
use ray_relay_base::wire::dap::names::Event;

/// The prompt of pdb, Python's own and this one.
pub const PROMPT: &str = "(Pdb) ";

/// The same while the commands of a breakpoint are typed.
pub const COMMANDS_PROMPT: &str = "(com) ";

/// What comes after a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum After {
    /// The next line; [`Prompt::text`] says what is asked for.
    Prompt,
    /// Nothing: the session is over.
    Ended(PromptEnd),
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptEnd {
    /// `quit`, `detach`, or a task that ran on after an interrupt: it runs on.
    Left,
    /// The relay says that the task has ended, and no breakpoint of the prompt's is left: its worker was detached.
    TaskEnded,
    /// `q!`: the worker was killed.
    Killed,
    /// The worker process ended, or the relay ended the session.
    Terminated,
    /// The connection is gone.
    Lost(Lost),
}

/// Interrupts a [`Prompt`] that is busy, from elsewhere.
#[derive(Debug, Clone)]
pub struct Interrupt {
    interrupts: watch::Sender<u64>,
    task_ends: watch::Sender<u64>,
}

impl Interrupt {
    /// Pauses a task that runs (twice: leaves it running), gives up on an expression that does not end. Nothing
    /// happens where the prompt waits for a line.
    pub fn now(&self) {
        self.interrupts
            .send_modify(|times| *times = times.wrapping_add(1));
    }

    /// Tells it that the task has ended. Nothing happens where the program does not run.
    pub fn task_ended(&self) {
        self.task_ends
            .send_modify(|times| *times = times.wrapping_add(1));
    }
}

/// One frame of the stack.
#[derive(Debug, Clone, PartialEq)]
struct PromptFrame {
    id: i64,
    name: String,
    file: String,
    line: u32,
}
/// A pdb prompt over a connection to a debug adapter.
#[derive(Debug)]
pub struct Prompt<S> {
    wire: Wire<S>,
    out: mpsc::Sender<Piece>,
    interrupts: watch::Receiver<u64>,
    task_ends: watch::Receiver<u64>,
    interrupter: Interrupt,
    /// Counts how often the debugger has let the program run.
    resumed: watch::Sender<u64>,
    limit: usize,
    may_kill: bool,
    local_sources: bool,
    /// What `p` says of an array is a line that tells it from others, and not its elements.
    digests: bool,
    /// What the debugger has answered to `initialize`.
    capabilities: Value,
    /// Memory for what is kept of that answer.
    opened: Taken,
    /// Events that came while an answer was waited for, and their memory.
    events: VecDeque<(Event, Value, Taken)>,
    thread: i64,
    /// Newest first, as the debugger gives it.
    stack: Vec<PromptFrame>,
    /// Memory for that.
    stacked: Taken,
    /// Frames at the top that are Ray's own helpers around `breakpoint()`.
    hidden: usize,
    /// The selected one.
    current: usize,
    mode: Mode,
    queue: VecDeque<Task>,
    /// Steps since a line was typed or the program stopped.
    worked: usize,
    last: String,
    /// Line after the last listing.
    listed: Option<u32>,
    sources: HashMap<String, (Arc<[String]>, Taken)>,
    table: PromptBreakpoints,
    /// The same as the debugger keeps it for the next prompt.
    kept: PromptBreakpoints,
    /// Displayed expressions with their last values, by the debugger's id of the frame.
    displays: HashMap<i64, Vec<(String, String)>>,
    aliases: BTreeMap<String, String>,
    /// What the last function returned, as the debugger shows it.
    returned: Option<String>,
    /// The program stopped because of an exception.
    raised: bool,
    failed: bool,
    /// The request of an expression that is not answered yet.
    evaluates: Option<u64>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Prompt<S> {
    /// What to show in front of the next line.
    pub fn text(&self) -> &'static str {
        match self.mode {
            Mode::Command => PROMPT,
            Mode::Commands { .. } => COMMANDS_PROMPT,
            Mode::ClearAll => "Clear all breaks? ",
        }
    }

    /// Whether `p` shows an array by its shape, norm and checksum, as it is compared with those of other tasks.
    pub fn set_digests(&mut self, digests: bool) {
        self.digests = digests;
    }

    /// A handle that interrupts [`Prompt::line`].
    pub fn interrupter(&self) -> Interrupt {
        self.interrupter.clone()
    }

    /// Changes as soon as the debugger has let the program run.
    pub fn resumed(&self) -> watch::Receiver<u64> {
        self.resumed.subscribe()
    }

    /// Whether an expression goes on in the task, though its answer is not waited for any more.
    pub fn evaluates(&self) -> bool {
        self.evaluates.is_some()
    }

    /// Whether a command of the last line said `***`.
    pub fn failed(&self) -> bool {
        self.failed
    }
}

#[cfg(test)]
mod tests;
