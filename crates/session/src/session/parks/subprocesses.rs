//! Subprocesses of tasks that wait for a client: debugpy names each once, and it runs no code of its program before one has come.

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;
use tokio::sync::watch;

use ray_relay_ray::ray::registry::BreakpointId;

/// Subprocesses of one task that are remembered: those beyond would be opened in no window either.
const MAX_SUBPROCESSES: usize = 1024;

/// Those that were named to the client of their task, and that no session was opened for.
#[derive(Debug, Default)]
pub(super) struct Subprocesses {
    unopened: Mutex<HashMap<BreakpointId, BTreeSet<u32>>>,
    /// Those whose sessions the agent of their node keeps, as it has said to the session with the task.
    at_agent: Mutex<HashMap<BreakpointId, BTreeSet<u32>>>,
    /// Counts the sessions with subprocesses that were parked.
    pub(super) parked: watch::Sender<u64>,
}

impl Subprocesses {
    /// The client of the task with the breakpoint `id` is told of `process`.
    pub(super) fn named(&self, id: BreakpointId, process: u32) {
        let mut all = self.unopened.lock();
        let unopened = all.entry(id).or_default();
        if unopened.len() < MAX_SUBPROCESSES {
            unopened.insert(process);
        }
    }

    /// The agent of its node keeps the session with it.
    pub(super) fn kept_at_agent(&self, id: BreakpointId, process: u32) {
        let mut all = self.at_agent.lock();
        let kept = all.entry(id).or_default();
        if kept.len() < MAX_SUBPROCESSES {
            kept.insert(process);
        }
    }

    /// Whether it does; for the first who asks, who goes on with that.
    pub(super) fn take_from_agent(&self, id: BreakpointId, process: u32) -> bool {
        let mut all = self.at_agent.lock();
        let kept = all.get_mut(&id);
        kept.is_some_and(|kept| kept.remove(&process))
    }

    /// It has a session.
    pub(super) fn opened(&self, id: BreakpointId, process: u32) {
        let mut all = self.unopened.lock();
        if let Some(unopened) = all.get_mut(&id) {
            unopened.remove(&process);
            if unopened.is_empty() {
                all.remove(&id);
            }
        }
    }

    /// Those of the task that have none.
    pub(super) fn of(&self, id: BreakpointId) -> BTreeSet<u32> {
        self.unopened.lock().get(&id).cloned().unwrap_or_default()
    }

    /// The same, which are no longer remembered.
    pub(super) fn take(&self, id: BreakpointId) -> BTreeSet<u32> {
        self.at_agent.lock().remove(&id);
        self.unopened.lock().remove(&id).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_named_waits_until_it_is_opened_and_no_more_than_the_bound_is_remembered() {
        let subprocesses = Subprocesses::default();
        let (one, other) = (
            BreakpointId::derive("default", "one"),
            BreakpointId::derive("default", "other"),
        );
        for process in [7, 8, 9, 8] {
            subprocesses.named(one, process);
        }
        subprocesses.named(other, 7);
        subprocesses.opened(one, 8);
        assert_eq!(subprocesses.of(one), BTreeSet::from([7, 9]));
        assert_eq!(subprocesses.take(one), BTreeSet::from([7, 9]));
        assert!(subprocesses.take(one).is_empty());
        subprocesses.opened(other, 7);
        assert!(subprocesses.unopened.lock().is_empty());
        for process in 0..2_000 {
            subprocesses.named(one, process);
        }
        assert_eq!(subprocesses.of(one).len(), MAX_SUBPROCESSES);
    }
}
