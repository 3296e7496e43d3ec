//! From a written value to a checked one: the kinds of value that keys have.
//!
//! Each function takes what stands there and gives the value, or what should stand there.
//! Called by [`super::resolve`].

use std::ops::RangeInclusive;
use std::time::Duration;

use super::address::{Wrong, is_host_name};
use super::raw::RawValue;
use super::units::{UnitError, format_duration, format_size, parse_duration, parse_size};

/// Result of reading one value.
pub(crate) type Read<T> = Result<T, Wrong>;

fn wrong<T>(expected: impl Into<String>, hint: Option<String>) -> Read<T> {
    Err(Wrong {
        expected: expected.into(),
        hint,
    })
}

/// Any text.
pub(super) fn text(value: &RawValue, expected: &str) -> Read<String> {
    match value {
        RawValue::Text(text) | RawValue::Word(text) if !text.trim().is_empty() => {
            Ok(text.trim().to_owned())
        }
        _ => wrong(expected, None),
    }
}

/// At most `most` texts: a TOML array, or words separated by commas.
pub(super) fn texts(value: &RawValue, most: usize, expected: &str) -> Read<Vec<String>> {
    let texts: Read<Vec<String>> = match value {
        RawValue::List(items) => items.iter().map(|item| text(item, expected)).collect(),
        RawValue::Word(words) => words
            .split(',')
            .map(|word| text(&RawValue::Word(word.to_owned()), expected))
            .collect(),
        _ => wrong(expected, None),
    };
    match texts {
        Ok(texts) if texts.len() <= most => Ok(texts),
        _ => wrong(expected, None),
    }
}

/// `true` or `false`.
pub(crate) fn flag(value: &RawValue) -> Read<bool> {
    match value {
        RawValue::Bool(truth) => Ok(*truth),
        RawValue::Word(word) if word == "true" || word == "1" => Ok(true),
        RawValue::Word(word) if word == "false" || word == "0" => Ok(false),
        RawValue::Text(_) => wrong("true or false", Some("without quotation marks".to_owned())),
        _ => wrong("true or false", None),
    }
}

/// A whole number within `bounds`.
pub(super) fn count(value: &RawValue, bounds: RangeInclusive<usize>) -> Read<usize> {
    let number = match value {
        RawValue::Integer(number) => usize::try_from(*number).ok(),
        RawValue::Word(word) => word.trim().parse().ok(),
        _ => None,
    };
    match number.filter(|number| bounds.contains(number)) {
        Some(number) => Ok(number),
        None => wrong(
            format!("a whole number from {} to {}", bounds.start(), bounds.end()),
            matches!(value, RawValue::Text(_)).then(|| "without quotation marks".to_owned()),
        ),
    }
}

/// A duration within `bounds`.
pub(crate) fn duration(value: &RawValue, bounds: RangeInclusive<Duration>) -> Read<Duration> {
    let expected = || {
        format!(
            "a duration with its unit, from {} to {}",
            format_duration(*bounds.start()),
            format_duration(*bounds.end())
        )
    };
    match measured(value, parse_duration) {
        Ok(duration) if bounds.contains(&duration) => Ok(duration),
        Ok(_) | Err(UnitError::Overflow) => wrong(expected(), None),
        Err(UnitError::Bare) => {
            let number = plain(value);
            let hint = format!("a bare number has no unit: write \"{number}s\" or \"{number}ms\"");
            wrong(expected(), Some(hint))
        }
        Err(UnitError::Malformed) => wrong(
            expected(),
            Some("write it as 500ms, 2s, 1m30s or 1h".to_owned()),
        ),
    }
}

/// A size in bytes within `bounds`.
pub(super) fn size(value: &RawValue, bounds: RangeInclusive<usize>) -> Read<usize> {
    let expected = || {
        format!(
            "a size with its unit, from {} to {}",
            format_size(*bounds.start()),
            format_size(*bounds.end())
        )
    };
    match measured(value, parse_size) {
        Ok(bytes) if bounds.contains(&bytes) => Ok(bytes),
        Ok(_) | Err(UnitError::Overflow) => wrong(expected(), None),
        Err(UnitError::Bare) => {
            let number = plain(value);
            let hint = format!("a bare number has no unit: write \"{number}B\" or \"{number}MiB\"");
            wrong(expected(), Some(hint))
        }
        Err(UnitError::Malformed) => wrong(
            expected(),
            Some("write it as 512B, 64KiB or 64MiB".to_owned()),
        ),
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

fn plain(value: &RawValue) -> String {
    match value {
        RawValue::Text(text) | RawValue::Word(text) => text.trim().to_owned(),
        other => other.to_string(),
    }
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
            let words: Vec<String> = choices
                .iter()
                .map(|(word, _)| format!("\"{word}\""))
                .collect();
            wrong(words.join(" or "), None)
        }
    }
}

