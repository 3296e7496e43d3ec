//! What happens to a breakpoint: the events of the registry, and why one of them could not be claimed.

use std::sync::Arc;

use crate::hold::Holder;
use crate::ray::registry::breakpoint::Breakpoint;

/// What happened to a breakpoint, in the order in which snapshots changed.
#[derive(Debug, Clone)]
pub struct Event {
    /// Counts events of this process, from 1.
    pub seq: u64,
    /// What happened to the breakpoint.
    pub change: Change,
    /// The breakpoint after it.
    pub breakpoint: Arc<Breakpoint>,
}

/// The kinds of [`Event`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The worker is newly paused, or paused again.
    Appeared,
    /// Its name, location or reason became known.
    Named,
    /// A session holds it now.
    Attached,
    /// The client of the session that holds it is lost.
    Parked,
    /// Nothing listens on the port of its debugger: it was dialled, and was not reached.
    Unreachable,
    /// It will be released in a while, because it has waited for too long ([`crate::release::auto`]).
    Releasing,
    /// The task runs on.
    Released,
    /// The worker is gone.
    Died,
}

/// Why a breakpoint could not be claimed.
#[derive(Debug, Clone)]
pub enum ClaimError {
    /// Somebody else is attached.
    InUse(Box<Holder>),
    /// The breakpoint ended a short while ago.
    Ended(Arc<Breakpoint>),
    /// No breakpoint of that id is known.
    Unknown,
}
