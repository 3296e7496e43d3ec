//! Times as they stand in audit lines: RFC 3339, UTC, milliseconds (`2026-11-21T10:55:01.123Z`).
//!
//! Pure. Also read back, and `1h` or a bare date, for `ray-relay audit show --since`.

use std::time::{Duration, SystemTime};

use crate::config::units::parse_duration;

const DAY: u64 = 86_400;

/// `time` in the form above; times before 1970 are 1970.
pub fn rfc3339(time: SystemTime) -> String {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let (days, second) = (since.as_secs() / DAY, since.as_secs() % DAY);
    let (year, month, day) = date(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        second / 3600,
        second / 60 % 60,
        second % 60,
        since.subsec_millis()
    )
}

/// `2026-11-21`, `2026-11-21T10:55`, `2026-11-21T10:55:01.123Z` (all UTC), or `1h30m` for so long before `now`.
pub fn parse(text: &str, now: SystemTime) -> Option<SystemTime> {
    let text = text.trim();
    if let Ok(ago) = parse_duration(text) {
        return now.checked_sub(ago);
    }
    let (date, clock) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let mut date = date.splitn(3, '-');
    let (year, month, day) = (
        number(date.next()?, 4, 9999)?,
        number(date.next()?, 2, 12)?,
        number(date.next()?, 2, 31)?,
    );
    let clock = clock.strip_suffix('Z').unwrap_or(clock);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut clock = clock.splitn(3, ':');
    let seconds = number(clock.next()?, 2, 23)? * 3600
        + number(clock.next()?, 2, 59)? * 60
        + clock
            .next()
            .map_or(Some(0), |second| number(second, 2, 59))?;
    let nanos = match fraction.len() {
        1..=9 if fraction.bytes().all(|b| b.is_ascii_digit()) => {
            fraction.parse::<u64>().ok()? * 10u64.pow(9 - u32::try_from(fraction.len()).ok()?)
        }
        _ => return None,
    };
    let days = days(year, month, day)?;
    let since = Duration::from_secs(days * DAY + seconds) + Duration::from_nanos(nanos);
    SystemTime::UNIX_EPOCH.checked_add(since)
}

fn number(text: &str, digits: usize, most: u64) -> Option<u64> {
    let plain = text.len() == digits && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|n| plain && *n <= most)
}

/// Year, month and day of the `days`th day after 1970-01-01 in the Gregorian calendar, reckoned from a March 1st so
/// that the leap day is a year's last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // from 0000-03-01
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

/// The reverse; `None` before 1970 and for days that are not in their month.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if month == 0 || day == 0 || year < 1970 {
        return None;
    }
    let shifted = year - u64::from(month <= 2);
    let (era, of_era) = (shifted / 400, shifted % 400);
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    let days = days.checked_sub(719_468)?;
    (date(days) == (year, month, day)).then_some(days)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_times() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00.000Z", 0),
            ("2000-02-29T23:59:59.000Z", 951_868_799),
            ("2026-11-21T10:55:01.000Z", 1_795_258_501),
            ("2100-03-01T00:00:00.000Z", 4_107_542_400),
        ] {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(rfc3339(time), text);
            assert_eq!(parse(text, time), Some(time));
        }
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(10 * DAY);
        assert_eq!(parse("1h", now), now.checked_sub(Duration::from_secs(3600)));
        assert_eq!(
            parse("1970-01-02", now),
            Some(SystemTime::UNIX_EPOCH + Duration::from_secs(DAY))
        );
        for bad in [
            "",
            "yesterday",
            "2026-02-30",
            "2026-13-01",
            "2026-1-1",
            "2026-01-01T25:00",
            "2026-01-01T00:00:00.x",
        ] {
            assert_eq!(parse(bad, now), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(millis in 0u64..253_402_300_799_999) {
            let time = SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
            prop_assert_eq!(parse(&rfc3339(time), SystemTime::now()), Some(time));
        }

        #[test]
        fn no_text_panics(text in ".{0,30}") {
            let _ = parse(&text, SystemTime::now());
        }
    }
}
