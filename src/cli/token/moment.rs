//! Times for people: `2026-11-21 12:00:00 UTC, in 55 min`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// `time`, and how far it is from `now`.
pub(super) fn moment(time: SystemTime, now: SystemTime) -> String {
    let far = match time.duration_since(now) {
        Ok(left) => format!("in {}", roughly(left)),
        Err(past) => format!("{} ago", roughly(past.duration())),
    };
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC, {far}")
}

/// The largest unit that it has, rounded down.
pub(super) fn roughly(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (number, unit) = match seconds {
        0..120 => (seconds, "s"),
        120..7200 => (seconds / 60, "min"),
        7200..172_800 => (seconds / 3600, "h"),
        _ => (seconds / 86_400, "days"),
    };
    format!("{number} {unit}")
}

/// Year, month and day of the Gregorian calendar, so many days after 1970-01-01. Years are counted from March, so that
/// the day that is sometimes missing is the last one.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates_and_distances() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        for (time, now, text) in [
            (0, 0, "1970-01-01 00:00:00 UTC, in 0 s"),
            (951_782_400, 951_782_399, "2000-02-29 00:00:00 UTC, in 1 s"),
            (
                951_868_800,
                951_872_400,
                "2000-03-01 00:00:00 UTC, 60 min ago",
            ),
            (
                1_798_761_599,
                1_798_660_000,
                "2026-12-31 23:59:59 UTC, in 28 h",
            ),
            (1_709_164_800, 0, "2024-02-29 00:00:00 UTC, in 19782 days"),
            (
                253_402_300_799,
                253_402_300_799,
                "9999-12-31 23:59:59 UTC, in 0 s",
            ),
        ] {
            assert_eq!(moment(at(time), at(now)), text);
        }
    }
}
