//! The splice: forwards bytes between one client and one worker, after attach.
//!
//! Owned by the protocol that runs a session, which gets captured messages and ends as events, and may insert messages
//! between frames. An idle direction holds no buffer; an active one reads, decides and writes in the same memory,
//! without copies. Each poll moves a bounded amount, so that a bulk transfer does not starve other sessions.

mod buffer;
mod lane;
mod null_peer;

use std::io;
use std::task::{Context, Poll};

use self::lane::{Close, Lane, Turn};
pub use self::null_peer::NullPeer;
use crate::memory::Account;
use crate::wire::dap::codec::{FrameError, put_frame};
use crate::wire::dap::scanner::Rules;
use crate::wire::peer_stream::PeerStream;

/// One end of the splice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The debugger client.
    Client,
    /// The worker's debugger.
    Worker,
}

/// Events that the session has to handle.
#[derive(Debug)]
pub enum SpliceEvent {
    /// A message that was not forwarded.
    Captured(Side, Vec<u8>),
    /// This side will send no more; everything that it sent is on its way.
    Eof(Side),
    /// The connection of this side failed.
    Failed(Side, io::Error),
    /// This side's bytes are not DAP, a message exceeds a limit, or there is no memory for it ([`FrameError::Short`]).
    Malformed(Side, FrameError),
}

/// Client and worker, and the bytes in transit between them.
#[derive(Debug)]
pub struct Splice<C, W: PeerStream> {
    client: C,
    /// The direction from worker to client.
    down: Lane,
    /// The direction from client to worker.
    up: Up<W>,
}

/// The direction from client to worker. Dropping it completes a half-written message.
#[derive(Debug)]
struct Up<W: PeerStream> {
    lane: Lane,
    worker: W,
}

impl<W: PeerStream> Drop for Up<W> {
    fn drop(&mut self) {
        self.worker.complete(self.lane.rest());
    }
}

