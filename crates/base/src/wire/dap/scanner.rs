//! The frame scanner: where frames begin and end in a passing stream, and which of them have to be held.
//!
//! Pure. What relays a session holds what was read and asks what to do with the front of it. A frame that need not
//! be seen is forwarded as soon as its beginning decides that; what is asked about again is not looked at again. Where the
//! beginning alone decides ([`Depth::Deciding`]), the rest is walked as it passes: a message that turns out to be another one
//! is captured while it is all here, and else never ends.

use crate::wire::dap::codec::{FrameError, header, is_plain_header};
use crate::wire::dap::peek::{Depth, MessageType, Peek, Walk};
use crate::wire::dap::rest::{AmbiguousMessage, Rest};

/// Bytes of a body that are looked at before it is captured for want of an answer ([`Depth::Deciding`]).
const WINDOW: usize = 512;

/// Which messages of one direction are captured.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// How much of a message is looked at.
    pub depth: Depth,
    /// Whether a message is captured.
    pub captures: fn(MessageType, &[u8]) -> bool,
    /// Largest captured body, in bytes.
    pub max_captured: usize,
    /// Largest body that passes, in bytes.
    pub max_passed: usize,
}

/// What its owner is to do with the front of the bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum ScanStep {
    /// Forward this many.
    Forward(usize),
    /// Nothing until there are more.
    More,
    /// Take a frame of so many bytes, of which the first are its header; it is not forwarded.
    Captured {
        /// Length of the header in bytes.
        head: usize,
        /// Length of the whole in bytes.
        frame: usize,
    },
}

/// What becomes of a message.
enum ScanDecision {
    Captured,
    /// It passes; so many bytes of its body were looked at.
    Passes {
        seen: usize,
    },
}

#[derive(Debug, Clone, Copy)]
enum At {
    /// Before a frame or in its header.
    Start,
    /// In a frame of (header, body) bytes that is not decided on.
    Open { head: usize, body: usize },
    /// In a frame of (header, whole) bytes that is captured.
    Captured { head: usize, frame: usize },
    /// In a frame that passes, with so many bytes to come, of which the first were looked at before.
    Passing { left: usize, seen: usize },
}

impl From<AmbiguousMessage> for FrameError {
    fn from(_: AmbiguousMessage) -> Self {
        Self::Ambiguous
    }
}

/// Finds the frames of one direction, and keeps where in them the stream is.
#[derive(Debug)]
pub struct Scanner {
    rules: Rules,
    /// A command whose answers are captured as well.
    answers: Option<&'static [u8]>,
    at: At,
    /// The look at the body of the frame that is not decided on.
    walk: Walk,
    /// The look at what passes of one that is, where its beginning has decided.
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

    /// Captures the answers to `command` as well, from the next frame on that is not decided on.
    pub fn capture_answers(&mut self, command: &'static [u8]) {
        self.answers = Some(command);
    }

    /// Goes by `rules` from the next frame on that is not decided on, and by these alone.
    pub fn follow(&mut self, rules: Rules) {
        self.rules = rules;
        self.answers = None;
    }

    /// Gives up the frame that is held until something can be done with it, and stands before the next one: its length, as far as
    /// that is known; else 0.
    pub fn give_up(&mut self) -> usize {
        let frame = self.expected();
        if frame > 0 {
            self.at = At::Start;
        }
        frame
    }

    /// No frame is half forwarded: something else may be sent now.
    pub(crate) fn between_frames(&self) -> bool {
        !matches!(self.at, At::Passing { .. })
    }

    /// How many bytes may have to be held before the next [`ScanStep`] that takes any, as far as that is known; else 0.
    pub fn expected(&self) -> usize {
        match self.at {
            At::Start | At::Passing { .. } => 0,
            At::Open { head, body } => head + body,
            At::Captured { frame, .. } => frame,
        }
    }

