//! A debugger without a client, whatever its protocol: what it says meanwhile, and what is handed over of it.

use std::os::fd::OwnedFd;
use std::time::Duration;

use serde_json::Value;

use super::Memory;
use crate::debugger::Worker;
use crate::debugger::kept::Stored;
use crate::debugger::legacy::{Entered, Said};
use crate::pdb::Prompt;
use crate::session::live::Live;
use crate::session::parks::Taker;
use crate::telemetry::metrics::Outcome;
use crate::wire::dap::kept::{Kept, Meaning};
use crate::wire::prefixed::Prefixed;

/// What is handed over besides the hold of the worker: the connection to its debugger, to which nothing is under way in
/// either direction. Dropped, it is left in order.
pub(crate) enum Parked {
    /// debugpy, for whatever client.
    Debugpy(Box<Debugpy>),
    /// The prompt of the legacy debugger, and what it has said.
    Legacy(Entered, Said),
}

/// A debugger that stays as it is.
pub(crate) struct Debugpy {
    /// The connection to it.
    pub(crate) line: Line,
    /// What the session with it remembers.
    pub(crate) memory: Memory,
    /// What it has said since.
    pub(crate) kept: Kept,
}

/// The prompt of a terminal, over the connection to a worker.
pub(crate) type TerminalPrompt = Prompt<Prefixed<Worker>>;

/// The connection to a debugger.
pub(crate) enum Line {
    /// As an editor has left it.
    Worker(Box<Worker>),
    /// As a prompt has.
    Prompt(Box<TerminalPrompt>),
}

impl Line {
    /// The connection alone.
    pub(crate) fn into_worker(self) -> Worker {
        match self {
            Self::Worker(worker) => *worker,
            Self::Prompt(mut prompt) => prompt.stream_mut().get_mut().moved(),
        }
    }
}

/// What a debugger without a client has said.
pub(crate) enum Heard {
    /// A thread has stopped.
    Stopped,
    /// No thread is known to stand any more.
    Runs,
    /// What was [asked](Keeping::evaluate) has this value, or none, because of this.
    Value(Result<String, String>),
    /// Nothing that matters to whoever keeps it.
    Nothing,
    /// Its connection or its process is gone, for a reason that the head may know.
    Gone,
    /// It cannot be kept any longer.
    Ended(Outcome),
}

impl Heard {
    /// The message with this body, which `kept` takes in.
    pub(crate) fn of(body: &[u8], kept: &mut Kept) -> Self {
        match kept.take(body) {
            Meaning::Stopped => Self::Stopped,
            Meaning::Runs if kept.runs() => Self::Runs,
            Meaning::Runs | Meaning::Nothing => Self::Nothing,
            Meaning::Ended => Self::Gone,
        }
    }
}

/// A debugger without a client, as the protocol of a session has left it.
pub(crate) trait Keeping: Send {
    /// The next thing that it says. Cancel safe.
    fn next(&mut self) -> impl Future<Output = Heard> + Send;

    /// Every answer to the lost client is here and thrown away, so that none of them comes to the next one, and a `taker`
    /// can go on with it now.
    fn is_ready(&self, taker: Taker) -> bool;

    /// Asks for the value of `expression`, which [`Heard::Value`] answers; `false`: it takes no question now. To be polled to
    /// its end.
    fn evaluate(&mut self, expression: &str) -> impl Future<Output = bool> + Send;

    /// Loses this end where somebody keeps the debugger then, and says whether it does.
    fn abandon(&mut self) -> bool;

    /// The connection for another process, with what that has to know, which is `tenant` besides, of the session `live`, whose
    /// time is over in `left`. `None`: it stays here.
    fn pass_on(
        &mut self,
        live: &Live<'_>,
        tenant: Value,
        left: Duration,
    ) -> Option<(OwnedFd, Stored)>;

    /// What is handed over.
    fn handed_over(self) -> Parked;
}
