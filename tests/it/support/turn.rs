//! Limits the concurrent tests with a cluster: each mostly waits, and Ray uses a whole core at times.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::eventually;

/// Longer than all tests together.
pub(super) const TURN_TIMEOUT: Duration = Duration::from_secs(7200);

/// One of them.
pub(crate) struct Turn;

static RUNNING: AtomicUsize = AtomicUsize::new(0);

impl Turn {
    /// Waits for one. There is one more than there are cores.
    pub(crate) fn take() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let more = |running: usize| (running <= cores).then_some(running + 1);
        eventually("a turn", TURN_TIMEOUT, || {
            let running = RUNNING.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
            // Constructed only after acquiring a slot, since dropping it releases one.
            running.map(|_| Self).ok()
        })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::AcqRel);
    }
}
