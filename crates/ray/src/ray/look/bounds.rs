//! Bounds of a snapshot's texts and lists, and what makes them safe to show.

use ray_relay_base::wire::text::{escaped, shortened};

/// Characters of one value.
pub(super) const MAX_VALUE_CHARS: usize = 1024;

/// Characters of a path.
pub(super) const MAX_PATH_CHARS: usize = 1024;

/// Characters of a name.
pub(super) const MAX_NAME_CHARS: usize = 256;

/// Truncates `list` to `most` elements, and counts the others.
pub(super) fn cut<T>(list: &mut Vec<T>, most: usize, count: &mut u32) {
    let excess = list.len().saturating_sub(most);
    list.truncate(most);
    *count = count.saturating_add(u32::try_from(excess).unwrap_or(u32::MAX));
}

/// Removes invisible characters from `text`, and truncates it.
pub(super) fn tidy(text: &mut String, most: usize) {
    *text = shortened(text, most);
}

/// A value in one line, with invisible characters as Python escapes.
pub(super) fn line(value: &str) -> String {
    let line = escaped(value).replace('\n', "\\n").replace('\t', "\\t");
    shortened(&line, MAX_VALUE_CHARS)
}
