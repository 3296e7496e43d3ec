//! State of a session.

use serde::Serialize;

/// The current activity of a session, as `/relay/v1/sessions` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionState {
    /// The client is not authenticated yet.
    Handshake,
    /// The client waits for a worker to pause.
    Waiting,
    /// The client is shown the list.
    Listing,
    /// The relay connects to the worker.
    Connecting,
    /// The session has a worker, or is a cluster session.
    Attached,
    /// The client is lost or has left; the worker is kept stopped for its person.
    Parked,
    /// The session takes a snapshot of the worker.
    Looking,
    /// The client may not have what it asked for.
    Refused,
    /// The session is over, and the client is being told.
    Ended,
}

impl SessionState {
    /// All of them, for `docs/reference.md`.
    #[cfg(any(test, feature = "testing"))]
    pub const ALL: [Self; 9] = [
        Self::Handshake,
        Self::Waiting,
        Self::Listing,
        Self::Connecting,
        Self::Attached,
        Self::Parked,
        Self::Looking,
        Self::Refused,
        Self::Ended,
    ];

    /// Whether there is a worker whose task resumes when the session is ended.
    pub fn has_worker(self) -> bool {
        match self {
            Self::Attached | Self::Parked => true,
            Self::Handshake
            | Self::Waiting
            | Self::Listing
            | Self::Connecting
            | Self::Looking
            | Self::Refused
            | Self::Ended => false,
        }
    }
}
