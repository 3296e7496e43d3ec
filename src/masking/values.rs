//! Rules by what a value looks like.

use std::ops::Range;

use regex::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};

use super::names::NamePattern;

/// Most memory of a compiled pattern.
const MAX_COMPILED: usize = 1 << 20;

/// The pattern in the place of one that cannot be used: it hides everything.
const EVERYTHING: &str = "(?s).+";

/// The built-in rules: a pattern, of which group 1 is hidden where there is one, and what else has to hold. Dots are
/// part of tokens because debugpy shortens long texts inside containers to `beginning...end`.
const DEFAULTS: &[ValueRule] = &[
    // Cloud providers and code hosts.
    ValueRule::of(r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b"),
    ValueRule::of(r"\bAIza[0-9A-Za-z_.-]{20,}"),
    ValueRule::of(r"\bya29\.[0-9A-Za-z_.-]{20,}"),
    ValueRule::of(r"\bgh[pousr]_[A-Za-z0-9.]{20,}"),
    ValueRule::of(r"\bgithub_pat_[A-Za-z0-9_.]{20,}"),
    ValueRule::of(r"\bglpat-[0-9A-Za-z_.-]{16,}"),
    ValueRule {
        begins: "xox",
        ..ValueRule::of(r"\bxox[abeoprs]-[A-Za-z0-9.-]{10,}")
    },
    ValueRule::of(r"\bhf_[A-Za-z0-9.]{20,}"),
    ValueRule::of(r"\bsk-[A-Za-z0-9_.-]{20,}"),
    ValueRule::of(r"\b[rs]k_(?:live|test)_[0-9a-zA-Z.]{16,}"),
    ValueRule::of(r"\bnpm_[A-Za-z0-9.]{20,}"),
    // A JSON Web Token: `{"` in base64 is `eyJ`.
    ValueRule::of(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9._-]*"),
    // To the end of the key, or of the text that it is in.
    ValueRule::of(
        r#"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----(?:.*?-----END [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----|[^'"]*)"#,
    ),
    // The password in an address.
    ValueRule {
        begins: r#"://[^\s:/@'"]*:[^\s/'"]+@"#,
        ..ValueRule::of(r#"[A-Za-z][A-Za-z0-9+.-]*://[^\s:/@'"]*:([^\s/'"]+)@"#)
    },
];

/// Written in capitals or not, so it is looked for as a name is.
const BEARER: ValueRule = ValueRule::of(r"(?i)\bbearer +([A-Za-z0-9._~+/-]{12,}=*)");

const CARD: ValueRule = ValueRule {
    holds: is_card,
    ..ValueRule::of(
        r"\b(?:\d{13,19}|\d{4}[ -]\d{4}[ -]\d{4}[ -]\d{1,4}(?:[ -]\d{1,3})?|\d{4}[ -]\d{6}[ -]\d{4,5})\b",
    )
};

const EMAIL: ValueRule = ValueRule::of(
    r"\b[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})*\.[A-Za-z]{2,24}\b",
);

/// What else has to hold of what a pattern fits.
type ValueCheck = fn(&str) -> bool;

/// One pattern, and what else has to hold of what it fits.
#[derive(Debug, Clone, Copy)]
struct ValueRule {
    pattern: &'static str,
    /// Fits wherever `pattern` does, and begins with letters that say so.
    begins: &'static str,
    holds: ValueCheck,
}

impl ValueRule {
    const fn of(pattern: &'static str) -> Self {
        Self {
            pattern,
            begins: pattern,
            holds: |_| true,
        }
    }
}

/// A pattern of `masking.values` that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPattern {
    /// The pattern is no regular expression, or too large a one.
    #[error("a pattern of masking.values is no regular expression, or too large a one: {0}")]
    Unusable(String),
    /// The pattern fits an empty text, so it would hide nothing, everywhere.
    #[error("a pattern of masking.values matches the empty text")]
    Empty,
}

/// All patterns of the configuration.
#[derive(Debug)]
pub(super) struct Values {
    /// Which of `rules` has a match at all; `None`: to be found out one by one.
    any: Option<RegexSet>,
    rules: Vec<(Regex, ValueCheck)>,
    /// Fit where a rule does that begins with letters of its own ([`super::candidates`]).
    pub(super) beginnings: Vec<String>,
    /// What is in a text where the rule for bearer tokens fits; `None`: there is none.
    pub(super) bearer: Option<NamePattern>,
    /// Fits where the rule for cards does; `None`: there is none.
    pub(super) card: Option<String>,
    /// Fit where any other does.
    pub(super) others: Vec<String>,
}

impl Values {
    /// A pattern that cannot be used hides everything: the configuration was to be checked before.
    pub(super) fn new(defaults: bool, email: bool, patterns: &[String]) -> Self {
        let begun = if defaults { DEFAULTS } else { &[] };
        let [bearer, card] = [BEARER, CARD].map(|rule| defaults.then_some(rule));
        let given = patterns.iter().map(|pattern| {
            let usable = compile(pattern).is_ok();
            if usable { pattern } else { EVERYTHING }
        });
        let others = email.then_some(EMAIL.pattern).into_iter().chain(given);
        let others: Vec<_> = others.map(str::to_owned).collect();
        // Without the edges of words, which an automaton knows of ASCII alone.
        let anywhere = |pattern: &str| pattern.replace(r"\b", "");
        let rules = begun.iter().copied().chain(bearer).chain(card);
        let rules = rules.map(|rule| (rule.pattern, rule.holds));
        let given: Vec<_> = rules
            .chain(
                others
                    .iter()
                    .map(|pattern| (pattern.as_str(), always as ValueCheck)),
            )
            .collect();
        Self {
            any: RegexSetBuilder::new(given.iter().map(|(pattern, _)| pattern))
                .size_limit(MAX_COMPILED * given.len().max(1))
                .build()
                .ok(),
            rules: given
                .iter()
                .filter_map(|(pattern, holds)| Some((compile(pattern).ok()?, *holds)))
                .collect(),
            beginnings: begun.iter().map(|rule| anywhere(rule.begins)).collect(),
            bearer: bearer.map(|rule| NamePattern {
                piece: "bearer".to_owned(),
                pattern: anywhere(rule.pattern),
            }),
            card: card.map(|rule| anywhere(rule.pattern)),
            others,
        }
    }

    /// Adds what is to be hidden in `text`.
    pub(super) fn spans(&self, text: &str, hidden: &mut Vec<Range<usize>>) {
        let all = || (0..self.rules.len()).collect();
        let some = |any: &RegexSet| any.matches(text).into_iter().collect();
        let rules: Vec<usize> = self.any.as_ref().map_or_else(all, some);
        for rule in rules {
            let (pattern, holds) = &self.rules[rule];
            let mut at = 0;
            while let Some(found) = pattern.captures_at(text, at) {
                let Some(span) = found.get(1).or_else(|| found.get(0)) else {
                    break;
                };
                let whole = found.get(0).map_or(span.range(), |whole| whole.range());
                let good = !span.is_empty() && holds(span.as_str());
                // What only looked like one may have hidden the beginning of a real one.
                at = if good { whole.end } else { whole.start + 1 };
                if good {
                    hidden.push(span.range());
                }
                if at > text.len() {
                    break;
                }
                while !text.is_char_boundary(at) {
                    at += 1;
                }
            }
        }
    }
}

/// `pattern` within bounds.
pub(super) fn compile(pattern: &str) -> Result<Regex, BadPattern> {
    let compiled = RegexBuilder::new(pattern)
        .size_limit(MAX_COMPILED)
        .build()
        .map_err(|error| BadPattern::Unusable(error.to_string()))?;
    match compiled.is_match("") {
        true => Err(BadPattern::Empty),
        false => Ok(compiled),
    }
}

fn always(_: &str) -> bool {
    true
}

/// The number of a payment card: one of an issuer, with the right check digit (ISO/IEC 7812-1, Luhn). Without the
/// issuers every tenth time in nanoseconds would be one.
fn is_card(text: &str) -> bool {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(10)).collect();
    let prefix = |n: usize| digits.iter().take(n).fold(0, |number, d| number * 10 + d);
    let issued = match digits.len() {
        13 => prefix(1) == 4,
        14 => matches!(prefix(2), 36 | 38 | 39) || matches!(prefix(3), 300..=305),
        15 => matches!(prefix(2), 34 | 37),
        16..=19 => {
            prefix(1) == 4
                || matches!(prefix(2), 51..=55 | 35 | 62 | 65)
                || matches!(prefix(3), 644..=649)
                || matches!(prefix(4), 2221..=2720 | 6011)
        }
        _ => false,
    };
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(at, digit)| match at % 2 {
            0 => *digit,
            _ => digit * 2 / 10 + digit * 2 % 10,
        })
        .sum();
    issued && sum.is_multiple_of(10)
}
