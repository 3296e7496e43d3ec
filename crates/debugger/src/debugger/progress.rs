//! How far a conversation with debugpy is.

use serde::{Deserialize, Serialize};

/// How far the `attach` of the conversation has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Attach {
    /// The request was not sent.
    #[default]
    No,
    /// The request was sent, and the debugger is at work on it: a connection that ends now ends the adapter (debugpy 1.8).
    Sent,
    /// The debugger has said `initialized`, that it is attached, or that this is over already.
    Initialized,
    /// The debugger has refused it.
    Refused,
}

/// How far a conversation with debugpy is, as its next client has to know. What is asked and answered all the time is not in
/// it: the next one asks, and waits for that answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Progress {
    /// Whether the first message of the greeting is here, whole.
    pub(super) greeted: bool,
    /// Whether the last message of the greeting is here too, where the debugger has that one (debugpy 1.8.14 and later).
    pub(super) welcomed: bool,
    pub(super) attach: Attach,
    /// Whether the `attach` mapped paths, which debugpy keeps for the next client.
    pub(super) mapped: bool,
    /// Whether `configurationDone` was sent: from then on the task may run.
    pub(super) configured: bool,
    /// Whether that was not answered yet. It is written down before it is sent, so it may never have been.
    #[serde(default)]
    pub(super) starting: bool,
    /// Whether a thread has stopped since: Ray had written down by then that it no longer waits (2.9 to 2.60).
    pub(super) stopped: bool,
    /// `evaluate` requests that were not answered yet. The adapter answers them out of turn, and where its client is gone
    /// by then it closes the connection to the worker's process and ends (debugpy 1.8.0 to 1.8.22).
    pub(super) evaluating: u32,
    /// Whether `disconnect` was sent.
    pub(super) disconnect: bool,
    /// Whether `disconnect` was answered.
    pub(super) answered: bool,
}

impl Progress {
    /// `configurationDone` is sent.
    pub(super) fn starts(&mut self) {
        (self.configured, self.starting) = (true, true);
    }
}
