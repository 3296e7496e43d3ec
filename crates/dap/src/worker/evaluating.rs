//! What the relay has the worker's debugger evaluate, by what its answer is waited for.

use ray_relay_base::wire::dap::mappings::ClientFiles;
use ray_relay_base::wire::dap::message::Request;
use serde_json::Value;
use tokio::sync::oneshot;

use ray_relay_session::session::family::Answer;

/// An expression that is under way.
#[derive(Debug)]
pub(super) enum Evaluating {
    /// Which of its files the client has.
    Files(FilesRequest),
    /// The client's `configurationDone`, which is passed on then.
    BeforeConfigured(Value),
}

/// What was asked for, while the worker's debugger is told of it.
#[derive(Debug)]
pub(super) struct FilesRequest {
    pub(super) asker: FilesAsker,
    pub(super) files: ClientFiles,
}

/// The client of the session, or the lead of its family for all tasks.
#[derive(Debug)]
pub(super) enum FilesAsker {
    Client(Request),
    Lead(oneshot::Sender<Answer>),
}
