//! Stored names of actors' workers. A worker belongs to one actor until it ends, so its next stop begins with the
//! names of the last; a worker of plain tasks runs another one next.

use std::sync::Arc;

use crate::ray::registry::breakpoint::{Breakpoint, Names};
use crate::ray::registry::names::Found;
use crate::ray::registry::state::{Changes, Cluster, ClusterState, MAX_COUNTED, State};

impl State {
    /// Applies the actors table's information about stop `stop` of a worker while its task lookup is pending.
    pub(in crate::ray::registry) fn apply_actor(
        &mut self,
        cluster: Cluster,
        worker_id: &str,
        stop: u64,
        found: Found,
    ) -> Changes {
        let known = self.clusters[cluster].entries.get(worker_id);
        let known = known.map(|entry| entry.breakpoint());
        let Some(before) = known.filter(|one| one.stop == stop && one.names.name.is_none()) else {
            return Changes::new();
        };
        let mut next = Breakpoint::clone(before);
        next.names = Arc::new(Names {
            provisional: true,
            ..found.names
        });
        self.named(cluster, worker_id, next)
    }
}

impl ClusterState {
    /// Stores the names of `ended`, for its next stop.
    pub(super) fn remember(&mut self, ended: &Breakpoint) {
        if ended.names.actor_id.is_none() {
            return;
        }
        if self.actors.len() >= MAX_COUNTED {
            self.actors.clear();
        }
        let worker = Arc::clone(&ended.worker_id);
        self.actors.insert(worker, Arc::clone(&ended.names));
    }

    /// The names with which the next stop of `worker_id` begins.
    pub(super) fn remembered(&self, worker_id: &str) -> Arc<Names> {
        let names = self.actors.get(worker_id);
        names.map_or_else(Arc::default, |names| carried(names))
    }
}

/// The part of `names` that is valid for another stop of the same worker: the names of an actor, whose method may be
/// another one.
pub(super) fn carried(names: &Names) -> Arc<Names> {
    match names.actor_id {
        None => Arc::default(),
        Some(_) => Arc::new(Names {
            task_id: None,
            provisional: true,
            ..names.clone()
        }),
    }
}
