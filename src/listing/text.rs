//! Text for terminals: cleaned, measured, cut.
//!
//! Names of tasks, files and clients come from programs on the cluster, so nothing of them reaches
//! a terminal before [`clean`] has seen it: an escape sequence could rewrite the screen, and a
//! direction mark could make one name look like another.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::unseen::is_unseen;

/// Stands for what was cut away.
const ELLIPSIS: char = '…';

/// `text` with every control character and invisible format character replaced by `�`.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unseen) {
        return Cow::Borrowed(text);
    }
    text.chars()
        .map(|c| if is_unseen(c) { '\u{fffd}' } else { c })
        .collect()
}

/// Columns that `text` takes on a terminal.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// Which end of a text that is too long is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Of names.
    Start,
    /// Of `long/path/train.py:26`.
    End,
}

/// `text` in at most `columns`, with `…` where something was cut away.
pub(crate) fn fit(text: &str, columns: usize, keep: Keep) -> Cow<'_, str> {
    if width(text) <= columns {
        return Cow::Borrowed(text);
    }
    let room = columns.saturating_sub(1);
    let mut used = 0;
    let mut take = |c: &char| {
        used += c.width().unwrap_or(0);
        used <= room
    };
    Cow::Owned(match (columns, keep) {
        (0, _) => String::new(),
        (_, Keep::Start) => text
            .chars()
            .take_while(|c| take(c))
            .chain([ELLIPSIS])
            .collect(),
        (_, Keep::End) => {
            let kept: Vec<char> = text.chars().rev().take_while(|c| take(c)).collect();
            [ELLIPSIS]
                .into_iter()
                .chain(kept.into_iter().rev())
                .collect()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_that_moves_the_cursor_is_printed() {
        assert_eq!(
            clean("a\u{1b}[2Jb\tc\u{7}\u{9b}d\u{202e}e"),
            "a�[2Jb�c��d�e"
        );
        assert_eq!(clean("größe 数 🎉"), "größe 数 🎉");
    }

    #[test]
    fn wide_characters_are_measured() {
        assert_eq!(fit("数数数数", 5, Keep::Start), "数数…");
        assert_eq!(fit("数数数数", 4, Keep::Start), "数…");
        assert_eq!(fit("src/train.py:26", 8, Keep::End), "…n.py:26");
        assert_eq!(fit("abc", 3, Keep::Start), "abc");
        assert_eq!(fit("abc", 1, Keep::Start), "…");
        assert_eq!(fit("abc", 0, Keep::Start), "");
    }

    proptest! {
        #[test]
        fn what_fits_fits(text in ".{0,40}", columns in 0usize..50) {
            for keep in [Keep::Start, Keep::End] {
                prop_assert!(width(&fit(&clean(&text), columns, keep)) <= columns);
            }
        }
    }
}
