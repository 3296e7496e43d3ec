//! What the prompt writes, cleaned and bounded. Pure.

use crate::unseen::is_unseen;

/// A piece of output. Their texts one after the other are what pdb prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// The debugger's own words.
    Text(String),
    /// Source code, whole lines or parts of one, for highlighting.
    Code(String),
    /// What the program wrote.
    Program(String),
}

impl Piece {
    /// Its text.
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Code(text) | Self::Program(text) => text,
        }
    }
}

/// `text` without anything that could drive a terminal or look like another text: what cannot be seen is written as
/// Python writes it in a string. Line feeds and tabs stay, a carriage return before a line feed goes.
pub(crate) fn clean(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' | '\t' => cleaned.push(c),
            '\r' if chars.peek() == Some(&'\n') => {}
            c if is_unseen(c) => {
                cleaned += &match u32::from(c) {
                    code @ ..=0xff => format!("\\x{code:02x}"),
                    code @ ..=0xffff => format!("\\u{code:04x}"),
                    code => format!("\\U{code:08x}"),
                }
            }
            c => cleaned.push(c),
        }
    }
    cleaned
}

/// The hint under a text of which the beginning is shown.
pub(super) fn cut_hint(shown: usize, total: u64) -> String {
    format!(
        "[the first {shown} of {total} characters; print a part of it, such as p str(x)[1000:2000]]\n"
    )
}

/// `text`, at most `limit` characters of it with a hint.
pub(super) fn cut(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        None => text.to_owned(),
        Some((end, _)) => {
            format!(
                "{}\n{}",
                &text[..end],
                cut_hint(limit, text.chars().count() as u64)
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_cannot_drive_the_terminal() {
        assert_eq!(
            clean("a\x1b[31mb\r\nc\rd\u{9b}2J\te\u{202e}"),
            "a\\x1b[31mb\nc\\x0dd\\x9b2J\te\\u202e"
        );
        // Neither can it write one name that looks like another.
        assert_eq!(
            clean("pass\u{200b}word\u{61c}\u{ad}\u{e0041}"),
            "pass\\u200bword\\u061c\\xad\\U000e0041"
        );
        assert_eq!(clean("größe 数 🎉 \u{2028}"), "größe 数 🎉 \\u2028");
    }

    #[test]
    fn a_long_text_is_cut_with_a_hint() {
        assert_eq!(cut("äbc", 3), "äbc");
        assert!(cut("äbcd", 2).starts_with("äb\n[the first 2 of 4 characters"));
    }

    proptest::proptest! {
        #[test]
        fn nothing_unprintable_is_left(text in "(.|[\\r\\n\u{200e}-\u{206f}]){0,80}") {
            proptest::prop_assert!(clean(&text).chars().all(|c| c == '\n' || c == '\t' || !is_unseen(c)));
        }
    }
}
