//! The relay proper: bytes between one client and one worker, after attach.
//!
//! Owned by [`super::worker`], which is told of captured messages and of ends, and may put messages of its own
//! between frames. A direction that is idle holds no buffer: bytes are read into one scratch buffer of the
//! thread and written from it at once; only what the other side does not take yet is copied. Each poll moves
//! a bounded amount, so that a bulk transfer does not starve the session beside it.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::codec::FrameError;
use super::scanner::{Rules, Scanner, Step};

/// Bytes read at once. Larger reads make fewer system calls; this is what a TCP receive buffer typically has to give.
const SCRATCH: usize = 64 * 1024;

/// Reads of one direction before other sessions get their turn.
const TURNS: usize = 2;

thread_local! {
    static SCRATCH_BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH].into_boxed_slice());
}

/// One end of the splice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The debugger client.
    Client,
    /// The worker's debugger.
    Worker,
}

/// What the session has to decide on.
#[derive(Debug)]
pub enum SpliceEvent {
    /// A message that was not forwarded.
    Captured(Side, Vec<u8>),
    /// This side will send no more; everything it sent is on its way.
    Eof(Side),
    /// This side failed.
    Failed(Side, io::Error),
    /// This side's bytes are not DAP, or a message is over a limit.
    Malformed(Side, FrameError),
}

/// Client and worker, and what is under way between them.
#[derive(Debug)]
pub struct Splice<C, W> {
    client: C,
    worker: W,
    /// Worker to client.
    down: Lane,
    /// Client to worker.
    up: Lane,
}

