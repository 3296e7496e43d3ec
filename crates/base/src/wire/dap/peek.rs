//! Peeking: the type of a message, found without parsing its body.
//!
//! Pure. The relay peeks at each frame that passes and forwards nearly all of them unchanged; only messages that must
//! be rewritten are parsed. Python and editors use the *last* of two equal keys: `{"command":"threads", …
//! ,"command":"terminate"}` must not pass as `threads`. Towards the worker the whole object is scanned before any of
//! it passes. Towards the client, where messages are long, the first keys decide, and the message is walked by its
//! [schema](super::schema) as it passes.

use memchr::memchr2;

use super::inside::{Inside, rest_of_text, spaces};

/// `type` of a protocol message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageType {
    /// A message with `"type": "request"`.
    Request,
    /// A message with `"type": "response"`.
    Response,
    /// A message with `"type": "event"`.
    Event,
}

/// The result of a peek at the first bytes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peek<'a> {
    /// The type, and the `command` or `event` it names (raw bytes, free of escapes).
    Known(MessageType, &'a [u8]),
    /// A JSON parser has to decide: escapes, duplicates, unusual order, or no JSON at all.
    Unclear,
    /// The bytes so far do not suffice.
    More,
}

/// How much of the object must be scanned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// The object up to the deciding keys.
    Deciding,
    /// All top-level keys.
    Whole,
}

/// An incremental scan of one body: it continues where it stopped, so that a body in many pieces is read once.
#[derive(Debug, Clone, Copy)]
pub struct Walk {
    depth: Depth,
    /// Everything before this byte has been scanned.
    at: usize,
    state: PeekState,
    kind: Option<MessageType>,
    command: Option<PeekedText>,
    event: Option<PeekedText>,
    seq: Option<u64>,
}

/// The position of a string without escapes in the body.
#[derive(Debug, Clone, Copy)]
struct PeekedText {
    start: usize,
    end: usize,
}

/// Keys whose values decide.
#[derive(Debug, Clone, Copy)]
enum PeekedField {
    Kind,
    Command,
    Event,
}

/// The value that follows a key.
#[derive(Debug, Clone, Copy)]
enum PeekedValue {
    Deciding(PeekedField),
    /// The message's number, which decides nothing.
    Seq,
    Other,
}

#[derive(Debug, Clone, Copy)]
enum PeekState {
    /// Before the `{` of the message.
    Open,
    /// Before a key.
    Key,
    /// In a key that begins at this byte.
    InKey(usize),
    /// Before the `:` between a key and this value.
    Colon(PeekedValue),
    /// Before this value.
    Value(PeekedValue),
    /// In a deciding value, which begins at this byte.
    InText(PeekedField, usize),
    /// In a value that is a string.
    InString,
    /// In a value that is a list or an object.
    Nested(Inside),
    /// In a number or a word.
    Scalar,
    /// In the message's number, which begins at this byte.
    InSeq(usize),
    /// Behind a value.
    After,
    /// Behind the `}` of the message.
    Over,
    /// Undecidable from here on.
    Unclear,
}

impl Walk {
    /// A walk at the start of a body.
    pub fn new(depth: Depth) -> Self {
        Self {
            depth,
            at: 0,
            state: PeekState::Open,
            kind: None,
            command: None,
            event: None,
            seq: None,
        }
    }

    /// The message's number, if it is in `body`: all of its bytes that are here, the scanned ones first.
    pub fn seq(mut self, body: &[u8]) -> Option<u64> {
        self.depth = Depth::Whole;
        match self.peek(body, usize::MAX) {
            Peek::Unclear => None,
            Peek::Known(..) | Peek::More => self.seq,
        }
    }

