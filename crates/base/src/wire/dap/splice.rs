//! The splice: bytes between one client and one worker, after attach.
//!
//! Owned by the protocol that runs a session, which is told of captured messages and of ends, and may put messages of its own
//! between frames. A direction that is idle holds no buffer; one that is not reads, decides and writes in the
//! same memory, without copies. Each poll moves a bounded amount, so that a bulk transfer does not starve the session beside it.

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

/// What the session has to decide on.
#[derive(Debug)]
pub enum SpliceEvent {
    /// A message that was not forwarded.
    Captured(Side, Vec<u8>),
    /// This side will send no more; everything it sent is on its way.
    Eof(Side),
    /// The connection of this side failed.
    Failed(Side, io::Error),
    /// This side's bytes are not DAP, or a message is over a limit, or there is no memory for it ([`FrameError::Short`]).
    Malformed(Side, FrameError),
}

/// Client and worker, and what is under way between them.
#[derive(Debug)]
pub struct Splice<C, W: PeerStream> {
    client: C,
    /// The direction from worker to client.
    down: Lane,
    /// The direction from client to worker.
    up: Up<W>,
}

/// The direction from client to worker, whose end does not cut a message in two.
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
    /// A splice between `client` and `worker`; the bytes were read from each before and come first. What is under way is taken
    /// from `account`.
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

    /// The worker's end, for what is said beside the messages.
    pub fn beside(&mut self) -> &mut W {
        &mut self.up.worker
    }

    /// The worker's end, to be left. Messages for it that were not written yet are lost with it, but for the rest of one.
    pub fn worker_mut(&mut self) -> &mut W {
        self.up.worker.complete(self.up.lane.rest());
        &mut self.up.worker
    }

    /// Sends `frames` (whole ones) to `to`, at the next space between two frames.
    pub fn insert(&mut self, to: Side, frames: &[u8]) {
        let lane = self.lane_towards(to);
        if lane.close != Close::Done {
            lane.inserts.extend_from_slice(frames);
        }
    }

    /// The same of one message with this body.
    pub fn insert_body(&mut self, to: Side, body: &[u8]) {
        let lane = self.lane_towards(to);
        if lane.close != Close::Done {
            put_frame(&mut lane.inserts, body);
        }
    }

    /// Has the answers of `from` to `command` captured as well, from now on.
    pub fn capture_answers(&mut self, from: Side, command: &'static [u8]) {
        let lane = match from {
            Side::Client => &mut self.up.lane,
            Side::Worker => &mut self.down,
        };
        lane.scanner.capture_answers(command);
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
        self.up.lane.close == Close::Done && self.down.close == Close::Done
    }

    /// Everything that was to go to `to` has been written.
    pub fn drained(&self, to: Side) -> bool {
        let lane = match to {
            Side::Client => &self.down,
            Side::Worker => &self.up.lane,
        };
        lane.is_written() && (lane.inserts.is_empty() || !lane.scanner.between_frames())
    }

    /// The client has been sent everything, also what was [inserted](Self::insert) while a message was under way.
    pub fn has_sent_all(&self) -> bool {
        self.down.has_sent()
    }

    /// As [`Self::drained`], and nothing more of what the other side has sent is here.
    pub fn idle(&self, to: Side) -> bool {
        let lane = match to {
            Side::Client => &self.down,
            Side::Worker => &self.up.lane,
        };
        self.drained(to) && lane.buffer.filled().is_empty()
    }

    /// The next event. Cancel safe: all state is in `self`.
    pub async fn next(&mut self) -> SpliceEvent {
        self.next_but(|_, _| false).await
    }

    /// The same, but that a message to be captured, from this side and with this body, goes on as it came where it `passes`.
    pub async fn next_but(&mut self, passes: impl Fn(Side, &[u8]) -> bool) -> SpliceEvent {
        std::future::poll_fn(|cx| self.poll_next(cx, &passes)).await
    }

    /// The client, for a conversation with it alone, and what it has sent that went nowhere. `None` in the middle of a
    /// message of its own that passes: the rest of that could not be told from the next.
    pub fn into_client(self) -> Option<(C, Vec<u8>)> {
        let Self { client, up, .. } = self;
        let rest = up.lane.buffer.filled().get(up.lane.passing..)?.to_vec();
        up.lane.scanner.between_frames().then_some((client, rest))
    }

    /// The worker is not in the middle of a message that passes. A client never is: its messages are [looked at
    /// whole](crate::wire::dap::peek::Depth::Whole).
    pub fn is_whole(&self) -> bool {
        self.down.scanner.between_frames() && self.down.skip == 0
    }

    /// Goes on behind a message of the worker's for which there was no memory: it is dropped.
    pub fn pass_over(&mut self) {
        self.down.go_on();
    }

    /// The same with a [`NullPeer`] in the client's place, and by the rules `down` for what the worker sends. What was for the
    /// client is dropped; what it has sent still goes to the worker.
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

    /// The same with another client, which has said `from_client` already. To be called when all is [whole](Self::is_whole)
    /// and [drained](Self::drained).
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

    /// Runs on until everything for `to` is written. Messages that are captured meanwhile are dropped, so it is for the
    /// end of a session. Cancel safe.
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
        passes: &impl Fn(Side, &[u8]) -> bool,
    ) -> Poll<SpliceEvent> {
        // The small direction first: a person's "step" does not wait behind output.
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
