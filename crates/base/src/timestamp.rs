//! A moment on both clocks: the wall clock to show, and the monotonic clock to measure.
//!
//! The wall clock can be set, by an hour at a time. So every duration of the relay's own is measured with the
//! monotonic clock. The wall clock is for display, for records, and for times from outside (`exp` of a token).

use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};
use tokio::time::Instant;

/// A moment on both clocks. Ordered by the monotonic one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// The monotonic time, to measure by.
    pub instant: Instant,
    /// The wall clock's time, to show.
    pub time: SystemTime,
}

impl Timestamp {
    /// The present moment.
    pub fn now() -> Self {
        Self {
            instant: Instant::now(),
            time: SystemTime::now(),
        }
    }

    /// A past `time` that another process wrote down, placed by the wall clock; a time in the future becomes now.
    pub fn written(time: SystemTime) -> Self {
        let now = Self::now();
        match now.time.duration_since(time) {
            Ok(ago) => Self {
                // As early as the monotonic clock can represent.
                instant: now.instant.checked_sub(ago).unwrap_or(now.instant),
                time,
            },
            Err(_) => now,
        }
    }

    /// A future `time` that another process wrote down, placed by the wall clock; a time in the past becomes now.
    pub fn announced(time: SystemTime) -> Self {
        let now = Self::now();
        let ahead = time.duration_since(now.time).unwrap_or_default();
        match now.instant.checked_add(ahead) {
            Some(instant) => Self { instant, time },
            None => now,
        }
    }

    /// The moment `span` later.
    pub fn after(self, span: Duration) -> Self {
        Self {
            instant: self.instant + span,
            time: self.time + span,
        }
    }

    /// The time from `self` to `later`; zero if `later` is earlier.
    pub fn until(self, later: Self) -> Duration {
        later.instant.saturating_duration_since(self.instant)
    }
}

/// `time` in milliseconds since 1970; earlier times count as 1970.
pub fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// Serialised like every time in the relay's JSON: seconds since 1970 with milliseconds.
impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let since = self.time.duration_since(SystemTime::UNIX_EPOCH);
        to.serialize_f64(since.unwrap_or_default().as_millis() as f64 / 1000.0)
    }
}

#[cfg(any(test, feature = "testing"))]
pub mod testing {
    use std::sync::LazyLock;

    use super::*;

    static START: LazyLock<Timestamp> = LazyLock::new(Timestamp::now);

    /// Returns `seconds` after 1970 on the wall clock, equally spaced on the monotonic clock.
    pub fn at(seconds: u64) -> Timestamp {
        let after = Duration::from_secs(seconds);
        Timestamp {
            instant: START.instant + after,
            time: SystemTime::UNIX_EPOCH + after,
        }
    }

    /// Returns the time `age` before now, on both clocks.
    pub fn ago(age: Duration) -> Timestamp {
        let now = Timestamp::now();
        Timestamp {
            instant: now.instant.checked_sub(age).unwrap_or(now.instant),
            time: now.time - age,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test(start_paused = true)]
    async fn wall_clock_jump_does_not_change_durations() {
        let started = Timestamp::now();
        tokio::time::advance(Duration::from_secs(8)).await;
        let now = Timestamp::now();
        for time in [now.time + HOUR, now.time - HOUR] {
            assert_eq!(started.until(Timestamp { time, ..now }).as_secs(), 8);
        }
        assert_eq!(now.until(started), Duration::ZERO);
    }

    #[test]
    fn foreign_timestamp_is_aged_by_the_wall_clock() {
        let now = Timestamp::now();
        let ago = Timestamp::written(now.time - HOUR).until(now);
        assert!(ago.abs_diff(HOUR).as_secs() < 10, "{ago:?}");
        let future = Timestamp::written(now.time + HOUR);
        assert!(future.time < now.time + HOUR && future.until(Timestamp::now()).as_secs() < 10);
    }
}
