//! The frame scanner: finds the bounds of frames in a passing stream, and the frames that must be held.
//!
//! Pure. The relay holds the bytes that it read and asks what to do with the front of them. A frame that need not be
//! captured is forwarded as soon as its beginning decides that; bytes are scanned once. If the beginning alone decides
//! ([`Depth::Deciding`]), the rest is scanned as it passes. A message that turns out to be of another type is captured
//! if it is all here; otherwise it is never completed.

use crate::wire::dap::codec::{FrameError, header, is_plain_header};
use crate::wire::dap::peek::{Depth, MessageType, Peek, Walk};
use crate::wire::dap::rest::{AmbiguousMessage, Rest};

/// Bytes of a body to scan before it is captured without a decision ([`Depth::Deciding`]).
const MAX_PEEKED_BYTES: usize = 512;

/// The messages of one direction to capture.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// How much of a message is scanned.
    pub depth: Depth,
    /// Whether a message is captured.
    pub captures: fn(MessageType, &[u8]) -> bool,
    /// Largest captured body, in bytes.
    pub max_captured: usize,
    /// Largest body that passes, in bytes.
    pub max_passed: usize,
}

/// The caller's next action on the front of the bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum ScanStep {
    /// Forward this many.
    Forward(usize),
    /// Wait for more bytes.
    More,
    /// Remove a frame of `frame` bytes, header included; it is not forwarded.
    Captured {
        /// Length of the header in bytes.
        head: usize,
        /// Length of the whole in bytes.
        frame: usize,
    },
}

/// The decision on a message.
enum ScanDecision {
    Captured,
    /// It passes; this many bytes of its body were scanned.
    Passes {
        seen: usize,
    },
}

#[derive(Debug, Clone, Copy)]
enum At {
    /// Before a frame or in its header.
    Start,
    /// In an undecided frame.
    Open { head: usize, body: usize },
    /// In a captured frame.
    Captured { head: usize, frame: usize },
    /// In a passing frame with `remaining` bytes to come, of which the first `seen` were scanned before.
    Passing { remaining: usize, seen: usize },
}

impl From<AmbiguousMessage> for FrameError {
    fn from(_: AmbiguousMessage) -> Self {
        Self::Ambiguous
    }
}

/// Finds the frames of one direction, and tracks the position in them.
#[derive(Debug)]
pub struct Scanner {
    rules: Rules,
    /// A command whose responses are captured as well.
    answers: Option<&'static [u8]>,
    at: At,
    /// The scan of the undecided frame's body.
    walk: Walk,
    /// The scan of the passing frame's rest, if its beginning decided.
    rest: Rest,
}

