//! Text for terminals: measured and cut. [`ray_relay_base::wire::text`] has sanitized it before.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use ray_relay_base::wire::text::replaced;

/// The spaces between two columns of a table.
pub(super) const COLUMN_GAP: usize = 2;

/// Names that are listed of many.
const MAX_LISTED_NAMES: usize = 8;

/// Marks a cut.
const ELLIPSIS: char = '…';

/// Cleans a text for a terminal. An empty text is none.
pub(super) fn text(text: Option<&str>) -> Option<String> {
    text.filter(|text| !text.is_empty())
        .map(|text| replaced(text).into_owned())
}

/// Lists the first of `total` names, and how many more there are.
pub fn first_of(names: &[&str], total: usize) -> String {
    let listed = names.len().min(MAX_LISTED_NAMES);
    let text = names[..listed].join(", ");
    match total.saturating_sub(listed) {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

/// Columns that `text` takes on a terminal.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Which end of an overlong text is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptEnd {
    /// The start, as for names.
    Start,
    /// The end, as for `long/path/train.py:26`.
    End,
}

/// Fits `text` into `columns`, with `…` at a cut.
pub fn fit(text: &str, columns: usize, keep: KeptEnd) -> Cow<'_, str> {
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
        (_, KeptEnd::Start) => text
            .chars()
            .take_while(|c| take(c))
            .chain([ELLIPSIS])
            .collect(),
        (_, KeptEnd::End) => {
            let kept: Vec<char> = text.chars().rev().take_while(|c| take(c)).collect();
            [ELLIPSIS]
                .into_iter()
                .chain(kept.into_iter().rev())
                .collect()
        }
    })
}

/// Formats a table of `lines`, the first of which has the titles. Columns are as wide as their content. Each line
/// ends with a line feed and is at most `columns` wide.
pub fn table<L>(lines: Vec<L>, columns: Option<usize>) -> String
where
    L: AsRef<[String]> + IntoIterator<Item = String>,
{
    let cells = lines.first().map_or(0, |titles| titles.as_ref().len());
    let widest = |column: usize| {
        let widths = lines.iter().map(|line| width(&line.as_ref()[column]));
        widths.max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..cells).map(widest).collect();
    let mut text = String::new();
    for line in lines {
        text += &table_line(line.into_iter().zip(widths.iter().copied()), columns);
        text.push('\n');
    }
    text
}

/// Formats one line of a table: `cells` side by side, each padded to its width, in at most `columns`. Padding is
/// written before the next cell, so no line ends in spaces.
pub fn table_line(
    cells: impl IntoIterator<Item = (String, usize)>,
    columns: Option<usize>,
) -> String {
    let mut line = String::new();
    let mut pending = 0;
    for (cell, room) in cells {
        line.extend(std::iter::repeat_n(' ', pending));
        line += &cell;
        pending = room.saturating_sub(width(&cell)) + COLUMN_GAP;
    }
    match columns {
        Some(columns) => fit(&line, columns, KeptEnd::Start).into_owned(),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ray_relay_base::wire::text::replaced;

    #[test]
    fn wide_characters_are_measured() {
        assert_eq!(fit("数数数数", 5, KeptEnd::Start), "数数…");
        assert_eq!(fit("数数数数", 4, KeptEnd::Start), "数…");
        assert_eq!(fit("src/train.py:26", 8, KeptEnd::End), "…n.py:26");
        assert_eq!(fit("abc", 3, KeptEnd::Start), "abc");
        assert_eq!(fit("abc", 1, KeptEnd::Start), "…");
        assert_eq!(fit("abc", 0, KeptEnd::Start), "");
    }

    proptest! {
        #[test]
        fn fitted_text_stays_within_its_width(text in ".{0,40}", columns in 0usize..50) {
            for keep in [KeptEnd::Start, KeptEnd::End] {
                prop_assert!(width(&fit(&replaced(&text), columns, keep)) <= columns);
            }
        }
    }
}
