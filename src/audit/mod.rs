//! The record of what was decided and done.
//!
//! One [`Entry`] for each decision and each session. [`Audit::write`] returns once the line is where it has to be,
//! and what was to be recorded happens only then: no record, no access.

#[cfg(test)]
pub(crate) mod kept;

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::identity::Principal;
use crate::registry::Breakpoint;

/// Kinds of entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A credential was refused.
    Authentication,
    /// Something was allowed or denied.
    Decision,
    /// A debug or terminal session began.
    SessionBegan,
    /// Something was done in a session: breakpoints set, an expression evaluated, a variable changed.
    Command,
    /// A session ended.
    SessionEnded,
    /// The relay itself was told to do something: revoke, release.
    Administration,
}

/// One line to be.
#[derive(Debug, Clone)]
pub struct Entry {
    /// What kind.
    pub action: Action,
    /// Who, where that is known.
    pub principal: Option<Principal>,
    /// From where.
    pub peer: Option<SocketAddr>,
    /// The session, as in `/relay/v1/sessions`.
    pub session: Option<u64>,
    /// What with.
    pub breakpoint: Option<Arc<Breakpoint>>,
    /// What else belongs to it: `outcome`, `scope`, `command`, `expression`, `bytes_up` and so on. Never a token or
    /// the value of a variable.
    pub details: Map<String, Value>,
}

impl Entry {
    /// Of this kind, the rest to be filled in.
    pub fn new(action: Action) -> Self {
        Self {
            action,
            principal: None,
            peer: None,
            session: None,
            breakpoint: None,
            details: Map::new(),
        }
    }

    /// With one more detail.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }
}

/// The record cannot be written, so what was to be recorded must not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the relay cannot write its audit log, and allows nothing without: {0}")]
pub struct Unavailable(pub String);

/// Where entries go. One for the process.
pub struct Audit {
    #[cfg(test)]
    kept: Option<kept::Kept>,
}

impl Audit {
    /// Nowhere.
    pub fn off() -> Arc<Self> {
        Arc::new(Self {
            #[cfg(test)]
            kept: None,
        })
    }

    /// Whether what is done in sessions is recorded too ([`Action::Command`]).
    pub fn wants_commands(&self) -> bool {
        #[cfg(test)]
        if let Some(kept) = &self.kept {
            return kept.wants_commands();
        }
        false
    }

    /// Writes `entry`.
    ///
    /// # Errors
    /// [`Unavailable`]: it is not written.
    pub async fn write(&self, entry: Entry) -> Result<(), Unavailable> {
        #[cfg(test)]
        if let Some(kept) = &self.kept {
            return kept.write(entry);
        }
        drop(entry);
        Ok(())
    }
}