impl Scanner {
    /// A scanner at the start of a frame.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            answers: None,
            at: At::Start,
            walk: Walk::new(rules.depth),
            rest: Rest::new(),
        }
    }

    /// Captures the responses to `command` as well, from the next undecided frame on.
    pub fn capture_answers(&mut self, command: &'static [u8]) {
        self.answers = Some(command);
    }

    /// Applies `rules`, and only these, from the next undecided frame on.
    pub fn follow(&mut self, rules: Rules) {
        self.rules = rules;
        self.answers = None;
    }

    /// Gives up the held frame, and continues with the next one. Returns the frame's length if known, else 0.
    pub fn give_up(&mut self) -> usize {
        let frame = self.expected();
        if frame > 0 {
            self.at = At::Start;
        }
        frame
    }

    /// Whether no frame is half forwarded, so that something else may be sent now.
    pub(crate) fn between_frames(&self) -> bool {
        !matches!(self.at, At::Passing { .. })
    }

    /// Number of bytes to hold before the next [`ScanStep`] that consumes any, if known; else 0.
    pub fn expected(&self) -> usize {
        match self.at {
            At::Start | At::Passing { .. } => 0,
            At::Open { head, body } => head + body,
            At::Captured { frame, .. } => frame,
        }
    }

    /// Decides on the front of `bytes`, which are not empty and not consumed by a step yet. After [`ScanStep::More`]
    /// they must begin with the same bytes again.
    ///
    /// # Errors
    /// [`FrameError`] if the stream is not DAP or a frame exceeds a limit: the stream cannot be followed further.
    pub fn step(&mut self, bytes: &[u8]) -> Result<ScanStep, FrameError> {
        if let At::Start = self.at {
            let Some((head, body)) = header(bytes, self.rules.max_passed)? else {
                return Ok(ScanStep::More);
            };
            self.walk = Walk::new(self.rules.depth);
            self.rest = Rest::new();
            self.at = match self.rules.depth {
                // The header would differ for some readers, so it must not be forwarded.
                Depth::Deciding if !is_plain_header(&bytes[..head]) => {
                    let frame = head + self.held(body)?;
                    At::Captured { head, frame }
                }
                _ => At::Open { head, body },
            };
        }
        if let At::Open { head, body } = self.at {
            let frame = head + body;
            let seen = &bytes[head..bytes.len().min(frame)];
            self.at = match self.decide(seen, body)? {
                None => return Ok(ScanStep::More),
                Some(ScanDecision::Captured) => At::Captured { head, frame },
                Some(ScanDecision::Passes { seen }) => At::Passing {
                    remaining: frame,
                    seen: head + seen,
                },
            };
        }
        match self.at {
            At::Passing { remaining, seen } => {
                let here = remaining.min(bytes.len());
                let seen = seen.min(here);
                let now = match seen < here {
                    true => seen + self.rest.pass(&bytes[seen..here])?,
                    false => here,
                };
                self.at = match remaining - now {
                    0 => At::Start,
                    // The message ends in the middle of a key.
                    _ if here == remaining => return Err(FrameError::Ambiguous),
                    remaining => At::Passing { remaining, seen: 0 },
                };
                Ok(match now {
                    0 => ScanStep::More,
                    now => ScanStep::Forward(now),
                })
            }
            At::Captured { head, frame } if bytes.len() >= frame => {
                self.at = At::Start;
                Ok(ScanStep::Captured { head, frame })
            }
            _ => Ok(ScanStep::More),
        }
    }

    /// Decides on the message that begins with `seen`; `None` while that is open.
    fn decide(&mut self, seen: &[u8], body: usize) -> Result<Option<ScanDecision>, FrameError> {
        let whole = self.rules.depth == Depth::Whole;
        let captured = match self.walk.peek(seen, body) {
            Peek::Known(kind, name) => {
                let fits = body <= self.rules.max_captured;
                (self.rules.captures)(kind, name)
                    || kind == MessageType::Response && self.answers == Some(name) && fits
                    || !whole && !self.walk.is_usual(kind)
            }
            Peek::Unclear => true,
            Peek::More if !whole && seen.len() >= MAX_PEEKED_BYTES => true,
            Peek::More => {
                // The decision needs the whole message, so the limit of captured messages applies.
                if whole {
                    self.held(body)?;
                }
                return Ok(None);
            }
        };
        let seen_now = match captured {
            false if whole => Some(body),
            false if seen.len() == body => {
                // The message is complete.
                let ends = self.rest.pass(&seen[self.walk.looked_at()..]);
                (ends.is_ok() && self.rest.is_over()).then_some(body)
            }
            false => Some(self.walk.looked_at()),
            true => None,
        };
        Ok(Some(match seen_now {
            Some(seen) => ScanDecision::Passes { seen },
            None => {
                self.held(body)?;
                ScanDecision::Captured
            }
        }))
    }

    /// Checks that a body of this length may be held, and returns the length.
    fn held(&self, body: usize) -> Result<usize, FrameError> {
        match body > self.rules.max_captured {
            true => Err(FrameError::TooLarge {
                length: body as u64,
                limit: self.rules.max_captured,
            }),
            false => Ok(body),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::wire::dap::codec::put_frame;

    fn rules(depth: Depth) -> Rules {
        Rules {
            depth,
            captures: |_, name| name == b"take",
            max_captured: 2000,
            max_passed: 100_000,
        }
    }

    /// Feeds `chunks`, and returns the forwarded bytes and the captured bodies.
    fn scan(depth: Depth, chunks: &[&[u8]]) -> Result<(Vec<u8>, Vec<Vec<u8>>), FrameError> {
        let mut scanner = Scanner::new(rules(depth));
        let (mut forwarded, mut captured) = (Vec::new(), Vec::new());
        let mut pending = Vec::new();
        for chunk in chunks {
            pending.extend_from_slice(chunk);
            while !pending.is_empty() {
                match scanner.step(&pending)? {
                    ScanStep::Forward(n) => forwarded.extend(pending.drain(..n)),
                    ScanStep::More => break,
                    ScanStep::Captured { head, frame } => {
                        captured.push(pending[head..frame].to_vec());
                        pending.drain(..frame);
                    }
                }
            }
        }
        Ok((forwarded, captured))
    }

    fn message(name: &str, filler: usize, name_last: bool) -> Vec<u8> {
        let filler = "x".repeat(filler);
        let value = if name_last {
            json!({"body": filler, "type": "event", "event": name})
        } else {
            json!({"type": "event", "event": name, "body": filler})
        };
        value.to_string().into_bytes()
    }

    #[test]
    fn frame_in_one_chunk_is_forwarded_in_place() {
        let mut wire = Vec::new();
        put_frame(&mut wire, &message("pass", 10, false));
        assert_eq!(
            Scanner::new(rules(Depth::Deciding)).step(&wire),
            Ok(ScanStep::Forward(wire.len()))
        );
    }

    #[test]
    fn late_name_is_captured_rather_than_guessed() {
        let mut wire = Vec::new();
        put_frame(&mut wire, &message("pass", 1500, true));
        let (head_bytes, tail_bytes) = wire.split_at(700);
        let (forwarded, captured) = scan(Depth::Deciding, &[head_bytes, tail_bytes]).unwrap();
        assert!(forwarded.is_empty());
        assert_eq!(captured.len(), 1);
        let (_, captured) = scan(Depth::Deciding, &[&wire]).unwrap();
        assert_eq!(captured.len(), 1, "no debugger writes that first");
        wire.clear();
        put_frame(&mut wire, &message("pass", 3000, true));
        let (head_bytes, tail_bytes) = wire.split_at(700);
        assert!(matches!(
            scan(Depth::Deciding, &[head_bytes, tail_bytes]),
            Err(FrameError::TooLarge { limit: 2000, .. })
        ));
    }

    #[test]
    fn ambiguous_message_is_captured_or_cut_off() {
        let ambiguous = |filler: usize| {
            format!(
                r#"{{"seq":1,"type":"event","event":"pass","x":"{}","type":"request","command":"runInTerminal"}}"#,
                "y".repeat(filler)
            )
        };
        let mut wire = Vec::new();
        put_frame(&mut wire, ambiguous(10).as_bytes());
        let (forwarded, captured) = scan(Depth::Deciding, &[&wire]).unwrap();
        assert!(forwarded.is_empty());
        assert_eq!(captured.len(), 1);

        wire.clear();
        put_frame(&mut wire, ambiguous(3000).as_bytes());
        let mut scanner = Scanner::new(rules(Depth::Deciding));
        let mut offset = 0;
        let error = loop {
            match scanner.step(&wire[offset..wire.len().min(offset + 700)]) {
                Ok(ScanStep::Forward(n)) => offset += n,
                Ok(other) => panic!("{other:?}"),
                Err(error) => break error,
            }
        };
        assert_eq!(error, FrameError::Ambiguous);
        assert!(offset < wire.len() - "\"type\":\"request\"".len());
        assert!(!scanner.between_frames(), "nothing may be put into it");
    }

    #[test]
    fn ambiguous_header_is_not_forwarded() {
        let body = message("pass", 10, false);
        for header in ["content-length", "X: y\r\nContent-Length"] {
            let wire = [
                format!("{header}: {}\r\n\r\n", body.len()).as_bytes(),
                &body,
            ]
            .concat();
            let (forwarded, captured) = scan(Depth::Deciding, &[&wire]).unwrap();
            assert!(forwarded.is_empty());
            assert_eq!(captured, [&*body]);
        }
    }

    #[test]
    fn empty_body_is_captured() {
        let (_, captured) = scan(Depth::Whole, &[b"Content-Length: 0\r\n", b"\r\n"]).unwrap();
        assert_eq!(captured, [b""]);
    }

    /// A long response belongs to a request of the client: the relay's own requests have short responses.
    #[test]
    fn overlong_answer_passes_unless_its_command_is_captured() {
        let mut wire = Vec::new();
        let answer = |length: usize| {
            let body = json!({"result": "x".repeat(length)});
            json!({"seq": 1, "type": "response", "request_seq": 2, "success": true, "command": "pass", "body": body})
        };
        for length in [10, 5000] {
            put_frame(&mut wire, answer(length).to_string().as_bytes());
        }
        let mut scanner = Scanner::new(rules(Depth::Deciding));
        scanner.capture_answers(b"pass");
        let (mut captured, mut offset) = (0, 0);
        while offset < wire.len() {
            match scanner.step(&wire[offset..]).unwrap() {
                ScanStep::Captured { frame, .. } => {
                    (captured, offset) = (captured + 1, offset + frame)
                }
                ScanStep::Forward(count) => offset += count,
                ScanStep::More => panic!("all is there"),
            }
        }
        assert_eq!(captured, 1);
    }

    #[test]
    fn long_message_is_scanned_in_linear_time() {
        let mut wire = Vec::new();
        put_frame(&mut wire, &message("pass", 4 << 20, true));
        let mut scanner = Scanner::new(Rules {
            max_captured: 1 << 23,
            max_passed: 1 << 23,
            ..rules(Depth::Whole)
        });
        // Rescanning from the start each time would read 130 GB.
        for end in (1..wire.len()).step_by(64) {
            assert_eq!(scanner.step(&wire[..end]), Ok(ScanStep::More));
            assert!(scanner.between_frames());
        }
        assert_eq!(scanner.step(&wire), Ok(ScanStep::Forward(wire.len())));
    }

    proptest! {
        #[test]
        fn nothing_is_lost_or_reordered_at_any_split(
            messages in proptest::collection::vec((any::<bool>(), 0usize..900, any::<bool>()), 1..8),
            cuts in proptest::collection::vec(1usize..300, 1..20),
            whole in any::<bool>(),
        ) {
            let depth = if whole { Depth::Whole } else { Depth::Deciding };
            let (mut wire, mut passed, mut captured_bodies) = (Vec::new(), Vec::new(), Vec::new());
            for (is_captured, filler, name_last) in messages {
                let body = message(if is_captured { "take" } else { "pass" }, filler, name_last && filler < 400);
                put_frame(&mut wire, &body);
                let is_captured = is_captured || !whole && name_last && filler < 400;
                if is_captured { captured_bodies.push(body) } else { put_frame(&mut passed, &body) }
            }
            let mut chunks = Vec::new();
            let (mut rest, mut cuts) = (wire.as_slice(), cuts.into_iter().cycle());
            while !rest.is_empty() {
                let (count, tail) = rest.split_at(cuts.next().unwrap().min(rest.len()));
                chunks.push(count);
                rest = tail;
            }
            let (forwarded, captured) = scan(depth, &chunks).unwrap();
            prop_assert_eq!(forwarded, passed);
            prop_assert_eq!(captured, captured_bodies);
        }
    }
}
