//! Times in audit lines: RFC 3339, UTC, milliseconds (`2026-11-21T10:55:01.123Z`).
//!
//! Pure. Also parses them, and `1h` or a bare date, for `ray-relay audit show --since`.

use std::time::SystemTime;

use chrono::{DateTime, NaiveDate, SecondsFormat};

use ray_relay_base::config::units::parse_duration;
use ray_relay_base::wire::human_time::utc;

/// Formats `time` as above. Times before 1970 become 1970.
pub fn rfc3339(time: SystemTime) -> String {
    utc(time).to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Parses `2026-11-21`, `2026-11-21T10:55`, `2026-11-21T10:55:01.123Z` (all UTC), or `1h30m` for that long before
/// `now`.
pub fn parse(text: &str, now: SystemTime) -> Option<SystemTime> {
    let text = text.trim();
    if let Ok(ago) = parse_duration(text) {
        return now.checked_sub(ago);
    }
    let (date, clock) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let mut date = date.splitn(3, '-');
    let date = NaiveDate::from_ymd_opt(
        i32::try_from(number(date.next()?, 4)?).ok()?,
        number(date.next()?, 2)?,
        number(date.next()?, 2)?,
    )?;
    let clock = clock.strip_suffix('Z').unwrap_or(clock);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut clock = clock.splitn(3, ':');
    let nanos = match fraction.len() {
        digits @ 1..=9 => number(fraction, digits)? * 10u32.pow(9 - u32::try_from(digits).ok()?),
        _ => return None,
    };
    let time = date.and_hms_nano_opt(
        number(clock.next()?, 2)?,
        number(clock.next()?, 2)?,
        clock.next().map_or(Some(0), |second| number(second, 2))?,
        nanos,
    )?;
    let since = time.and_utc().signed_duration_since(DateTime::UNIX_EPOCH);
    SystemTime::UNIX_EPOCH.checked_add(since.to_std().ok()?)
}

/// Parses a number of exactly this many `digits`.
fn number(text: &str, digits: usize) -> Option<u32> {
    let plain = text.len() == digits && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_times_are_formatted_and_parsed() {
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
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(10 * 86_400);
        assert_eq!(parse("1h", now), now.checked_sub(Duration::from_secs(3600)));
        assert_eq!(
            parse("1970-01-02", now),
            Some(SystemTime::UNIX_EPOCH + Duration::from_secs(86_400))
        );
        for invalid in [
            "",
            "yesterday",
            "2026-02-30",
            "2026-13-01",
            "2026-1-1",
            "2026-01-01T25:00",
            "2026-01-01T00:00:00.x",
        ] {
            assert_eq!(parse(invalid, now), None, "{invalid}");
        }
    }

    proptest! {
        #[test]
        fn formatted_time_is_parsed_back(millis in 0u64..253_402_300_799_999) {
            let time = SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
            prop_assert_eq!(parse(&rfc3339(time), SystemTime::now()), Some(time));
        }

        #[test]
        fn any_time_is_parsed_without_panic(text in ".{0,30}") {
            let _ = parse(&text, SystemTime::now());
        }
    }
}
