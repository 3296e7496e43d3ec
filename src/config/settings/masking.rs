//! `[masking]`: what of values is hidden in debug sessions and terminals.

use crate::config::kind::{PatternCheck, ValueKind, flag, listed, size};
use crate::config::problem::Wrong;
use crate::config::raw::RawValue;
use crate::config::read::{self, Read};
use crate::config::units::{GIB, KIB};

settings! {
    /// `[masking]`: what of values is hidden in debug sessions and terminals.
    pub struct Masking = "masking" {
        /// Whether values are masked also for those who may run code. For all others they always are.
        enabled: bool = false, flag();
        /// Whether the built-in rules for names, types and values apply as well.
        defaults: bool = true, flag();
        /// Further names of variables, `*` stands for anything.
        names: Vec<String> = Vec::new(), ValueKind::new(name_patterns, listed);
        /// Further names of types, `*` stands for anything.
        types: Vec<String> = Vec::new(), ValueKind::new(name_patterns, listed);
        /// Further regular expressions, of which group 1 is hidden where there is one.
        values: Vec<String> = Vec::new(), ValueKind::checked(value_patterns, listed);
        /// Whether e-mail addresses are masked too.
        email: bool = false, flag();
        /// Longest value of a variable that is shown, in bytes.
        max_value: usize = 64 * KIB, size(64..=GIB);
    }
}

fn name_patterns(value: &RawValue) -> Read<Vec<String>> {
    const EXPECTED: &str = "a list of names, such as [\"*_pin\", \"iban\"]";
    let names = bounded(read::list(value), EXPECTED)?;
    let alone = |name: &String| name.chars().all(|c| matches!(c, '*' | '_' | '-'));
    match names.iter().any(alone) {
        false => Ok(names),
        true => Err(Wrong::expected(EXPECTED).hint(
            "`*` alone would hide everything; to hide every value, grant no such permission",
        )),
    }
}

fn value_patterns(value: &RawValue, check: PatternCheck) -> Read<Vec<String>> {
    const EXPECTED: &str = "a list of regular expressions, such as ['\\bCUST-(\\d{8})\\b']";
    let patterns = match value {
        // In the environment one, because a comma can be part of it.
        RawValue::Word(pattern) => Some(vec![pattern.clone()]),
        value => read::list(value),
    };
    let patterns = bounded(patterns, EXPECTED)?;
    for pattern in &patterns {
        check(pattern).map_err(|hint| Wrong::expected(EXPECTED).hint(hint))?;
    }
    Ok(patterns)
}

/// Checks that there are at most 200 rules of one kind, of at most 1000 bytes each.
fn bounded(rules: Option<Vec<String>>, expected: &str) -> Read<Vec<String>> {
    let fits = |rules: &Vec<String>| {
        rules.len() <= 200 && rules.iter().all(|rule| (1..=1000).contains(&rule.len()))
    };
    match rules {
        Some(rules) if fits(&rules) => Ok(rules),
        Some(_) => Err(Wrong::expected(expected).hint("at most 200, of 1 to 1000 bytes each")),
        None => Err(Wrong::expected(expected)),
    }
}
