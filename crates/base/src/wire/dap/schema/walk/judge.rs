//! Judges the beginning of a value by its schema.

use super::super::scalar::{self, Short, is_usual_path, unescaped};
use super::super::{Fields, Irregular, Schema};
use super::state::WalkState;
use crate::wire::dap::inside::Inside;

/// The judgement on the beginning of a value.
pub(super) enum Judged {
    /// It is incomplete.
    Cut,
    /// It passes; so many bytes were read.
    Passes(usize, Next),
    /// It is overwritten, from its key on.
    Overwritten,
}

/// The state behind the beginning of a value.
pub(super) enum Next {
    State(WalkState),
    Object(&'static Fields),
    List(&'static Fields),
}

/// Judges the beginning of a value, which is there.
pub(super) fn judge(schema: Schema, value: &[u8]) -> Result<Judged, Irregular> {
    let enters = |first: u8, next: Next| match value[0] == first {
        true => Ok(Judged::Passes(1, next)),
        false => Err(Irregular),
    };
    match schema {
        Schema::Any => unexamined(value, false),
        Schema::Scalar => scalar::scalar(value).judged(),
        Schema::RequestSeq => scalar::integer(value).judged(),
        Schema::True => scalar::word(value, b"true").judged(),
        Schema::OneOf(words) => match quoted(value) {
            Short::Whole(length) => {
                let text = &value[1..length - 1];
                match words.iter().any(|word| word.as_bytes() == text) {
                    true => Short::Whole(length).judged(),
                    false => Err(Irregular),
                }
            }
            short => short.judged(),
        },
        Schema::Path(holds) => path(value, holds),
        Schema::Console(not) => {
            let begins = |with: &&[u8]| value[1..].starts_with(with);
            match not.iter().any(|with| with.starts_with(&value[1..])) {
                _ if value[0] != b'"' || not.iter().any(begins) => Err(Irregular),
                true => Ok(Judged::Cut),
                false => Ok(Judged::Passes(1, Next::State(WalkState::Console))),
            }
        }
        Schema::Object(fields) => enters(b'{', Next::Object(fields)),
        Schema::AnyOrObject(fields) if value[0] == b'{' => enters(b'{', Next::Object(fields)),
        Schema::AnyOrObject(_) => unexamined(value, false),
        Schema::List(fields) => enters(b'[', Next::List(fields)),
        Schema::Parsed => Err(Irregular),
        Schema::Overwritten => Ok(Judged::Overwritten),
    }
}

/// Judges a path, or null.
fn path(value: &[u8], holds: fn(&str) -> bool) -> Result<Judged, Irregular> {
    if value[0] == b'n' {
        return scalar::word(value, b"null").judged();
    }
    if value[0] != b'"' {
        return Ok(Judged::Overwritten);
    }
    match scalar::text(value) {
        (Short::Whole(length), plain) => {
            let text = &value[..length];
            // Nearly all are absolute and normalised.
            let passes = plain && is_usual_path(text) || holds(&unescaped(text).ok_or(Irregular)?);
            match passes {
                true => Short::Whole(length).judged(),
                false => Ok(Judged::Overwritten),
            }
        }
        (short, _) => short.judged(),
    }
}

/// Length of the text without escapes, or the integer, at the start of `value`.
pub(super) fn usual_scalar(value: &[u8]) -> Option<usize> {
    match value.first()? {
        b'"' => usual_text(value),
        _ => match scalar::integer(value) {
            Short::Whole(length) => Some(length),
            Short::Cut | Short::Other => None,
        },
    }
}

/// Length of the path in which nothing needs a second look at the start of `value`.
pub(super) fn usual_path(value: &[u8]) -> Option<usize> {
    usual_text(value).filter(|length| is_usual_path(&value[..*length]))
}

fn usual_text(value: &[u8]) -> Option<usize> {
    match value.first()? {
        b'"' => match scalar::text(value) {
            (Short::Whole(length), true) => Some(length),
            _ => None,
        },
        _ => None,
    }
}

fn quoted(value: &[u8]) -> Short {
    match value[0] {
        b'"' => scalar::text(value).0,
        _ => Short::Other,
    }
}

/// Judges a value that passes, or is overwritten, whatever it is.
pub(super) fn unexamined(value: &[u8], overwritten: bool) -> Result<Judged, Irregular> {
    let long = |state| Ok(Judged::Passes(1, Next::State(state)));
    match value[0] {
        b'"' => long(WalkState::Text(overwritten)),
        b'{' | b'[' => long(WalkState::Nested(Inside::begun(), overwritten)),
        _ => scalar::bare(value).judged(),
    }
}

impl Short {
    pub(super) fn judged(self) -> Result<Judged, Irregular> {
        match self {
            Self::Whole(length) => Ok(Judged::Passes(length, Next::State(WalkState::Member))),
            Self::Cut => Ok(Judged::Cut),
            Self::Other => Err(Irregular),
        }
    }
}
