//! The bounded output of the prompt. Pure.

use super::probe::ProbeAnswer;
use ray_relay_base::wire::text::escaped;

/// A piece of output. Concatenated, the pieces are the output of pdb.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// The debugger's own text.
    Text(String),
    /// Source code, whole lines or parts of one, for highlighting.
    Code(String),
    /// The program's output.
    Program(String),
}

/// Largest part of a text, in bytes: only a few parts wait to be shown, whatever a debugger sends.
const MAX_PIECE_BYTES: usize = 16 * 1024;

impl Piece {
    /// Splits the piece into parts of at most [`MAX_PIECE_BYTES`] bytes.
    pub(super) fn parts(self) -> impl Iterator<Item = Self> {
        let (mut text, again): (_, fn(String) -> Self) = match self {
            Self::Text(text) => (text, Self::Text),
            Self::Code(text) => (text, Self::Code),
            Self::Program(text) => (text, Self::Program),
        };
        let mut from = 0;
        std::iter::from_fn(move || {
            let remaining = text.len() - from;
            let part = match remaining {
                0 => return None,
                1..=MAX_PIECE_BYTES if from == 0 => std::mem::take(&mut text),
                // A copy, which does not keep the memory of the whole.
                _ => {
                    let to = text.floor_char_boundary(text.len().min(from + MAX_PIECE_BYTES));
                    let part = text[from..to].to_owned();
                    from = to;
                    part
                }
            };
            Some(again(part))
        })
    }

    /// The text of the piece.
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Code(text) | Self::Program(text) => text,
        }
    }
}

/// Formats the probe's answer to an expression or a statement, of which at most `limit` characters were requested.
pub(super) fn rendered(answer: &ProbeAnswer, limit: usize) -> String {
    let mut text = escaped(answer.text.as_deref().unwrap_or_default());
    if answer.total > limit as u64 {
        text.truncate(text.trim_end().len());
        text += &format!("\n{}", cut_hint(limit, answer.total));
    }
    text
}

/// The hint below a truncated text.
pub(super) fn cut_hint(shown: usize, total: u64) -> String {
    format!(
        "[the first {shown} of {total} characters; print a part of it, such as p str(x)[1000:2000]]\n"
    )
}

/// `text`, truncated to `limit` characters with a hint.
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
    fn parts_of_a_long_text_have_tight_capacity() {
        let text = "é".repeat(3 * MAX_PIECE_BYTES);
        let parts: Vec<Piece> = Piece::Text(text.clone()).parts().collect();
        let joined: String = parts.iter().map(Piece::text).collect();
        assert_eq!(joined, text);
        for part in parts {
            let Piece::Text(part) = part else {
                panic!("{part:?}");
            };
            assert!(part.capacity() <= MAX_PIECE_BYTES, "{}", part.capacity());
        }
        assert_eq!(Piece::Code(String::new()).parts().count(), 0);
        assert_eq!(Piece::Code("x".into()).parts().count(), 1);
    }

    #[test]
    fn long_text_is_truncated_with_a_hint() {
        assert_eq!(cut("äbc", 3), "äbc");
        assert!(cut("äbcd", 2).starts_with("äb\n[the first 2 of 4 characters"));
    }
}
