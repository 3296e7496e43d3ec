//! Notices that the machine has slept: the steady clock stands still meanwhile, and the wall clock does not.

use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep};

/// How often both are compared.
const LOOK: Duration = Duration::from_secs(1);

/// How much further the wall clock has to be: more than what setting it right makes.
const SLEPT: Duration = Duration::from_secs(8);

/// Resolves once the machine has slept: for how long. Where the wall clock is set, too, which does no harm.
pub(super) async fn slept() -> Duration {
    let mut steady = Instant::now();
    let mut wall = SystemTime::now();
    loop {
        sleep(LOOK).await;
        let (steady_now, wall_now) = (Instant::now(), SystemTime::now());
        let passed = wall_now.duration_since(wall).unwrap_or_default();
        let slept = passed.saturating_sub(steady_now.duration_since(steady));
        if slept > SLEPT {
            return slept;
        }
        (steady, wall) = (steady_now, wall_now);
    }
}
