//! Detects that the machine has slept: the monotonic clock stops meanwhile, and the wall clock does not.

use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep};

/// Interval of comparing the clocks.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum difference between the clocks, above usual clock adjustments.
const SUSPENDED_AFTER: Duration = Duration::from_secs(8);

/// Resolves once the machine has slept, and returns for how long. Setting the wall clock triggers it too, which is
/// harmless.
pub(super) async fn suspended() -> Duration {
    let mut steady = Instant::now();
    let mut wall = SystemTime::now();
    loop {
        sleep(POLL_INTERVAL).await;
        let (steady_now, wall_now) = (Instant::now(), SystemTime::now());
        let passed = wall_now.duration_since(wall).unwrap_or_default();
        let slept = passed.saturating_sub(steady_now.duration_since(steady));
        if slept > SUSPENDED_AFTER {
            return slept;
        }
        (steady, wall) = (steady_now, wall_now);
    }
}