    /// Scans `body`, the first bytes of a message of `length` bytes in all: the bytes of the last call, and more.
    pub fn peek<'a>(&mut self, body: &'a [u8], length: usize) -> Peek<'a> {
        loop {
            match self.state {
                PeekState::Over => return self.known(body).unwrap_or(Peek::Unclear),
                PeekState::Unclear => return Peek::Unclear,
                PeekState::After if self.depth == Depth::Deciding => {
                    if let Some(known) = self.known(body) {
                        return known;
                    }
                }
                _ => {}
            }
            match self.step(body) {
                Some(next) => self.state = next,
                None if body.len() < length => return Peek::More,
                None => self.state = PeekState::Unclear,
            }
        }
    }

    /// The state behind the next token; `None` if the bytes end within it.
    fn step(&mut self, body: &[u8]) -> Option<PeekState> {
        Some(match self.state {
            PeekState::Open => match self.after_space(body)? {
                b'{' => PeekState::Key,
                _ => PeekState::Unclear,
            },
            PeekState::Key => match self.after_space(body)? {
                b'"' => PeekState::InKey(self.at),
                _ => PeekState::Unclear,
            },
            PeekState::InKey(start) => match self.plain_text(body, start)? {
                None => PeekState::Unclear,
                Some(text) => PeekState::Colon(Self::field(text.of(body))),
            },
            PeekState::Colon(slot) => match self.after_space(body)? {
                b':' => PeekState::Value(slot),
                _ => PeekState::Unclear,
            },
            PeekState::Value(PeekedValue::Seq) => match self.after_space(body)? {
                b'0'..=b'9' => PeekState::InSeq(self.at - 1),
                first => Self::value(first),
            },
            PeekState::Value(PeekedValue::Deciding(slot)) => match self.after_space(body)? {
                b'"' => PeekState::InText(slot, self.at),
                _ => PeekState::Unclear,
            },
            PeekState::Value(PeekedValue::Other) => Self::value(self.after_space(body)?),
            PeekState::InText(slot, start) => match self.plain_text(body, start)? {
                None => PeekState::Unclear,
                Some(text) => self.store(slot, text, body),
            },
            PeekState::InString => {
                self.skip_string(body)?;
                PeekState::After
            }
            PeekState::Nested(mut inside) => {
                self.at += inside.pass(&body[self.at..]);
                if inside.open > 0 {
                    self.state = PeekState::Nested(inside);
                    return None;
                }
                PeekState::After
            }
            PeekState::Scalar => {
                self.skip_scalar(body)?;
                PeekState::After
            }
            PeekState::InSeq(start) => {
                let end = self.skip_scalar(body)?;
                match number(&body[start..end]) {
                    Some(seq) => store(&mut self.seq, seq),
                    None => PeekState::Unclear,
                }
            }
            PeekState::After => match self.after_space(body)? {
                b',' => PeekState::Key,
                b'}' => PeekState::Over,
                _ => PeekState::Unclear,
            },
            ended @ (PeekState::Over | PeekState::Unclear) => ended,
        })
    }

    /// The state in a value that does not decide, behind its first byte.
    fn value(first: u8) -> PeekState {
        match first {
            b'"' => PeekState::InString,
            b'{' | b'[' => PeekState::Nested(Inside::begun()),
            _ => PeekState::Scalar,
        }
    }

    /// The value that follows this key.
    #[inline]
    fn field(key: &[u8]) -> PeekedValue {
        match key {
            b"type" => PeekedValue::Deciding(PeekedField::Kind),
            b"command" => PeekedValue::Deciding(PeekedField::Command),
            b"event" => PeekedValue::Deciding(PeekedField::Event),
            b"seq" => PeekedValue::Seq,
            _ => PeekedValue::Other,
        }
    }

    /// Stores the text of a deciding key, and returns the state behind it.
    #[inline]
    fn store(&mut self, field: PeekedField, text: PeekedText, body: &[u8]) -> PeekState {
        match field {
            PeekedField::Kind => match text.of(body) {
                b"request" => store(&mut self.kind, MessageType::Request),
                b"response" => store(&mut self.kind, MessageType::Response),
                b"event" => store(&mut self.kind, MessageType::Event),
                _ => PeekState::Unclear,
            },
            PeekedField::Command => store(&mut self.command, text),
            PeekedField::Event => store(&mut self.event, text),
        }
    }

    fn known<'a>(&self, body: &'a [u8]) -> Option<Peek<'a>> {
        let kind = self.kind?;
        let name = match kind {
            MessageType::Request | MessageType::Response => self.command?,
            MessageType::Event => self.event?,
        };
        Some(Peek::Known(kind, name.of(body)))
    }

    /// Consumes the next byte that is not white space.
    fn after_space(&mut self, body: &[u8]) -> Option<u8> {
        self.at += spaces(&body[self.at..]);
        let byte = *body.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    /// Consumes the rest of a string that began at `start`, and its closing quote; `Some(None)` if it has escapes.
    fn plain_text(&mut self, body: &[u8], start: usize) -> Option<Option<PeekedText>> {
        let found = memchr2(b'"', b'\\', &body[self.at..]);
        self.at = found.map_or(body.len(), |n| self.at + n + 1);
        found?;
        let end = self.at - 1;
        Some((body[end] == b'"').then_some(PeekedText { start, end }))
    }

    /// Consumes a number or a word; returns its end. The byte behind it is scanned again.
    fn skip_scalar(&mut self, body: &[u8]) -> Option<usize> {
        let found = memchr2(b',', b'}', &body[self.at..]);
        self.at = found.map_or(body.len(), |n| self.at + n);
        found.map(|_| self.at)
    }

    /// Consumes the rest of a string and its closing quote.
    fn skip_string(&mut self, body: &[u8]) -> Option<()> {
        let (read, ends) = rest_of_text(&body[self.at..]);
        self.at += read;
        ends.then_some(())
    }
}

/// Stores a value, and returns the state behind it. Readers differ about which of two equal keys counts.
#[inline]
fn store<T>(stored: &mut Option<T>, value: T) -> PeekState {
    match stored {
        Some(_) => PeekState::Unclear,
        None => {
            *stored = Some(value);
            PeekState::After
        }
    }
}

/// The whole number that is all of `text`, but for spaces behind it.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    str::from_utf8(text).ok()?.trim_ascii_end().parse().ok()
}

impl PeekedText {
    fn of(self, body: &[u8]) -> &[u8] {
        &body[self.start..self.end]
    }
}

#[cfg(test)]
mod tests;
