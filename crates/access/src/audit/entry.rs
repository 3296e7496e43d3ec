//! Entries of the audit log, and its errors.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::identity::Principal;
use crate::telemetry::request::RequestId;
use ray_relay_ray::ray::registry::Breakpoint;

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A credential was refused.
    Authentication,
    /// Something was allowed or denied.
    Decision,
    /// A debug or terminal session began.
    SessionBegan,
    /// Something was done in a session: breakpoints set, an expression evaluated, a variable changed.
    Command,
    /// The client of a session was lost, and the session is kept for its person.
    SessionParked,
    /// A session ended.
    SessionEnded,
    /// The relay itself was told to do something: revoke, release.
    Administration,
    /// An agent of a node was linked, refused, or is gone.
    Agent,
    /// About the log itself: begun, rotated, recovered, ended. Only the relay writes it.
    Audit,
}

/// An entry, before it becomes a line.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The kind of decision or action.
    pub action: EntryKind,
    /// The principal, if known.
    pub principal: Option<Principal>,
    /// The client's address, if a client made the request.
    pub peer: Option<SocketAddr>,
    /// The session, as in `/relay/v1/sessions`.
    pub session: Option<u64>,
    /// The id of the connection or HTTP request, as the client and the log know it.
    pub request: Option<RequestId>,
    /// The affected breakpoint, if any.
    pub breakpoint: Option<Arc<Breakpoint>>,
    /// Further details: `outcome`, `scope`, `command`, `expression`, `bytes_up` and so on. Never a token or the value
    /// of a variable.
    pub details: Map<String, Value>,
}

impl Entry {
    /// Creates an entry of this kind without details.
    pub fn new(action: EntryKind) -> Self {
        Self {
            action,
            principal: None,
            peer: None,
            session: None,
            request: None,
            breakpoint: None,
            details: Map::new(),
        }
    }

    /// Adds one detail.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }
}

/// The audit log cannot be written, so the action must not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the relay cannot write its audit log, and allows nothing without it: {0}")]
pub struct Unavailable(pub String);

/// The audit log cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot begin the audit log: {0}")]
pub struct OpenError(pub String);
