//! What the prompt writes, cleaned and bounded. Pure.

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

/// `text` without anything that could drive a terminal: control characters are written as Python writes them in a
/// string, line feeds and tabs stay.
pub(super) fn clean(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' | '\t' => cleaned.push(c),
            '\r' if chars.peek() == Some(&'\n') => {}
            // Direction marks can make one text look like another.
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                cleaned += &format!("\\u{:04x}", u32::from(c));
            }
            c if c.is_control() => cleaned += &format!("\\x{:02x}", u32::from(c)),
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
    }

    #[test]
    fn a_long_text_is_cut_with_a_hint() {
        assert_eq!(cut("äbc", 3), "äbc");
        assert!(cut("äbcd", 2).starts_with("äb\n[the first 2 of 4 characters"));
    }

    proptest::proptest! {
        #[test]
        fn nothing_unprintable_is_left(text in ".{0,80}") {
            proptest::prop_assert!(clean(&text).chars().all(|c| c == '\n' || c == '\t' || !c.is_control()));
        }
    }
}
