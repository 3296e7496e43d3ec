//! Positions of the bytes written, received and acknowledged, and storage until then. Pure.
//!
//! Positions count from the beginning of a direction. Its end counts as one position, so that it is acknowledged and
//! resent like a byte.

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};

use crate::memory::OutOfMemory;

/// Capacity that an emptied buffer keeps, in bytes.
const MAX_IDLE_CAPACITY: usize = 16 * 1024;

/// The two sides disagree about positions. `Display` is the end of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// The peer has acknowledged or received bytes that were not sent, or fewer than it reported before.
    #[error("the other side counts {reported} bytes, where it can be {from} to {to}")]
    Position {
        /// The position that the peer reported.
        reported: u64,
        /// The least possible position.
        from: u64,
        /// The largest possible position.
        to: u64,
    },
    /// The peer has sent more than the window allows.
    #[error("the other side sends more than was agreed")]
    TooMuch,
    /// There is no memory for the bytes received.
    #[error("what the other side sends is not held: {0}")]
    Short(OutOfMemory),
    /// The peer continues after its end.
    #[error("the other side goes on after its end")]
    AfterEnd,
}

/// The next item to send.
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
    /// Bytes that the peer may not have received, from `start` on.
    stored: VecDeque<u8>,
    start: u64,
    /// Next position to send over the current transport.
    next: u64,
    /// Largest position ever sent.
    sent: u64,
    /// Position that the peer has acknowledged.
    acknowledged: u64,
    window: usize,
    ended: bool,
    /// The peer no longer reads: its positions are ignored.
    abandoned: bool,
}

impl OutgoingOffsets {
    /// Nothing is written yet; at most `window` bytes are unacknowledged at a time.
    pub fn new(window: usize) -> Self {
        Self {
            stored: VecDeque::new(),
            start: 0,
            next: 0,
            sent: 0,
            acknowledged: 0,
            window,
            ended: false,
            abandoned: false,
        }
    }

    /// Position behind the last byte.
    fn end(&self) -> u64 {
        self.start + self.stored.len() as u64
    }

    /// Position behind the last byte, or behind the end.
    fn total(&self) -> u64 {
        self.end() + u64::from(self.ended)
    }

    /// How many bytes may be written now.
    pub fn room(&self) -> usize {
        match self.ended {
            true => 0,
            false => (self.acknowledged + self.window as u64).saturating_sub(self.end()) as usize,
        }
    }

    /// Stores as many of `bytes` as fit, and returns their number.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let bytes = &bytes[..bytes.len().min(self.room())];
        self.stored.extend(bytes);
        bytes.len()
    }

    /// Ends the direction.
    pub fn finish(&mut self) {
        self.ended = true;
    }

    /// The next item for the current transport, at most `most` bytes.
    pub fn send(&mut self, most: usize) -> Option<Next> {
        let from = usize::try_from(self.next.saturating_sub(self.start)).ok()?;
        let length = self.stored.len().saturating_sub(from).min(most);
        if length > 0 {
            let mut bytes = BytesMut::with_capacity(length);
            let (first, second) = self.stored.as_slices();
            let of_first = first.get(from..).unwrap_or_default();
            let of_first = &of_first[..of_first.len().min(length)];
            bytes.put_slice(of_first);
            let from = from.saturating_sub(first.len());
            bytes.put_slice(&second[from..from + length - of_first.len()]);
            self.advance(length as u64);
            return Some(Next::Bytes(bytes.freeze()));
        }
        if self.ended && self.next == self.end() {
            self.advance(1);
            return Some(Next::End);
        }
        None
    }

    fn advance(&mut self, positions: u64) {
        self.next += positions;
        self.sent = self.sent.max(self.next);
    }

    /// Records that the peer has consumed everything before `acknowledged`: as much more may be written.
    ///
    /// # Errors
    /// [`Mismatch::Position`].
    pub fn acknowledged(&mut self, acknowledged: u64) -> Result<(), Mismatch> {
        if self.abandoned {
            return Ok(());
        }
        within(acknowledged, self.acknowledged, self.next)?;
        self.acknowledged = acknowledged;
        self.forget(acknowledged);
        Ok(())
    }

    /// Resumes over a new transport: the peer has received everything before `received`, and the rest is sent again.
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
        self.stored.drain(..bytes as usize);
        self.start += bytes;
        shrink(&mut self.stored);
    }

    /// Drops the stored bytes, since the peer no longer reads.
    pub fn abandon(&mut self) {
        self.start = self.end();
        self.stored = VecDeque::new();
        (self.ended, self.abandoned) = (true, true);
        (self.next, self.sent, self.acknowledged) = (self.total(), self.total(), self.total());
    }

    /// Whether the peer has acknowledged everything, including the end.
    pub fn is_done(&self) -> bool {
        self.ended && self.acknowledged == self.total()
    }

    /// Number of bytes that the peer may not have received.
    pub fn stored(&self) -> usize {
        self.stored.len()
    }
}

