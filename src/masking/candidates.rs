//! Whether a text can hold a secret at all: a look that decides for nearly all texts that they are shown as they are.
//!
//! Pure. Each rule gives a pattern that fits wherever the rule would hide something, and seldom elsewhere. What they find is
//! judged by the rules, so they may find too much and never too little. Most texts are decided on by their letters, many
//! at a time; an automaton takes a step for each, and sees those texts only in which something resembles a name.

use memchr::memchr2_iter;
use regex::{Regex, RegexSet, RegexSetBuilder};

use super::names::Names;
use super::values::Values;
use super::{command, containers};

/// Most memory of a compiled set.
const MOST_COMPILED: usize = 32 << 20;

/// Fewest digits of the number of a card.
const CARD: usize = 13;

/// What the rules look for. A pattern that is none fits everything.
#[derive(Debug)]
pub(super) struct Candidates {
    /// Pieces of names, of which one is in every text with a name, as [`squeezed`] gives it.
    pieces: Option<Regex>,
    /// Fit texts with a name, or what is looked for like one.
    names: Option<RegexSet>,
    /// Fit texts with something that begins as a secret does. Two, because few enough beginnings are looked for in half the
    /// time that more take.
    beginnings: [Option<Regex>; 2],
    /// Fits texts with a program that has options which are no names, or with a key that debugpy left out.
    unnamed: Option<Regex>,
    /// Fit texts with something else.
    others: Option<RegexSet>,
    /// Fits texts with a number as long as that of a card.
    card: Option<Regex>,
}

impl Candidates {
    /// The candidates of these rules.
    pub(super) fn new(names: &Names, types: &Names, values: &Values) -> Self {
        let given: Vec<_> = names.candidates().chain(types.candidates()).collect();
        let named = || given.iter().chain(&values.bearer);
        Self {
            pieces: any_of(named().map(|name| regex::escape(&name.piece))),
            names: set(named().map(|name| &name.pattern)),
            beginnings: [
                any_of(values.beginnings.iter().cloned()),
                any_of(names.beginning.clone()),
            ],
            unnamed: any_of(
                [command::CANDIDATE, containers::LEFT_OUT]
                    .map(str::to_owned)
                    .into_iter()
                    .filter(|_| names.some()),
            ),
            others: set(&values.others),
            card: any_of(values.card.clone()),
        }
    }

    /// Whether a rule may hide something in `text`, or all of what has it for a name or a type.
    pub(super) fn in_text(&self, text: &str) -> bool {
        let ascii = text.is_ascii();
        let fits = |pattern: &Option<Regex>, text: &str| {
            pattern
                .as_ref()
                .is_none_or(|pattern| pattern.is_match(text))
        };
        let fit = |set: &Option<RegexSet>| set.as_ref().is_none_or(|set| set.is_match(text));
        // Letters beyond ASCII can become ones of a name in lower case, and digits beyond it are digits.
        let named = || !ascii || fits(&self.pieces, &squeezed(text));
        let numbered = || !ascii || digits_in_a_row(text.as_bytes());
        named() && fit(&self.names)
            || self.beginnings.iter().any(|begins| fits(begins, text))
            || numbered() && fits(&self.card, text)
            || fits(&self.unnamed, text)
            || fit(&self.others)
    }
}

/// A pattern that fits where one of `patterns` does.
fn any_of(patterns: impl IntoIterator<Item = String>) -> Option<Regex> {
    let patterns: Vec<_> = patterns.into_iter().map(|p| format!("(?:{p})")).collect();
    match patterns.is_empty() {
        true => Regex::new("[a&&b]").ok(), // fits nothing
        false => Regex::new(&patterns.join("|")).ok(),
    }
}

fn set<'a>(patterns: impl IntoIterator<Item = &'a String>) -> Option<RegexSet> {
    RegexSetBuilder::new(patterns)
        .size_limit(MOST_COMPILED)
        .build()
        .ok()
}

