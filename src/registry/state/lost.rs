//! What waits on a node that may be lost.

use std::sync::Arc;
use std::time::Duration;

use super::{Changes, Cluster, Now, State};
use crate::registry::breakpoint::Breakpoint;

/// What has stopped less long ago may still have the name of its worker's last task.
const SETTLED: Duration = Duration::from_secs(3);

impl State {
    /// What nobody holds on any of the nodes, and has waited long enough to be known by its task.
    pub(in crate::registry) fn waiting_on(
        &self,
        cluster: Cluster,
        nodes: &[String],
    ) -> Vec<Arc<Breakpoint>> {
        let now = Now::now();
        let entries = self.clusters[cluster].entries.iter();
        entries
            .filter(|(_, entry)| entry.claim.is_none())
            .map(|(_, entry)| entry.breakpoint())
            .filter(|b| nodes.contains(&b.node_id) && b.waiting(now) >= SETTLED)
            .map(Arc::clone)
            .collect()
    }

    /// Stop `stop` of `key`, which nobody holds, is gone for the reason `why`, whatever Ray's list of workers says until it
    /// leaves it out.
    pub(in crate::registry) fn lose(
        &mut self,
        cluster: Cluster,
        key: &str,
        stop: u64,
        why: Arc<str>,
        now: Now,
    ) -> Changes {
        let mut changes = Changes::new();
        let state = &mut self.clusters[cluster];
        let free = |entry: &super::Entry| entry.claim.is_none() && entry.breakpoint().stop == stop;
        if state.entries.get(key).is_some_and(free) {
            state.ghosts.insert(key.to_owned());
            self.die(cluster, key, why, now, &mut changes);
        }
        changes
    }
}
