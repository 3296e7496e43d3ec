//! What was found out about one stop, and what it changes in the core.

use crate::ray::registry::names::Found;
use crate::ray::registry::state::{Changes, Cluster, Now, State, Target};
use crate::ray::registry::traceback::Stopped;
use ray_relay_base::config::Release;

/// What was found out about one stop.
pub(super) enum LookupAnswer {
    Names(Target, Option<Box<Found>>),
    /// By the actors table alone, while the head still looks for its task.
    Actor(Target, Box<Found>),
    Stack(Target, Option<Stopped>),
}

impl LookupAnswer {
    /// With what `release` says of the collectives of a task of `cluster` whose job says nothing.
    pub(super) fn timed_by(mut self, release: Option<&Release>, cluster: &str) -> Self {
        let limit = release.and_then(|release| release.collective_timeout_on(cluster));
        if let (Self::Names(_, Some(found)), Some(limit)) = (&mut self, limit) {
            let names = &mut found.names;
            // A driver is in no collective, nor is what has no task.
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
