//! A command running at one prompt or at many, and how its client's input affects it.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::lineproto::input::Typed;
use ray_relay_debugger::pdb::resumes;

/// Maximum number of lines read ahead while the task runs.
const MAX_LINES_AHEAD: usize = 64;

/// How long the last command of a half-closed client may run.
const LAST_COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an expression may take to end after it is interrupted because its client is gone.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a command may run before a line that quits cuts it short: the output of `n` is still shown if `q` follows
/// immediately.
const QUIT_DELAY: Duration = Duration::from_secs(1);

/// After this long, one hint explains how to detach from a running task.
const HINT_AFTER: Duration = Duration::from_secs(2);

/// Action to take at a command's deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// Detach from the prompt.
    Leave,
    /// Interrupt the evaluation, so that the task can be parked.
    Interrupt,
}

/// A running command.
pub(super) struct RunningCommand {
    began: Instant,
    /// Whether the command only resumes the task, so that the client may detach before it ends.
    pub(super) may_leave: bool,
    /// Deadline once the client has closed its input.
    last_words: Option<Instant>,
    interrupted: bool,
    client_is_gone: bool,
}

impl RunningCommand {
    pub(super) fn new(line: &str) -> Self {
        Self {
            began: Instant::now(),
            may_leave: lets_run(line),
            last_words: None,
            interrupted: false,
            client_is_gone: false,
        }
    }

    /// When the command is [due](Self::due), if the `next` input of the client asks for that.
    pub(super) fn deadline(&mut self, next: Option<&Typed>) -> Option<Instant> {
        let later = || Instant::now() + LAST_COMMAND_TIMEOUT;
        match next {
            // No client is left that could interrupt it. One that only closed its half still sees output that comes at
            // once.
            Some(Typed::End) => Some(*self.last_words.get_or_insert_with(later)),
            Some(Typed::Line(next)) if self.may_leave && quits(next) => {
                Some(self.began + QUIT_DELAY)
            }
            _ => None,
        }
    }

    /// Decides what to do at its [deadline](Self::deadline), once the client's input has ended. An interrupted command
    /// gets a new deadline.
    pub(super) fn due(&mut self) -> Due {
        if self.may_leave || std::mem::replace(&mut self.interrupted, true) {
            return Due::Leave;
        }
        self.last_words = Some(Instant::now() + INTERRUPT_TIMEOUT);
        Due::Interrupt
    }

    /// When to hint at how to detach.
    pub(super) fn hint_at(&self) -> Instant {
        self.began + HINT_AFTER
    }

    /// Whether the client is still watched for its disconnect.
    pub(super) fn has_client(&self) -> bool {
        !self.client_is_gone
    }

    /// Records that the client is gone, and discards the input it had typed `ahead`. Returns whether to detach at once.
    pub(super) fn client_gone(&mut self, ahead: &mut VecDeque<Typed>) -> bool {
        self.client_is_gone = true;
        ahead.clear();
        ahead.push_back(Typed::End);
        self.last_words = Some(Instant::now());
        self.may_leave
    }
}

/// Whether to read more from a client that has typed `ahead`.
pub(super) fn takes_more(ahead: &VecDeque<Typed>) -> bool {
    ahead.len() < MAX_LINES_AHEAD && ahead.back() != Some(&Typed::End)
}

/// Whether `line` only resumes a task. A command that ends by itself, or has more to do after the stop, is not cut
/// short.
pub(super) fn lets_run(line: &str) -> bool {
    resumes(line) && !line.contains(";;")
}

/// Whether a line only detaches. `q!` does not, because it ends the worker: it waits for its turn.
pub(super) fn quits(line: &[u8]) -> bool {
    let line = Typed::text(line);
    matches!(line.trim(), "q" | "quit" | "exit" | "detach" | "EOF")
}
