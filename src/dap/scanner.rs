//! Where frames begin and end in a passing stream, and which of them have to be held.
//!
//! Pure: [`super::splice`] feeds it chunks. A frame that nobody has to see is forwarded from the chunk it
//! came in; only a frame whose beginning does not decide yet, or one that is captured, is copied.

use super::codec::{FrameError, MAX_HEADER, header};
use super::peek::{Depth, MessageType, Peek, Walk};

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

/// What to do with the next bytes of the chunk.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Forward this many.
    Forward(usize),
    /// This many were kept; nothing to forward yet.
    Keep(usize),
    /// This many were taken; first forward these kept ones.
    Release(usize, Vec<u8>),
    /// This many were taken, and they complete this body, which is not forwarded.
    Captured(usize, Vec<u8>),
}

#[derive(Debug)]
enum At {
    /// Before a frame or in its header.
    Start,
    /// In a body that passes, with so many bytes to come.
    Passing(usize),
    /// In a frame of (header, body) bytes that is kept: to be decided once the walk has got far enough, or, without
    /// one, to be captured.
    Kept {
        head: usize,
        body: usize,
        walk: Option<Walk>,
    },
}

/// State between chunks.
#[derive(Debug)]
pub struct Scanner {
    rules: Rules,
    at: At,
    kept: Vec<u8>,
}

