//! Parses raw values into checked ones.
//!
//! Each function takes the raw value, and returns the parsed value or what was expected.

use std::ops::RangeInclusive;
use std::time::Duration;

use hyper::Uri;

use super::address::{is_host_label, is_loopback_host};
use super::problem::Wrong;
use super::raw::RawValue;
use super::units::{UnitError, format_duration, format_size, parse_duration, parse_size};

/// Result of reading one value.
pub(super) type Read<T> = Result<T, Wrong>;

/// Reads a text that is not blank, without the space around it.
pub(super) fn text(value: &RawValue, expected: &str) -> Read<String> {
    match value {
        RawValue::Text(text) | RawValue::Word(text) if !text.trim().is_empty() => {
            Ok(text.trim().to_owned())
        }
        _ => Err(Wrong::expected(expected)),
    }
}

/// The texts of a TOML array; outside the file, the words between commas.
pub(super) fn list(value: &RawValue) -> Option<Vec<String>> {
    match value {
        RawValue::List(_) => Some(value.texts()?.into_iter().map(str::to_owned).collect()),
        RawValue::Word(words) => {
            let words = words.split(',').map(|word| word.trim().to_owned());
            Some(words.collect())
        }
        _ => None,
    }
}

/// Reads a list of at most `most` texts, none of them blank.
pub(super) fn texts(value: &RawValue, most: usize, expected: &str) -> Read<Vec<String>> {
    let fits = |texts: &Vec<String>| {
        texts.len() <= most && texts.iter().all(|text| !text.trim().is_empty())
    };
    match list(value).filter(fits) {
        Some(texts) => Ok(texts.iter().map(|text| text.trim().to_owned()).collect()),
        None => Err(Wrong::expected(expected)),
    }
}

/// `true` or `false`.
pub fn flag(value: &RawValue) -> Read<bool> {
    match value {
        RawValue::Bool(truth) => Ok(*truth),
        RawValue::Word(word) if word == "true" || word == "1" => Ok(true),
        RawValue::Word(word) if word == "false" || word == "0" => Ok(false),
        RawValue::Text(_) => Err(Wrong::expected("true or false").hint("without quotation marks")),
        _ => Err(Wrong::expected("true or false")),
    }
}

/// A whole number within `bounds`.
pub(super) fn count(value: &RawValue, bounds: &RangeInclusive<usize>) -> Read<usize> {
    let number = match value {
        RawValue::Integer(number) => usize::try_from(*number).ok(),
        RawValue::Word(word) => word.trim().parse().ok(),
        _ => None,
    };
    let (least, most) = (bounds.start(), bounds.end());
    let wrong = || Wrong::expected(format!("a whole number from {least} to {most}"));
    match number.filter(|number| bounds.contains(number)) {
        Some(number) => Ok(number),
        None if matches!(value, RawValue::Text(_)) => Err(wrong().hint("without quotation marks")),
        None => Err(wrong()),
    }
}

/// A duration within `bounds`.
pub fn duration(value: &RawValue, bounds: RangeInclusive<Duration>) -> Read<Duration> {
    let wrong = Wrong::expected(format!(
        "a duration with its unit, from {} to {}",
        format_duration(*bounds.start()),
        format_duration(*bounds.end())
    ));
    match measured(value, parse_duration) {
        Ok(duration) if bounds.contains(&duration) => Ok(duration),
        Ok(_) | Err(UnitError::Overflow) => Err(wrong),
        Err(UnitError::Bare) => Err(wrong.hint(no_unit(value, "s", "ms"))),
        Err(UnitError::Malformed) => Err(wrong.hint("write it as 500ms, 2s, 1m30s or 1h")),
    }
}

/// A size in bytes within `bounds`.
pub(super) fn size(value: &RawValue, bounds: &RangeInclusive<usize>) -> Read<usize> {
    let wrong = Wrong::expected(format!(
        "a size with its unit, from {} to {}",
        format_size(*bounds.start()),
        format_size(*bounds.end())
    ));
    match measured(value, parse_size) {
        Ok(bytes) if bounds.contains(&bytes) => Ok(bytes),
        Ok(_) | Err(UnitError::Overflow) => Err(wrong),
        Err(UnitError::Bare) => Err(wrong.hint(no_unit(value, "B", "MiB"))),
        Err(UnitError::Malformed) => Err(wrong.hint("write it as 512B, 64KiB or 64MiB")),
    }
}

fn measured<T>(
    value: &RawValue,
    parse: impl Fn(&str) -> Result<T, UnitError>,
) -> Result<T, UnitError> {
    match value {
        RawValue::Text(text) | RawValue::Word(text) => parse(text),
        RawValue::Integer(_) => Err(UnitError::Bare),
        RawValue::Bool(_) | RawValue::List(_) | RawValue::Other(_) => Err(UnitError::Malformed),
    }
}

fn no_unit(value: &RawValue, one: &str, other: &str) -> String {
    let number = match value {
        RawValue::Text(text) | RawValue::Word(text) => text.trim().to_owned(),
        value => value.to_string(),
    };
    format!("a bare number has no unit: write \"{number}{one}\" or \"{number}{other}\"")
}

/// One of a few words.
pub(super) fn choice<T: Copy>(value: &RawValue, choices: &[(&str, T)]) -> Read<T> {
    let found = match value {
        RawValue::Text(text) | RawValue::Word(text) => text.trim(),
        _ => "",
    };
    match choices.iter().find(|(word, _)| *word == found) {
        Some((_, choice)) => Ok(*choice),
        None => {
            let words = choices.iter().map(|(word, _)| format!("\"{word}\""));
            let words: Vec<String> = words.collect();
            Err(Wrong::expected(words.join(" or ")))
        }
    }
}

/// A label of RFC 1123: at most 63 lower-case letters, digits and `-`, which is neither first nor last.
pub(super) fn label(value: &RawValue, expected: &str) -> Read<String> {
    let label = text(value, expected)?;
    match is_host_label(&label) {
        true => Ok(label),
        false => Err(Wrong::expected(expected)),
    }
}

/// Reads a web address that contains nothing secret, and drops a slash at its end. `below` is the hint: what is
/// appended to the address.
pub(super) fn plain_address(value: &RawValue, expected: &str, below: &str) -> Read<String> {
    let text = text(value, expected)?;
    let uri: Uri = text.parse().map_err(|_| Wrong::expected(expected))?;
    let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
    let plain = uri.authority().is_some_and(|a| !a.as_str().contains('@')) && uri.query().is_none();
    match is_web && plain && !text.contains('#') {
        true => Ok(text.trim_end_matches('/').to_owned()),
        false => {
            Err(Wrong::expected(expected).hint(format!("without a password, a ? or a #: {below}")))
        }
    }
}

/// `https://…`, or `http://` to this machine, because its responses are trusted.
pub fn web_address(value: &RawValue) -> Read<String> {
    const EXPECTED: &str = "an https address, such as \"https://login.example.com/keys\"";
    let wrong = || Wrong::expected(EXPECTED);
    let text = text(value, EXPECTED)?;
    let uri: Uri = text.parse().map_err(|_| wrong())?;
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(wrong());
    };
    if authority.as_str().contains('@') {
        return Err(wrong().hint("without a name and password in it"));
    }
    match scheme {
        "https" => Ok(text),
        "http" if is_loopback_host(authority.host()) => Ok(text),
        "http" => Err(wrong().hint(
            "http is for this machine alone: on a network, others could forge keys or answers",
        )),
        _ => Err(wrong()),
    }
}
