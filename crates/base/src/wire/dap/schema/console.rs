//! Text for a console: it may colour a terminal, and no more.
//!
//! Pure. Read in pieces of any size, in its JSON form. What drives a terminal is overwritten by as many bytes: links
//! with a hidden target, titles, the clipboard. debugpy writes ASCII, every other character as an escape.

use memchr::{memchr, memchr3};

use super::Irregular;

/// `\uXXXX`.
const ESCAPE_BYTES: usize = 6;

/// Overwrites an escape: the picture of an escape character, and the replacement character.
const ESCAPE_PICTURE: &[u8] = br"\u241b";
const REPLACEMENT: &[u8] = br"\ufffd";

/// The one-character forms of sequences with text: DCS, SOS, OSC, PM and APC.
pub const STRING_CONTROLS: [char; 5] = ['\u{90}', '\u{98}', '\u{9d}', '\u{9e}', '\u{9f}'];

/// A piece of the text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Bytes read.
    pub(super) read: usize,
    /// Whether the closing quote is the last of them.
    pub(super) ends: bool,
}

/// The next piece of a text, up to its closing quote or to where more bytes are needed. `forwarded`: it is overwritten
/// where a parser would be better.
///
/// # Errors
/// [`Irregular`]: it is no text in JSON, or none that the parser's writer would replace by as many bytes.
pub(super) fn pass(bytes: &mut [u8], forwarded: bool) -> Result<Piece, Irregular> {
    let mut piece = Piece {
        read: 0,
        ends: false,
    };
    while let Some(found) = memchr3(b'"', b'\\', 0x1b, &bytes[piece.read..]) {
        let at = piece.read + found;
        match bytes[at] {
            b'"' => {
                piece.read = at + 1;
                piece.ends = true;
                break;
            }
            b'\\' => match escape(&bytes[at..])? {
                Escape::Cut => {
                    piece.read = at;
                    return checked(bytes, piece, forwarded);
                }
                Escape::Passes(length) => piece.read = at + length,
                Escape::Drives(_) if !forwarded => return Err(Irregular),
                Escape::Drives(other) | Escape::Half(other) => {
                    piece.read = at + ESCAPE_BYTES;
                    bytes[at..piece.read].copy_from_slice(other);
                }
            },
            // Not JSON, but some readers take it.
            _ if forwarded => {
                bytes[at] = b' ';
                piece.read = at + 1;
            }
            _ => return Err(Irregular),
        }
    }
    if !piece.ends {
        piece.read = bytes.len();
    }
    checked(bytes, piece, forwarded)
}

/// Checks what is not ASCII: whether it is UTF-8, and has none of the [`STRING_CONTROLS`].
fn checked(bytes: &mut [u8], mut piece: Piece, forwarded: bool) -> Result<Piece, Irregular> {
    if bytes[..piece.read].is_ascii() {
        return Ok(piece);
    }
    let mut valid = 0;
    while let Err(error) = str::from_utf8(&bytes[valid..piece.read]) {
        valid += error.valid_up_to();
        if error.error_len().is_none() && !piece.ends && piece.read == bytes.len() {
            // A character in two pieces stays in one.
            piece.read = valid;
            break;
        }
        if !forwarded {
            return Err(Irregular);
        }
        bytes[valid] = b'?';
        valid += 1;
    }
    let text = &mut bytes[..piece.read];
    let mut from = 0;
    while let Some(found) = memchr(0xc2, &text[from..]) {
        let at = from + found;
        if text
            .get(at + 1)
            .is_some_and(|low| is_string_control(u16::from(*low)))
        {
            if !forwarded {
                return Err(Irregular);
            }
            text[at..at + 2].fill(b'?');
        }
        from = at + 1;
    }
    Ok(piece)
}

fn is_string_control(unit: u16) -> bool {
    STRING_CONTROLS
        .into_iter()
        .any(|control| u32::from(control) == u32::from(unit))
}

