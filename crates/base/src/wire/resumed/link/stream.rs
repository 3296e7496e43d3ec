//! The half of a link that is read and written.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::LinkHandle;
use crate::wire::peer_stream::PeerStream;

/// The stream of a link: reads and writes wait while no transport carries it, and fail once it is broken. Dropping it
/// ends its half behind everything written, and notifies the peer that nothing reads here.
#[derive(Debug)]
pub struct LinkedStream(pub(super) Arc<LinkHandle>);

impl LinkedStream {
    fn broken(&self) -> Option<io::Error> {
        let why = self.0.broken()?;
        Some(io::Error::new(io::ErrorKind::ConnectionReset, &*why))
    }
}

impl AsyncRead for LinkedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let link = &*self.0;
        let mut state = link.state.lock();
        let read = state.incoming.read(|bytes| {
            let now = bytes.len().min(buf.remaining());
            buf.put_slice(&bytes[..now]);
            now
        });
        if read.is_some() {
            state.count();
            drop(state);
            // The transport decides whether an acknowledgement is due.
            link.to_send.notify_one();
            return Poll::Ready(Ok(()));
        }
        if let Some(error) = self.broken() {
            return Poll::Ready(Err(error));
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl AsyncWrite for LinkedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let link = &*self.0;
        let mut state = link.state.lock();
        if let Some(error) = self.broken() {
            return Poll::Ready(Err(error));
        }
        if state.gone {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = state.room(buf.len());
        let wrote = state.outgoing.write(&buf[..room]);
        if wrote == 0 && !buf.is_empty() {
            state.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        drop(state);
        link.to_send.notify_one();
        Poll::Ready(Ok(wrote))
    }

    /// Accepted bytes are stored until the peer has them, so there is nothing to wait for.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.state.lock().outgoing.finish();
        self.0.to_send.notify_one();
        Poll::Ready(Ok(()))
    }
}

impl PeerStream for LinkedStream {
    fn doubt(&self, doubted: bool) {
        let since = doubted.then(Instant::now);
        self.0.doubted.send_replace(since);
    }

    /// A proxy may carry the link, whose system acknowledges data whether or not the peer is alive.
    fn has_answered(&self) -> Option<bool> {
        let since = *self.0.doubted.borrow();
        Some(since.is_some_and(|since| self.0.last_activity.lock().1 > since))
    }
}

impl Drop for LinkedStream {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.outgoing.finish();
        state.incoming.discard();
        state.count();
        state.closed = true;
        drop(state);
        self.0.closed.cancel();
        self.0.to_send.notify_one();
    }
}
