//! How far a session has come.

use serde::Serialize;

/// What a session does now, as `/relay/v1/sessions` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionState {
    /// Its client is not known yet.
    Handshake,
    /// Its client waits for a worker that pauses.
    Waiting,
    /// Its client is shown the list.
    Listing,
    /// Its worker is being reached.
    Connecting,
    /// It has a worker, or is a cluster session.
    Attached,
    /// Its client is lost, and its worker is kept.
    Parked,
    /// It takes a snapshot of its worker.
    Looking,
    /// Another process on this machine serves it.
    #[serde(rename = "passed on")]
    PassedOn,
    /// Its client may not have what it asked for.
    Refused,
    /// It is over, and its client is being told.
    Ended,
}

impl SessionState {
    /// Whether there is a worker whose task runs on when the session is ended.
    pub(crate) fn has_worker(self) -> bool {
        match self {
            Self::Attached | Self::Parked => true,
            Self::Handshake
            | Self::Waiting
            | Self::Listing
            | Self::Connecting
            | Self::Looking
            | Self::PassedOn
            | Self::Refused
            | Self::Ended => false,
        }
    }
}
