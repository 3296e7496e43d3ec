//! Detects how a family disconnects: an editor whose window is closed disconnects the parent and all children at once;
//! one that stops a session disconnects that alone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::asking::Asked;
use ray_relay_ray::ray::registry::{Breakpoint, BreakpointId, Location};

/// How long after a family's last disconnect another one counts as simultaneous: VS Code sends all within a
/// millisecond, and a network has its own pace.
const NEXT_DISCONNECT_TIMEOUT: Duration = Duration::from_millis(200);

/// How long all of them together may take.
const ALL_DISCONNECTS_TIMEOUT: Duration = Duration::from_secs(1);

/// A worker and the number of its stop.
pub type Stop = (BreakpointId, u64);

/// The sessions of a family, and its shared state.
#[derive(Debug, Default)]
pub(super) struct Members {
    pub(super) sessions: HashMap<u64, MemberState>,
    /// When the parent's client disconnected or was lost.
    pub(super) parent_disconnected: Option<Instant>,
    /// Whether the parent's client wants them parked.
    pub(super) park: bool,
    /// Whether the parent's client sees a thread for all tasks, which should have the focus.
    pub(super) led: bool,
    /// Number of stops of all tasks.
    pub(super) stops: u64,
}

/// A task held by one session of a family.
#[derive(Debug, Clone)]
pub struct GroupTask {
    /// The session.
    pub session: u64,
    /// Its worker, as of the begin of the session.
    pub breakpoint: Arc<Breakpoint>,
    /// Whether the program is paused, as far as known.
    pub stands: bool,
    /// Whether its first stop in this session is still to come.
    pub arriving: bool,
    /// Number of its stops.
    pub stops: u64,
    /// Number of stops that neither a user nor the relay requested.
    pub breaks: u64,
    /// Its position in the order of the last stops.
    pub since: u64,
    /// Whether its code asks the others of its job to stop with it.
    pub asks: bool,
    /// Number of stops that were not for the client of its own session.
    pub followed: u64,
    /// Its rank, if its process has reported one.
    pub rank: Option<u32>,
    /// Location of the program at the last stop that its session relayed.
    pub location: Option<Arc<Location>>,
}

/// Request channel to a session of a family.
#[derive(Debug)]
pub(super) struct RequestChannel {
    /// All but `asks`, which the session reports separately.
    pub(super) task: GroupTask,
    pub(super) questions: mpsc::Sender<Asked>,
}

/// A session of a family.
#[derive(Debug)]
pub(super) struct MemberState {
    pub(super) stop: Stop,
    /// When its client disconnected.
    disconnected: Option<Instant>,
    /// Request channel to its task; `None`: it is with a subprocess, or has not begun.
    pub(super) line: Option<RequestChannel>,
    /// Whether its paused task asks the others of its job to stop with it.
    pub(super) asks: bool,
}

impl MemberState {
    pub(super) fn new(stop: Stop) -> Self {
        Self {
            stop,
            disconnected: None,
            line: None,
            asks: false,
        }
    }
}

impl Members {
    pub(super) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// The client of `session` disconnects.
    pub(super) fn leaves(&mut self, session: u64) {
        if let Some(one) = self.sessions.get_mut(&session) {
            one.disconnected = Some(Instant::now());
        }
    }

    /// Whether all have disconnected, none of them long before `began`; and the time of the last disconnect.
    fn disconnected(&self, began: Instant) -> (bool, Instant) {
        let oldest = began.checked_sub(ALL_DISCONNECTS_TIMEOUT).unwrap_or(began);
        let mut disconnects = vec![self.parent_disconnected];
        disconnects.extend(self.sessions.values().map(|one| one.disconnected));
        let counts = |disconnected: &Option<Instant>| disconnected.is_some_and(|at| at >= oldest);
        let last = disconnects.iter().flatten().max().copied();
        (
            disconnects.iter().all(counts),
            last.unwrap_or(began).max(began),
        )
    }
}

/// Whether the whole family disconnects at this moment, in which one of it has: a window is closed, and the user
/// stopped no single session. Takes a second at most. Cancel safe.
pub(super) async fn all_disconnect(mut members: watch::Receiver<Members>) -> bool {
    let began = Instant::now();
    loop {
        let (all, last) = members.borrow_and_update().disconnected(began);
        if all {
            return true;
        }
        let until = (last + NEXT_DISCONNECT_TIMEOUT).min(began + ALL_DISCONNECTS_TIMEOUT);
        tokio::select! {
            // Closed with the family, which the parent's disconnect has ended.
            changed = members.changed() => if changed.is_err() {
                return false;
            },
            () = sleep_until(until) => return false,
        }
    }
}
