//! What was found out about one stop, and what it changes in the core.

use crate::ray::registry::names::Found;
use crate::ray::registry::state::{Changes, Cluster, Now, State, Target};
use crate::ray::registry::traceback::Stopped;

/// What was found out about one stop.
pub(super) enum LookupAnswer {
    Names(Target, Option<Box<Found>>),
    Stack(Target, Option<Stopped>),
}

impl LookupAnswer {
    pub(super) fn apply(self, state: &mut State, cluster: Cluster, now: Now) -> Changes {
        match self {
            Self::Names(target, found) => {
                let found = found.map(|found| *found);
                state.apply_found(cluster, &target.worker_id, target.stop, found, now)
            }
            Self::Stack(target, stack) => {
                state.apply_stack(cluster, &target.worker_id, target.stop, stack)
            }
        }
    }
}
