//! One connection to a debugger through an agent.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::Carrier;
use super::table::AgentProcess;
use ray_relay_base::wire::tunnel::ByteStream;
use ray_relay_base::wire::tunnel::messages::ParkTerms;
use ray_relay_debugger::debugger::Tunnelled;

/// Byte stream to a worker's debugger. It breaks in both directions once the agent's credential is invalid or its node
/// contested. The loss of the agent reads as an error, unlike the end of the debugger's connection.
pub struct Tunnel {
    /// In a lock that is never contended: a worker's holder must be `Sync`.
    bytes: Mutex<ByteStream<Carrier>>,
    cut: CancellationToken,
    /// The same, as a future to be woken by.
    until_cut: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Dropping it signals that the stream is over.
    _open: oneshot::Sender<()>,
    /// One of the agent's stream slots.
    _slot: OwnedSemaphorePermit,
    _process: Arc<AgentProcess>,
    /// Whether the agent can park the debugger.
    pub(super) keeps: bool,
    /// Terms by which the agent parked the debugger, if it did.
    resumed: Option<Box<ParkTerms>>,
    /// Delays the shutdown until the worker is detached.
    _leaving: TaskTrackerToken,
}

impl Tunnel {
    pub(super) fn new(
        bytes: ByteStream<Carrier>,
        cut: CancellationToken,
        open: oneshot::Sender<()>,
        slot: OwnedSemaphorePermit,
        process: Arc<AgentProcess>,
        resumed: Option<Box<ParkTerms>>,
        leaving: TaskTrackerToken,
    ) -> Self {
        Self {
            bytes: Mutex::new(bytes),
            until_cut: Box::pin(cut.clone().cancelled_owned()),
            cut,
            _open: open,
            _slot: slot,
            _process: process,
            keeps: false,
            resumed,
            _leaving: leaving,
        }
    }

    /// Polls `attempt`, unless or until the agent is no longer trusted.
    fn unless_cut<T>(
        &mut self,
        cx: &mut Context<'_>,
        attempt: impl FnOnce(Pin<&mut ByteStream<Carrier>>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.cut.is_cancelled() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let attempt = attempt(Pin::new(self.bytes.get_mut()), cx);
        if attempt.is_pending() && self.until_cut.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        attempt
    }
}

impl Tunnelled for Tunnel {
    fn keeps(&self) -> bool {
        self.keeps
    }

    fn say(&mut self, text: String) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send + '_>> {
        Box::pin(self.bytes.get_mut().say(text))
    }

    fn take_resumed(&mut self) -> Option<Box<ParkTerms>> {
        self.resumed.take()
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = self.unless_cut(cx, |bytes, cx| bytes.poll_read(cx, buf));
        let ended = matches!(read, Poll::Ready(Ok(()))) && buf.filled().len() == before;
        if ended && buf.remaining() > 0 && !self.bytes.get_mut().ended_in_order() {
            // The debugger has not closed.
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        read
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.unless_cut(cx, |bytes, cx| bytes.poll_write(cx, buf))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.unless_cut(cx, AsyncWrite::poll_flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.unless_cut(cx, AsyncWrite::poll_shutdown)
    }
}

impl std::fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tunnel").finish_non_exhaustive()
    }
}