#[derive(Debug)]
struct Lane {
    scanner: Scanner,
    /// Read but not scanned: what came behind a captured frame.
    unscanned: Vec<u8>,
    /// To be written, from `sent` on.
    pending: Vec<u8>,
    sent: usize,
    /// Whole frames of the relay's own, waiting for the space between two frames.
    inserts: Vec<u8>,
    eof: Eof,
    close: Close,
    bytes: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Eof {
    Open,
    Seen,
    Told,
}

#[derive(Debug, PartialEq, Eq)]
enum Close {
    No,
    Wanted,
    Done,
}

enum Turn {
    Captured(Vec<u8>),
    Eof,
    ReadFailed(io::Error),
    WriteFailed(io::Error),
    Malformed(FrameError),
}

impl<C, W> Splice<C, W>
where
    C: AsyncRead + AsyncWrite + Unpin,
    W: AsyncRead + AsyncWrite + Unpin,
{
    /// Between `client` and `worker`; the bytes were read from each before and come first.
    pub fn new(
        client: C,
        from_client: Vec<u8>,
        up: Rules,
        worker: W,
        from_worker: Vec<u8>,
        down: Rules,
    ) -> Self {
        Self {
            client,
            worker,
            down: Lane::new(down, from_worker),
            up: Lane::new(up, from_client),
        }
    }

    /// Bytes received so far: (from the client, from the worker).
    pub fn bytes(&self) -> (u64, u64) {
        (self.up.bytes, self.down.bytes)
    }

    /// Sends `frames` (whole ones) to `to`, at the next space between two frames.
    pub fn insert(&mut self, to: Side, frames: &[u8]) {
        let lane = self.lane_towards(to);
        lane.inserts.extend_from_slice(frames);
    }

    /// Ends the writing half towards `to` once everything is written: a half-close is passed on.
    pub fn close(&mut self, to: Side) {
        let lane = self.lane_towards(to);
        if lane.close == Close::No {
            lane.close = Close::Wanted;
        }
    }

    /// Both directions are closed: nothing can happen any more.
    pub fn finished(&self) -> bool {
        self.up.close == Close::Done && self.down.close == Close::Done
    }

    /// Everything that was to go to `to` has been written.
    pub fn drained(&self, to: Side) -> bool {
        let lane = match to {
            Side::Client => &self.down,
            Side::Worker => &self.up,
        };
        lane.pending.is_empty() && (lane.inserts.is_empty() || !lane.scanner.between_frames())
    }

    /// The next event. Cancel safe: all state is in `self`.
    pub async fn next(&mut self) -> SpliceEvent {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Runs on until everything for `to` is written. Messages that are captured meanwhile are dropped, so it is for the
    /// end of a session. Cancel safe.
    pub async fn flush(&mut self, to: Side) {
        std::future::poll_fn(|cx| {
            if self.drained(to) {
                return Poll::Ready(());
            }
            match self.poll_next(cx) {
                Poll::Ready(SpliceEvent::Failed(..) | SpliceEvent::Malformed(..)) => {
                    Poll::Ready(())
                }
                _ if self.drained(to) => Poll::Ready(()),
                Poll::Ready(_) => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                Poll::Pending => Poll::Pending,
            }
        })
        .await;
    }

    /// Gives the streams back.
    pub fn into_parts(self) -> (C, W) {
        (self.client, self.worker)
    }

    fn lane_towards(&mut self, to: Side) -> &mut Lane {
        match to {
            Side::Client => &mut self.down,
            Side::Worker => &mut self.up,
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<SpliceEvent> {
        SCRATCH_BUFFER.with_borrow_mut(|scratch| {
            // The small direction first: a person's "step" does not wait behind output.
            if let Poll::Ready(turn) = self
                .up
                .poll(cx, &mut self.client, &mut self.worker, scratch)
            {
                return Poll::Ready(turn.event(Side::Client, Side::Worker));
            }
            if let Poll::Ready(turn) =
                self.down
                    .poll(cx, &mut self.worker, &mut self.client, scratch)
            {
                return Poll::Ready(turn.event(Side::Worker, Side::Client));
            }
            Poll::Pending
        })
    }
}

impl Turn {
    fn event(self, from: Side, to: Side) -> SpliceEvent {
        match self {
            Self::Captured(body) => SpliceEvent::Captured(from, body),
            Self::Eof => SpliceEvent::Eof(from),
            Self::ReadFailed(error) => SpliceEvent::Failed(from, error),
            Self::WriteFailed(error) => SpliceEvent::Failed(to, error),
            Self::Malformed(error) => SpliceEvent::Malformed(from, error),
        }
    }
}

impl Lane {
    fn new(rules: Rules, unscanned: Vec<u8>) -> Self {
        Self {
            scanner: Scanner::new(rules),
            bytes: unscanned.len() as u64,
            unscanned,
            pending: Vec::new(),
            sent: 0,
            inserts: Vec::new(),
            eof: Eof::Open,
            close: Close::No,
        }
    }

    fn poll<R, T>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        to: &mut T,
        scratch: &mut [u8],
    ) -> Poll<Turn>
    where
        R: AsyncRead + Unpin,
        T: AsyncWrite + Unpin,
    {
        let mut turns = 0;
        loop {
            // First what was put in place of a captured frame, then what came behind it.
            self.place_inserts();
            if !self.unscanned.is_empty() {
                let chunk = std::mem::take(&mut self.unscanned);
                if let Some(turn) = self.scan(cx, &chunk, to) {
                    return Poll::Ready(turn);
                }
            }
            self.place_inserts();
            if let Err(error) = ready!(self.poll_drain(cx, to)) {
                return Poll::Ready(Turn::WriteFailed(error));
            }
            if self.close == Close::Wanted {
                let closed = ready!(Pin::new(&mut *to).poll_shutdown(cx));
                self.close = Close::Done;
                if let Err(error) = closed {
                    return Poll::Ready(Turn::WriteFailed(error));
                }
            }
            match self.eof {
                Eof::Open => {}
                Eof::Seen => {
                    self.eof = Eof::Told;
                    return Poll::Ready(Turn::Eof);
                }
                Eof::Told => return Poll::Pending,
            }
            if turns == TURNS {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            turns += 1;
            let mut buffer = ReadBuf::new(scratch);
            match ready!(Pin::new(&mut *from).poll_read(cx, &mut buffer)) {
                Err(error) => {
                    self.eof = Eof::Told;
                    return Poll::Ready(Turn::ReadFailed(error));
                }
                Ok(()) if buffer.filled().is_empty() => self.eof = Eof::Seen,
                Ok(()) => {
                    let read = buffer.filled().len();
                    self.bytes += read as u64;
                    if self.close == Close::Done {
                        continue; // nobody is there to take it
                    }
                    if let Some(turn) = self.scan(cx, &scratch[..read], to) {
                        return Poll::Ready(turn);
                    }
                }
            }
        }
    }

    /// Forwards what passes of `chunk`; stops behind a captured frame and keeps the rest for later.
    fn scan<T: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        chunk: &[u8],
        to: &mut T,
    ) -> Option<Turn> {
        let (mut start, mut at) = (0, 0);
        while at < chunk.len() {
            if at > start && !self.inserts.is_empty() && self.scanner.between_frames() {
                self.forward(cx, &chunk[start..at], to);
                start = at;
            }
            let step = match self.scanner.step(&chunk[at..]) {
                Ok(step) => step,
                Err(error) => {
                    self.forward(cx, &chunk[start..at], to);
                    return Some(Turn::Malformed(error));
                }
            };
            if let Step::Forward(n) = step {
                at += n;
                continue;
            }
            self.forward(cx, &chunk[start..at], to);
            match step {
                Step::Forward(n) | Step::Keep(n) => at += n,
                Step::Release(n, kept) => {
                    self.forward(cx, &kept, to);
                    at += n;
                }
                Step::Captured(n, body) => {
                    self.unscanned.extend_from_slice(&chunk[at + n..]);
                    return Some(Turn::Captured(body));
                }
            }
            start = at;
        }
        self.forward(cx, &chunk[start..at], to);
        None
    }

    /// Writes `bytes` now if nothing is before them, and keeps what does not go.
    fn forward<T: AsyncWrite + Unpin>(&mut self, cx: &mut Context<'_>, bytes: &[u8], to: &mut T) {
        let mut rest = bytes;
        while self.pending.is_empty() && !rest.is_empty() {
            // An error shows again when the rest is drained; the lane is polled until then.
            match Pin::new(&mut *to).poll_write(cx, rest) {
                Poll::Ready(Ok(n)) if n > 0 => rest = &rest[n..],
                _ => break,
            }
        }
        self.pending.extend_from_slice(rest);
        self.place_inserts();
    }

    fn place_inserts(&mut self) {
        if !self.inserts.is_empty() && self.scanner.between_frames() {
            self.pending.append(&mut self.inserts);
        }
    }

    fn poll_drain<T: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut T,
    ) -> Poll<io::Result<()>> {
        while self.sent < self.pending.len() {
            match ready!(Pin::new(&mut *to).poll_write(cx, &self.pending[self.sent..])) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(n) => self.sent += n,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        // Given back, not kept for next time: an idle session holds no buffers.
        self.pending = Vec::new();
        self.inserts.shrink_to_fit();
        self.sent = 0;
        Pin::new(to).poll_flush(cx)
    }
}

#[cfg(test)]
mod tests;
