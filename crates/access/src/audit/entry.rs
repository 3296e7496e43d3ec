//! One line of the record to be, and why there is none.

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

/// One line to be.
#[derive(Debug, Clone)]
pub struct Entry {
    /// What kind of thing was decided or done.
    pub action: EntryKind,
    /// The principal, where one is known.
    pub principal: Option<Principal>,
    /// The client's address, where one asked.
    pub peer: Option<SocketAddr>,
    /// The session, as in `/relay/v1/sessions`.
    pub session: Option<u64>,
    /// The id of the connection, or of the request of HTTP, as the client and the log know it.
    pub request: Option<RequestId>,
    /// The breakpoint that was acted on, where there is one.
    pub breakpoint: Option<Arc<Breakpoint>>,
    /// What else belongs to it: `outcome`, `scope`, `command`, `expression`, `bytes_up` and so on. Never a token or
    /// the value of a variable.
    pub details: Map<String, Value>,
}

impl Entry {
    /// An entry of this kind, the rest to be filled in.
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

    /// The entry with one more detail.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }
}

/// The record cannot be written, so what was to be recorded must not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the relay cannot write its audit log, and allows nothing without it: {0}")]
pub struct Unavailable(pub String);

/// The record cannot be begun.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot begin the audit log: {0}")]
pub struct OpenError(pub String);
