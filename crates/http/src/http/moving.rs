//! A client's stream that reports activity, and that times out unauthenticated clients that do not read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use ray_relay_access::connection::admission::ConnectionPermit;
use ray_relay_base::wire::write_through;

/// How long an unauthenticated client may leave an answer unread. Others may do so longer: a user can well leave `curl
/// | less` alone.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(30);

/// A client's stream that reports activity to its connection permit.
pub(super) struct Moving<S> {
    inner: S,
    permit: ConnectionPermit,
    /// Runs while an unauthenticated client does not read.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Moving<S> {
    pub(super) fn new(inner: S, permit: ConnectionPermit) -> Self {
        Self {
            inner,
            permit,
            stalled: None,
        }
    }

    /// Handles the result of an attempt to write.
    fn written(
        &mut self,
        cx: &mut Context<'_>,
        attempt: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if attempt.is_ready() {
            self.stalled = None;
            self.permit.moved();
            return attempt;
        }
        if self.stalled.is_none() && self.permit.owes_a_credential() {
            self.stalled = Some(Box::pin(sleep(UNREAD_TIMEOUT)));
        }
        let stalled = self.stalled.as_mut();
        match stalled.map(|stalled| stalled.as_mut().poll(cx)) {
            Some(Poll::Ready(())) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Some(Poll::Pending) | None => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Moving<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        if read.is_ready() {
            self.permit.moved();
        }
        read
    }
}

write_through!([S: AsyncWrite + Unpin] Moving<S> { Self { inner, .. } => inner }, Self::written);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::{AsyncWriteExt, duplex};
    use tokio::time::Instant;

    use super::*;
    use ray_relay_access::connection::admission::Admission;

    #[tokio::test(start_paused = true)]
    async fn stalled_anonymous_write_times_out() {
        let guard = Admission::new(8, &ray_relay_base::memory::Memory::new(1 << 30))
            .admit([127, 0, 0, 1].into());
        let (near, _far) = duplex(64);
        let mut stream = Moving::new(near, guard.place());
        let started = Instant::now();
        let error = stream.write_all(&[0; 100]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(started.elapsed(), UNREAD_TIMEOUT);
    }
}
