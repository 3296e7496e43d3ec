//! What one agent may say in a second. Pure: the caller brings the time.

use std::time::Duration;

use tokio::time::Instant;

/// What may come at once.
const BURST: f64 = 1024.0;

/// What comes in again in a second.
const PER_SECOND: f64 = 128.0;

/// Bytes of a message that cost as much as a message does.
const WEIGHT: usize = 4096;

/// A bucket that every message takes from and time fills: messages, and their bytes.
#[derive(Debug)]
pub(super) struct Meter {
    left: f64,
    at: Instant,
}

impl Meter {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            left: BURST,
            at: now,
        }
    }

    /// Whether a message of `length` bytes is still within what may be said.
    pub(super) fn takes(&mut self, length: usize, now: Instant) -> bool {
        let passed: Duration = now.saturating_duration_since(self.at);
        self.at = now;
        self.left = (self.left + passed.as_secs_f64() * PER_SECOND).min(BURST);
        self.left -= 1.0 + (length / WEIGHT) as f64;
        self.left >= 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_says_all_day_passes_and_a_flood_does_not() {
        let began = Instant::now();
        let mut meter = Meter::new(began);
        for tick in 0..10_000 {
            let now = began + Duration::from_millis(10 * tick);
            assert!(meter.takes(300, now), "{tick}");
        }
        let now = began + Duration::from_secs(1000);
        let taken = (0..5000).filter(|_| meter.takes(300, now)).count();
        assert!((1000..1100).contains(&taken), "{taken}");
        // Few messages, and large ones.
        let now = now + Duration::from_secs(1000);
        let taken = (0..1000).filter(|_| meter.takes(256 << 10, now)).count();
        assert!((10..20).contains(&taken), "{taken}");
    }
}