/// Host names, or domains with a dot in front: a TOML array, or words separated by commas.
pub(super) fn host_names(value: &RawValue) -> Read<Vec<String>> {
    const EXPECTED: &str = "an array of host names, such as [\"relay.example.com\"]";
    let names: Option<Vec<String>> = match value {
        RawValue::List(items) => items
            .iter()
            .map(|item| match item {
                RawValue::Text(name) => Some(name.clone()),
                _ => None,
            })
            .collect(),
        RawValue::Word(words) => Some(
            words
                .split(',')
                .map(|name| name.trim().to_owned())
                .collect(),
        ),
        _ => None,
    };
    let Some(names) = names else {
        return wrong(EXPECTED, None);
    };
    let valid = |name: &str| is_host_name(name.strip_prefix('.').unwrap_or(name));
    match names.iter().find(|name| !valid(name)) {
        None => Ok(names
            .into_iter()
            .map(|name| name.to_ascii_lowercase())
            .collect()),
        Some(_) => wrong(
            EXPECTED,
            Some("names alone: no scheme, no port, no path, no * (\".example.com\" stands for every name below it)".to_owned()),
        ),
    }
}

/// `5700-5731`.
pub(super) fn ports(value: &RawValue) -> Read<RangeInclusive<u16>> {
    /// More would be more open sockets than a person can tell apart.
    const MOST: u16 = 1024;
    let text = text(value, "").unwrap_or_default();
    let range = text.split_once('-').and_then(|(first, last)| {
        let (first, last): (u16, u16) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (first > 0 && first <= last && last - first < MOST).then_some(first..=last)
    });
    match range {
        Some(range) => Ok(range),
        None => wrong(
            format!("a range of at most {MOST} ports, such as \"5700-5731\""),
            matches!(value, RawValue::Integer(_))
                .then(|| "for one port write \"5700-5700\"".to_owned()),
        ),
    }
}

/// `{id}.debug.example.com`.
pub(super) fn host_template(value: &RawValue) -> Read<String> {
    const EXPECTED: &str = "a host name with {id} once in it, such as \"{id}.debug.example.com\"";
    let template = text(value, EXPECTED)?;
    if template.matches("{id}").count() == 1 && is_host_name(&template.replace("{id}", "00000000"))
    {
        Ok(template)
    } else {
        wrong(
            EXPECTED,
            Some("{id} stands for the eight characters of a breakpoint's id".to_owned()),
        )
    }
}

/// A tracing filter such as `info` or `ray_relay::dap=debug,info`.
pub(super) fn log_filter(value: &RawValue) -> Read<String> {
    const EXPECTED: &str = "a level (off, error, warn, info, debug, trace) or a filter such as \"ray_relay::dap=debug,info\"";
    let filter = text(value, EXPECTED)?;
    // tracing takes a misspelt level for the name of a module, and then logs nothing at all.
    let misspelt = filter.split(',').map(str::trim).find(|directive| {
        !directive.contains(['=', '['])
            && directive.parse::<tracing::metadata::LevelFilter>().is_err()
    });
    if let Some(word) = misspelt {
        let levels = ["off", "error", "warn", "info", "debug", "trace"];
        let hint = match super::problem::nearest(word, levels) {
            Some(near) => format!("did you mean {near}?"),
            None => format!(
                "for everything of one module write {}=trace",
                super::problem::shown(word)
            ),
        };
        return wrong(EXPECTED, Some(hint));
    }
    match tracing_subscriber::EnvFilter::try_new(&filter) {
        Ok(_) => Ok(filter),
        Err(_) => wrong(EXPECTED, None),
    }
}