impl Scanner {
    /// At the start of a frame.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            at: At::Start,
            kept: Vec::new(),
        }
    }

    /// No frame is half forwarded: something else may be sent now.
    pub fn between_frames(&self) -> bool {
        !matches!(self.at, At::Passing(_))
    }

    /// What to do with the start of `chunk`, which is not empty. To be called again for the rest.
    ///
    /// # Errors
    /// [`FrameError`] where the stream is not DAP or a frame is over a limit: the stream cannot be followed further.
    pub fn step(&mut self, chunk: &[u8]) -> Result<Step, FrameError> {
        match self.at {
            At::Passing(left) => {
                let now = left.min(chunk.len());
                self.at = if now == left {
                    At::Start
                } else {
                    At::Passing(left - now)
                };
                Ok(Step::Forward(now))
            }
            At::Start if self.kept.is_empty() => self.start(chunk),
            At::Start => self.finish_header(chunk),
            At::Kept { head, body, walk } => self.keep_on(chunk, head, body, walk),
        }
    }

    fn start(&mut self, chunk: &[u8]) -> Result<Step, FrameError> {
        let Some((head, body)) = header(chunk, self.rules.max_passed)? else {
            self.kept.extend_from_slice(chunk);
            return Ok(Step::Keep(chunk.len()));
        };
        let end = chunk.len().min(head + body);
        let mut walk = Walk::new(self.rules.depth);
        match self.decide(&mut walk, &chunk[head..end], body)? {
            Some(false) => {
                if end < head + body {
                    self.at = At::Passing(head + body - end);
                }
                Ok(Step::Forward(end))
            }
            decided => {
                self.kept.extend_from_slice(&chunk[..end]);
                let walk = decided.is_none().then_some(walk);
                self.at = At::Kept { head, body, walk };
                Ok(match walk {
                    Some(_) => Step::Keep(end),
                    None => self.complete(end, head, body),
                })
            }
        }
    }

    /// One byte at a time, so that no byte of what follows the header is taken with it. Rare: a header
    /// that was cut by the end of a chunk.
    fn finish_header(&mut self, chunk: &[u8]) -> Result<Step, FrameError> {
        for (i, byte) in chunk.iter().enumerate() {
            self.kept.push(*byte);
            let complete = self.kept.ends_with(b"\r\n\r\n") || self.kept.len() == MAX_HEADER;
            if complete && let Some((head, body)) = header(&self.kept, self.rules.max_passed)? {
                let walk = Walk::new(self.rules.depth);
                self.at = At::Kept {
                    head,
                    body,
                    walk: Some(walk),
                };
                return if body == 0 {
                    self.judge(i + 1, head, body, walk)
                } else {
                    Ok(Step::Keep(i + 1))
                };
            }
        }
        Ok(Step::Keep(chunk.len()))
    }

    fn keep_on(
        &mut self,
        chunk: &[u8],
        head: usize,
        body: usize,
        walk: Option<Walk>,
    ) -> Result<Step, FrameError> {
        let wanted = match self.rules.depth {
            Depth::Deciding if walk.is_some() => head + body.min(WINDOW),
            _ => head + body,
        };
        let now = chunk.len().min(wanted.saturating_sub(self.kept.len()));
        self.kept.extend_from_slice(&chunk[..now]);
        match walk {
            None => Ok(self.complete(now, head, body)),
            Some(walk) => self.judge(now, head, body, walk),
        }
    }

    /// Decides on the kept bytes, of which `now` are new.
    fn judge(
        &mut self,
        now: usize,
        head: usize,
        body: usize,
        mut walk: Walk,
    ) -> Result<Step, FrameError> {
        match self.decide(&mut walk, &self.kept[head..], body)? {
            None => {
                let walk = Some(walk);
                self.at = At::Kept { head, body, walk };
                Ok(Step::Keep(now))
            }
            Some(true) => {
                let walk = None;
                self.at = At::Kept { head, body, walk };
                Ok(self.complete(now, head, body))
            }
            Some(false) => {
                let left = head + body - self.kept.len();
                self.at = if left == 0 {
                    At::Start
                } else {
                    At::Passing(left)
                };
                Ok(Step::Release(now, std::mem::take(&mut self.kept)))
            }
        }
    }

    fn complete(&mut self, now: usize, head: usize, body: usize) -> Step {
        if self.kept.len() < head + body {
            return Step::Keep(now);
        }
        self.at = At::Start;
        let mut frame = std::mem::take(&mut self.kept);
        frame.drain(..head);
        Step::Captured(now, frame)
    }

    /// Whether the message that begins with `seen` is captured; `None` while that is open.
    fn decide(
        &self,
        walk: &mut Walk,
        seen: &[u8],
        body: usize,
    ) -> Result<Option<bool>, FrameError> {
        let captured = match walk.peek(seen, body) {
            Peek::Known(kind, name) => (self.rules.captures)(kind, name),
            Peek::Unclear => true,
            Peek::More if self.rules.depth == Depth::Deciding && seen.len() >= WINDOW => true,
            Peek::More => {
                // The whole is needed for a decision, so it counts as captured for the limit.
                if self.rules.depth == Depth::Whole && body > self.rules.max_captured {
                    return Err(FrameError::TooLarge {
                        length: body as u64,
                        limit: self.rules.max_captured,
                    });
                }
                return Ok(None);
            }
        };
        if captured && body > self.rules.max_captured {
            return Err(FrameError::TooLarge {
                length: body as u64,
                limit: self.rules.max_captured,
            });
        }
        Ok(Some(captured))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::codec::put_frame;
    use super::*;

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
        for chunk in chunks {
            let mut rest = *chunk;
            while !rest.is_empty() {
                let taken = match scanner.step(rest)? {
                    Step::Forward(n) => {
                        forwarded.extend_from_slice(&rest[..n]);
                        n
                    }
                    Step::Keep(n) => n,
                    Step::Release(n, kept) => {
                        forwarded.extend_from_slice(&kept);
                        n
                    }
                    Step::Captured(n, body) => {
                        captured.push(body);
                        n
                    }
                };
                rest = &rest[taken..];
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
            Ok(Step::Forward(wire.len()))
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
        let (forwarded, _) = run(Depth::Deciding, &[&wire]).unwrap();
        assert_eq!(
            forwarded, wire,
            "what is there already is looked at before anything is kept"
        );
        wire.clear();
        put_frame(&mut wire, &message("pass", 3000, true));
        let (early, late) = wire.split_at(700);
        assert!(matches!(
            run(Depth::Deciding, &[early, late]),
            Err(FrameError::TooLarge { limit: 2000, .. })
        ));
    }

    #[test]
    fn an_empty_body_is_captured_and_so_seen() {
        let (_, captured) = run(Depth::Whole, &[b"Content-Length: 0\r\n", b"\r\n"]).unwrap();
        assert_eq!(captured, [b""]);
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
