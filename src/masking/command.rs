//! Command lines: `train.py --password x`, as one text or as a list of words.
//!
//! Pure. `--password=x` and `PASSWORD=x train.py` are names with a value, which [`super::text`] knows.

use std::ops::Range;

use super::names::Names;
use super::python::is_name;

/// Options of programs that are no names: what begins the program's, the option, and how its value follows.
const PROGRAMS: &[(&str, &str, Follows)] = &[
    ("mysql", "-p", Follows::Attached),
    ("mariadb", "-p", Follows::Attached),
    ("sshpass", "-p", Follows::Either),
    ("redis-cli", "-a", Follows::Either),
    ("curl", "-u", Follows::BehindColon),
    ("curl", "--user", Follows::BehindColon),
    ("curl", "--proxy-user", Follows::BehindColon),
];

/// What is in every text with one of these programs ([`super::candidates`]).
pub(super) const CANDIDATE: &str = "mysql|mariadb|sshpass|redis-cli|curl";

/// Where the value of an option is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Follows {
    /// In the same word.
    Attached,
    /// In the same word or in the next.
    Either,
    /// In the next word, behind a user's name and a colon.
    BehindColon,
}

/// What is known of the words of a command so far.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    program: Option<&'static str>,
    next: NextWord,
}

/// What the next word is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum NextWord {
    #[default]
    Shown,
    Secret,
    SecretBehindColon,
}

impl Arguments {
    /// Takes the next word; gives from where on it is hidden.
    pub(super) fn word(&mut self, word: &str, names: &Names) -> Option<usize> {
        let next = std::mem::take(&mut self.next);
        // Two options: the former had no value.
        if next != NextWord::Shown && !word.starts_with("--") {
            return match next {
                NextWord::SecretBehindColon => word.find(':').map(|colon| colon + 1),
                _ => Some(0),
            }
            .filter(|from| *from < word.len());
        }
        if let Some(option) = word.strip_prefix('-') {
            let option = option.strip_prefix('-').unwrap_or(option);
            if let Some((name, _)) = option.split_once('=') {
                return (is_name(name) && names.matches(name))
                    .then(|| word.len() - option.len() + name.len() + 1);
            }
            if is_name(option) && names.matches(option) {
                self.next = NextWord::Secret;
                return None;
            }
            return self.option(word);
        }
        let file = word.rsplit('/').next().unwrap_or(word);
        let known = PROGRAMS.iter().find(|(name, ..)| file.starts_with(name));
        self.program = known.map(|(name, ..)| *name).or(self.program);
        None
    }

    /// An option of the program's own.
    fn option(&mut self, word: &str) -> Option<usize> {
        let program = self.program?;
        let (_, option, follows) = PROGRAMS
            .iter()
            .find(|(name, option, _)| *name == program && word.starts_with(option))?;
        let attached = word.len() > option.len();
        match follows {
            Follows::Attached | Follows::Either if attached => Some(option.len()),
            Follows::BehindColon if attached => word.find(':').map(|colon| colon + 1),
            Follows::Attached => None,
            Follows::Either => {
                self.next = NextWord::Secret;
                None
            }
            Follows::BehindColon => {
                self.next = NextWord::SecretBehindColon;
                None
            }
        }
        .filter(|from| *from < word.len())
    }

    /// Something that is no word, which may be the value of an option.
    pub(super) fn pass(&mut self) {
        self.next = NextWord::Shown;
    }
}

/// Adds to `hidden` the values of options in the commands of `text`, which end with a line or `|`, `;` and `&`.
pub(super) fn spans(text: &str, names: &Names, hidden: &mut Vec<Range<usize>>) {
    let mut line = 0;
    let mut arguments = Arguments::default();
    for whole in text.split_inclusive('\n') {
        let mut at = line;
        let mut words = CommandWords::default();
        while let Some(word) = words.next(text, at, line + whole.len()) {
            at = word.end;
            let said = &text[word.clone()];
            if matches!(said, "|" | "||" | "&&" | "&" | ";") {
                arguments = Arguments::default();
                continue;
            }
            if said == "\\" {
                continue;
            }
            let bare = unquoted(said);
            if let Some(from) = arguments.word(bare, names) {
                let start = word.start + (said.len() - bare.len()) / 2;
                hidden.push(match from {
                    0 => word,
                    _ => start + from..start + bare.len(),
                });
            }
        }
        if !whole.trim_end().ends_with('\\') {
            arguments = Arguments::default();
        }
        line += whole.len();
    }
}

/// A word without the quotes around it.
fn unquoted(word: &str) -> &str {
    let within = |quote| word.strip_prefix(quote)?.strip_suffix(quote);
    within('\'').or_else(|| within('"')).unwrap_or(word)
}

/// The words of one line.
#[derive(Debug, Default)]
struct CommandWords {
    /// Quotes that nothing closes in this line any more: `'` and `"`.
    unclosed: [bool; 2],
}

impl CommandWords {
    /// The next word from `at` on, with white space where it is in quotes.
    fn next(&mut self, text: &str, at: usize, line_end: usize) -> Option<Range<usize>> {
        let line = &text[..line_end];
        let start = at + line[at..].find(|c: char| !c.is_whitespace())?;
        let mut end = start;
        let mut before = ' ';
        while let Some(c) = line[end..].chars().next().filter(|c| !c.is_whitespace()) {
            let opens = matches!(c, '\'' | '"') && !before.is_alphanumeric();
            end += c.len_utf8();
            if opens {
                let unclosed = &mut self.unclosed[usize::from(c == '"')];
                match line[end..].find(c).filter(|_| !*unclosed) {
                    Some(closes) => end += closes + 1,
                    None => *unclosed = true,
                }
            }
            before = c;
        }
        Some(start..end)
    }
}
