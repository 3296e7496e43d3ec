//! Untrusted texts, made safe to show.
//!
//! Names of tasks, files and clients, and messages of heads and workers, come from programs on the cluster: an escape
//! sequence could rewrite a screen, and a direction mark could make one name look like another. Every such text passes
//! one of [`replaced`], [`one_line`], [`shortened`] and [`escaped`] before a person sees it. Pure.

use std::borrow::Cow;
use std::error::Error;
use std::fmt::Write;

/// Longest result of [`one_line`], in characters.
const MAX_LINE_CHARS: usize = 200;

/// Whether `c` is a control, a direction mark, a line separator or has no width: such characters control a terminal or
/// make a text look like another one. They include the line feed and the tab.
pub fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{00ad}' | '\u{061c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// `text` for a terminal, where a person has to see that something was there: each character that [`is_unseen`]
/// becomes `�`.
pub fn replaced(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unseen) {
        return Cow::Borrowed(text);
    }
    text.chars()
        .map(|c| if is_unseen(c) { '\u{fffd}' } else { c })
        .collect()
}

/// `text` for a log or a sentence: its words separated by single blanks, at most 200 characters and then `…`.
pub fn one_line(text: &str) -> String {
    let mut line = String::new();
    for word in text.split(|c: char| c.is_whitespace() || is_unseen(c)) {
        if word.is_empty() {
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.len() > 4 * MAX_LINE_CHARS {
            break;
        }
    }
    match line.char_indices().nth(MAX_LINE_CHARS) {
        Some((end, _)) => {
            line.truncate(end);
            line + "…"
        }
        None => line,
    }
}

/// `text` for an editor's dialog: without characters that are [unseen](is_unseen), at most `limit` characters, the
/// last one `…` if there were more.
pub fn shortened(text: &str, limit: usize) -> String {
    let seen = || text.chars().filter(|c| !is_unseen(*c));
    match seen().nth(limit) {
        None => seen().collect(),
        Some(_) => seen().take(limit.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// `text` for an editor's notification, in which VS Code turns `[…](command:…)` into a link that runs a command of the
/// editor. An inserted blank prevents that.
pub fn unlinked(text: &str) -> Cow<'_, str> {
    match text.contains("](") {
        true => text.replace("](", "] (").into(),
        false => Cow::Borrowed(text),
    }
}

/// `text` for a debugger's output: characters that are [unseen](is_unseen) become Python escapes. Line feeds and tabs
/// stay; a carriage return before a line feed is dropped.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' | '\t' => escaped.push(c),
            '\r' if chars.peek() == Some(&'\n') => {}
            c if is_unseen(c) => {
                escaped += &match u32::from(c) {
                    code @ ..=0xff => format!("\\x{code:02x}"),
                    code @ ..=0xffff => format!("\\u{code:04x}"),
                    code => format!("\\U{code:08x}"),
                }
            }
            c => escaped.push(c),
        }
    }
    escaped
}

/// The innermost cause of `error`, as [`one_line`]: the layers around it only report "client error (Connect)" (hyper)
/// or "transport error" (tonic).
pub fn innermost_cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    one_line(&cause.to_string())
}

/// `bytes` as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        _ = write!(text, "{byte:02x}");
        text
    })
}

/// Crockford's base 32 in lower case: no i, l, o or u, so an id survives being read aloud.
pub const BASE32: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// The lowest bits of `bits` in [`BASE32`], five for each of the `N` digits.
pub fn base32<const N: usize>(bits: u64) -> [u8; N] {
    std::array::from_fn(|i| BASE32[(bits >> (5 * (N - 1 - i))) as usize & 31])
}

/// `text` for a query or a segment of a path: all but RFC 3986's unreserved characters is percent-encoded.
pub fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(byte.into());
        } else {
            // Writing to a string does not fail.
            _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reserved_query_characters_are_encoded() {
        assert_eq!(percent_encoded("/a?b=c#/ü~"), "%2Fa%3Fb%3Dc%23%2F%C3%BC~");
    }

    #[test]
    fn control_characters_are_replaced() {
        let with_controls = "a\u{1b}[2Jb\tc\u{7}\u{9b}d\u{202e}e";
        assert_eq!(replaced(with_controls), "a�[2Jb�c��d�e");
        assert_eq!(replaced("größe 数 🎉"), "größe 数 🎉");
    }

    #[test]
    fn text_is_truncated_to_one_clean_line() {
        assert_eq!(one_line("a\r\n\tb\u{1b}[0m  c\u{0}"), "a b [0m c");
        let shortened = one_line(&"é".repeat(1000));
        assert_eq!(
            (shortened.chars().count(), shortened.ends_with('…')),
            (201, true)
        );
    }

    #[test]
    fn remote_names_contain_no_control_characters() {
        assert_eq!(shortened("a\x1b[31mb\r\nc\u{202e}d", 20), "a[31mbcd");
        assert_eq!(shortened("abcd", 4), "abcd");
        assert_eq!(shortened("abcdef", 4), "abc…");
    }

    #[test]
    fn program_output_is_escaped() {
        assert_eq!(
            escaped("a\x1b[31mb\r\nc\rd\u{9b}2J\te\u{202e}"),
            "a\\x1b[31mb\nc\\x0dd\\x9b2J\te\\u202e"
        );
        // Invisible characters cannot disguise a name.
        assert_eq!(
            escaped("pass\u{200b}word\u{61c}\u{ad}\u{e0041}"),
            "pass\\u200bword\\u061c\\xad\\U000e0041"
        );
        assert_eq!(escaped("größe 数 🎉 \u{2028}"), "größe 数 🎉 \\u2028");
    }

    #[test]
    fn innermost_cause_and_hex_have_one_format() {
        #[derive(Debug, thiserror::Error)]
        #[error("client error (Connect)")]
        struct Layer(#[source] std::io::Error);
        let error = Layer(std::io::Error::other("connection\n refused"));
        assert_eq!(innermost_cause(&error), "connection refused");
        assert_eq!(hex(&[0, 0x0f, 0xa0]), "000fa0");
    }

    proptest! {
        #[test]
        fn no_unprintable_character_remains(text in "(.|[\\r\\n\u{200e}-\u{206f}]){0,80}") {
            prop_assert!(escaped(&text).chars().all(|c| c == '\n' || c == '\t' || !is_unseen(c)));
            prop_assert!(!replaced(&text).chars().any(is_unseen));
            prop_assert!(!one_line(&text).chars().any(is_unseen));
            prop_assert!(!shortened(&text, 40).chars().any(is_unseen));
        }
    }
}
