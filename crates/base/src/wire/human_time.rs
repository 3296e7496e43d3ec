//! Times for people: `2m 14s`, and `2026-11-21 12:00:00 UTC, in 55m 00s`. Pure.
//!
//! Configured durations have a notation of their own ([`crate::config::units`]), which can be parsed.

use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};

/// `duration` in its two largest units, truncated: `14s`, `2m 14s`, `3h 02m`, `2d 4h`.
pub fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match (
        seconds / 86_400,
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60,
    ) {
        (0, 0, 0, s) => format!("{s}s"),
        (0, 0, m, s) => format!("{m}m {s:02}s"),
        (0, h, m, _) => format!("{h}h {m:02}m"),
        (d, h, _, _) => format!("{d}d {h}h"),
    }
}

/// `time` to the second, and its distance from `now`.
pub fn moment(time: SystemTime, now: SystemTime) -> String {
    let far = match time.duration_since(now) {
        Ok(remaining) => format!("in {}", span(remaining)),
        Err(past) => format!("{} ago", span(past.duration())),
    };
    format!("{}, {far}", utc(time).format("%Y-%m-%d %H:%M:%S UTC"))
}

/// `time` in the Gregorian calendar, clamped to the range from 1970 to the calendar's end.
pub fn utc(time: SystemTime) -> DateTime<Utc> {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_secs())
        .ok()
        .and_then(|seconds| DateTime::from_timestamp(seconds, since.subsec_nanos()))
        .unwrap_or(DateTime::<Utc>::MAX_UTC)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn span_shows_at_most_two_units() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (134, "2m 14s"),
            (3_725, "1h 02m"),
            (187_200, "2d 4h"),
        ] {
            assert_eq!(span(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn times_show_the_date_and_the_distance() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        for (time, now, text) in [
            (0, 0, "1970-01-01 00:00:00 UTC, in 0s"),
            (951_782_400, 951_782_399, "2000-02-29 00:00:00 UTC, in 1s"),
            (
                951_868_800,
                951_872_400,
                "2000-03-01 00:00:00 UTC, 1h 00m ago",
            ),
            (
                1_798_761_599,
                1_798_660_000,
                "2026-12-31 23:59:59 UTC, in 1d 4h",
            ),
            (1_709_164_800, 0, "2024-02-29 00:00:00 UTC, in 19782d 0h"),
            (
                253_402_300_799,
                253_402_300_799,
                "9999-12-31 23:59:59 UTC, in 0s",
            ),
        ] {
            assert_eq!(moment(at(time), at(now)), text);
        }
    }

    #[test]
    fn far_future_is_still_formatted() {
        let distant_time = UNIX_EPOCH.checked_add(Duration::from_secs(1 << 62));
        assert!(
            distant_time
                .is_some_and(|distant_time| moment(distant_time, UNIX_EPOCH).contains("UTC"))
        );
    }
}
