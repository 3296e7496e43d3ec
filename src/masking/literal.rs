//! Literals in a text: where a value ends.
//!
//! Pure. In doubt it ends late: what is hidden too much can be asked for, what is shown cannot be taken back.

/// `'` or `"`.
pub(super) fn is_quote(c: char) -> bool {
    matches!(c, '\'' | '"')
}

/// How far a value without quotes goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// As far as a comma: `Authorization: Basic QTpC=`.
    Comma,
    /// As far as a comma or the next name: `token=abc user=ada`.
    NextName,
}

/// The end of the value that begins at `start` of `text`: a string, something in brackets, or words; and of what is
/// put together with it.
pub(super) fn end(text: &str, start: usize, until: Until) -> usize {
    let bracket = matches!(text.as_bytes().get(start), Some(b'(' | b'[' | b'{' | b'<'));
    let first = match strings(text, start) {
        Some(end) => end,
        None if bracket => bracketed(text, start),
        None => start,
    };
    words(text, first, until)
}

/// One string after the other, as Python breaks long ones up.
fn strings(text: &str, start: usize) -> Option<usize> {
    let mut end = string(text, start)?;
    loop {
        let rest = text[end..].trim_start();
        match string(text, text.len() - rest.len()) {
            Some(further) if further > end && !rest.is_empty() => end = further,
            _ => return Some(end),
        }
    }
}

/// A string with its prefix (`b`, `r`, `f`). Its quotes may be escaped, where the whole is inside of another string.
fn string(text: &str, start: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = start;
    while at < start + 2
        && matches!(
            bytes.get(at),
            Some(b'b' | b'B' | b'r' | b'R' | b'f' | b'F' | b'u' | b'U')
        )
    {
        at += 1;
    }
    let first = at;
    while bytes.get(at) == Some(&b'\\') {
        at += 1;
    }
    let (escapes, quote) = (at - first, *bytes.get(at)?);
    if !is_quote(char::from(quote)) {
        return None;
    }
    let triple = escapes == 0 && bytes[at..].starts_with(&[quote; 3]);
    at += if triple { 3 } else { 1 };
    // In a string of level n, where a quote has 2^n - 1 backslashes, one of the text itself has more.
    let level = escapes + 1;
    let mut slashes = 0;
    while let Some(byte) = bytes.get(at) {
        if *byte == quote {
            let closes = (slashes + 1) % level == 0 && (slashes + 1) / level % 2 == 1;
            if slashes < escapes {
                // The string around it ends.
                return Some(at - slashes);
            }
            if closes && triple {
                if bytes[at..].starts_with(&[quote; 3]) {
                    return Some(at + 3);
                }
            } else if closes {
                return Some(at + 1);
            }
        }
        slashes = if *byte == b'\\' { slashes + 1 } else { 0 };
        at += 1;
    }
    Some(text.len())
}

/// The end of the bracket that opens at `start`, or of `text` where nothing closes it.
pub(super) fn bracketed(text: &str, start: usize) -> usize {
    let bytes = text.as_bytes();
    let angled = bytes[start] == b'<';
    let mut depth = 0usize;
    let mut at = start;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b'<' if angled => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'>' if angled => depth = depth.saturating_sub(1),
            b'\'' | b'"' | b'\\' => {
                let escapes = bytes[at..].iter().take_while(|b| **b == b'\\').count();
                at = string(text, at).unwrap_or(at).max(at + escapes.max(1));
                continue;
            }
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// The end of the words that begin at `start`: the line's, a comma and a space, that of what they stand in, or the next
/// `name=`.
fn words(text: &str, start: usize, until: Until) -> usize {
    let mut depth = 0usize;
    let mut at = start;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at + c.len_utf8()..];
        let next = rest.chars().next();
        match c {
            '\n' | '\r' => return at,
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => return at,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 && next.is_none_or(|n| n.is_whitespace() || is_quote(n)) => {
                return at;
            }
            ' ' | '\t' if depth == 0 => {
                if until == Until::NextName && names_next(rest) {
                    return at;
                }
                at = text.len() - rest.trim_start_matches([' ', '\t']).len();
                continue;
            }
            // The two characters that stand for the end of a line in the text of a string.
            '\\' if depth == 0 && matches!(next, Some('n' | 'r')) => return at,
            '\\' if next.is_some_and(is_quote) => return at,
            // Within brackets, or behind an operator, one begins.
            '\'' | '"' if depth > 0 || text[start..at].ends_with([' ', '+', '%']) => {
                at = string(text, at).unwrap_or(at + 1);
                continue;
            }
            // The end of the text that it stands in, and not an apostrophe.
            '\'' | '"'
                if next.is_none_or(|n| {
                    n.is_whitespace() || matches!(n, ',' | ')' | ']' | '}' | ':')
                }) =>
            {
                return at;
            }
            _ => {}
        }
        at += c.len_utf8();
    }
    text.len()
}

/// `text` begins with `name=` or `name:`.
fn names_next(text: &str) -> bool {
    let text = text.trim_start_matches([' ', '\t']);
    let name =
        text.trim_start_matches(|c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'));
    // What base64 is filled up with is no sign of a name.
    let value = name.strip_prefix(['=', ':']);
    name.len() < text.len()
        && value.is_some_and(|v| v.starts_with(|c: char| !c.is_whitespace() && c != '='))
}
