//! A command that runs at one prompt or at many, and what its client does meanwhile.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::lineproto::input::Typed;
use ray_relay_debugger::pdb::resumes;

/// Lines that are taken while the task runs.
const MAX_LINES_AHEAD: usize = 64;

/// How long the last command of a client that has closed its half may run.
const LAST_COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an expression may take to end that is interrupted because its client is gone.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a command may run before a line that leaves cuts it short: what `n` prints is still seen where `q` comes
/// right behind it.
const QUIT_DELAY: Duration = Duration::from_secs(1);

/// After this long it is said, once, how to get away from a task that runs.
const HINT_AFTER: Duration = Duration::from_secs(2);

/// What the time of a command has come for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// The prompt is left.
    Leave,
    /// What is evaluated is interrupted: without it the task can be parked.
    Interrupt,
}

/// A command that runs.
pub(super) struct RunningCommand {
    began: Instant,
    /// It has the task run, and nothing else: it may be left before it ends.
    pub(super) may_leave: bool,
    /// Until when it may run for a client that has said all, once that is so.
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

    /// When it is [due](Self::due), where what comes `next` of the client wants that.
    pub(super) fn deadline(&mut self, next: Option<&Typed>) -> Option<Instant> {
        let later = || Instant::now() + LAST_COMMAND_TIMEOUT;
        match next {
            // No client is left that could stop it; one that only said all that there is to say sees what comes at once.
            Some(Typed::End) => Some(*self.last_words.get_or_insert_with(later)),
            Some(Typed::Line(next)) if self.may_leave && leaves(next) => {
                Some(self.began + QUIT_DELAY)
            }
            _ => None,
        }
    }

    /// What is done at its [deadline](Self::deadline), for a client that has nothing more to say. It gets another one where it is
    /// interrupted.
    pub(super) fn due(&mut self) -> Due {
        if self.may_leave || std::mem::replace(&mut self.interrupted, true) {
            return Due::Leave;
        }
        self.last_words = Some(Instant::now() + INTERRUPT_TIMEOUT);
        Due::Interrupt
    }

    /// When it is said how to get away from it.
    pub(super) fn hint_at(&self) -> Instant {
        self.began + HINT_AFTER
    }

    /// Whether the client is still looked after.
    pub(super) fn has_client(&self) -> bool {
        !self.client_is_gone
    }

    /// The client is gone, and so is what it had typed `ahead`. Whether the prompt is left at once.
    pub(super) fn client_gone(&mut self, ahead: &mut VecDeque<Typed>) -> bool {
        self.client_is_gone = true;
        ahead.clear();
        ahead.push_back(Typed::End);
        self.last_words = Some(Instant::now());
        self.may_leave
    }
}

/// Whether more is read of a client that has typed `ahead`.
pub(super) fn takes_more(ahead: &VecDeque<Typed>) -> bool {
    ahead.len() < MAX_LINES_AHEAD && ahead.back() != Some(&Typed::End)
}

/// Whether `line` has a task run, and nothing else: what ends by itself, or has more to do after the stop, is not cut short.
pub(super) fn lets_run(line: &str) -> bool {
    resumes(line) && !line.contains(";;")
}

/// A line that does nothing but leave. `q!`, which ends the worker, is none: it waits for its turn.
pub(super) fn leaves(line: &[u8]) -> bool {
    let line = Typed::text(line);
    matches!(line.trim(), "q" | "quit" | "exit" | "detach" | "EOF")
}