/// An escape in a text.
enum Escape {
    /// It is incomplete.
    Cut,
    /// So many bytes pass.
    Passes(usize),
    /// It drives a terminal; what overwrites it.
    Drives(&'static [u8]),
    /// Half a character; what overwrites it.
    Half(&'static [u8]),
}

/// The escape at the start of `bytes`.
fn escape(bytes: &[u8]) -> Result<Escape, Irregular> {
    match bytes.get(1) {
        None => return Ok(Escape::Cut),
        Some(b'u') => {}
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
            return Ok(Escape::Passes(2));
        }
        Some(_) => return Err(Irregular),
    }
    let rest = bytes.get(ESCAPE_BYTES..).unwrap_or_default();
    Ok(match code_unit(bytes)? {
        None => Escape::Cut,
        Some(0x1b) => match is_bracket(rest)? {
            None => Escape::Cut,
            Some(true) => Escape::Passes(ESCAPE_BYTES),
            Some(false) => Escape::Drives(ESCAPE_PICTURE),
        },
        Some(unit) if is_string_control(unit) => Escape::Drives(REPLACEMENT),
        Some(0xd800..=0xdbff) => match low_half(rest)? {
            None => Escape::Cut,
            Some(true) => Escape::Passes(2 * ESCAPE_BYTES),
            Some(false) => Escape::Half(REPLACEMENT),
        },
        Some(0xdc00..=0xdfff) => Escape::Half(REPLACEMENT),
        Some(_) => Escape::Passes(ESCAPE_BYTES),
    })
}

/// The code unit of the escape `\uXXXX` at the start of `bytes`; `None`: it is incomplete.
fn code_unit(bytes: &[u8]) -> Result<Option<u16>, Irregular> {
    let Some(digits) = bytes.get(2..ESCAPE_BYTES) else {
        return Ok(None);
    };
    digits
        .iter()
        .try_fold(0, |unit, digit| {
            let digit = char::from(*digit).to_digit(16)?;
            Some(unit << 4 | u16::try_from(digit).ok()?)
        })
        .map(Some)
        .ok_or(Irregular)
}

/// Whether the character at the start of `bytes` is `[`, with which a sequence begins that only colours or moves.
fn is_bracket(bytes: &[u8]) -> Result<Option<bool>, Irregular> {
    match bytes {
        [] | [b'\\'] => Ok(None),
        [b'\\', b'u', ..] => Ok(code_unit(bytes)?.map(|unit| unit == u16::from(b'['))),
        [first, ..] => Ok(Some(*first == b'[')),
    }
}

/// Whether the second half of a character is at the start of `bytes`.
fn low_half(bytes: &[u8]) -> Result<Option<bool>, Irregular> {
    match bytes {
        [] | [b'\\'] => Ok(None),
        [b'\\', b'u', ..] => Ok(code_unit(bytes)?.map(|unit| (0xdc00..=0xdfff).contains(&unit))),
        _ => Ok(Some(false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(text: &str, forwarded: bool) -> Result<String, Irregular> {
        let mut bytes = format!("{text}\" rest").into_bytes();
        let piece = pass(&mut bytes, forwarded)?;
        assert!(piece.ends);
        bytes.truncate(piece.read - 1);
        Ok(String::from_utf8(bytes).unwrap_or_default())
    }

    #[test]
    fn colours_pass_and_other_sequences_do_not() {
        for text in [
            r"loss=0.1\n",
            r"\u001b[31mred\u001b[0m",
            r"\u001b\u005b31m",
            r"\u001B[1m \ud83d\ude00 \\u001b]",
            "caf\u{e9} \u{a0}",
            "",
        ] {
            assert_eq!(passed(text, false), Ok(text.to_owned()), "{text}");
        }
        for (text, expected) in [
            (r"\u001b]8;;x", r"\u241b]8;;x"),
            (r"\u001b\n", r"\u241b\n"),
            (r"\u001b\u005d0;", r"\u241b\u005d0;"),
            (r"\u001B\u001b[", r"\u241b\u001b["),
            (r"a\u009D0;x\u0090", r"a\ufffd0;x\ufffd"),
            (r"\u001b", r"\u241b"),
        ] {
            assert_eq!(passed(text, false), Err(Irregular), "{text}");
            assert_eq!(passed(text, true), Ok(expected.to_owned()), "{text}");
        }
        for (text, expected) in [
            (r"\ud800x\udc00", r"\ufffdx\ufffd"),
            (r"\ud800\ud83d\ude00", r"\ufffd\ud83d\ude00"),
        ] {
            assert_eq!(passed(text, false), Ok(expected.to_owned()), "{text}");
        }
        for text in ["\u{9d}0;x", "\u{1b}[31m", r"\x", r"\u00g0", r"\ud800\u00"] {
            assert_eq!(passed(text, false), Err(Irregular), "{text}");
        }
    }

    #[test]
    fn controls_are_overwritten_once_a_part_is_forwarded() {
        let mut bytes = "\u{1b}[1m \u{9d}0;x\u{a0}\" ".as_bytes().to_vec();
        assert!(pass(&mut bytes, true).is_ok_and(|piece| piece.ends));
        assert_eq!(bytes, " [1m ??0;x\u{a0}\" ".as_bytes());
        assert_eq!(pass(&mut br"\x".to_vec(), true), Err(Irregular));
        let invalid = b"\xc0\x9b]8;; \x9d\xe0\x82\\n\xff\" ";
        assert_eq!(pass(&mut invalid.to_vec(), false), Err(Irregular));
        let mut bytes = invalid.to_vec();
        assert!(pass(&mut bytes, true).is_ok_and(|piece| piece.ends));
        assert_eq!(bytes, b"??]8;; ???\\n?\" ");
    }

    #[test]
    fn pieces_of_any_size_give_the_same_text() {
        let text = "ab\\u001b[1m\\u001b]\\ud83d\\ude00\\ud800\\n\\\\\u{e9}\u{a0}\u{a9}\"";
        let mut whole = text.as_bytes().to_vec();
        assert!(pass(&mut whole, true).is_ok_and(|piece| piece.ends));
        for first in 0..text.len() {
            let mut bytes = text.as_bytes().to_vec();
            let one = pass(&mut bytes[..first], true).unwrap_or_else(|_| panic!("cut at {first}"));
            let two =
                pass(&mut bytes[one.read..], true).unwrap_or_else(|_| panic!("cut at {first}"));
            assert!(two.ends && !one.ends);
            assert_eq!(bytes, whole, "cut at {first}");
        }
        let mut cut = b"a\xc2".to_vec();
        assert!(pass(&mut cut, false).is_ok_and(|piece| piece.read == 1));
    }
}
