//! Problems of a configuration, as shown to the user.
//!
//! Built by [`mod@super::resolve`]; rendered on standard error by the commands, or as JSON by
//! `config check --json`. A value that may hold a secret is never in here.

use std::fmt;

use serde::Serialize;

/// One thing to correct.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// `registry.poll_interval`, `RAY_RELAY_LOG_LEVEL`, `--listen`: the name under which it was given.
    pub key: String,
    /// Location: `relay.toml line 12`, `the environment`, `the command line`.
    pub place: String,
    /// The value found; a placeholder if it may hold a secret.
    pub found: String,
    /// The value expected.
    pub expected: String,
    /// Next step or reason, as a sentence.
    pub hint: Option<String>,
}

/// A rejected value: what was expected, and perhaps the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// The value expected.
    pub expected: String,
    /// The next step, if there is more to say than what was expected.
    pub hint: Option<String>,
}

impl Wrong {
    /// A value other than `expected`, without a hint.
    pub fn expected(expected: impl Into<String>) -> Self {
        Self {
            expected: expected.into(),
            hint: None,
        }
    }

    /// Adds the next step.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }
}

/// All problems of one configuration; at least one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problems {
    /// The problems, in the order of file, environment, command line and cross-checks.
    pub problems: Vec<Problem>,
}

impl std::error::Error for Problems {}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.len() {
            1 => f.write_str("the configuration has a problem")?,
            n => write!(f, "the configuration has {n} problems")?,
        }
        for problem in &self.problems {
            write!(f, "\n\n  {}   ({})", problem.key, problem.place)?;
            write!(f, "\n    found     {}", wrapped(&problem.found))?;
            write!(f, "\n    expected  {}", wrapped(&problem.expected))?;
            if let Some(hint) = &problem.hint {
                write!(f, "\n    hint      {}", wrapped(hint))?;
            }
        }
        Ok(())
    }
}

/// `text` broken into lines that are indented like the first.
fn wrapped(text: &str) -> String {
    /// Makes 100 columns with the indent.
    const MAX_LINE_COLUMNS: usize = 86;
    let (mut wrapped, mut column) = (String::new(), 0);
    for word in text.split(' ') {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > MAX_LINE_COLUMNS {
            wrapped += "\n              ";
            column = 0;
        } else if column > 0 {
            wrapped.push(' ');
            column += 1;
        }
        wrapped += word;
        column += width;
    }
    wrapped
}

/// The known name most similar to `name`, if it is similar enough.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| {
            (
                strsim::normalized_damerau_levenshtein(name, candidate),
                candidate,
            )
        })
        .filter(|(likeness, _)| *likeness >= 0.5)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// `text` on one line without control characters, cut after 120 characters: user input may contain anything.
pub fn printable(text: &str) -> String {
    const MAX_SHOWN_CHARS: usize = 120;
    let mut printable: String = text
        .chars()
        .take(MAX_SHOWN_CHARS)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(MAX_SHOWN_CHARS).is_some() {
        printable.push('…');
    }
    printable
}
