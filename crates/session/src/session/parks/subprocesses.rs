//! Subprocesses that wait for a client: debugpy announces each once, and it runs no code of its program before a client
//! has attached.

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;
use tokio::sync::watch;

use ray_relay_ray::ray::registry::BreakpointId;

/// Remembered subprocesses of one task: those beyond would be opened in no window either.
const MAX_SUBPROCESSES: usize = 1024;

/// Subprocesses that were announced to the client of their task, and have no session.
#[derive(Debug, Default)]
pub(super) struct Subprocesses {
    unopened: Mutex<HashMap<BreakpointId, BTreeSet<u32>>>,
    /// Subprocesses that the agent of their node keeps parked, as it reported to the session with the task.
    at_agent: Mutex<HashMap<BreakpointId, BTreeSet<u32>>>,
    /// Counts the parks of subprocesses so far.
    pub(super) parked: watch::Sender<u64>,
}

impl Subprocesses {
    /// Records that the client of the task with the breakpoint `id` was notified of `process`.
    pub(super) fn named(&self, id: BreakpointId, process: u32) {
        let mut all = self.unopened.lock();
        let unopened = all.entry(id).or_default();
        if unopened.len() < MAX_SUBPROCESSES {
            unopened.insert(process);
        }
    }

    /// Records that the agent of its node keeps the session with it.
    pub(super) fn kept_at_agent(&self, id: BreakpointId, process: u32) {
        let mut all = self.at_agent.lock();
        let processes = all.entry(id).or_default();
        if processes.len() < MAX_SUBPROCESSES {
            processes.insert(process);
        }
    }

    /// Whether it does; true only for the first caller, which resumes it.
    pub(super) fn take_from_agent(&self, id: BreakpointId, process: u32) -> bool {
        let mut all = self.at_agent.lock();
        let processes = all.get_mut(&id);
        processes.is_some_and(|processes| processes.remove(&process))
    }

    /// Records that it has a session.
    pub(super) fn opened(&self, id: BreakpointId, process: u32) {
        let mut all = self.unopened.lock();
        if let Some(unopened) = all.get_mut(&id) {
            unopened.remove(&process);
            if unopened.is_empty() {
                all.remove(&id);
            }
        }
    }

    /// Subprocesses of the task without a session.
    pub(super) fn of(&self, id: BreakpointId) -> BTreeSet<u32> {
        self.unopened.lock().get(&id).cloned().unwrap_or_default()
    }

    /// The same; forgets them.
    pub(super) fn take(&self, id: BreakpointId) -> BTreeSet<u32> {
        self.at_agent.lock().remove(&id);
        self.unopened.lock().remove(&id).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unopened_subprocesses_are_remembered_up_to_a_bound() {
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
