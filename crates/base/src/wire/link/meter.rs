//! The rate limit of one side of a link. Pure: the caller supplies the time.

use tokio::time::Instant;

/// Message size in bytes that costs as much as another message.
const BYTES_PER_MESSAGE: usize = 4096;

/// A token bucket: messages and their bytes take from it, and time refills it.
#[derive(Debug)]
pub(super) struct Meter {
    burst: f64,
    per_second: f64,
    budget: f64,
    at: Instant,
}

impl Meter {
    /// A meter that accepts a burst of `burst` messages, and a sustained rate of `per_second`.
    pub(super) fn new(burst: u32, per_second: u32, now: Instant) -> Self {
        let burst = f64::from(burst);
        Self {
            burst,
            per_second: f64::from(per_second),
            budget: burst,
            at: now,
        }
    }

    /// Whether a message of `length` bytes is within the limit.
    pub(super) fn takes(&mut self, length: usize, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at);
        self.at = now;
        self.budget = (self.budget + passed.as_secs_f64() * self.per_second).min(self.burst);
        self.budget -= 1.0 + (length / BYTES_PER_MESSAGE) as f64;
        self.budget >= 0.0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn steady_traffic_passes_and_a_flood_does_not() {
        let started = Instant::now();
        let mut meter = Meter::new(1024, 128, started);
        for tick in 0..10_000 {
            let now = started + Duration::from_millis(10 * tick);
            assert!(meter.takes(300, now), "{tick}");
        }
        let now = started + Duration::from_secs(1000);
        let accepted = (0..5000).filter(|_| meter.takes(300, now)).count();
        assert!((1000..1100).contains(&accepted), "{accepted}");
        // Few but large messages.
        let now = now + Duration::from_secs(1000);
        let accepted = (0..1000).filter(|_| meter.takes(256 << 10, now)).count();
        assert!((10..20).contains(&accepted), "{accepted}");
    }
}