impl<C, W> Splice<C, W>
where
    C: PeerStream,
    W: PeerStream,
{
    /// A splice between `client` and `worker`; the bytes were read from each before and come first. Bytes in transit
    /// are charged to `account`.
    pub fn new(
        account: Account,
        client: C,
        from_client: Vec<u8>,
        up: Rules,
        worker: W,
        from_worker: Vec<u8>,
        down: Rules,
    ) -> Self {
        Self {
            client,
            down: Lane::new(down, from_worker, account.clone()),
            up: Up {
                lane: Lane::new(up, from_client, account),
                worker,
            },
        }
    }

    /// Bytes received so far: (from the client, from the worker).
    pub fn bytes(&self) -> (u64, u64) {
        (self.up.lane.bytes, self.down.bytes)
    }

    /// The client's end.
    pub fn client(&self) -> &C {
        &self.client
    }

    /// The worker's end.
    pub fn worker(&self) -> &W {
        &self.up.worker
    }

    /// The worker's end, for what sends no message.
    pub fn worker_mut(&mut self) -> &mut W {
        &mut self.up.worker
    }

    /// The worker's end, to detach from. Messages not yet written to it are lost, except the rest of one.
    pub fn detaching_worker(&mut self) -> &mut W {
        self.up.worker.complete(self.up.lane.rest());
        &mut self.up.worker
    }

    /// Sends `frames` (whole ones) to `to`, in the next gap between two frames.
    pub fn insert(&mut self, to: Side, frames: &[u8]) {
        let lane = self.lane_towards(to);
        if lane.close != Close::Done {
            lane.inserts.extend_from_slice(frames);
        }
    }

    /// The same for one message with this body.
    pub fn insert_body(&mut self, to: Side, body: &[u8]) {
        let lane = self.lane_towards(to);
        if lane.close != Close::Done {
            put_frame(&mut lane.inserts, body);
        }
    }

    /// Captures the responses of `from` to `command` as well, or no longer.
    pub fn capture_answers(&mut self, from: Side, command: &'static [u8], captures: bool) {
        let lane = match from {
            Side::Client => &mut self.up.lane,
            Side::Worker => &mut self.down,
        };
        lane.scanner.capture_answers(command, captures);
    }

    /// Half-closes the connection to `to` once everything is written.
    pub fn close(&mut self, to: Side) {
        let lane = self.lane_towards(to);
        if lane.close == Close::No {
            lane.close = Close::Requested;
        }
    }

    /// Whether both directions are closed, so that nothing can happen any more.
    pub fn finished(&self) -> bool {
        self.up.lane.close == Close::Done && self.down.close == Close::Done
    }

    /// Whether everything for `to` has been written.
    pub fn drained(&self, to: Side) -> bool {
        let lane = match to {
            Side::Client => &self.down,
            Side::Worker => &self.up.lane,
        };
        lane.is_written() && (lane.inserts.is_empty() || !lane.scanner.between_frames())
    }

    /// Whether the client has been sent everything, including frames [inserted](Self::insert) while a message was in
    /// transit.
    pub fn has_sent_all(&self) -> bool {
        self.down.has_sent()
    }

    /// Whether it is [`drained`](Self::drained), and nothing else that the other side sent is buffered.
    pub fn idle(&self, to: Side) -> bool {
        let lane = match to {
            Side::Client => &self.down,
            Side::Worker => &self.up.lane,
        };
        self.drained(to) && lane.buffer.filled().is_empty()
    }

    /// Waits for the next event. Cancel safe: all state is in `self`.
    pub async fn next(&mut self) -> SpliceEvent {
        self.next_but(|_, _| false).await
    }

    /// The same, but a message that would be captured is forwarded if `passes` accepts its side and body, in which it
    /// may overwrite what does not pass.
    pub async fn next_but(&mut self, passes: impl Fn(Side, &mut [u8]) -> bool) -> SpliceEvent {
        std::future::poll_fn(|cx| self.poll_next(cx, &passes)).await
    }

    /// Returns the client, for a conversation with it alone, and the bytes from it that were not forwarded. `None` in
    /// the middle of a passing message of the client: its rest could not be told from the next message.
    pub fn into_client(self) -> Option<(C, Vec<u8>)> {
        let Self { client, up, .. } = self;
        let rest = up.lane.buffer.filled().get(up.lane.passing..)?.to_vec();
        up.lane.scanner.between_frames().then_some((client, rest))
    }

    /// Whether the worker is not in the middle of a passing message. A client never is: its messages are [scanned
    /// completely](crate::wire::dap::peek::Depth::Whole).
    pub fn is_whole(&self) -> bool {
        self.down.scanner.between_frames() && self.down.skip == 0
    }

    /// Drops a message of the worker for which there was no memory, and continues behind it.
    pub fn pass_over(&mut self) {
        self.down.resume_reading();
    }

    /// Replaces the client by a [`NullPeer`], and applies the rules `down` to the worker's messages. Bytes for the
    /// client are dropped; bytes from it still go to the worker.
    pub fn without_client(self, down: Rules) -> Splice<NullPeer, W> {
        let Self {
            down: mut lane, up, ..
        } = self;
        lane.redirect(down);
        Splice {
            client: NullPeer,
            down: lane,
            up,
        }
    }

    /// Replaces the client by another, which has already sent `from_client`. Requires that it is
    /// [whole](Self::is_whole) and [drained](Self::drained).
    pub fn with_client<D: PeerStream>(
        self,
        client: D,
        from_client: Vec<u8>,
        up: Rules,
        down: Rules,
    ) -> Splice<D, W> {
        let mut splice = Splice {
            client,
            down: self.down,
            up: self.up,
        };
        splice.down.redirect(down);
        let account = splice.down.account.clone();
        splice.up.lane = Lane::new(up, from_client, account);
        splice
    }

    /// Runs until everything for `to` is written. Messages captured meanwhile are dropped, so it is for the end of a
    /// session. Cancel safe.
    pub async fn flush(&mut self, to: Side) {
        std::future::poll_fn(|cx| {
            if self.drained(to) {
                return Poll::Ready(());
            }
            match self.poll_next(cx, &|_, _| false) {
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

    fn lane_towards(&mut self, to: Side) -> &mut Lane {
        match to {
            Side::Client => &mut self.down,
            Side::Worker => &mut self.up.lane,
        }
    }

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        passes: &impl Fn(Side, &mut [u8]) -> bool,
    ) -> Poll<SpliceEvent> {
        // The small direction first: a user's "step" does not wait behind output.
        let Up { lane, worker } = &mut self.up;
        if let Poll::Ready(turn) = lane.poll(cx, &mut self.client, worker, |body| {
            passes(Side::Client, body)
        }) {
            return Poll::Ready(turn.event(Side::Client, Side::Worker));
        }
        if let Poll::Ready(turn) = self.down.poll(cx, worker, &mut self.client, |body| {
            passes(Side::Worker, body)
        }) {
            return Poll::Ready(turn.event(Side::Worker, Side::Client));
        }
        Poll::Pending
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

#[cfg(test)]
mod tests;