    /// What to do with the front of `bytes`, which are not empty: those that no step has taken yet. After
    /// [`ScanStep::More`] they have to begin with the same bytes again.
    ///
    /// # Errors
    /// [`FrameError`] where the stream is not DAP or a frame is over a limit: the stream cannot be followed further.
    pub fn step(&mut self, bytes: &[u8]) -> Result<ScanStep, FrameError> {
        if let At::Start = self.at {
            let Some((head, body)) = header(bytes, self.rules.max_passed)? else {
                return Ok(ScanStep::More);
            };
            self.walk = Walk::new(self.rules.depth);
            self.rest = Rest::new();
            self.at = match self.rules.depth {
                // It is not forwarded with that header.
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
                    left: frame,
                    seen: head + seen,
                },
            };
        }
        match self.at {
            At::Passing { left, seen } => {
                let here = left.min(bytes.len());
                let seen = seen.min(here);
                let now = match seen < here {
                    true => seen + self.rest.pass(&bytes[seen..here])?,
                    false => here,
                };
                self.at = match left - now {
                    0 => At::Start,
                    // It ends in the middle of a key.
                    _ if here == left => return Err(FrameError::Ambiguous),
                    left => At::Passing { left, seen: 0 },
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

    /// What becomes of the message that begins with `seen`; `None` while that is open.
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
            Peek::More if !whole && seen.len() >= WINDOW => true,
            Peek::More => {
                // The whole is needed for a decision, so it counts as captured for the limit.
                if whole {
                    self.held(body)?;
                }
                return Ok(None);
            }
        };
        let seen_now = match captured {
            false if whole => Some(body),
            false if seen.len() == body => {
                // All of it is here.
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

    /// The length of a body that has to be held, whole.
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

    /// Feeds `chunks`; gives what was forwarded and what was captured.
    fn run(depth: Depth, chunks: &[&[u8]]) -> Result<(Vec<u8>, Vec<Vec<u8>>), FrameError> {
        let mut scanner = Scanner::new(rules(depth));
        let (mut forwarded, mut captured) = (Vec::new(), Vec::new());
        let mut held = Vec::new();
        for chunk in chunks {
            held.extend_from_slice(chunk);
            while !held.is_empty() {
                match scanner.step(&held)? {
                    ScanStep::Forward(n) => forwarded.extend(held.drain(..n)),
                    ScanStep::More => break,
                    ScanStep::Captured { head, frame } => {
                        captured.push(held[head..frame].to_vec());
                        held.drain(..frame);
                    }
                }
            }
        }
        Ok((forwarded, captured))
    }

    fn message(name: &str, filler: usize, early: bool) -> Vec<u8> {
        let filler = "x".repeat(filler);
        let value = if early {
            json!({"body": filler, "type": "event", "event": name})
        } else {
            json!({"type": "event", "event": name, "body": filler})
        };
        value.to_string().into_bytes()
    }

    #[test]
    fn a_frame_in_one_chunk_is_forwarded_from_the_chunk() {
        let mut wire = Vec::new();
        put_frame(&mut wire, &message("pass", 10, false));
        assert_eq!(
            Scanner::new(rules(Depth::Deciding)).step(&wire),
            Ok(ScanStep::Forward(wire.len()))
        );
    }

    #[test]
    fn a_name_behind_a_large_body_is_captured_rather_than_guessed() {
        let mut wire = Vec::new();
        put_frame(&mut wire, &message("pass", 1500, true));
        let (early, late) = wire.split_at(700);
        let (forwarded, captured) = run(Depth::Deciding, &[early, late]).unwrap();
        assert!(forwarded.is_empty());
        assert_eq!(captured.len(), 1);
        let (_, captured) = run(Depth::Deciding, &[&wire]).unwrap();
        assert_eq!(captured.len(), 1, "no debugger writes that first");
        wire.clear();
        put_frame(&mut wire, &message("pass", 3000, true));
        let (early, late) = wire.split_at(700);
        assert!(matches!(
            run(Depth::Deciding, &[early, late]),
            Err(FrameError::TooLarge { limit: 2000, .. })
        ));
    }

    #[test]
    fn what_turns_out_to_be_something_else_is_captured_or_never_ends() {
        let hidden = |filler: usize| {
            format!(
                r#"{{"seq":1,"type":"event","event":"pass","x":"{}","type":"request","command":"runInTerminal"}}"#,
                "y".repeat(filler)
            )
        };
        let mut wire = Vec::new();
        put_frame(&mut wire, hidden(10).as_bytes());
        let (forwarded, captured) = run(Depth::Deciding, &[&wire]).unwrap();
        assert!(forwarded.is_empty());
        assert_eq!(captured.len(), 1);

        wire.clear();
        put_frame(&mut wire, hidden(3000).as_bytes());
        let mut scanner = Scanner::new(rules(Depth::Deciding));
        let mut at = 0;
        let error = loop {
            match scanner.step(&wire[at..wire.len().min(at + 700)]) {
                Ok(ScanStep::Forward(n)) => at += n,
                Ok(other) => panic!("{other:?}"),
                Err(error) => break error,
            }
        };
        assert_eq!(error, FrameError::Ambiguous);
        assert!(at < wire.len() - "\"type\":\"request\"".len());
        assert!(!scanner.between_frames(), "nothing may be put into it");
    }

    #[test]
    fn a_header_that_can_be_read_in_two_ways_is_not_forwarded() {
        let body = message("pass", 10, false);
        for header in ["content-length", "X: y\r\nContent-Length"] {
            let wire = [
                format!("{header}: {}\r\n\r\n", body.len()).as_bytes(),
                &body,
            ]
            .concat();
            let (forwarded, captured) = run(Depth::Deciding, &[&wire]).unwrap();
            assert!(forwarded.is_empty());
            assert_eq!(captured, [&*body]);
        }
    }

    #[test]
    fn an_empty_body_is_captured_and_so_seen() {
        let (_, captured) = run(Depth::Whole, &[b"Content-Length: 0\r\n", b"\r\n"]).unwrap();
        assert_eq!(captured, [b""]);
    }

    /// It is the client's own: what is asked by the relay has a short answer.
    #[test]
    fn an_answer_too_long_to_be_held_passes_where_none_but_its_command_has_it_captured() {
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
        let (mut captured, mut at) = (0, 0);
        while at < wire.len() {
            match scanner.step(&wire[at..]).unwrap() {
                ScanStep::Captured { frame, .. } => (captured, at) = (captured + 1, at + frame),
                ScanStep::Forward(now) => at += now,
                ScanStep::More => panic!("all is there"),
            }
        }
        assert_eq!(captured, 1);
    }

    #[test]
    fn a_long_message_in_small_pieces_takes_no_longer_than_its_length_demands() {
        let mut wire = Vec::new();
        put_frame(&mut wire, &message("pass", 4 << 20, true));
        let mut scanner = Scanner::new(Rules {
            max_captured: 1 << 23,
            max_passed: 1 << 23,
            ..rules(Depth::Whole)
        });
        // Walked from the start each time, this would be 130 GB.
        for end in (1..wire.len()).step_by(64) {
            assert_eq!(scanner.step(&wire[..end]), Ok(ScanStep::More));
            assert!(scanner.between_frames());
        }
        assert_eq!(scanner.step(&wire), Ok(ScanStep::Forward(wire.len())));
    }

    proptest! {
        #[test]
        fn nothing_is_lost_or_reordered_wherever_the_stream_is_cut(
            messages in proptest::collection::vec((any::<bool>(), 0usize..900, any::<bool>()), 1..8),
            cuts in proptest::collection::vec(1usize..300, 1..20),
            whole in any::<bool>(),
        ) {
            let depth = if whole { Depth::Whole } else { Depth::Deciding };
            let (mut wire, mut passed, mut taken) = (Vec::new(), Vec::new(), Vec::new());
            for (take, filler, early) in messages {
                let body = message(if take { "take" } else { "pass" }, filler, early && filler < 400);
                put_frame(&mut wire, &body);
                let take = take || !whole && early && filler < 400;
                if take { taken.push(body) } else { put_frame(&mut passed, &body) }
            }
            let mut chunks = Vec::new();
            let (mut rest, mut cuts) = (wire.as_slice(), cuts.into_iter().cycle());
            while !rest.is_empty() {
                let (now, later) = rest.split_at(cuts.next().unwrap().min(rest.len()));
                chunks.push(now);
                rest = later;
            }
            let (forwarded, captured) = run(depth, &chunks).unwrap();
            prop_assert_eq!(forwarded, passed);
            prop_assert_eq!(captured, taken);
        }
    }
}
