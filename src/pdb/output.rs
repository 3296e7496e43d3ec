//! What the prompt writes, bounded. Pure.

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

/// Longest part that a text is passed on in, in bytes: what waits to be shown is no more than some of them, whatever a debugger says.
const LONGEST: usize = 16 * 1024;

impl Piece {
    /// The piece in parts of at most [`LONGEST`] bytes.
    pub(super) fn parts(self) -> impl Iterator<Item = Self> {
        let (mut rest, again): (_, fn(String) -> Self) = match self {
            Self::Text(text) => (text, Self::Text),
            Self::Code(text) => (text, Self::Code),
            Self::Program(text) => (text, Self::Program),
        };
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let behind = match rest.len() > LONGEST {
                true => rest.split_off(rest.floor_char_boundary(LONGEST)),
                false => String::new(),
            };
            Some(again(std::mem::replace(&mut rest, behind)))
        })
    }

    /// The text of the piece.
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Code(text) | Self::Program(text) => text,
        }
    }
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
    fn a_long_text_is_cut_with_a_hint() {
        assert_eq!(cut("äbc", 3), "äbc");
        assert!(cut("äbcd", 2).starts_with("äb\n[the first 2 of 4 characters"));
    }
}
