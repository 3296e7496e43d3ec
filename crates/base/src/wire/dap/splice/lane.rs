//! One direction of a splice: its bytes in transit, its pending events, and its end.
//!
//! Used by [`super::Splice`], which polls both of them.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use super::buffer::Buffer;
use crate::memory::{Account, MemoryUse, OutOfMemory, Reservation};
use crate::wire::dap::codec::{FrameError, UNCOUNTED_BYTES, is_plain_header, weight};
use crate::wire::dap::scanner::{Rules, ScanStep, Scanner};
use crate::wire::peer_stream::PeerStream;
use crate::wire::turn::{MAX_SEALED_TURN_BYTES, MAX_TURN_BYTES, Pace};

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) scanner: Scanner,
    /// First the bytes that pass and are to be written, then the undecided ones.
    pub(super) buffer: Buffer,
    /// How many of its bytes pass.
    pub(super) passing: usize,
    /// Bytes to come of a message that is dropped for lack of memory.
    pub(super) skip: usize,
    /// Memory of the captured message that is being inspected.
    inspected: Reservation,
    pub(super) account: Account,
    /// The scanner's result behind that; reported once everything before it is written.
    found: Option<LaneItem>,
    /// Whole frames of the relay's own, for the gap between two frames.
    pub(super) inserts: Vec<u8>,
    inserted: usize,
    /// Whether something was written since the last flush.
    unflushed: bool,
    pace: Pace,
    eof: Eof,
    pub(super) close: Close,
    pub(super) bytes: u64,
}

#[derive(Debug)]
enum LaneItem {
    /// A captured frame: its length, and that of its header.
    Captured { head: usize, frame: usize },
    /// The stream cannot be followed further.
    Malformed(FrameError),
}

#[derive(Debug, PartialEq, Eq)]
enum Eof {
    Open,
    /// There was no memory for a message. Nothing is read until [`resume_reading`](Lane::resume_reading).
    Short,
    Seen,
    Reported,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Close {
    No,
    Requested,
    Done,
}

pub(super) enum Turn {
    Captured(Vec<u8>),
    Eof,
    ReadFailed(io::Error),
    WriteFailed(io::Error),
    Malformed(FrameError),
}

impl Lane {
    pub(super) fn new(rules: Rules, read_before: Vec<u8>, account: Account) -> Self {
        Self {
            scanner: Scanner::new(rules),
            bytes: read_before.len() as u64,
            buffer: Buffer::new(read_before, &account),
            passing: 0,
            skip: 0,
            inspected: account.empty(MemoryUse::Messages),
            account,
            found: None,
            inserts: Vec::new(),
            inserted: 0,
            unflushed: false,
            pace: Pace::default(),
            eof: Eof::Open,
            close: Close::No,
        }
    }

    pub(super) fn poll<R, T>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        to: &mut T,
        passes: impl Fn(&mut [u8]) -> bool,
    ) -> Poll<Turn>
    where
        R: PeerStream,
        T: PeerStream,
    {
        let turn = self.advance(cx, from, to, &passes);
        if turn.is_pending() {
            self.pace.pause();
            // In the middle of a message it continues at once.
            if !self.pace.is_queued() || self.buffer.filled().is_empty() {
                self.buffer.park();
            }
        }
        turn
    }

    /// Whether all passing bytes that were read are written.
    pub(super) fn is_written(&self) -> bool {
        self.passing == 0
    }

    /// Whether the inserted frames are written too, and everything is flushed.
    pub(super) fn has_sent(&self) -> bool {
        self.is_written() && self.inserts.is_empty() && !self.unflushed
    }

