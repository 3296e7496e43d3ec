//! Durations and sizes as people write them: `500ms`, `1m30s`, `64MiB`.
//!
//! Pure. A bare number is refused, because people disagree on what `timeout = 5` means.

use std::time::Duration;

/// Units of time, for the defaults and bounds in the tables of settings.
pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const HOUR: Duration = Duration::from_secs(3600);
pub(super) const DAY: Duration = Duration::from_secs(86_400);

/// Units of size in bytes, for the defaults and bounds in the tables of settings.
pub(super) const KIB: usize = 1 << 10;
pub(super) const MIB: usize = 1 << 20;
pub(super) const GIB: usize = 1 << 30;

/// Units of a duration with their nanoseconds, the largest first.
const DURATION_UNITS: [(&str, u128); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Units of a size with their bytes, the largest first.
const SIZE_UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
    ("B", 1),
];

/// The reason why a text is not a duration or size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// The text is digits only.
    #[error("a bare number has no unit")]
    Bare,
    /// Something that is neither a number nor a known unit.
    #[error("this is not a number followed by a unit")]
    Malformed,
    /// More than the type holds.
    #[error("this is too large")]
    Overflow,
}

/// Parses `500ms`, `2s`, `1m30s`, `1h`, `1d`: whole numbers, each with its unit, added up.
///
/// # Errors
/// [`UnitError`]; `0s` is a duration, `0` is not.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let mut nanos: u128 = 0;
    for part in parts(text)? {
        let (number, unit) = part?;
        let scale = DURATION_UNITS
            .iter()
            .find_map(|(name, scale)| (*name == unit).then_some(*scale))
            .ok_or(UnitError::Malformed)?;
        nanos = u128::from(number)
            .checked_mul(scale)
            .and_then(|n| nanos.checked_add(n))
            .ok_or(UnitError::Overflow)?;
    }
    u64::try_from(nanos)
        .map(Duration::from_nanos)
        .map_err(|_| UnitError::Overflow)
}

/// The shortest text that [`parse_duration`] reads back as `duration`.
pub fn format_duration(duration: Duration) -> String {
    let mut rest = duration.as_nanos();
    let mut text = String::new();
    // Days are accepted but never written: "36h" is easier to read than "1d12h".
    for (unit, scale) in &DURATION_UNITS[1..] {
        let number = rest / scale;
        rest %= scale;
        if number > 0 {
            text += &format!("{number}{unit}");
        }
    }
    if text.is_empty() {
        "0s".to_owned()
    } else {
        text
    }
}

/// Parses `512B`, `64KiB`, `64MiB`, `1GiB`, and the decimal `kB`, `MB`, `GB`.
///
/// # Errors
/// [`UnitError`].
pub(crate) fn parse_size(text: &str) -> Result<usize, UnitError> {
    let mut parts = parts(text)?;
    let (number, unit) = parts.next().ok_or(UnitError::Malformed)??;
    if parts.next().is_some() {
        return Err(UnitError::Malformed);
    }
    let scale = SIZE_UNITS
        .iter()
        .find_map(|(name, scale)| name.eq_ignore_ascii_case(unit).then_some(*scale))
        .ok_or(UnitError::Malformed)?;
    number
        .checked_mul(scale)
        .and_then(|bytes| usize::try_from(bytes).ok())
        .ok_or(UnitError::Overflow)
}

/// The shortest text that [`parse_size`] reads back as `bytes`.
pub fn format_size(bytes: usize) -> String {
    let bytes = bytes as u64;
    let (unit, scale) = SIZE_UNITS
        .iter()
        .filter(|(unit, _)| unit.ends_with("iB"))
        .find(|(_, scale)| bytes >= *scale && bytes.is_multiple_of(*scale))
        .unwrap_or(&("B", 1));
    format!("{}{unit}", bytes / scale)
}

/// Splits `1m30s` into (1, "m"), (30, "s").
fn parts(text: &str) -> Result<impl Iterator<Item = Result<(u64, &str), UnitError>>, UnitError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(UnitError::Malformed);
    }
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(UnitError::Bare);
    }
    let mut rest = text;
    Ok(std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let letters = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, after) = after.split_at(letters);
        // An empty half would leave `rest` as it is, and this iterator would never end.
        rest = if number.is_empty() || unit.is_empty() {
            ""
        } else {
            after
        };
        Some(if number.is_empty() || unit.is_empty() {
            Err(UnitError::Malformed)
        } else {
            number
                .parse()
                .map(|n| (n, unit))
                .map_err(|_| UnitError::Overflow)
        })
    }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_numbers_with_units() {
        for (text, millis) in [
            ("500ms", 500),
            ("2s", 2_000),
            ("1m30s", 90_000),
            ("1h", 3_600_000),
            ("1d", 86_400_000),
            (" 10s ", 10_000),
            ("0s", 0),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(millis)),
                "{text}"
            );
        }
        assert_eq!(parse_duration("5"), Err(UnitError::Bare));
        for text in ["", "s", "5 s", "1.5s", "5x", "5s3", "-1s", "s5"] {
            assert_eq!(parse_duration(text), Err(UnitError::Malformed), "{text:?}");
        }
        assert_eq!(
            parse_duration("99999999999999999999s"),
            Err(UnitError::Overflow)
        );
        assert_eq!(
            parse_duration("18446744073709551615h"),
            Err(UnitError::Overflow)
        );
    }

    #[test]
    fn sizes_are_numbers_with_units() {
        for (text, bytes) in [
            ("512B", 512),
            ("64KiB", 65_536),
            ("64MiB", 64 << 20),
            ("1GB", 1_000_000_000),
            ("1mib", 1 << 20),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        assert_eq!(parse_size("67108864"), Err(UnitError::Bare));
        assert_eq!(parse_size("1MiB1KiB"), Err(UnitError::Malformed));
        assert_eq!(parse_size("99999999999GiB"), Err(UnitError::Overflow));
    }

    proptest! {
        #[test]
        fn formatted_value_is_parsed_back(nanos in any::<u64>(), bytes in any::<u32>()) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
            prop_assert_eq!(parse_size(&format_size(bytes as usize)), Ok(bytes as usize));
        }

        #[test]
        fn any_value_is_parsed_without_panic(text in ".{0,24}") {
            let _ = (parse_duration(&text), parse_size(&text));
        }
    }
}