/// `text` in lower case and without what does not count in a name.
fn squeezed(text: &str) -> String {
    let mut squeezed = String::with_capacity(text.len());
    let mut at = 0;
    for mark in memchr2_iter(b'_', b'-', text.as_bytes()) {
        squeezed.push_str(&text[at..mark]);
        at = mark + 1;
    }
    squeezed.push_str(&text[at..]);
    squeezed.make_ascii_lowercase();
    squeezed
}

/// Whether `text` has the digits of a card with nothing but spaces and hyphens among them. Looks at every thirteenth byte:
/// fewer do not hold that many.
fn digits_in_a_row(text: &[u8]) -> bool {
    let in_row = |byte: &&u8| matches!(byte, b'0'..=b'9' | b' ' | b'-');
    let mut at = CARD - 1;
    while let Some(byte) = text.get(at) {
        if in_row(&byte) {
            let start = at - text[..at].iter().rev().take_while(in_row).count();
            let end = at + text[at..].iter().take_while(in_row).count();
            let digits = text[start..end].iter().filter(|b| b.is_ascii_digit());
            if digits.count() >= CARD {
                return true;
            }
            at = end;
        }
        at += CARD;
    }
    false
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use crate::config;
    use crate::masking::{Masking, text};

    /// The built-in rules.
    fn rules() -> &'static Masking {
        static RULES: LazyLock<Masking> =
            LazyLock::new(|| Masking::new(&config::Masking::default()));
        &RULES
    }

    /// Rules with patterns of a user's in every form that is treated in its own way.
    fn further_rules() -> &'static Masking {
        static RULES: LazyLock<Masking> = LazyLock::new(|| {
            Masking::new(&config::Masking {
                email: true,
                names: ["größe_*", "pin", "*_id_*x", "ß*"].map(Into::into).into(),
                types: ["Vault", "torch.*Kept"].map(Into::into).into(),
                values: [r"^CUST-\d+$", r"(?x) ab c # it is", r"\bzu\b"]
                    .map(Into::into)
                    .into(),
                ..config::Masking::default()
            })
        });
        &RULES
    }

    #[test]
    fn no_other_letters_become_ones_of_ascii_in_lower_case() {
        for c in ('\u{80}'..=char::MAX).filter(|c| c.to_lowercase().any(|c| c.is_ascii())) {
            assert!(matches!(c, '\u{212a}' | 'İ'), "{c:?}");
        }
    }

    #[test]
    fn texts_without_secrets_are_no_candidates() {
        for text in [
            "tensor([[0.1314, 0.2718], [0.5772, 1.6180]], device='cuda:0'), ",
            "2026-11-22 12:31:31,123 INFO worker.py:1724 -- dashboard at http://127.0.0.1:8265 step=17\n",
            "num_tokens=7, tokenizer=Fast(vocab=5), sort_key, cookies, task-1, PATH, KEYS_PER_STEP, ümlaut",
        ] {
            assert!(!rules().candidates.in_text(text), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_a_rule_hides_is_in_a_candidate(
            text in proptest::collection::vec(
                "(pass|word|phrase|token|s|secret|api|key|KEY|_|-|DB_|PAT|\u{212a}|İ|ſ|ü|größe|GRÖßE|pin|id|x|ß|ẞ|Vault|torch|Kept|Secret|Str|cookie|dsn|Credentials|RAY_AUTH_TOKEN\
                 |'|\"|=|:|, |\\\\n|--|-p|curl |-u|mysql|name|value|\\(|\\)|\\{|\\.| |\n|\\\\|CUST-|7|٤|abc|zu|AKIAIOSFODNN7EXAMPLE|eyJhbGciOiJ.x|Bearer  abcdefghijkl|://a:b@c|a@b.de|4111 1111 1111 1111|-----BEGIN PRIVATE KEY-----|sk-abcdefghijklmnopqrstu)",
                0..10,
            ).prop_map(|pieces| pieces.concat()),
        ) {
            for rules in [rules(), further_rules()] {
                let hides = !rules.spans(&text).is_empty()
                    || text::identifiers(&text).any(|name| rules.names.matches(name))
                    || rules.types.matches(&text);
                prop_assert!(!hides || rules.candidates.in_text(&text), "{text:?}");
            }
        }
    }
}
