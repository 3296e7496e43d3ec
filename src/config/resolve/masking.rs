//! `[masking]`: its keys, and whether the patterns can be used.

use super::{Resolver, plain};
use crate::config::address::Wrong;
use crate::config::model::Masking;
use crate::config::raw::RawValue;
use crate::config::setting::{self, Read};
use crate::masking::{BadPattern, check_pattern};

/// Rules of one kind.
const MOST: usize = 200;
/// Longest rule, in bytes.
const LONGEST: usize = 1000;

impl Resolver {
    pub(super) fn masking(&mut self) -> Masking {
        let mut masking = Masking::default();
        let slot = &mut masking.enabled;
        self.set("masking", "enabled", slot, plain, setting::flag);
        let slot = &mut masking.defaults;
        self.set("masking", "defaults", slot, plain, setting::flag);
        self.rules("names", &mut masking.names, name_patterns);
        self.rules("types", &mut masking.types, name_patterns);
        self.rules("values", &mut masking.values, value_patterns);
        self.set("masking", "email", &mut masking.email, plain, setting::flag);
        let slot = &mut masking.max_value;
        self.size("masking", "max_value", slot, 64, 1 << 30);
        masking
    }

    fn rules(
        &mut self,
        key: &'static str,
        slot: &mut Vec<String>,
        read: impl Fn(&RawValue) -> Read<Vec<String>>,
    ) {
        self.set("masking", key, slot, |rules| format!("{rules:?}"), read);
    }
}

fn name_patterns(value: &RawValue) -> Read<Vec<String>> {
    const EXPECTED: &str = "a list of names, such as [\"*_pin\", \"iban\"]";
    let names = list(value, EXPECTED, |words| {
        words
            .split(',')
            .map(|name| name.trim().to_owned())
            .collect()
    })?;
    let alone = |name: &String| name.chars().all(|c| matches!(c, '*' | '_' | '-'));
    match names.iter().find(|name| alone(name)) {
        None => Ok(names),
        Some(_) => wrong(
            EXPECTED,
            Some(
                "`*` alone would hide everything; to hide every value, give nobody the permission",
            ),
        ),
    }
}

fn value_patterns(value: &RawValue) -> Read<Vec<String>> {
    const EXPECTED: &str = "a list of regular expressions, such as ['\\bCUST-(\\d{8})\\b']";
    // In the environment one, because a comma can be part of it.
    let patterns = list(value, EXPECTED, |word| vec![word.to_owned()])?;
    for pattern in &patterns {
        let hint = match check_pattern(pattern) {
            Ok(()) => continue,
            Err(BadPattern::Unusable(_)) => {
                "one of them is none, or too large; write them in '...', where a backslash is itself"
            }
            Err(BadPattern::Empty) => "one of them fits a text without any characters",
        };
        return wrong(EXPECTED, Some(hint));
    }
    Ok(patterns)
}

fn list(
    value: &RawValue,
    expected: &str,
    words: impl Fn(&str) -> Vec<String>,
) -> Read<Vec<String>> {
    let items: Option<Vec<_>> = match value {
        RawValue::List(items) => items
            .iter()
            .map(|item| match item {
                RawValue::Text(text) => Some(text.clone()),
                _ => None,
            })
            .collect(),
        RawValue::Word(word) => Some(words(word)),
        _ => None,
    };
    let bounded = |items: &Vec<String>| {
        items.len() <= MOST && items.iter().all(|item| (1..=LONGEST).contains(&item.len()))
    };
    match items {
        Some(items) if bounded(&items) => Ok(items),
        Some(_) => wrong(expected, Some("at most 200, of 1 to 1000 bytes each")),
        None => wrong(expected, None),
    }
}

fn wrong<T>(expected: &str, hint: Option<&str>) -> Read<T> {
    Err(Wrong {
        expected: expected.to_owned(),
        hint: hint.map(str::to_owned),
    })
}
