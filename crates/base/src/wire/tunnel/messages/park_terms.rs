//! The end of a park, at a relay after a crash or a restart, or at an agent.

use std::time::Duration;

use super::ParkTerms;

impl ParkTerms {
    /// The remaining duration of the park, if the relay that sent these terms `elapsed` ago is lost now.
    pub fn lasts(&self, elapsed: Duration) -> Duration {
        let remaining = |ms: u64| Duration::from_millis(ms).saturating_sub(elapsed);
        let lasts = Duration::from_millis(self.keeps_ms);
        let lasts = self
            .at_least_ms
            .map_or(lasts, |least| lasts.max(remaining(least)));
        self.at_most_ms
            .map_or(lasts, |most| lasts.min(remaining(most)))
    }

    /// The same terms, sent `elapsed` ago, as they read now.
    pub fn renewed(&self, elapsed: Duration) -> Self {
        let passed = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        let remaining = |ms: Option<u64>| ms.map(|ms| ms.saturating_sub(passed));
        Self {
            lasted_ms: self.lasted_ms.saturating_add(passed),
            at_least_ms: remaining(self.at_least_ms),
            at_most_ms: remaining(self.at_most_ms),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;

    #[test]
    fn credential_bounds_park_time_and_promise_beats_default() {
        let ten = Duration::from_millis(10 * MINUTE);
        for (at_least, at_most, minutes) in [
            (None, None, 15),
            (None, Some(12), 2),
            (Some(20), None, 15),
            (Some(720), None, 710),
            (Some(720), Some(60), 50),
            (None, Some(5), 0),
        ] {
            let keep = ParkTerms {
                owner: "ada".into(),
                credential: None,
                keeps_ms: 15 * MINUTE,
                at_least_ms: at_least.map(|minutes| minutes * MINUTE),
                at_most_ms: at_most.map(|minutes| minutes * MINUTE),
                lasted_ms: 0,
                capabilities: "{}".into(),
                attach: 7,
                cluster_session: None,
                entered: None,
            };
            let park_duration = keep.lasts(ten);
            assert_eq!(park_duration, Duration::from_millis(minutes * MINUTE));
            assert_eq!(keep.renewed(ten).lasts(Duration::ZERO), park_duration);
        }
    }
}
