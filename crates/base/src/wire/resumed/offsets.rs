//! Which bytes were written, received and taken, and which are kept until then. Pure.
//!
//! Positions count from the beginning of a direction; its end counts as one position more, so that it is acknowledged and said
//! again as a byte would be.

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};

use crate::memory::Short;

/// What an emptied buffer keeps of its room, in bytes.
const KEPT_ROOM: usize = 16 * 1024;

/// The other side counts otherwise than this one. `Display` is the end of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// It has taken or received what was not sent, or less than it said before.
    #[error("the other side counts {said} bytes, where it can be {from} to {to}")]
    Position {
        /// What it says.
        said: u64,
        /// The least that it can be.
        from: u64,
        /// The most that it can be.
        to: u64,
    },
    /// It has sent more than there is room for.
    #[error("the other side sends more than was agreed")]
    TooMuch,
    /// There is no memory for what it has sent.
    #[error("what the other side sends is not held: {0}")]
    Short(Short),
    /// It goes on behind its end.
    #[error("the other side goes on after its end")]
    AfterEnd,
}

/// What is to be sent next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// These bytes.
    Bytes(Bytes),
    /// Nothing more comes.
    End,
}

/// The direction that this side writes.
#[derive(Debug)]
pub struct OutgoingOffsets {
    /// What the other side may not have received, from `start` on.
    kept: VecDeque<u8>,
    start: u64,
    /// What goes out next over the present transport.
    next: u64,
    /// The most that ever went out.
    sent: u64,
    /// What the other side has said that it took.
    taken: u64,
    window: usize,
    ended: bool,
    /// It is not read any more: what the other side counts is of no matter.
    abandoned: bool,
}

impl OutgoingOffsets {
    /// Nothing written yet; at most `window` bytes are not taken at a time.
    pub fn new(window: usize) -> Self {
        Self {
            kept: VecDeque::new(),
            start: 0,
            next: 0,
            sent: 0,
            taken: 0,
            window,
            ended: false,
            abandoned: false,
        }
    }

    /// Behind the last byte.
    fn end(&self) -> u64 {
        self.start + self.kept.len() as u64
    }

    /// Behind the last byte, or the end.
    fn total(&self) -> u64 {
        self.end() + u64::from(self.ended)
    }

    /// How many bytes may be written now.
    pub fn room(&self) -> usize {
        match self.ended {
            true => 0,
            false => (self.taken + self.window as u64).saturating_sub(self.end()) as usize,
        }
    }

    /// Takes of `bytes` what there is room for: so many.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let bytes = &bytes[..bytes.len().min(self.room())];
        self.kept.extend(bytes);
        bytes.len()
    }

    /// Nothing more is written.
    pub fn finish(&mut self) {
        self.ended = true;
    }

    /// What goes out next over the present transport, at most `most` bytes.
    pub fn send(&mut self, most: usize) -> Option<Next> {
        let from = usize::try_from(self.next.saturating_sub(self.start)).ok()?;
        let length = self.kept.len().saturating_sub(from).min(most);
        if length > 0 {
            let mut bytes = BytesMut::with_capacity(length);
            let (first, second) = self.kept.as_slices();
            let of_first = first.get(from..).unwrap_or_default();
            let of_first = &of_first[..of_first.len().min(length)];
            bytes.put_slice(of_first);
            let from = from.saturating_sub(first.len());
            bytes.put_slice(&second[from..from + length - of_first.len()]);
            self.went(length as u64);
            return Some(Next::Bytes(bytes.freeze()));
        }
        if self.ended && self.next == self.end() {
            self.went(1);
            return Some(Next::End);
        }
        None
    }

    fn went(&mut self, positions: u64) {
        self.next += positions;
        self.sent = self.sent.max(self.next);
    }

    /// The other side has taken everything before `taken`: as much more may be written.
    ///
    /// # Errors
    /// [`Mismatch::Position`].
    pub fn taken(&mut self, taken: u64) -> Result<(), Mismatch> {
        if self.abandoned {
            return Ok(());
        }
        within(taken, self.taken, self.next)?;
        self.taken = taken;
        self.forget(taken);
        Ok(())
    }

    /// A new transport: the other side has received everything before `received`, and the rest goes out again.
    ///
    /// # Errors
    /// [`Mismatch::Position`].
    pub fn resume(&mut self, received: u64) -> Result<(), Mismatch> {
        if self.abandoned {
            return Ok(());
        }
        within(received, self.start, self.sent)?;
        self.forget(received);
        self.next = received;
        Ok(())
    }

    fn forget(&mut self, before: u64) {
        let bytes = before.min(self.end()).saturating_sub(self.start);
        self.kept.drain(..bytes as usize);
        self.start += bytes;
        shrink(&mut self.kept);
    }

    /// It is not read any more: what is kept goes.
    pub fn abandon(&mut self) {
        self.start = self.end();
        self.kept = VecDeque::new();
        (self.ended, self.abandoned) = (true, true);
        (self.next, self.sent, self.taken) = (self.total(), self.total(), self.total());
    }

    /// Whether the other side has taken everything, its end included.
    pub fn is_done(&self) -> bool {
        self.ended && self.taken == self.total()
    }

    /// How many bytes the other side may not have received.
    pub fn kept(&self) -> usize {
        self.kept.len()
    }
}

