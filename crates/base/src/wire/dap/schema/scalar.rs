//! Short values, read whole: texts in printable ASCII, integers and words.
//!
//! Pure. Sixteen bytes at a time.

use serde_json::from_slice;
use wide::u8x16;

/// Digits of a number that every reader can represent.
const MAX_DIGITS: usize = 15;

/// Bytes of a number or a word.
const MAX_BARE_BYTES: usize = 1024;

/// A short value at the start of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Short {
    /// It is complete, and this long.
    Whole(usize),
    /// The bytes end within it.
    Cut,
    /// It is something else.
    Other,
}

/// A bit for each byte that ends or breaks a text: the quote, a backslash, and all but printable ASCII.
fn breaks(bytes: &[u8; 16]) -> u32 {
    let bytes = u8x16::new(*bytes);
    let is = |byte| bytes.simd_eq(u8x16::splat(byte));
    let control = bytes.min(u8x16::splat(0x1f)).simd_eq(bytes);
    let beyond = bytes.max(u8x16::splat(0x7f)).simd_eq(bytes);
    (control | beyond | is(b'"') | is(b'\\')).to_bitmask()
}

fn is_break(byte: u8) -> bool {
    !matches!(byte, b' '..=b'~') || matches!(byte, b'"' | b'\\')
}

/// Length of the bytes in front of the first one that ends or breaks a text.
fn plain_length(bytes: &[u8]) -> usize {
    let (lanes, rest) = bytes.as_chunks();
    for (index, lane) in lanes.iter().enumerate() {
        let found = breaks(lane);
        if found != 0 {
            return 16 * index + found.trailing_zeros() as usize;
        }
    }
    let end = rest.iter().position(|byte| is_break(*byte));
    16 * lanes.len() + end.unwrap_or(rest.len())
}

/// The text at the start of `bytes`, which begin with its quote; and whether it has no escapes.
pub(super) fn text(bytes: &[u8]) -> (Short, bool) {
    let (mut end, mut plain) = (1, true);
    loop {
        end += plain_length(&bytes[end.min(bytes.len())..]);
        match bytes.get(end) {
            None => return (Short::Cut, false),
            Some(b'"') => break,
            // An escaped byte is consumed together with its backslash.
            Some(b'\\') => (end, plain) = (end + 2, false),
            Some(_) => return (Short::Other, false),
        }
    }
    (Short::Whole(end + 1), plain)
}

/// The scalar at the start of `bytes`, which are not empty.
pub(super) fn scalar(bytes: &[u8]) -> Short {
    match bytes[0] {
        b'"' => match text(bytes) {
            (Short::Whole(length), false) if unescaped(&bytes[..length]).is_none() => Short::Other,
            (text, _) => text,
        },
        b't' => word(bytes, b"true"),
        b'f' => word(bytes, b"false"),
        b'n' => word(bytes, b"null"),
        _ => integer(bytes),
    }
}

/// `word` at the start of `bytes`.
pub(super) fn word(bytes: &[u8], word: &[u8]) -> Short {
    match bytes.len() < word.len() {
        true if word.starts_with(bytes) => Short::Cut,
        false if bytes.starts_with(word) => Short::Whole(word.len()),
        _ => Short::Other,
    }
}

/// The integer at the start of `bytes`. It ends with another byte.
pub(super) fn integer(bytes: &[u8]) -> Short {
    let (digits, least) = match bytes.strip_prefix(b"-") {
        Some(digits) => (digits, b'1'),
        None => (bytes, b'0'),
    };
    let length = digits
        .iter()
        .take(MAX_DIGITS + 1)
        .take_while(|digit| digit.is_ascii_digit())
        .count();
    let Some(first) = digits.first() else {
        return Short::Cut;
    };
    if !(1..=MAX_DIGITS).contains(&length) || *first < least || *first == b'0' && length > 1 {
        return Short::Other;
    }
    match length == digits.len() {
        true => Short::Cut,
        false => Short::Whole(bytes.len() - digits.len() + length),
    }
}

/// Any scalar of JSON but a text, and whatever a lenient reader takes for one, up to the byte that ends it.
pub(super) fn bare(bytes: &[u8]) -> Short {
    let part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    match bytes.iter().position(|byte| !part(byte)) {
        None if bytes.len() <= MAX_BARE_BYTES => Short::Cut,
        Some(length) if (1..=MAX_BARE_BYTES).contains(&length) => Short::Whole(length),
        _ => Short::Other,
    }
}

/// Whether `text`, in its JSON form without escapes, is an absolute path in which nothing needs a second look: most
/// are.
pub(super) fn is_usual_path(text: &[u8]) -> bool {
    let Some(path) = text.strip_prefix(b"\"/") else {
        return false;
    };
    let mut after_slash = true;
    let (lanes, rest) = path.as_chunks();
    for lane in lanes {
        let bytes = u8x16::new(*lane);
        let is = |byte| bytes.simd_eq(u8x16::splat(byte));
        let slashes = is(b'/').to_bitmask();
        let doubled = slashes & (slashes << 1 | u32::from(after_slash));
        after_slash = slashes >> 15 == 1;
        if doubled | (is(b':') | is(b'?') | is(b'[')).to_bitmask() != 0 {
            return false;
        }
    }
    rest.iter().all(|byte| {
        let doubled = after_slash && *byte == b'/';
        after_slash = *byte == b'/';
        !doubled && !matches!(byte, b':' | b'?' | b'[')
    })
}

/// Decodes the JSON string `text`.
pub(super) fn unescaped(text: &[u8]) -> Option<String> {
    from_slice(text).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn plain_length_is_that_of_a_loop(
            bytes in proptest::collection::vec(
                prop_oneof![9 => Just(b'x'), 1 => any::<u8>(), 1 => proptest::sample::select(b"\"\\!#[]/. \x1f\x7f\x80~".to_vec())], 0..60),
        ) {
            let expected = bytes.iter().position(|byte| is_break(*byte));
            prop_assert_eq!(plain_length(&bytes), expected.unwrap_or(bytes.len()));
        }

        #[test]
        fn usual_path_has_nothing_to_look_at(path in "/?([a-c./]|[a-c./]|[a-c./]|[a-z.]{3}|[:?\\[]){0,12}") {
            let text = format!("\"{path}\"");
            let expected = path.starts_with('/')
                && !path.contains("//")
                && !path.contains([':', '?', '[']);
            prop_assert_eq!(is_usual_path(text.as_bytes()), expected);
        }
    }
}