/// The direction that the other side writes.
#[derive(Debug)]
pub struct IncomingOffsets {
    /// Received and not consumed.
    held: VecDeque<u8>,
    received: u64,
    /// Position last acknowledged to the peer.
    acknowledged: u64,
    /// The acknowledgement may be lost: the transport is a new one.
    acknowledge_again: bool,
    window: usize,
    ended: bool,
    /// The end was consumed too.
    end_consumed: bool,
}

impl IncomingOffsets {
    /// Nothing is received yet; at most `window` bytes are held at a time.
    pub fn new(window: usize) -> Self {
        Self {
            held: VecDeque::new(),
            received: 0,
            acknowledged: 0,
            acknowledge_again: false,
            window,
            ended: false,
            end_consumed: false,
        }
    }

    /// Position before which everything was received.
    pub fn received(&self) -> u64 {
        self.received
    }

    fn consumed(&self) -> u64 {
        let end_waits = self.ended && !self.end_consumed;
        self.received - self.held.len() as u64 - u64::from(end_waits)
    }

    /// Stores received bytes.
    ///
    /// # Errors
    /// [`Mismatch::TooMuch`], [`Mismatch::AfterEnd`].
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), Mismatch> {
        if self.ended {
            return Err(Mismatch::AfterEnd);
        }
        // According to the last acknowledgement: the peer cannot know more.
        if self.received - self.acknowledged + bytes.len() as u64 > self.window as u64 {
            return Err(Mismatch::TooMuch);
        }
        self.held.extend(bytes);
        self.received += bytes.len() as u64;
        Ok(())
    }

    /// Records the end.
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

    /// Passes the next bytes to `take`, which returns how many it consumed; `None`: there are none now. At the end it
    /// passes none, and returns 0.
    pub fn read(&mut self, take: impl FnOnce(&[u8]) -> usize) -> Option<usize> {
        let (first, _) = self.held.as_slices();
        if first.is_empty() {
            self.end_consumed |= self.ended;
            return self.ended.then_some(0);
        }
        let took = take(first).min(first.len());
        self.held.drain(..took);
        shrink(&mut self.held);
        Some(took)
    }

    /// Consumes everything, and drops it.
    pub fn discard(&mut self) {
        self.held = VecDeque::new();
        self.end_consumed = self.ended;
    }

    /// The position to acknowledge, if an acknowledgement is due: not for every message, but before the peer has to
    /// wait, and at the end; with `all`, any position that the peer does not know.
    pub fn acknowledge(&mut self, all: bool) -> Option<u64> {
        let consumed = self.consumed();
        let news = consumed - self.acknowledged;
        let due = news >= (self.window / 4) as u64 || self.end_consumed || all;
        let tells = (news > 0 && due) || self.acknowledge_again;
        tells.then(|| {
            (self.acknowledged, self.acknowledge_again) = (consumed, false);
            consumed
        })
    }

    /// Resumes over a new transport: the last acknowledgement may be lost.
    pub fn resume(&mut self) {
        self.acknowledge_again = self.acknowledged > 0;
    }

    /// Whether everything was consumed and acknowledged, including the end.
    pub fn is_done(&self) -> bool {
        self.end_consumed && self.acknowledged == self.received && !self.acknowledge_again
    }

    /// Number of bytes received and not consumed.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether everything was received, including the end.
    pub fn is_whole(&self) -> bool {
        self.ended
    }
}

fn within(reported: u64, from: u64, to: u64) -> Result<(), Mismatch> {
    match (from..=to).contains(&reported) {
        true => Ok(()),
        false => Err(Mismatch::Position { reported, from, to }),
    }
}

fn shrink(buffer: &mut VecDeque<u8>) {
    if buffer.is_empty() && buffer.capacity() > MAX_IDLE_CAPACITY {
        *buffer = VecDeque::new();
    }
}
