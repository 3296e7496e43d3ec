//! Evaluations by the relay, and the reason for each.

use ray_relay_base::wire::dap::mappings::ClientFiles;
use ray_relay_base::wire::dap::message::Request;
use serde_json::Value;
use tokio::sync::oneshot;

use ray_relay_session::session::family::Answer;

/// A pending evaluation.
#[derive(Debug)]
pub(super) enum Evaluating {
    /// Sets the mapping of files.
    Files(FilesRequest),
    /// Delays the client's `configurationDone`, which is forwarded afterwards.
    BeforeConfigured(Value),
    /// Interrupts an expression, or resets the debugger. Nothing waits for the answer.
    Command,
}

/// A pending change of the file mapping.
#[derive(Debug)]
pub(super) struct FilesRequest {
    pub(super) asker: FilesAsker,
    pub(super) files: ClientFiles,
}

/// The requester: the client of the session, or the lead of its family for all tasks.
#[derive(Debug)]
pub(super) enum FilesAsker {
    Client(Request),
    Lead(oneshot::Sender<Answer>),
}