    fn advance<R, T>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        to: &mut T,
        passes: &impl Fn(&mut [u8]) -> bool,
    ) -> Poll<Turn>
    where
        R: PeerStream,
        T: PeerStream,
    {
        // The session has inspected the captured message before it polls again.
        self.inspected.insist(0);
        ready!(self.pace.poll_begin(cx));
        loop {
            self.scan(passes);
            let written = self.poll_write(cx, to, passes);
            if let Some(LaneItem::Malformed(error)) = self.found.take_if(|f| f.is_end()) {
                return Poll::Ready(self.malformed(error));
            }
            if let Err(error) = ready!(written) {
                self.drop_rest();
                return Poll::Ready(Turn::WriteFailed(error));
            }
            if let Some(LaneItem::Captured { head, frame }) = self.found.take() {
                return Poll::Ready(self.captured(head, frame));
            }
            if self.close == Close::Requested {
                let closed = ready!(Pin::new(&mut *to).poll_shutdown(cx));
                self.close = Close::Done;
                if let Err(error) = closed {
                    return Poll::Ready(Turn::WriteFailed(error));
                }
            }
            match self.eof {
                Eof::Open => {}
                Eof::Short => return Poll::Pending,
                Eof::Seen => {
                    self.eof = Eof::Reported;
                    return Poll::Ready(Turn::Eof);
                }
                Eof::Reported => {
                    // The remaining bytes are part of a frame that will never be complete.
                    self.buffer.clear();
                    return Poll::Pending;
                }
            }
            let most = match from.source() {
                Some(_) => MAX_TURN_BYTES,
                None => MAX_SEALED_TURN_BYTES,
            };
            if self.pace.is_over(most) {
                return self.pace.end(cx);
            }
            let read = match self.poll_read(cx, from) {
                Poll::Ready(Ok(read)) => read.inspect(|read| self.pace.read(*read)),
                Poll::Ready(Err(short)) => return Poll::Ready(self.short(short)),
                Poll::Pending => {
                    self.pace.rest();
                    return Poll::Pending;
                }
            };
            match read {
                Err(error) => {
                    self.eof = Eof::Reported;
                    return Poll::Ready(Turn::ReadFailed(error));
                }
                Ok(0) => self.eof = Eof::Seen,
                Ok(read) => {
                    self.bytes += read as u64;
                    if self.close == Close::Done {
                        self.buffer.clear(); // its reader is gone
                    }
                }
            }
        }
    }

    /// Scans the bytes read, up to where something has to be done first. A captured frame is forwarded if its body
    /// `passes`.
    fn scan(&mut self, passes: &impl Fn(&mut [u8]) -> bool) {
        if self.eof == Eof::Short {
            return;
        }
        // Nothing passes before that.
        let skipped = self.skip.min(self.buffer.filled().len());
        self.buffer.consume(skipped);
        self.skip -= skipped;
        while self.found.is_none() && !self.inserts_now() {
            let rest = &mut self.buffer.filled_mut()[self.passing..];
            if rest.is_empty() {
                return;
            }
            match self.scanner.step(rest) {
                Ok(ScanStep::Forward(n)) => self.passing += n,
                Ok(ScanStep::More) => return,
                // With another header it would not be forwarded.
                Ok(ScanStep::Captured { head, frame })
                    if is_plain_header(&rest[..head]) && passes(&mut rest[head..frame]) =>
                {
                    self.passing += frame;
                }
                Ok(ScanStep::Captured { head, frame }) => {
                    self.found = Some(LaneItem::Captured { head, frame });
                }
                Err(error) => self.found = Some(LaneItem::Malformed(error)),
            }
        }
    }

    /// Whether the relay's own frames may go now, before anything else.
    fn inserts_now(&self) -> bool {
        !self.inserts.is_empty() && self.scanner.between_frames()
    }

    /// Writes everything that may go.
    fn poll_write<T: PeerStream>(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut T,
        passes: &impl Fn(&mut [u8]) -> bool,
    ) -> Poll<io::Result<()>> {
        loop {
            while self.passing > 0 {
                let passing = &self.buffer.filled()[..self.passing];
                let n = ready!(poll_some(cx, to, passing))?;
                self.unflushed = true;
                self.buffer.consume(n);
                self.passing -= n;
            }
            if !self.inserts_now() {
                break;
            }
            while self.inserted < self.inserts.len() {
                self.inserted += ready!(poll_some(cx, to, &self.inserts[self.inserted..]))?;
                self.unflushed = true;
            }
            self.inserts = Vec::new();
            self.inserted = 0;
            self.scan(passes);
        }
        if self.unflushed {
            ready!(Pin::new(to).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_read<R: AsyncRead + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
    ) -> Poll<Result<io::Result<usize>, OutOfMemory>> {
        let most = self.pace.step();
        let mut space = ReadBuf::new(match self.buffer.space(self.scanner.expected()) {
            Ok(space) => {
                let now = space.len().min(most);
                &mut space[..now]
            }
            Err(short) => return Poll::Ready(Err(short)),
        });
        let read = ready!(Pin::new(from).poll_read(cx, &mut space));
        let read = read.map(|()| space.filled().len());
        self.buffer.add(*read.as_ref().unwrap_or(&0));
        Poll::Ready(Ok(read))
    }

    /// Removes a captured frame from the buffer, for the session to inspect.
    fn captured(&mut self, head: usize, frame: usize) -> Turn {
        let body = &self.buffer.filled()[head..frame];
        let held = self.inspected.resize_beyond(UNCOUNTED_BYTES, weight(body));
        let body = held.map(|()| body.to_vec());
        self.buffer.consume(frame);
        match body {
            Ok(body) => Turn::Captured(body),
            Err(short) => self.short(short),
        }
    }

    /// Gives up the message in progress for lack of memory; everything before it is written. Its bytes are dropped.
    fn short(&mut self, short: OutOfMemory) -> Turn {
        self.eof = Eof::Short;
        let frame = self.scanner.give_up();
        let here = frame.min(self.buffer.filled().len());
        self.buffer.consume(here);
        self.skip = frame - here;
        Turn::Malformed(short.into())
    }

    /// Continues behind a message for which there was no memory, if there was one.
    pub(super) fn resume_reading(&mut self) {
        if self.eof == Eof::Short {
            self.eof = Eof::Open;
        }
    }

    /// Ends the direction, since the stream cannot be followed. That does not wait for a peer that accepts nothing.
    fn malformed(&mut self, error: FrameError) -> Turn {
        self.eof = Eof::Reported;
        self.buffer.truncate(self.passing);
        Turn::Malformed(error)
    }

    /// The bytes to write next: they begin with the rest of a message that is written in part.
    pub(super) fn rest(&self) -> &[u8] {
        match self.inserted {
            0 => &self.buffer.filled()[..self.passing],
            inserted => &self.inserts[inserted..],
        }
    }

    /// Serves another peer from now on, by `rules`. Bytes that the previous one did not accept are dropped.
    pub(super) fn redirect(&mut self, rules: Rules) {
        self.drop_rest();
        self.resume_reading();
        self.close = Close::No;
        self.bytes = 0;
        self.scanner.follow(rules);
    }

    /// Drops everything to be written, when nothing can be. Unscanned bytes stay, for [`super::Splice::into_client`].
    fn drop_rest(&mut self) {
        self.buffer.consume(self.passing);
        self.passing = 0;
        self.inserts = Vec::new();
        self.inserted = 0;
        self.unflushed = false;
        self.close = Close::Done;
    }
}

impl LaneItem {
    fn is_end(&self) -> bool {
        matches!(self, Self::Malformed(_))
    }
}

fn poll_some<T: PeerStream>(
    cx: &mut Context<'_>,
    to: &mut T,
    bytes: &[u8],
) -> Poll<io::Result<usize>> {
    match ready!(to.poll_pass(cx, bytes))? {
        0 => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
        n => Poll::Ready(Ok(n)),
    }
}
