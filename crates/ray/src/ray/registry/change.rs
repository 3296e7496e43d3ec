//! Events of breakpoints in the registry, and errors of claiming one.

use std::sync::Arc;

use crate::hold::Holder;
use crate::ray::registry::breakpoint::Breakpoint;

/// A change of a breakpoint, in the order in which snapshots changed.
#[derive(Debug, Clone)]
pub struct Event {
    /// Counts events of this process, from 1.
    pub seq: u64,
    /// The kind of change.
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
    /// It is kept stopped for its user, who has lost the connection or has parked it.
    Parked,
    /// The relay tried to connect to its debugger's port, and nothing listens there.
    Unreachable,
    /// `[release]` will resume it in a while, because it has waited for too long.
    Releasing,
    /// The task continues.
    Released,
    /// The worker is gone. The event is called `finished` if that was intended, such as at the end of its job.
    Died,
}

/// The reason why a breakpoint could not be claimed.
#[derive(Debug, Clone)]
pub enum ClaimError {
    /// Another client is attached.
    InUse(Box<Holder>),
    /// The breakpoint ended a short while ago.
    Ended(Arc<Breakpoint>),
    /// No breakpoint of that id is known.
    Unknown,
}
