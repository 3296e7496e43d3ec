//! The base protocol of DAP: `Content-Length: N`, a blank line, N bytes of JSON.
//!
//! Pure. [`Frames`] takes bytes as they arrive and yields whole bodies, for the part of a session in which the relay
//! itself takes part; [`header`] also serves code that forwards bodies unread.
//! Source: Debug Adapter Protocol specification, "Base Protocol".

use bytes::{Buf, BytesMut};
use memchr::{memchr_iter, memchr3_iter};
use serde_json::Value;

use crate::memory::{Account, MemoryUse, OutOfMemory, Reservation};

/// Longest header block, blank line included. The specification knows one header of some 30 bytes.
pub const MAX_HEADER_BYTES: usize = 512;

/// The bytes are not a DAP frame, or not an acceptable one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// No blank line within [`MAX_HEADER_BYTES`] bytes.
    #[error("the header of a debug adapter message is longer than {MAX_HEADER_BYTES} bytes")]
    HeaderTooLong,
    /// A header block without exactly one readable `Content-Length`.
    #[error("the header of a debug adapter message has no valid Content-Length")]
    BadHeader,
    /// The body is larger than the limit.
    #[error(
        "a debug adapter message of {length} bytes is more than the {limit} bytes that are taken here"
    )]
    TooLarge {
        /// Announced body length in bytes.
        length: u64,
        /// Largest body that is accepted, in bytes.
        limit: usize,
    },
    /// The body is not a JSON object.
    #[error("a debug adapter message is not a JSON object")]
    NotJson,
    /// There is no memory to hold it.
    #[error("a debug adapter message is not held: {0}")]
    Short(#[from] OutOfMemory),
    /// The body declares its type more than once, or as something it is not.
    #[error("a debug adapter message is ambiguous about what it is")]
    Ambiguous,
}

/// Parses a header block at the start of `bytes`. Returns its own length and the length of the body, both in bytes;
/// `None` while it is incomplete.
///
/// # Errors
/// Every [`FrameError`] that is about a header.
pub fn header(bytes: &[u8], limit: usize) -> Result<Option<(usize, usize)>, FrameError> {
    let window = &bytes[..bytes.len().min(MAX_HEADER_BYTES)];
    let blank = memchr_iter(b'\n', window).find(|at| window[..=*at].ends_with(b"\r\n\r\n"));
    let Some(end) = blank.map(|at| at - 3) else {
        return if window.len() == MAX_HEADER_BYTES {
            Err(FrameError::HeaderTooLong)
        } else {
            Ok(None)
        };
    };
    let mut length = None;
    for line in window[..end].split(|b| *b == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let colon = line
            .iter()
            .position(|b| *b == b':')
            .ok_or(FrameError::BadHeader)?;
        if line[..colon].eq_ignore_ascii_case(b"content-length") {
            let digits = line[colon + 1..].trim_ascii();
            // Two lengths are a way to smuggle messages past a reader that uses the other one.
            if length.is_some()
                || digits.is_empty()
                || digits.len() > 18
                || !digits.iter().all(u8::is_ascii_digit)
            {
                return Err(FrameError::BadHeader);
            }
            length = Some(
                digits
                    .iter()
                    .fold(0u64, |n, d| n * 10 + u64::from(d - b'0')),
            );
        }
    }
    let length = length.ok_or(FrameError::BadHeader)?;
    match usize::try_from(length) {
        Ok(body) if body <= limit => Ok(Some((end + 4, body))),
        _ => Err(FrameError::TooLarge { length, limit }),
    }
}

/// Whether every reader parses `header` alike. The specification allows more header lines, and editors differ about
/// those and about letter case. A reader with another idea of the length would take a part of the body for the next
/// message.
pub(crate) fn is_plain_header(header: &[u8]) -> bool {
    let length = header
        .strip_prefix(b"Content-Length: ")
        .and_then(|line| line.strip_suffix(b"\r\n\r\n"));
    length.is_some_and(|digits| {
        digits.iter().all(u8::is_ascii_digit) && !(digits.len() > 1 && digits[0] == b'0')
    })
}

/// Appends `body` with its header to `to`.
pub fn put_frame(to: &mut Vec<u8>, body: &[u8]) {
    to.extend_from_slice(b"Content-Length: ");
    to.extend_from_slice(body.len().to_string().as_bytes());
    to.extend_from_slice(b"\r\n\r\n");
    to.extend_from_slice(body);
}

/// `message` as a frame: header and body.
pub fn frame(message: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_frame(&mut bytes, message.to_string().as_bytes());
    bytes
}

/// Reads `body` as a JSON object.
///
/// # Errors
/// [`FrameError::NotJson`].
pub fn parse(body: &[u8]) -> Result<Value, FrameError> {
    match serde_json::from_slice(body) {
        Ok(value @ Value::Object(_)) => Ok(value),
        _ => Err(FrameError::NotJson),
    }
}

