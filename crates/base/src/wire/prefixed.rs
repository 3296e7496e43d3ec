//! A stream that replays bytes that have been read already.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::wire::peer_stream::PeerStream;
use crate::wire::write_through;

/// `inner`, preceded by `prefix`. Writes pass straight through.
#[derive(Debug)]
pub struct Prefixed<S> {
    prefix: Bytes,
    inner: S,
}

impl<S> Prefixed<S> {
    /// Replays `prefix`, then reads `inner`.
    pub fn new(prefix: Bytes, inner: S) -> Self {
        Self { prefix, inner }
    }

    /// The stream itself.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The stream itself, mutable.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prefixed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.prefix.has_remaining() {
            let length = self.prefix.len().min(buf.remaining());
            buf.put_slice(&self.prefix.split_to(length));
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: PeerStream> PeerStream for Prefixed<S> {
    fn source(&self) -> Option<&TcpStream> {
        match self.prefix.has_remaining() {
            true => None,
            false => self.inner.source(),
        }
    }

    fn doubt(&self, doubted: bool) {
        self.inner.doubt(doubted);
    }

    fn has_answered(&self) -> Option<bool> {
        self.inner.has_answered()
    }
}

write_through!([S: AsyncWrite + Unpin] Prefixed<S> { Self { inner, .. } => inner });

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn replayed_bytes_come_first_at_any_read_size() {
        let inner = &b" and the rest"[..];
        let mut stream = Prefixed::new(Bytes::from_static(b"the start"), inner);
        let mut all = Vec::new();
        let mut byte = [0; 1];
        while stream.read(&mut byte).await.expect("in memory") == 1 {
            all.push(byte[0]);
        }
        assert_eq!(all, b"the start and the rest");
    }
}
