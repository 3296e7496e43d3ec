//! The registry: what is paused where, polled from the heads, shared as immutable snapshots.

pub mod breakpoint;
pub mod snapshot;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{broadcast, watch};

pub use breakpoint::{
    BadBreakpointId, Breakpoint, BreakpointId, Holder, Kind, Location, Names, Reason, State,
};
pub use snapshot::{ClusterStatus, Snapshot};

/// What happened to a breakpoint, in the order in which snapshots changed.
#[derive(Debug, Clone)]
pub struct Event {
    /// Counts events of this process, from 1.
    pub seq: u64,
    /// What happened.
    pub change: Change,
    /// The breakpoint after it.
    pub breakpoint: Arc<Breakpoint>,
}

/// The kinds of [`Event`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Newly paused (or paused again).
    Appeared,
    /// Its name, location or reason became known.
    Named,
    /// A session holds it now.
    Attached,
    /// The task runs on.
    Released,
    /// The worker is gone.
    Died,
}

/// Why a breakpoint could not be claimed.
#[derive(Debug, Clone)]
pub enum ClaimError {
    /// Somebody else is attached.
    Held(Holder),
    /// It ended a short while ago.
    Ended(Arc<Breakpoint>),
    /// Nothing of that id is known.
    Unknown,
}

/// The shared registry. Cheap to clone.
#[derive(Clone)]
pub struct Registry {
    inner: Arc<Inner>,
}

struct Inner;

impl Registry {
    /// The list now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        unimplemented!()
    }

    /// Wakes at every new snapshot.
    pub fn watch(&self) -> watch::Receiver<Arc<Snapshot>> {
        unimplemented!()
    }

    /// Every change, from now on. A receiver that lags loses the oldest (`RecvError::Lagged`).
    pub fn events(&self) -> broadcast::Receiver<Event> {
        unimplemented!()
    }

    /// Takes the breakpoint `id` for a session. Dropping the claim gives it back and has the
    /// cluster polled at once, so that the list is right again.
    ///
    /// # Errors
    /// [`ClaimError`], each with what the refused client is to be told.
    pub fn claim(&self, _id: BreakpointId, _holder: Holder) -> Result<Claim, ClaimError> {
        unimplemented!()
    }
}

/// Exclusive hold of one breakpoint by one session.
pub struct Claim {
    breakpoint: Arc<Breakpoint>,
}

impl Claim {
    /// The breakpoint as it was when it was claimed.
    pub fn breakpoint(&self) -> &Arc<Breakpoint> {
        &self.breakpoint
    }

    /// Where its debugger listens.
    pub(crate) fn upstream(&self) -> SocketAddr {
        self.breakpoint.upstream()
    }

    /// Resolves when the registry learns that the worker or its node is gone, with the reason.
    /// Cancel safe.
    pub async fn died(&mut self) -> Arc<str> {
        unimplemented!()
    }

    /// Asks the head now whether the worker is gone, for at most `patience`: called when the
    /// debugger said that the process ended. `None`: the head knows of no death.
    pub async fn ask_why_died(&mut self, _patience: Duration) -> Option<Arc<str>> {
        unimplemented!()
    }
}
