//! Breakpoints on nodes that may be lost, and unnoticed deaths there.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::ray::registry::breakpoint::{Breakpoint, BreakpointId, State as Life};
use crate::ray::registry::exit;
use crate::ray::registry::exit::WorkerExit;
use crate::ray::registry::rows::WorkerRow;
use crate::ray::registry::state::{Changes, Cluster, ClusterState, Node, Now, State};

/// A breakpoint that stopped more recently may still have the name of its worker's last task.
const MIN_STOP_AGE: Duration = Duration::from_secs(3);

/// How long Ray is queried why a debugger ended a session: longer than Ray takes to notice a cut cable (about 64 s).
pub(super) const UNEXPLAINED: Duration = Duration::from_secs(75);

/// The largest number of workers of one cluster whose end is to be explained at a time.
pub(super) const MAX_UNEXPLAINED_WORKERS: usize = 64;

impl ClusterState {
    /// The worker's end according to `row`, or, if Ray lists it as alive, according to its node.
    pub(super) fn exit(&self, row: &WorkerRow) -> Option<WorkerExit> {
        if !row.is_alive {
            return Some(exit::of_worker(row));
        }
        match self.nodes.get(&row.node_id) {
            Some(Node::Dead { why }) => Some(WorkerExit::from(Arc::clone(why))),
            _ => None,
        }
    }
}

impl State {
    /// Records that the debugger of `key` ended the session of `claim` without a reason from Ray.
    pub(in crate::ray::registry) fn unexplained(
        &mut self,
        cluster: Cluster,
        key: &str,
        claim: u64,
    ) {
        let entry = self.clusters[cluster].entries.get_mut(key);
        if let Some(entry) = entry.filter(|entry| entry.hold.is_by(claim)) {
            entry.unexplained = true;
        }
    }

    /// The workers whose end is still unexplained. One that has stopped again has not ended.
    pub(in crate::ray::registry) fn without_reason(
        &mut self,
        cluster: Cluster,
        now: Instant,
    ) -> Vec<String> {
        let state = &mut self.clusters[cluster];
        let entries = &state.entries;
        state
            .unexplained
            .retain(|key, until| *until > now && !entries.contains(key));
        state.unexplained.keys().cloned().collect()
    }

    /// Applies the row of a worker whose end is to be explained.
    pub(in crate::ray::registry) fn explain(&mut self, cluster: Cluster, row: &WorkerRow) {
        let state = &mut self.clusters[cluster];
        if !state.unexplained.contains_key(&row.worker_id) {
            return;
        }
        let Some(WorkerExit { why, intended }) = state.exit(row) else {
            return;
        };
        state.unexplained.remove(&row.worker_id);
        let id = BreakpointId::derive(&state.name, &row.worker_id);
        let ended = self.ended.iter_mut().find(|(_, ended)| ended.id == id);
        if let Some((_, ended)) = ended
            && let Life::Released { at } = ended.state
        {
            let mut died = Breakpoint::clone(ended);
            died.state = Life::Died { at, why, intended };
            *ended = Arc::new(died);
            self.dirty = true;
        }
    }

    /// Free breakpoints on any of the nodes that have waited long enough to have the name of their task.
    pub(in crate::ray::registry) fn waiting_on(
        &self,
        cluster: Cluster,
        nodes: &[String],
    ) -> Vec<Arc<Breakpoint>> {
        let now = Now::now();
        let entries = self.clusters[cluster].entries.iter();
        entries
            .filter(|(_, entry)| !entry.hold.is_held())
            .map(|(_, entry)| entry.breakpoint())
            .filter(|b| {
                nodes.iter().any(|node| **node == *b.node_id) && b.waiting(now) >= MIN_STOP_AGE
            })
            .map(Arc::clone)
            .collect()
    }

    /// Ends stop `stop` of `key`, which is free, for the reason `why`, although Ray's list may contain its worker for
    /// a while.
    pub(in crate::ray::registry) fn lose(
        &mut self,
        cluster: Cluster,
        key: &str,
        stop: u64,
        why: Arc<str>,
        now: Now,
    ) -> Changes {
        let mut changes = Changes::new();
        let state = &mut self.clusters[cluster];
        let free = |entry: &crate::ray::registry::state::Entry| {
            !entry.hold.is_held() && entry.breakpoint().stop == stop
        };
        if state.entries.get(key).is_some_and(free) {
            state.ghosts.insert(key.to_owned());
            self.die(cluster, key, why, now, &mut changes);
        }
        changes
    }
}
