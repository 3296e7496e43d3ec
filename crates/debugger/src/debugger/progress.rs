//! The progress of a conversation with debugpy.

use serde::{Deserialize, Serialize};

/// The progress of the conversation's `attach`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Attach {
    /// The request was not sent.
    #[default]
    No,
    /// The request was sent, and the debugger is processing it: closing the connection now ends the adapter (debugpy
    /// 1.8).
    Sent,
    /// The debugger has sent `initialized`, or reported that it is attached or has ended already.
    Initialized,
    /// The debugger has refused it.
    Refused,
}

/// The progress of a conversation with debugpy, for its next client. Frequent requests and responses are not in it:
/// the next client sends a request of its own, and waits for the response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Progress {
    /// Whether the first message of the greeting is complete.
    pub(super) greeted: bool,
    /// Whether the last message of the greeting is here too, if the debugger sends one (debugpy 1.8.14 and later).
    pub(super) welcomed: bool,
    pub(super) attach: Attach,
    /// Whether the `attach` mapped paths, which debugpy keeps for the next client.
    pub(super) mapped: bool,
    /// Whether `configurationDone` was sent: the task may run from then on.
    pub(super) configured: bool,
    /// Whether that has no response yet. It is stored before it is sent, so it may never have been sent.
    #[serde(default)]
    pub(super) starting: bool,
    /// Whether a thread has stopped since: Ray had recorded by then that it no longer waits (2.9 to 2.60).
    pub(super) stopped: bool,
    /// `evaluate` requests without a response. The adapter answers them out of order. If its client is gone by then,
    /// it closes the connection to the worker's process and ends (debugpy 1.8.0 to 1.8.22).
    pub(super) evaluating: u32,
    /// Whether `disconnect` was sent.
    pub(super) disconnect: bool,
    /// Whether `disconnect` was answered.
    pub(super) answered: bool,
}

impl Progress {
    /// Records `configurationDone` as sent.
    pub(super) fn starts(&mut self) {
        (self.configured, self.starting) = (true, true);
    }
}
