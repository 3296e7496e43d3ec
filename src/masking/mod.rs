//! Hides secrets in what a debugger or a terminal shows.
//!
//! [`Masking`] is the rules, one for the process; [`MaskedSession`] applies them to the messages of one debug session
//! ([`crate::dap::message_filter`] calls it), [`MaskedStream`] to a terminal's output. Three kinds of rule: the name of a
//! variable, its type, and what a value looks like. Names and types are looked for inside texts as well, because a
//! container is shown as one text with everything in it, and strings are read for what they say: there may be a
//! command, JSON or YAML in one.
//!
//! A rule hides too much rather than too little, but it reads text: a secret that was cut, encoded or reversed by the
//! program is not recognised. So masking holds only where no code can be run (`view`), and there it is always on: a person who
//! may look at a process would otherwise read its environment, Ray's own token included.

mod blocks;
mod candidates;
mod command;
mod containers;
mod literal;
mod message;
mod names;
mod python;
mod session;
mod siblings;
mod stream;
mod text;
mod values;

use std::borrow::Cow;
use std::ops::Range;

use self::candidates::Candidates;
use self::names::Names;
use self::values::Values;
use crate::config;
use crate::policy::{Rights, Scope};

pub use self::message::Carries;
pub use self::session::MaskedSession;
pub use self::stream::MaskedStream;
pub use self::text::MASKED;
pub use self::values::BadPattern;

/// How deep strings are read that stand in strings.
const MOST_NESTED: usize = 4;

/// How often a text is looked through, until nothing more is found in it. One that takes longer is hidden as a whole.
const MOST_ROUNDS: usize = 8;

/// The end of a value that was cut.
const CUT: &str = "… (cut by ray-relay)";

/// The masking rules of the configuration, shared by all sessions.
#[derive(Debug)]
pub struct Masking {
    /// Whether values are masked also for those who may run code.
    for_all: bool,
    names: Names,
    types: Names,
    values: Values,
    candidates: Candidates,
    /// Longest value that is shown, in bytes.
    max_value: usize,
}

impl Masking {
    /// The rules that `config` asks for.
    pub fn new(config: &config::Masking) -> Self {
        let (names, types) = match config.defaults {
            true => (names::NAMES, names::TYPES),
            false => (&[][..], &[][..]),
        };
        let all = |defaults: &[&str], given: &[String]| {
            let defaults = defaults.iter().map(|p| (*p).to_owned());
            Names::new(defaults.chain(given.iter().cloned()))
        };
        let mut names = all(names, &config.names);
        if config.defaults {
            names = names.with_environment();
        }
        let types = all(types, &config.types);
        let values = Values::new(config.defaults, config.email, &config.values);
        Self {
            for_all: config.enabled,
            candidates: Candidates::new(&names, &types, &values),
            names,
            types,
            values,
            max_value: config.max_value,
        }
    }

    /// Whether they hold in a debug session of a principal with `rights`.
    pub fn holds_for(&self, rights: &Rights) -> bool {
        let runs_code = rights.scopes.contains(Scope::Debug);
        (self.for_all || !runs_code) && !rights.obligations.unmasked
    }

    /// Whether they hold at a terminal's prompt, which runs code: as a courtesy, where it was asked for.
    pub fn holds_at_prompt(&self, rights: &Rights) -> bool {
        self.for_all && !rights.obligations.unmasked
    }

    /// `text` without what the rules hide in it.
    pub fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if !self.candidates.in_text(text) {
            return Cow::Borrowed(text);
        }
        let mut masked = text::replace(text, self.spans(text));
        // What is left can be read in another way than the whole was: it has to stay as it is now.
        for _ in 0..MOST_ROUNDS {
            if masked.len() == text.len() && masked == text {
                return masked;
            }
            let again = text::replace(&masked, self.spans(&masked)).into_owned();
            if *masked == again {
                return masked;
            }
            masked = Cow::Owned(again);
        }
        Cow::Borrowed(MASKED)
    }

    /// What is to be hidden in `text`.
    fn spans(&self, text: &str) -> Vec<Range<usize>> {
        let mut hidden = Vec::new();
        self.named(text, MOST_NESTED, &mut hidden);
        self.values.spans(text, &mut hidden);
        hidden
    }

    /// Adds to `hidden` what is to be hidden in `text` by names, and in the strings in it down to `nested`.
    fn named(&self, text: &str, nested: usize, hidden: &mut Vec<Range<usize>>) {
        text::spans(text, &self.names, &self.types, hidden);
        command::spans(text, &self.names, hidden);
        blocks::spans(text, &self.names, hidden);
        let mut strings = Vec::new();
        containers::spans(text, &self.names, hidden, |string| {
            if nested > 0 && self.candidates.in_text(&text[string.clone()]) {
                strings.push(string);
            }
        });
        for string in strings {
            let literal = &text[string.clone()];
            let mut within = Vec::new();
            if literal.contains('\\') {
                let said = python::Unescaped::of(literal);
                self.named(&said.text, nested - 1, &mut within);
                within
                    .iter_mut()
                    .for_each(|span| *span = said.in_literal(span.clone()));
            } else {
                self.named(literal, nested - 1, &mut within);
            }
            let within = within.into_iter();
            hidden.extend(within.map(|span| string.start + span.start..string.start + span.end));
        }
    }

    /// `text` as the value of a variable: the same, and cut at the longest length.
    fn value(&self, text: &str) -> String {
        let mut masked = self.text(text).into_owned();
        if masked.len() > self.max_value {
            masked.truncate(boundary(&masked, self.max_value.saturating_sub(CUT.len())));
            masked.push_str(CUT);
        }
        masked
    }

    /// Whether a variable of this name, or an expression with it, is hidden.
    fn hides_name(&self, text: &str) -> bool {
        self.candidates.in_text(text)
            && text::identifiers(text).any(|name| self.names.matches(name))
    }
}

/// The last place up to `at` where `text` can be cut.
fn boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Whether `pattern` can be one of `masking.values`.
///
/// # Errors
/// [`BadPattern`].
pub fn check_pattern(pattern: &str) -> Result<(), BadPattern> {
    values::compile(pattern).map(drop)
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
