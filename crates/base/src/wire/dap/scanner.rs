//! The frame scanner: finds the bounds of frames in a passing stream, and the frames that must be held.
//!
//! Pure. The relay holds the bytes that it read and asks what to do with the front of them. A frame that need not be
//! captured is forwarded as soon as its beginning decides that; bytes are scanned once. If the beginning alone decides
//! ([`Depth::Deciding`]), the message is walked by its [schema](super::schema) as it passes. One that does not fit is
//! captured, unless a part of it was forwarded: then what does not fit is overwritten, or it is never completed.

use crate::wire::dap::codec::{FrameError, header, is_plain_header};
use crate::wire::dap::peek::{Depth, MessageType, Peek, Walk};
use crate::wire::dap::schema::walk::SchemaWalk;
use crate::wire::dap::schema::{Fields, Irregular, plain};

/// Bytes of a body to scan before it is captured without a decision ([`Depth::Deciding`]).
const MAX_PEEKED_BYTES: usize = 512;

/// The messages of one direction to capture.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// How much of a message is scanned.
    pub depth: Depth,
    /// Whether a message is captured.
    pub captures: fn(MessageType, &[u8]) -> bool,
    /// The fields with which one of these passes all the same ([`Depth::Deciding`]).
    pub examined: fn(MessageType, &[u8]) -> Option<&'static Fields>,
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
    Passes,
    /// It passes if it has these fields. If it is `examined`, it is held to its end, or to a text for a console.
    Walked {
        fields: &'static Fields,
        examined: bool,
    },
}

#[derive(Debug, Clone, Copy)]
enum At {
    /// Before a frame or in its header.
    Start,
    /// In an undecided frame.
    Open { head: usize, body: usize },
    /// In a frame that passes if it fits its schema.
    Walked(WalkedFrame),
    /// In a captured frame.
    Captured { head: usize, frame: usize },
    /// In a passing frame with `remaining` bytes to come.
    Passing { remaining: usize },
    /// In a frame of which a part was forwarded, with `remaining` bytes to come. The first `walked` fit the schema.
    Forwarded { remaining: usize, walked: usize },
}

/// A frame that is held while it is walked.
#[derive(Debug, Clone, Copy)]
struct WalkedFrame {
    head: usize,
    body: usize,
    /// So much of the body fits its schema.
    walked: usize,
    /// Whether it is held to its end, or to a text for a console.
    examined: bool,
}

impl From<Irregular> for FrameError {
    fn from(_: Irregular) -> Self {
        Self::Ambiguous
    }
}

/// Finds the frames of one direction, and tracks the position in them.
#[derive(Debug)]
pub struct Scanner {
    rules: Rules,
    /// Commands whose responses are captured as well.
    answers: Vec<&'static [u8]>,
    at: At,
    scan: Scan,
}

/// The scan of a frame's body.
#[derive(Debug)]
enum Scan {
    /// For its type, while it is undecided.
    Peek(Walk),
    /// By its schema.
    Fields(SchemaWalk),
}

