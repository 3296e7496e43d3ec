//! Pauses between attempts at something that fails.

use std::time::Duration;

const MAX_DOUBLINGS: u32 = 16;

/// A pause that doubles with each failure up to the longest, with jitter between half of it and all of it: clients
/// that lost the same server do not reconnect in step.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    /// Failures since the last success.
    failures: u32,
}

impl Backoff {
    /// The first pause is at most `first`, later ones at most `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            failures: 0,
        }
    }

    /// The pause after one more failure.
    pub fn pause(&mut self) -> Duration {
        let bound = self
            .first
            .saturating_mul(1 << self.failures.min(MAX_DOUBLINGS));
        self.failures = self.failures.saturating_add(1);
        bound
            .min(self.longest)
            .mul_f64(rand::random_range(0.5..=1.0))
    }

    /// Resets after a success: the next failure is the first one.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Makes the next pause one of the longest, when there is no hurry.
    pub fn slow_down(&mut self) {
        self.failures = u32::MAX;
    }

    /// Whether nothing has failed since the last success.
    pub fn is_fresh(&self) -> bool {
        self.failures == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_the_maximum() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        assert!(backoff.is_fresh());
        for bound in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
            let (bound, pause) = (Duration::from_secs(bound), backoff.pause());
            assert!(pause <= bound && pause * 2 >= bound, "{bound:?}: {pause:?}");
        }
        assert!(!backoff.is_fresh());
        backoff.reset();
        assert!(backoff.pause() <= Duration::from_secs(1));
        backoff.slow_down();
        assert!(backoff.pause() >= Duration::from_secs(30));
    }

    #[test]
    fn pauses_are_jittered() {
        let pause = || Backoff::new(Duration::from_secs(1), Duration::from_secs(1)).pause();
        let first = pause();
        assert!((0..100).any(|_| pause() != first));
    }
}
