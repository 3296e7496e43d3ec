//! Kinds of value that keys have: how a value is read and shown, and how much of a wrong one messages may quote.
//!
//! A row of a table ends in one of these; see [`settings!`](super::settings). A kind that only one section uses is
//! defined there, with [`ValueKind::new`].

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::address::redacted;
use super::problem::printable;
use super::raw::RawValue;
use super::read::{self, Read};
use super::units::{format_duration, format_size};

/// Shortest accepted duration, unless a row says otherwise.
pub(super) const SHORTEST: Duration = Duration::from_millis(1);

/// Reads a value from the raw value of a source.
type Reading<T> = Box<dyn Fn(&RawValue) -> Read<T>>;

/// Formats a value as TOML; `None` if there is nothing to show.
type Showing<T> = Box<dyn Fn(&T) -> Option<String>>;

/// The kind of a key's value.
pub(super) struct ValueKind<T> {
    read: Reading<T>,
    show: Showing<T>,
    shape: Shape,
    /// Whether the default is shown when no source sets the key.
    has_default: bool,
}

/// How freely a wrong value may be shown.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    /// The value may be shown as it is.
    Open,
    /// The value may be shown without credentials: an address can carry a password.
    Address,
    /// The value is not shown: people paste the secret where the path of its file is expected.
    Path,
}

impl<T: 'static> ValueKind<T> {
    /// A kind whose values are read by `read` and shown by `show`.
    pub(super) fn new(
        read: impl Fn(&RawValue) -> Read<T> + 'static,
        show: impl Fn(&T) -> String + 'static,
    ) -> Self {
        Self {
            read: Box::new(read),
            show: Box::new(move |value| Some(show(value))),
            shape: Shape::Open,
            has_default: true,
        }
    }

    /// Limits how much of a wrong value messages quote.
    pub(super) fn shaped(self, shape: Shape) -> Self {
        Self { shape, ..self }
    }

    /// The default means "unset", and is not shown.
    pub(super) fn without_default(self) -> Self {
        Self {
            has_default: false,
            ..self
        }
    }

    /// A key that may be left out.
    pub(super) fn optional(self) -> ValueKind<Option<T>> {
        let Self { read, show, .. } = self;
        ValueKind {
            read: Box::new(move |value| read(value).map(Some)),
            show: Box::new(move |value| value.as_ref().and_then(&show)),
            shape: self.shape,
            has_default: true,
        }
    }

    pub(super) fn read(&self, value: &RawValue) -> Read<T> {
        (self.read)(value)
    }

    /// The value for `config check`, if there is one. `is_set`: it is not the default.
    pub(super) fn display(&self, value: &T, is_set: bool) -> Option<String> {
        (self.show)(value).filter(|_| is_set || self.has_default)
    }

    /// The text that stands for a wrong value in messages.
    pub(super) fn found(&self, value: &RawValue) -> String {
        match (self.shape, value) {
            (Shape::Address, RawValue::Text(text) | RawValue::Word(text)) => {
                format!("\"{}\"", printable(&redacted(text)))
            }
            (Shape::Open | Shape::Address, value) => value.to_string(),
            (Shape::Path, RawValue::Text(_) | RawValue::Word(_)) => "a text (not shown)".to_owned(),
            (Shape::Path, _) => "a value of another type (not shown)".to_owned(),
        }
    }
}

/// The words that a key accepts, each with its meaning. Declared with `words!`.
pub(super) trait Keyword: Copy + PartialEq + 'static {
    /// The words and their variants, in the order in which messages name them.
    const WORDS: &'static [(&'static str, Self)];
}

/// One of the words of `T`.
pub(super) fn choice<T: Keyword>() -> ValueKind<T> {
    ValueKind::new(|value| read::choice(value, T::WORDS), shown_word)
}

/// `true` or `false`.
pub(super) fn flag() -> ValueKind<bool> {
    ValueKind::new(read::flag, bool::to_string)
}

/// A whole number within `bounds`.
pub(super) fn count(bounds: RangeInclusive<usize>) -> ValueKind<usize> {
    let read = move |value: &RawValue| read::count(value, &bounds);
    ValueKind::new(read, usize::to_string)
}

/// A size in bytes within `bounds`, written with its unit.
pub(super) fn size(bounds: RangeInclusive<usize>) -> ValueKind<usize> {
    let read = move |value: &RawValue| read::size(value, &bounds);
    ValueKind::new(read, |bytes| quoted(&format_size(*bytes)))
}

/// A duration within `bounds`, written with its unit.
pub(super) fn duration(bounds: RangeInclusive<Duration>) -> ValueKind<Duration> {
    let read = move |value: &RawValue| read::duration(value, bounds.clone());
    ValueKind::new(read, |duration| quoted(&format_duration(*duration)))
}

/// Any text; `expected` describes it.
pub(super) fn text(expected: &'static str) -> ValueKind<String> {
    ValueKind::new(move |value| read::text(value, expected), quoted)
}

/// A list of at most `most` texts.
pub(super) fn texts(most: usize, expected: &'static str) -> ValueKind<Vec<String>> {
    ValueKind::new(move |value| read::texts(value, most, expected), listed)
}

/// The path of a file or folder; `expected` describes its contents.
pub(super) fn path(expected: &'static str) -> ValueKind<Option<PathBuf>> {
    let read = move |value: &RawValue| read::text(value, expected).map(PathBuf::from);
    file_path(read)
}

/// A path parsed by `read`.
pub(super) fn file_path(
    read: impl Fn(&RawValue) -> Read<PathBuf> + 'static,
) -> ValueKind<Option<PathBuf>> {
    let show = |path: &PathBuf| quoted(&path.display());
    ValueKind::new(read, show).shaped(Shape::Path).optional()
}

/// A list of at most `most` paths; empty if no source sets it.
pub(super) fn paths(most: usize, expected: &'static str) -> ValueKind<Vec<PathBuf>> {
    let read = move |value: &RawValue| {
        let paths = read::texts(value, most, expected)?;
        Ok(paths.into_iter().map(PathBuf::from).collect())
    };
    let show = |paths: &Vec<PathBuf>| {
        let paths = paths.iter().map(|path| path.display().to_string());
        listed(&paths.collect())
    };
    ValueKind::new(read, show)
        .shaped(Shape::Path)
        .without_default()
}

/// An address whose responses are trusted: `https://…`, or `http://` to this machine.
pub(super) fn web_address() -> ValueKind<Option<String>> {
    ValueKind::new(read::web_address, quoted)
        .shaped(Shape::Address)
        .optional()
}

/// `value` as a TOML string.
pub(super) fn quoted(value: &impl Display) -> String {
    format!("{:?}", value.to_string())
}

/// `values` as a TOML array of strings.
pub(super) fn listed(values: &Vec<String>) -> String {
    format!("{values:?}")
}

/// The word for `value`, as a TOML string.
pub(super) fn shown_word<T: Keyword>(value: &T) -> String {
    let word = T::WORDS.iter().find(|(_, meaning)| meaning == value);
    quoted(&word.map_or("", |(word, _)| word))
}
