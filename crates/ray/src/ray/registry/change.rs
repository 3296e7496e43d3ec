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
    /// It is kept stopped for its person, who has lost the connection or has parked it.
    Parked,
    /// The relay dialled its debugger, and nothing listens on the port.
    Unreachable,
    /// `[release]` will let it run in a while, because it has waited for too long.
    Releasing,
    /// The task runs on.
    Released,
    /// The worker is gone. The event is called `finished` where it was meant to end, such as with its job.
    Died,
}

/// Why a breakpoint could not be claimed.
#[derive(Debug, Clone)]
pub enum ClaimError {
    /// Another client is attached.
    InUse(Box<Holder>),
    /// The breakpoint ended a short while ago.
    Ended(Arc<Breakpoint>),
    /// No breakpoint of that id is known.
    Unknown,
}
