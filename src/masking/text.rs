//! Names inside a text: `password='x'`, `{'password': 'x'}`, `('password', 'x')`, `"password": "x"`, `Password: x`.
//!
//! One walk over the text; [`super::literal`] says where a value ends. Quotes may be escaped, as those of JSON inside
//! of a Python string are.

use std::borrow::Cow;
use std::ops::Range;

use super::literal::{self, Until};
use super::names::Names;

/// The text that stands in the place of what is hidden.
pub const MASKED: &str = "‹masked›";

/// Adds to `hidden` what is to be hidden in `text` by names of variables and types.
pub(super) fn spans(text: &str, names: &Names, types: &Names, hidden: &mut Vec<Range<usize>>) {
    let mut at = 0;
    while let Some(name) = next_identifier(text, at) {
        at = name.end;
        let word = &text[name.clone()];
        let span = match value_after(text, &name) {
            Some((value, until)) if names.matches(word) => value..literal::end(text, value, until),
            _ if text[at..].starts_with('(') && types.matches(word) => {
                // The brackets stay, so that what is left is still read as a type.
                let end = literal::bracketed(text, at);
                let closed = end > at + 1 && text[..end].ends_with(')');
                at + 1..end - usize::from(closed)
            }
            _ => continue,
        };
        at = span.end.max(at);
        if !span.is_empty() {
            hidden.push(span);
        }
    }
}

/// Every name in `text`.
pub(super) fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let name = next_identifier(text, at)?;
        at = name.end;
        Some(&text[name])
    })
}

/// `text` with each of `hidden` replaced.
pub(super) fn replace(text: &str, mut hidden: Vec<Range<usize>>) -> Cow<'_, str> {
    if hidden.is_empty() {
        return Cow::Borrowed(text);
    }
    hidden.sort_unstable_by_key(|span| (span.start, span.end));
    let mut out = String::with_capacity(text.len());
    let mut spans = hidden.into_iter().peekable();
    let mut at = 0;
    while let Some(mut span) = spans.next() {
        while let Some(next) = spans.next_if(|next| next.start < span.end) {
            span.end = span.end.max(next.end);
        }
        out.push_str(&text[at..span.start]);
        out.push_str(MASKED);
        at = span.end;
    }
    out.push_str(&text[at..]);
    Cow::Owned(out)
}

fn in_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The next name from `at` on, with the hyphens of a header's.
fn next_identifier(text: &str, at: usize) -> Option<Range<usize>> {
    let start = at + text.get(at..)?.find(in_name)?;
    let mut end = start;
    let mut chars = text[start..].char_indices().peekable();
    while let Some((n, c)) = chars.next() {
        let hyphen = c == '-' && chars.peek().is_some_and(|(_, next)| in_name(*next));
        if !in_name(c) && !hyphen {
            break;
        }
        end = start + n + c.len_utf8();
    }
    Some(start..end)
}

/// Where the value begins that `name` is the name of, if it is one, and how far it may go.
fn value_after(text: &str, name: &Range<usize>) -> Option<(usize, Until)> {
    let before = &text[..name.start];
    let mut rest = &text[name.end..];
    let quote = before.chars().next_back().filter(|c| literal::is_quote(*c));
    let closed = quote.and_then(|quote| {
        let unquoted = &before[..before.len() - 1];
        let escapes = unquoted.len() - unquoted.trim_end_matches('\\').len();
        // As many again, and the same quote.
        let marks = rest.get(..escapes)?;
        let closed = rest[escapes..].strip_prefix(quote)?;
        marks.bytes().all(|b| b == b'\\').then_some(closed)
    });
    if let Some(closed) = closed {
        rest = closed.trim_start();
        rest = rest.strip_prefix(']').map_or(rest, str::trim_start);
        if let Some(value) = rest.strip_prefix([':', ',']) {
            return Some((text.len() - value.trim_start().len(), Until::Comma));
        }
    }
    rest = rest.trim_start_matches([' ', '\t']);
    if let Some(value) = rest.strip_prefix(':') {
        if value.starts_with(':') {
            return None;
        }
        let value = value.strip_prefix('=').unwrap_or(value);
        let at = text.len() - value.trim_start_matches([' ', '\t']).len();
        return Some((at, Until::Comma));
    }
    let value = rest.strip_prefix('=')?;
    let at = text.len() - value.trim_start_matches(['=', '>', ' ', '\t']).len();
    Some((at, Until::NextName))
}
