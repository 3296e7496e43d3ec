//! The results of a lookup for one stop, and their effect on the core.

use crate::ray::registry::names::Found;
use crate::ray::registry::state::{Changes, Cluster, Now, State, Target};
use crate::ray::registry::traceback::Stopped;
use ray_relay_base::config::Release;

/// A result of a lookup for one stop.
pub(super) enum LookupAnswer {
    Names(Target, Option<Box<Found>>),
    /// From the actors table alone, while the head still looks up its task.
    Actor(Target, Box<Found>),
    Stack(Target, Option<Stopped>),
}

impl LookupAnswer {
    /// Adds the collective timeout that `release` sets for a task of `cluster` whose job sets none.
    pub(super) fn timed_by(mut self, release: Option<&Release>, cluster: &str) -> Self {
        let limit = release.and_then(|release| release.collective_timeout_on(cluster));
        if let (Self::Names(_, Some(found)), Some(limit)) = (&mut self, limit) {
            let names = &mut found.names;
            // Drivers and tasks without an id take part in no collective.
            if names.task_id.is_some() {
                names.collective_timeout.get_or_insert(limit);
            }
        }
        self
    }

    pub(super) fn apply(self, state: &mut State, cluster: Cluster, now: Now) -> Changes {
        match self {
            Self::Names(target, found) => {
                let found = found.map(|found| *found);
                state.apply_found(cluster, &target.worker_id, target.stop, found, now)
            }
            Self::Actor(target, found) => {
                state.apply_actor(cluster, &target.worker_id, target.stop, *found)
            }
            Self::Stack(target, stack) => {
                state.apply_stack(cluster, &target.worker_id, target.stop, stack)
            }
        }
    }
}
