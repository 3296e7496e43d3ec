//! Updates of a breakpoint from the session that holds it, or for a client that requests it by its worker id.

use std::sync::Arc;
use std::time::Duration;

use crate::ray::registry::Change;
use crate::ray::registry::breakpoint::{Breakpoint, BreakpointId, Location, Reason, State as Life};
use crate::ray::registry::pending_lookups::PendingLookups;
use crate::ray::registry::rows::WorkerRow;
use crate::ray::registry::state::actors::carried;
use crate::ray::registry::state::{Changes, Cluster, Entry, Node, Now, State};

/// How long a worker that Ray does not list is kept for the client that requested it.
const UNLISTED_PERIOD: Duration = Duration::from_secs(10);

impl State {
    /// Records an attempt under `claim` to connect to the debugger of `key`, and whether anything listened. No client
    /// sees it before the claim ends.
    pub(in crate::ray::registry) fn dialled(
        &mut self,
        cluster: Cluster,
        key: &str,
        claim: u64,
        listens: bool,
        now: Now,
    ) {
        let entry = self.clusters[cluster].entries.get_mut(key);
        if let Some(entry) = entry.filter(|entry| entry.hold.is_by(claim)) {
            entry.unreachable = match (listens, entry.unreachable) {
                (true, _) => None,
                (false, since) => Some(since.unwrap_or(now)),
            };
        }
    }

    /// Records the location of the worker under `claim`; `None` while it runs. A location that becomes
    /// known is an event. A move from one location to another only changes the list: a user who steps would cause too
    /// many events.
    pub(in crate::ray::registry) fn set_location(
        &mut self,
        cluster: Cluster,
        key: &str,
        claim: u64,
        location: Option<Location>,
    ) -> Changes {
        let entries = &mut self.clusters[cluster].entries;
        let entry = entries.get(key);
        let Some(entry) = entry.filter(|entry| entry.hold.is_by(claim)) else {
            return Changes::new();
        };
        let before = Arc::clone(entry.breakpoint());
        if entry.located != location.is_some()
            && let Some(entry) = entries.get_mut(key)
        {
            entry.located = location.is_some();
        }
        let is_known = match (&before.location, &location) {
            // The head may have reported more of the path.
            (Some(old), Some(new)) => old.line == new.line && old.file.ends_with(&new.file),
            (old, new) => old.is_none() && new.is_none(),
        };
        if is_known {
            return Changes::new();
        }
        let becomes_known = before.location.is_none();
        let mut next = Breakpoint::clone(&before);
        next.location = location.map(Arc::new);
        let next = entries.set(key, next);
        self.dirty = true;
        let named = next.filter(|_| becomes_known);
        named
            .map(|breakpoint| (Change::Named, breakpoint))
            .into_iter()
            .collect()
    }

    /// Records the rank that the process of `key` has reported to the session of `claim`.
    pub(in crate::ray::registry) fn has_rank(
        &mut self,
        cluster: Cluster,
        key: &str,
        claim: u64,
        rank: u32,
    ) -> Changes {
        let entry = self.clusters[cluster].entries.get(key);
        let Some(entry) = entry.filter(|entry| entry.hold.is_by(claim)) else {
            return Changes::new();
        };
        let mut next = Breakpoint::clone(entry.breakpoint());
        let names = Arc::make_mut(&mut next.names);
        (names.rank, names.rank_is_certain) = (Some(rank), true);
        self.named(cluster, key, next)
    }

    /// Records that the task in which `claim` began has ended, while the session has not.
    pub(in crate::ray::registry) fn task_ended(
        &mut self,
        cluster: Cluster,
        key: &str,
        claim: u64,
        now: Now,
    ) -> Changes {
        let entries = &mut self.clusters[cluster].entries;
        let entry = entries.get(key);
        let entry = entry.filter(|e| e.hold.is_by(claim) && e.breakpoint().task_ended.is_none());
        let Some(entry) = entry else {
            return Changes::new();
        };
        let mut next = Breakpoint::clone(entry.breakpoint());
        next.task_ended = Some(now);
        self.named(cluster, key, next)
    }

    /// Records that the worker has stopped at `at` under `claim`, in a task other than the listed one: a new stop,
    /// with a name and a time of its own.
    pub(in crate::ray::registry) fn next_task(
        &mut self,
        cluster: Cluster,
        key: &str,
        claim: u64,
        at: Now,
        now: Now,
    ) -> Changes {
        let state = &mut self.clusters[cluster];
        let entry = state.entries.get(key);
        let Some(entry) = entry.filter(|entry| entry.hold.is_by(claim)) else {
            return Changes::new();
        };
        let located = entry.located;
        let mut next = Breakpoint::clone(entry.breakpoint());
        next.stop = state.next_stop(next.id);
        next.names = carried(&next.names);
        (next.reason, next.exception) = (Reason::Unknown, None);
        // The session may have reported the location of this stop before its task is known.
        next.location = next.location.filter(|_| located);
        (next.first_seen, next.task_ended) = (at, None);
        self.dirty = true;
        let next = state.entries.begin_anew(key, next, now.instant);
        let change = next.map(|breakpoint| (Change::Named, breakpoint));
        change.into_iter().collect()
    }

    /// Applies the row of a worker that a client requested, if it is alive and has a debugger: returns its breakpoint.
    pub(in crate::ray::registry) fn apply_asked_for(
        &mut self,
        cluster: Cluster,
        row: &WorkerRow,
        now: Now,
    ) -> (Changes, Option<BreakpointId>) {
        let state = &mut self.clusters[cluster];
        let id = BreakpointId::derive(&state.name, &row.worker_id);
        let lost = matches!(state.nodes.get(&row.node_id), Some(Node::Dead { .. }));
        if state.entries.contains(&row.worker_id) {
            return (Changes::new(), Some(id));
        }
        if lost || !row.is_alive {
            return (Changes::new(), None);
        }
        let Some(mut breakpoint) = state.stopped(row, now) else {
            return (Changes::new(), None);
        };
        breakpoint.state = Life::Unlisted;
        let pending = PendingLookups::new(now.instant);
        let mut entry = Entry::new(breakpoint.into(), now.instant, row.is_driver(), pending);
        entry.asked_for = Some(now.instant + UNLISTED_PERIOD);
        (self.list(cluster, entry, now), Some(id))
    }
}
