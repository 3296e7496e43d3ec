//! Values on the lines below their name: blocks of YAML, and values of INI files that are continued.
//!
//! Pure. What is indented deeper than a hidden name with nothing behind it is its value, and so are the dashes of a list at
//! its own depth. Of `name: API_KEY` and `value: x`, at one depth, the second is hidden.

use std::ops::Range;

use super::containers::{is_for_names, is_for_values, says_hidden};
use super::names::Names;
use super::python::is_name;

/// What the lines above say of those below.
#[derive(Debug, Default)]
struct Above {
    /// The depth of a hidden name, and what is hidden of its value so far.
    hidden: Option<(usize, Option<Range<usize>>)>,
    /// The depth at which something said that it is called by a hidden name.
    named: Option<usize>,
}

/// Adds to `hidden` what is below a hidden name in `text`.
pub(super) fn spans(text: &str, names: &Names, hidden: &mut Vec<Range<usize>>) {
    let mut above = Above::default();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        line_in(text, start..start + line.len(), names, &mut above, hidden);
        start += line.len();
    }
    if let Some((_, Some(value))) = above.hidden {
        hidden.push(value);
    }
}

fn line_in(
    text: &str,
    line: Range<usize>,
    names: &Names,
    above: &mut Above,
    hidden: &mut Vec<Range<usize>>,
) {
    let content = text[line.clone()].trim();
    if content.is_empty() {
        return;
    }
    let indented = text[line.clone()].len() - text[line.clone()].trim_start().len();
    let span = line.start + indented..line.start + indented + content.len();
    let dashes = content.len() - content.trim_start_matches(['-', ' ']).len();
    let in_list = content.starts_with("- ");
    if let Some((depth, value)) = &mut above.hidden {
        if indented > *depth || indented == *depth && in_list {
            let start = value.as_ref().map_or(span.start, |value| value.start);
            *value = Some(start..span.start + content.trim_end_matches(',').len());
            return;
        }
        hidden.extend(value.take());
        above.hidden = None;
    }
    let depth = indented + if in_list { dashes } else { 0 };
    if in_list || above.named.is_some_and(|named| named > depth) {
        above.named = None;
    }
    let Some((key, value)) = key_of(&content[depth - indented..]) else {
        return;
    };
    let goes_on = value.is_empty() || value.starts_with(['|', '>', '&', '!']);
    if names.matches(key) {
        above.hidden = goes_on.then_some((depth, None));
    } else if is_for_names(key) && says_hidden(value, names) {
        above.named = Some(depth);
    } else if above.named == Some(depth) && is_for_values(key) {
        if goes_on {
            above.hidden = Some((depth, None));
        } else {
            hidden.push(span.end - value.len()..span.end);
        }
    }
}

/// The key of a line, and what is behind it.
fn key_of(content: &str) -> Option<(&str, &str)> {
    let (key, value) = content.split_once([':', '='])?;
    let key = key.trim().trim_matches(['\'', '"']);
    is_name(key).then_some((key, value.trim()))
}
