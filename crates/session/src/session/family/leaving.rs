//! Who of a family has said goodbye: an editor whose window is closed says so for the parent and every other session at once,
//! and one that stops a session for that alone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::asking::Asked;
use ray_relay_ray::ray::registry::{Breakpoint, BreakpointId, Location};

/// How long after the last goodbye of a family another one counts as said with it: VS Code says all within a millisecond,
/// and a network has its own pace.
const NEXT_DISCONNECT_TIMEOUT: Duration = Duration::from_millis(200);

/// How long all of them may take.
const ALL_DISCONNECTS_TIMEOUT: Duration = Duration::from_secs(1);

/// A worker, and which of its stops.
pub type Stop = (BreakpointId, u64);

/// The sessions of a family, and what was said in it.
#[derive(Debug, Default)]
pub(super) struct Members {
    pub(super) sessions: HashMap<u64, One>,
    /// When the parent's client has said goodbye, or was lost.
    pub(super) parent_left: Option<Instant>,
    /// They are to be parked, by the wish of the parent's client.
    pub(super) park: bool,
    /// The parent's client is shown a thread for all of them, which the focus is to be on.
    pub(super) led: bool,
    /// How often a task of them has stopped.
    pub(super) stops: u64,
}

/// A task that one session of a family holds.
#[derive(Debug, Clone)]
pub struct GroupTask {
    /// The session.
    pub session: u64,
    /// Its worker, as that was when the session began.
    pub breakpoint: Arc<Breakpoint>,
    /// Whether the program stands, as far as is known.
    pub stands: bool,
    /// Whether it is about to stop since its session began.
    pub arriving: bool,
    /// How often it has stopped.
    pub stops: u64,
    /// How often it has by itself, and neither by a person's wish nor by the relay's.
    pub breaks: u64,
    /// Its place in the order in which those that stand have stopped.
    pub since: u64,
    /// Whether it asks by its own words that the others of its job stop with it.
    pub asks: bool,
    /// How often that was not for the client of its own session.
    pub followed: u64,
    /// Its rank, where its process has told it.
    pub rank: Option<u32>,
    /// Where the program stands, by the last stop that its session relayed.
    pub location: Option<Arc<Location>>,
}

/// By which a session of a family is asked.
#[derive(Debug)]
pub(super) struct MemberLine {
    /// But for whether it asks, which the session says apart from that.
    pub(super) task: GroupTask,
    pub(super) questions: mpsc::Sender<Asked>,
}

/// A session of a family.
#[derive(Debug)]
pub(super) struct One {
    pub(super) stop: Stop,
    /// When its client has said goodbye.
    left: Option<Instant>,
    /// By which its task is asked; `None`: it is with a subprocess of one, or has not begun.
    pub(super) line: Option<MemberLine>,
    /// Its task, which stands, asks by its own words that the others of its job stop with it.
    pub(super) asks: bool,
}

impl One {
    pub(super) fn new(stop: Stop) -> Self {
        Self {
            stop,
            left: None,
            line: None,
            asks: false,
        }
    }
}

impl Members {
    pub(super) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// The client of `session` says goodbye.
    pub(super) fn leaves(&mut self, session: u64) {
        if let Some(one) = self.sessions.get_mut(&session) {
            one.left = Some(Instant::now());
        }
    }

    /// Whether all have left by now, none of them long before `began`; and when the last goodbye was said.
    fn left(&self, began: Instant) -> (bool, Instant) {
        let oldest = began.checked_sub(ALL_DISCONNECTS_TIMEOUT).unwrap_or(began);
        let mut said = vec![self.parent_left];
        said.extend(self.sessions.values().map(|one| one.left));
        let counts = |left: &Option<Instant>| left.is_some_and(|at| at >= oldest);
        let last = said.iter().flatten().max().copied();
        (said.iter().all(counts), last.unwrap_or(began).max(began))
    }
}

/// Whether the whole family says goodbye at this moment, in which one of it has: its window is closed, and no session was stopped
/// anything. Takes a second at most. Cancel safe.
pub(super) async fn all_leave(mut members: watch::Receiver<Members>) -> bool {
    let began = Instant::now();
    loop {
        let (all, last) = members.borrow_and_update().left(began);
        if all {
            return true;
        }
        let until = (last + NEXT_DISCONNECT_TIMEOUT).min(began + ALL_DISCONNECTS_TIMEOUT);
        tokio::select! {
            // Closed with the family, which the goodbye of its parent has ended.
            changed = members.changed() => if changed.is_err() {
                return false;
            },
            () = sleep_until(until) => return false,
        }
    }
}