impl Scanner {
    /// A scanner at the start of a frame.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            answers: Vec::new(),
            at: At::Start,
            scan: Scan::Peek(Walk::new(rules.depth)),
        }
    }

    /// Captures the responses to `command` as well, or no longer, from the next undecided frame on.
    pub fn capture_answers(&mut self, command: &'static [u8], captures: bool) {
        self.answers.retain(|answer| *answer != command);
        if captures {
            self.answers.push(command);
        }
    }

    /// Applies `rules`, and only these, from the next undecided frame on.
    pub fn follow(&mut self, rules: Rules) {
        self.rules = rules;
        self.answers.clear();
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
        !matches!(self.at, At::Passing { .. } | At::Forwarded { .. })
    }

    /// Number of bytes to hold before the next [`ScanStep`] that consumes any, if known; else 0.
    pub fn expected(&self) -> usize {
        match self.at {
            At::Start | At::Passing { .. } | At::Forwarded { .. } => 0,
            At::Open { head, body } => head + body,
            At::Walked(held) => held.head + held.body,
            At::Captured { frame, .. } => frame,
        }
    }

    /// Decides on the front of `bytes`, which are not empty and not consumed by a step yet. After [`ScanStep::More`]
    /// they must begin with the same bytes again.
    ///
    /// # Errors
    /// [`FrameError`] if the stream is not DAP or a frame exceeds a limit: the stream cannot be followed further.
    pub fn step(&mut self, bytes: &mut [u8]) -> Result<ScanStep, FrameError> {
        if let At::Start = self.at {
            let Some((head, body)) = header(bytes, self.rules.max_passed)? else {
                return Ok(ScanStep::More);
            };
            self.scan = Scan::Peek(Walk::new(self.rules.depth));
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
                Some(ScanDecision::Captured) => At::Captured {
                    head,
                    frame: head + self.held(body)?,
                },
                Some(ScanDecision::Passes) => At::Passing { remaining: frame },
                Some(ScanDecision::Walked { fields, examined }) => {
                    self.scan = Scan::Fields(SchemaWalk::new(fields));
                    At::Walked(WalkedFrame {
                        head,
                        body,
                        walked: 0,
                        examined,
                    })
                }
            };
        }
        if let At::Walked(held) = self.at {
            self.at = self.walk_on(bytes, held)?;
        }
        match self.at {
            At::Passing { remaining } => {
                let now = remaining.min(bytes.len());
                self.at = match remaining - now {
                    0 => At::Start,
                    remaining => At::Passing { remaining },
                };
                Ok(ScanStep::Forward(now))
            }
            At::Forwarded { remaining, walked } => self.forward_on(bytes, remaining, walked),
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
        let peek = match &mut self.scan {
            Scan::Peek(walk) => walk.peek(seen, body),
            Scan::Fields(_) => Peek::Unclear,
        };
        let (kind, name) = match peek {
            Peek::Known(kind, name) => (kind, name),
            Peek::Unclear => return Ok(Some(ScanDecision::Captured)),
            Peek::More if !whole && seen.len() >= MAX_PEEKED_BYTES => {
                return Ok(Some(ScanDecision::Captured));
            }
            Peek::More => {
                // The decision needs the whole message, so the limit of captured messages applies.
                if whole {
                    self.held(body)?;
                }
                return Ok(None);
            }
        };
        let fits = body <= self.rules.max_captured;
        let is_answer = kind == MessageType::Response && self.answers.contains(&name) && fits;
        let captured = (self.rules.captures)(kind, name);
        Ok(Some(
            match captured.then(|| (self.rules.examined)(kind, name)) {
                _ if is_answer => ScanDecision::Captured,
                Some(Some(fields)) if !whole => ScanDecision::Walked {
                    fields,
                    examined: true,
                },
                Some(_) => ScanDecision::Captured,
                None if whole => ScanDecision::Passes,
                None => ScanDecision::Walked {
                    fields: plain(kind),
                    examined: false,
                },
            },
        ))
    }

    /// Walks on in a frame of which nothing was forwarded, and returns the next state.
    fn walk_on(&mut self, bytes: &mut [u8], held: WalkedFrame) -> Result<At, FrameError> {
        let WalkedFrame { head, body, .. } = held;
        let frame = head + body;
        let here = frame.min(bytes.len());
        let captured = At::Captured { head, frame };
        let fields = self.scan.fields()?;
        let Ok(read) = fields.pass(&mut bytes[head + held.walked..here]) else {
            self.held(body)?;
            return Ok(captured);
        };
        let walked = held.walked + read;
        if here == frame && walked == body && fields.is_over() {
            return Ok(At::Passing { remaining: frame });
        }
        if here == frame {
            self.held(body)?;
            return Ok(captured);
        }
        if fields.has_required() && (!held.examined || fields.is_in_console_text()) {
            fields.forward();
            return Ok(At::Forwarded {
                remaining: frame,
                walked: head + walked,
            });
        }
        if here - head >= MAX_PEEKED_BYTES {
            self.held(body)?;
        }
        Ok(At::Walked(WalkedFrame { walked, ..held }))
    }

    /// Walks on in a frame of which a part was forwarded, with `remaining` bytes to come. The first `walked` fit.
    fn forward_on(
        &mut self,
        bytes: &mut [u8],
        remaining: usize,
        walked: usize,
    ) -> Result<ScanStep, FrameError> {
        let here = remaining.min(bytes.len());
        let fields = self.scan.fields()?;
        let now = walked + fields.pass(&mut bytes[walked..here])?;
        self.at = match remaining - now {
            0 if fields.is_over() => At::Start,
            // The message ends in the middle.
            _ if here == remaining => return Err(FrameError::Ambiguous),
            remaining => At::Forwarded {
                remaining,
                walked: 0,
            },
        };
        Ok(match now {
            0 => ScanStep::More,
            now => ScanStep::Forward(now),
        })
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

impl Scan {
    /// The walk by a schema, which has begun.
    fn fields(&mut self) -> Result<&mut SchemaWalk, Irregular> {
        match self {
            Self::Peek(_) => Err(Irregular),
            Self::Fields(walk) => Ok(walk),
        }
    }
}

#[cfg(test)]
mod tests;
