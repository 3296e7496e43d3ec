//! Detects stacks that need no sanitizing, without building them.
//!
//! Pure. A stack is hundreds of short texts and numbers, for which a parser takes several times as long. This reads
//! only what debuggers write: objects with keys that [`fields`](super::fields) allows, each at most once, texts in
//! printable ASCII, and integers. Any other stack goes to the parser.

use super::fields::{FRAME, SOURCE, names_file};

/// The keys of an answer, all of them required.
const ANSWER: &[&str] = &["seq", "type", "request_seq", "success", "command", "body"];

/// The keys of its body, the first one required.
const BODY: &[&str] = &["stackFrames", "totalFrames"];

/// Digits of a number that every reader can represent.
const MAX_DIGITS: usize = 15;

/// Whether `answer`, a success response to `stackTrace`, has only frames in files of the editor's machine.
pub(super) fn is_plain(answer: &[u8]) -> bool {
    let plain = |byte: &u8| matches!(byte, b' '..=b'~');
    let mut reader = StackReader { rest: answer };
    // Without an early exit, so that it is vectorised.
    answer.iter().fold(true, |all, byte| all & plain(byte))
        && reader.answer().is_some()
        && reader.rest.is_empty()
}

/// The unread rest, printable ASCII.
struct StackReader<'a> {
    rest: &'a [u8],
}

impl<'a> StackReader<'a> {
    fn answer(&mut self) -> Option<()> {
        self.object(ANSWER, ANSWER.len(), |reader, key| match key {
            "success" => reader.word("true"),
            "body" => reader.object(BODY, 1, |reader, key| match key {
                "stackFrames" => reader.frames(),
                _ => reader.scalar(),
            }),
            _ => reader.scalar(),
        })
    }

    fn frames(&mut self) -> Option<()> {
        self.take(b'[')?;
        if self.take(b']').is_some() {
            return Some(());
        }
        loop {
            self.object(FRAME, 0, |reader, key| match key {
                "source" => reader.object(SOURCE, 0, |reader, key| match key {
                    "path" => reader.path(),
                    _ => reader.scalar(),
                }),
                _ => reader.scalar(),
            })?;
            if self.take(b',').is_none() {
                return self.take(b']');
            }
        }
    }

    /// Reads a path that an editor opens as a file of its own machine, or null.
    fn path(&mut self) -> Option<()> {
        let Some(path) = self.text() else {
            return self.word("null");
        };
        // Fast path: nearly all are absolute and normalised.
        let usual = path.starts_with(b"\"/")
            && !path
                .windows(2)
                .any(|two| two == b"//" || matches!(two[0], b':' | b'\\' | b'?' | b'['));
        (usual || names_file(&unescaped(path)?)).then_some(())
    }

    /// Reads an object with only `keys`, each at most once, the first `needed` of them required. `value` reads each
    /// value.
    fn object(
        &mut self,
        keys: &[&'static str],
        needed: usize,
        value: impl Fn(&mut Self, &'static str) -> Option<()>,
    ) -> Option<()> {
        self.take(b'{')?;
        let mut seen = 0_u32;
        if self.take(b'}').is_none() {
            loop {
                let [_, name @ .., _] = self.text()? else {
                    return None;
                };
                let place = keys.iter().position(|key| key.as_bytes() == name)?;
                if seen & 1 << place != 0 {
                    return None;
                }
                seen |= 1 << place;
                self.take(b':')?;
                value(self, keys[place])?;
                if self.take(b',').is_none() {
                    self.take(b'}')?;
                    break;
                }
            }
        }
        (seen.trailing_ones() as usize >= needed).then_some(())
    }

    /// Reads a value that is neither an object nor an array.
    fn scalar(&mut self) -> Option<()> {
        if let Some(text) = self.text() {
            let plain = !text.contains(&b'\\');
            return (plain || unescaped(text).is_some()).then_some(());
        }
        if let words @ Some(()) = ["true", "false", "null"].iter().find_map(|w| self.word(w)) {
            return words;
        }
        let (digits, least) = match self.rest.strip_prefix(b"-") {
            Some(digits) => (digits, b'1'),
            None => (self.rest, b'0'),
        };
        let length = digits.iter().take_while(|d| d.is_ascii_digit()).count();
        let first = *digits.first()?;
        let is_number = (1..=MAX_DIGITS).contains(&length) && first >= least;
        self.rest = &digits[length..];
        (is_number && (first != b'0' || length == 1)).then_some(())
    }

    /// Reads a string in its JSON form, with quotes.
    fn text(&mut self) -> Option<&'a [u8]> {
        self.spaces();
        let mut end = self.rest.starts_with(b"\"").then_some(1)?;
        // A loop, because most are too short for a search to pay off.
        loop {
            match self.rest.get(end)? {
                b'"' => break,
                b'\\' => end += 2,
                _ => end += 1,
            }
        }
        let (text, rest) = self.rest.split_at(end + 1);
        self.rest = rest;
        Some(text)
    }

    fn word(&mut self, word: &str) -> Option<()> {
        self.spaces();
        self.rest = self.rest.strip_prefix(word.as_bytes())?;
        Some(())
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        self.spaces();
        match self.rest {
            [first, rest @ ..] if *first == byte => {
                self.rest = rest;
                Some(())
            }
            _ => None,
        }
    }

    fn spaces(&mut self) {
        while let [b' ', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }
}

/// Decodes the JSON string `text`.
fn unescaped(text: &[u8]) -> Option<String> {
    serde_json::from_slice(text).ok()
}
