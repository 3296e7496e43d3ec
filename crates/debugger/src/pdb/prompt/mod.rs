//! The prompt: its state and its interface.
//!
//! In the order of a session: `open` attaches, `line` parses input, `inspect`, `breaks` and `run` execute it with the
//! requests of `request`. `keep` preserves breakpoints beyond the prompt, `complete` answers Tab, `leave` ends, and
//! `park` is for a prompt without a user for a while.

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
use ray_relay_base::memory::Reservation;
use ray_relay_base::wire::dap::names::Event;

/// The prompt of pdb, Python's own and this one.
pub const PROMPT: &str = "(Pdb) ";

/// The same while the commands of a breakpoint are typed.
pub const COMMANDS_PROMPT: &str = "(com) ";

/// The result of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum After {
    /// The next line is expected; [`Prompt::text`] is its prompt.
    Prompt,
    /// The session is over.
    Ended(PromptEnd),
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptEnd {
    /// `quit`, `detach`, or a second interrupt: the task continues.
    Left,
    /// The relay reports that the task has ended, and no breakpoint of the prompt remains: its worker was detached.
    TaskEnded,
    /// `q!`: the worker was killed.
    Killed,
    /// The worker process ended, or the relay ended the session.
    Terminated,
    /// The connection is gone.
    Lost(Lost),
}

/// Interrupts a busy [`Prompt`], from another task.
#[derive(Debug, Clone)]
pub struct Interrupt {
    interrupts: watch::Sender<u64>,
    task_ends: watch::Sender<u64>,
}

impl Interrupt {
    /// Pauses a running task (twice: leaves it running), or gives up on an endless expression. Does nothing while the
    /// prompt waits for a line.
    pub fn now(&self) {
        self.interrupts
            .send_modify(|times| *times = times.wrapping_add(1));
    }

    /// Notifies it that the task has ended. Does nothing unless the program runs.
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
    /// Counts how often the debugger has resumed the program.
    resumed: watch::Sender<u64>,
    limit: usize,
    may_kill: bool,
    local_sources: bool,
    /// Whether `p` shows a digest of an array instead of its elements.
    digests: bool,
    /// The debugger's response to `initialize`.
    capabilities: Value,
    /// Memory of that response.
    opened: Reservation,
    /// Events received while waiting for a response, and their memory.
    events: VecDeque<(Event, Value, Reservation)>,
    thread: i64,
    /// Newest first, in the debugger's order.
    stack: Vec<PromptFrame>,
    /// Memory of the stack.
    stacked: Reservation,
    /// Frames at the top that are Ray's own helpers around `breakpoint()`.
    hidden: usize,
    /// The selected frame.
    current: usize,
    mode: Mode,
    queue: VecDeque<Task>,
    /// Steps since a line was typed or the program stopped.
    worked: usize,
    last: String,
    /// Line after the last listing.
    listed: Option<u32>,
    sources: HashMap<String, (Arc<[String]>, Reservation)>,
    table: PromptBreakpoints,
    /// The version that the debugger stores for the next prompt.
    kept: PromptBreakpoints,
    /// Displayed expressions with their last values, by the debugger's id of the frame.
    displays: HashMap<i64, Vec<(String, String)>>,
    aliases: BTreeMap<String, String>,
    /// The last function's return value, as the debugger shows it.
    returned: Option<String>,
    /// Whether the program stopped because of an exception.
    raised: bool,
    failed: bool,
    /// The pending request of an expression.
    evaluates: Option<u64>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Prompt<S> {
    /// The prompt of the next line.
    pub fn text(&self) -> &'static str {
        match self.mode {
            Mode::Command => PROMPT,
            Mode::Commands { .. } => COMMANDS_PROMPT,
            Mode::ClearAll => "Clear all breaks? ",
        }
    }

    /// Sets whether `p` shows an array by its shape, norm and checksum, to compare it with those of other tasks.
    pub fn set_digests(&mut self, digests: bool) {
        self.digests = digests;
    }

    /// A handle that interrupts [`Prompt::line`].
    pub fn interrupter(&self) -> Interrupt {
        self.interrupter.clone()
    }

    /// Changes as soon as the debugger has resumed the program.
    pub fn resumed(&self) -> watch::Receiver<u64> {
        self.resumed.subscribe()
    }

    /// Whether an abandoned expression still runs in the task.
    pub fn evaluates(&self) -> bool {
        self.evaluates.is_some()
    }

    /// Whether a command of the last line printed `***`.
    pub fn failed(&self) -> bool {
        self.failed
    }
}

#[cfg(test)]
mod tests;