/// The direction that the other side writes.
#[derive(Debug)]
pub struct IncomingOffsets {
    /// Received and not taken.
    held: VecDeque<u8>,
    received: u64,
    /// What the other side was told last that was taken.
    told: u64,
    /// That may not have come: the transport is another one.
    tell_again: bool,
    window: usize,
    ended: bool,
    /// The end was read too.
    end_taken: bool,
}

impl IncomingOffsets {
    /// Nothing received yet; at most `window` bytes are held at a time.
    pub fn new(window: usize) -> Self {
        Self {
            held: VecDeque::new(),
            received: 0,
            told: 0,
            tell_again: false,
            window,
            ended: false,
            end_taken: false,
        }
    }

    /// Everything before that was received.
    pub fn received(&self) -> u64 {
        self.received
    }

    fn taken(&self) -> u64 {
        let end_waits = self.ended && !self.end_taken;
        self.received - self.held.len() as u64 - u64::from(end_waits)
    }

    /// These bytes came.
    ///
    /// # Errors
    /// [`Mismatch::TooMuch`], [`Mismatch::AfterEnd`].
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), Mismatch> {
        if self.ended {
            return Err(Mismatch::AfterEnd);
        }
        // By what the other side was told: it cannot know more.
        if self.received - self.told + bytes.len() as u64 > self.window as u64 {
            return Err(Mismatch::TooMuch);
        }
        self.held.extend(bytes);
        self.received += bytes.len() as u64;
        Ok(())
    }

    /// The end came.
    ///
    /// # Errors
    /// [`Mismatch::AfterEnd`].
    pub fn finish(&mut self) -> Result<(), Mismatch> {
        if self.ended {
            return Err(Mismatch::AfterEnd);
        }
        self.ended = true;
        self.received += 1;
        Ok(())
    }

    /// Gives the next bytes to `take`, which says how many of them it took; `None`: there are none now. At the end it gives none.
    pub fn read(&mut self, take: impl FnOnce(&[u8]) -> usize) -> Option<usize> {
        let (first, _) = self.held.as_slices();
        if first.is_empty() {
            self.end_taken |= self.ended;
            return self.ended.then_some(0);
        }
        let took = take(first).min(first.len());
        self.held.drain(..took);
        shrink(&mut self.held);
        Some(took)
    }

    /// Takes everything, and drops it.
    pub fn discard(&mut self) {
        self.held = VecDeque::new();
        self.end_taken = self.ended;
    }

    /// What the other side is to be told that was taken: not of every message, but before it has to wait, and at the end; with
    /// `all`, whatever it does not know.
    pub fn tell(&mut self, all: bool) -> Option<u64> {
        let taken = self.taken();
        let news = taken - self.told;
        let due = news >= (self.window / 4) as u64 || self.end_taken || all;
        let tells = (news > 0 && due) || self.tell_again;
        tells.then(|| {
            (self.told, self.tell_again) = (taken, false);
            taken
        })
    }

    /// A new transport: what was told over the last one may not have come.
    pub fn resume(&mut self) {
        self.tell_again = self.told > 0;
    }

    /// Whether everything was taken, its end included, and the other side was told.
    pub fn is_done(&self) -> bool {
        self.end_taken && self.told == self.received && !self.tell_again
    }

    /// How many bytes were received and not taken.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether everything was received, its end included.
    pub fn is_whole(&self) -> bool {
        self.ended
    }
}

fn within(said: u64, from: u64, to: u64) -> Result<(), Mismatch> {
    match (from..=to).contains(&said) {
        true => Ok(()),
        false => Err(Mismatch::Position { said, from, to }),
    }
}

fn shrink(buffer: &mut VecDeque<u8>) {
    if buffer.is_empty() && buffer.capacity() > KEPT_ROOM {
        *buffer = VecDeque::new();
    }
}
