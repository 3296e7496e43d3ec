//! How many tests work with a cluster at a time: each waits for much, and Ray takes a whole core at moments.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::eventually;

/// Longer than all tests together.
pub(super) const TURN_TIMEOUT: Duration = Duration::from_secs(7200);

/// One of them.
pub(crate) struct Turn;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

impl Turn {
    /// Waits for one. There is one more than there are cores.
    pub(crate) fn take() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let more = |taken: usize| (taken <= cores).then_some(taken + 1);
        eventually("a turn", TURN_TIMEOUT, || {
            let taken = TAKEN.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
            // Made for who has taken one alone: any that is dropped gives one back.
            taken.map(|_| Self).ok()
        })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        TAKEN.fetch_sub(1, Ordering::AcqRel);
    }
}
