//! Skips over the inside of a JSON value, 64 bytes at a time, to find its end; over the rest of a string, and spaces.
//!
//! Pure. A bit for each byte marks quotes, backslashes and brackets. Arithmetic on these bits finds the bytes within
//! strings; the brackets outside are counted one by one.

use memchr::memchr2;
use wide::u8x16;

const BLOCK: usize = 64;

/// A reader's position in a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Inside {
    /// Number of open brackets; 0: the value has ended.
    pub(super) open: usize,
    /// Whether the position is in a string.
    pub(super) text: bool,
}

/// The bytes of each kind in a block, its first byte in the lowest bit.
#[derive(Debug, Clone, Copy)]
struct Kinds {
    quotes: u64,
    backslashes: u64,
    opening: u64,
    closing: u64,
}

impl Inside {
    /// Behind the first bracket of a value.
    pub(super) fn begun() -> Self {
        Self {
            open: 1,
            text: false,
        }
    }

    /// Advances over `bytes` to just behind the bracket that closes the value, and returns how many that are. A
    /// backslash at the very end is not consumed, since it applies to the next byte.
    pub(super) fn pass(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while self.open > 0 && at < bytes.len() {
            let rest = &bytes[at..];
            let consumed = match rest.split_first_chunk() {
                Some((block, _)) => self.pass_block(block, BLOCK),
                None => {
                    let mut block = [b' '; BLOCK];
                    block[..rest.len()].copy_from_slice(rest);
                    self.pass_block(&block, rest.len())
                }
            };
            at += match consumed {
                // A long string.
                None => memchr2(b'"', b'\\', rest).unwrap_or(rest.len()),
                Some(0) => break,
                Some(consumed) => consumed,
            };
        }
        at
    }

    /// The same for the first `length` bytes of `block`. `None`: they are all in a string.
    fn pass_block(&mut self, block: &[u8; BLOCK], length: usize) -> Option<usize> {
        let kinds = Kinds::of(block);
        if self.text && kinds.quotes | kinds.backslashes == 0 {
            return None;
        }
        let escaped = escaped(kinds.backslashes);
        let within = between(kinds.quotes & !escaped) ^ if self.text { u64::MAX } else { 0 };
        if kinds.backslashes & !within != 0 {
            // This is not JSON.
            return Some(self.pass_bytes(&block[..length]));
        }
        let mut brackets = (kinds.opening | kinds.closing) & !within;
        while brackets != 0 {
            let bit = brackets & brackets.wrapping_neg();
            if kinds.opening & bit != 0 {
                self.open += 1;
            } else {
                self.open -= 1;
                if self.open == 0 {
                    self.text = false;
                    return Some(bit.trailing_zeros() as usize + 1);
                }
            }
            brackets ^= bit;
        }
        self.text = within >> (BLOCK - 1) == 1;
        // An escaped byte is consumed together with its backslash.
        let parts = (kinds.backslashes & !escaped) >> (length - 1) & 1 == 1;
        Some(if parts { length - 1 } else { length })
    }

    /// The same, byte by byte.
    fn pass_bytes(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() && self.open > 0 {
            match (bytes[at], self.text) {
                (b'\\', true) if at + 1 == bytes.len() => break,
                (b'\\', true) => at += 1,
                (b'"', text) => self.text = !text,
                (b'{' | b'[', false) => self.open += 1,
                (b'}' | b']', false) => self.open -= 1,
                _ => {}
            }
            at += 1;
        }
        at
    }
}

impl Kinds {
    fn of(block: &[u8; BLOCK]) -> Self {
        let mut kinds = Self {
            quotes: 0,
            backslashes: 0,
            opening: 0,
            closing: 0,
        };
        let (lanes, _) = block.as_chunks();
        for (index, lane) in lanes.iter().enumerate() {
            let bytes = u8x16::new(*lane);
            // `[` and `]` differ from `{` and `}` by one bit.
            let brackets = bytes | u8x16::splat(0x20);
            let marks = |bytes: u8x16, byte: u8| {
                u64::from(bytes.simd_eq(u8x16::splat(byte)).to_bitmask()) << (16 * index)
            };
            kinds.quotes |= marks(bytes, b'"');
            kinds.backslashes |= marks(bytes, b'\\');
            kinds.opening |= marks(brackets, b'{');
            kinds.closing |= marks(brackets, b'}');
        }
        kinds
    }
}

/// The bytes behind `backslashes`, except backslashes that are escaped themselves.
fn escaped(mut backslashes: u64) -> u64 {
    let mut escaped = 0;
    while backslashes != 0 {
        let bit = backslashes & backslashes.wrapping_neg();
        escaped |= bit << 1;
        backslashes &= !(bit | bit << 1);
    }
    escaped
}

/// A bit for each byte from an opening quote up to the byte before its closing quote.
fn between(mut quotes: u64) -> u64 {
    for distance in [1, 2, 4, 8, 16, 32] {
        quotes ^= quotes << distance;
    }
    quotes
}

/// Number of spaces, as JSON has them, at the start of `bytes`.
pub(super) fn spaces(bytes: &[u8]) -> usize {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    bytes.iter().take_while(|byte| is_space(byte)).count()
}

/// How much of `bytes` belongs to a string, and whether it ends there.
pub(super) fn rest_of_text(bytes: &[u8]) -> (usize, bool) {
    let mut at = 0;
    while let Some(found) = memchr2(b'"', b'\\', &bytes[at..]) {
        at += found;
        if bytes[at] == b'"' {
            return (at + 1, true);
        }
        // An escaped byte is consumed together with its backslash.
        if at + 1 == bytes.len() {
            return (at, false);
        }
        at += 2;
    }
    (bytes.len(), false)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn assert_equal_results(mut bytes: &[u8], start: Inside, cuts: &[usize]) {
        let (mut fast, mut slow) = (start, start);
        for end in cuts.iter().copied().chain([usize::MAX]) {
            let chunk = &bytes[..bytes.len().min(end)];
            let consumed = fast.pass(chunk);
            let expected = slow.pass_bytes(chunk);
            assert_eq!(
                (consumed, fast),
                (expected, slow),
                "{}",
                chunk.escape_ascii()
            );
            bytes = &bytes[consumed..];
            if fast.open == 0 {
                break;
            }
        }
    }

    #[test]
    fn value_ends_at_its_last_bracket() {
        let prefix = r#"{"x": ["}", "\"]", {}, "y"#.to_owned();
        for length in 0..300 {
            let value = prefix.clone() + &"z]".repeat(length) + r#"\\"], "n": 1}"#;
            let mut inside = Inside {
                open: 1,
                text: false,
            };
            let bytes = format!("{}, more}}", &value[1..]);
            assert_eq!(inside.pass(bytes.as_bytes()), value.len() - 1);
            assert_eq!(inside.open, 0);
        }
    }

    proptest! {
        #[test]
        fn value_end_is_found_at_any_split(
            bytes in proptest::collection::vec(
                proptest::sample::select(b"\"\"\\{}[]xx,:\0\x7b\x5b\x7d\x5d\xff;".to_vec()), 0..400),
            dull in proptest::collection::vec((0usize..400, 0usize..150), 0..6),
            cuts in proptest::collection::vec(0usize..200, 0..8),
            open in 1usize..80,
            text in any::<bool>(),
        ) {
            let mut bytes = bytes;
            for (index, length) in dull {
                let index = index.min(bytes.len());
                bytes.splice(index..index, std::iter::repeat_n(b'y', length));
            }
            assert_equal_results(&bytes, Inside { open, text }, &cuts);
        }
    }
}