/// Replaces each escaped unpaired surrogate in `body`, which Python writes and JSON parsers refuse, by a replacement
/// character.
pub fn without_lone_surrogates(body: &[u8]) -> Vec<u8> {
    let escaped = |at: usize| {
        let digits = body.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let mut out = Vec::with_capacity(body.len());
    let mut at = 0;
    while at < body.len() {
        let length = match (body[at], escaped(at), escaped(at + 6)) {
            (b'\\', Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (b'\\', Some(0xd800..=0xdfff), _) => {
                out.extend_from_slice(b"\\ufffd");
                at += 6;
                continue;
            }
            (b'\\', ..) => 2,
            _ => 1,
        };
        let end = body.len().min(at + length);
        out.extend_from_slice(&body[at..end]);
        at = end;
    }
    out
}

/// Largest memory of a JSON value in addition to its text.
const VALUE_OVERHEAD_BYTES: usize = 96;

/// Bytes that may be inspected even without memory: the debugger's message that a thread stopped, and the editor's
/// that it continues.
pub const UNCOUNTED_BYTES: usize = 16 * 1024;

/// Memory to inspect `body`, in bytes: the text, its values, and what is derived from them.
pub fn weight(body: &[u8]) -> usize {
    3 * body.len() + VALUE_OVERHEAD_BYTES * memchr3_iter(b',', b'{', b'[', body).count()
}

/// Cuts a stream of bytes into bodies.
#[derive(Debug)]
pub struct Frames {
    bytes: BytesMut,
    limit: usize,
    /// For the current message, or the last one.
    reserved: Reservation,
}

impl Frames {
    /// Frames whose bodies have at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            bytes: BytesMut::new(),
            limit,
            reserved: Account::default().empty(MemoryUse::Messages),
        }
    }

    /// Charges memory to `account` from now on.
    pub fn count(&mut self, account: &Account) {
        self.reserved = account.empty(MemoryUse::Messages);
    }

    /// Raises the limit: from now on bodies may have `limit` bytes.
    pub fn allow(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// The buffer to read the next bytes into.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.bytes
    }

    /// The next whole body, or `None` while it is incomplete. Buffers at most one header, `limit` and the surplus of
    /// one read.
    ///
    /// # Errors
    /// As [`header`], and [`FrameError::Short`].
    pub fn next_body(&mut self) -> Result<Option<BytesMut>, FrameError> {
        let Some((head, body)) = header(&self.bytes, self.limit)? else {
            self.reserved.insist(self.bytes.len());
            return Ok(None);
        };
        if self.bytes.len() < head + body {
            // The buffer grows by doubling.
            self.reserved.resize(2 * self.bytes.len())?;
            return Ok(None);
        }
        self.bytes.advance(head);
        let body = self.bytes.split_to(body);
        self.reserved.resize(self.bytes.len() + weight(&body))?;
        Ok(Some(body))
    }

    /// Returns the bytes read beyond the last body, which belong to the next reader of the stream.
    pub fn into_rest(self) -> BytesMut {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn header_is_parsed_by_the_specification_only() {
        assert_eq!(
            header(b"Content-Length: 5\r\n\r\nhello", 10),
            Ok(Some((21, 5)))
        );
        assert_eq!(
            header(b"content-length:5\r\nX: y\r\n\r\n", 10),
            Ok(Some((26, 5)))
        );
        assert_eq!(header(b"Content-Length: 5\r\n", 10), Ok(None));
        for invalid in [
            "Content-Length: -1\r\n\r\n",
            "Content-Length: +5\r\n\r\n",
            "Content-Length: - 5\r\n\r\n",
            "Content-Length: 5 5\r\n\r\n",
            "Content-Length:\r\n\r\n",
            "X: 5\r\n\r\n",
            "Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "Content-Length: 0x5\r\n\r\n",
            "\r\n\r\n",
        ] {
            assert_eq!(
                header(invalid.as_bytes(), 10),
                Err(FrameError::BadHeader),
                "{invalid:?}"
            );
        }
        assert_eq!(
            header(b"Content-Length: 11\r\n\r\n", 10),
            Err(FrameError::TooLarge {
                length: 11,
                limit: 10
            })
        );
        assert_eq!(
            header(&[b'x'; MAX_HEADER_BYTES], 10),
            Err(FrameError::HeaderTooLong)
        );
    }

    #[test]
    fn plain_header_has_one_reading() {
        assert!(is_plain_header(b"Content-Length: 5\r\n\r\n"));
        for other in [
            "content-length: 5\r\n\r\n",
            "Content-Length:5\r\n\r\n",
            "Content-Length:  5\r\n\r\n",
            "Content-Length: \t5\r\n\r\n",
            "Content-Length: +5\r\n\r\n",
            "Content-Length: 05\r\n\r\n",
            "Content-Length: 5 \r\n\r\n",
            "Content-Length: 5\r\nX: y\r\n\r\n",
            "X: y\r\nContent-Length: 5\r\n\r\n",
        ] {
            assert!(!is_plain_header(other.as_bytes()), "{other:?}");
        }
    }

    #[test]
    fn lone_surrogates_are_replaced() {
        let valid = br#"{"a": "\ud83d\ude00 \\ud83d \u00e4"}"#;
        assert_eq!(without_lone_surrogates(valid), valid);
        let unpaired = br#"{"a": "\udc80\ud83d\ud83d\ude00"}"#;
        assert!(parse(unpaired).is_err());
        let parsed = parse(&without_lone_surrogates(unpaired)).expect("it is JSON now");
        assert_eq!(parsed["a"], "\u{fffd}\u{fffd}\u{1f600}");
    }

    proptest! {
        #[test]
        fn bodies_are_reassembled_at_any_split(
            bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 1..6),
            cuts in proptest::collection::vec(1usize..40, 1..40),
        ) {
            let mut wire = Vec::new();
            for body in &bodies {
                put_frame(&mut wire, body);
            }
            let mut frames = Frames::new(50);
            let mut out = Vec::new();
            let mut cuts = cuts.into_iter().cycle();
            let mut rest = wire.as_slice();
            while !rest.is_empty() {
                let (now, later) = rest.split_at(cuts.next().unwrap_or(1).min(rest.len()));
                frames.buffer().extend_from_slice(now);
                while let Some(body) = frames.next_body().expect("frames are good") {
                    out.push(body.to_vec());
                }
                rest = later;
            }
            prop_assert_eq!(out, bodies);
            prop_assert!(frames.into_rest().is_empty());
        }

        #[test]
        fn any_header_is_parsed_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
            let _ = header(&bytes, 100);
        }
    }
}
