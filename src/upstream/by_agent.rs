//! The way of an agent to a worker of its own node: for what Ray attributes, where a relay needs a permit.
//!
//! The session is the relay's. What the agent owes the debugger is the right end where the relay is lost on the way, so
//! it follows what passes in a [`Worker`] of its own.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::worker::Worker;
use super::{PROBE_AFTER, Stream, legacy};
use crate::wire::tcp;

/// The pause that a debugger needs after a session before it is dialled again, for whoever gives its worker back.
pub use super::goodbye::SETTLED;

/// Dials the first of `ways` that accepts, each within `patience`: another one is tried only where nothing listens.
///
/// # Errors
/// Of the last one that was tried.
#[expect(
    clippy::disallowed_methods,
    reason = "here an agent dials workers, at the addresses that Ray attributes to them"
)]
pub async fn dial(ways: &[SocketAddr], patience: Duration) -> io::Result<TcpStream> {
    let mut refused = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for way in ways {
        let dialled = timeout(patience, TcpStream::connect(way)).await;
        match dialled.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(stream) => {
                tcp::tune(&stream, PROBE_AFTER)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => refused = error,
            Err(error) => return Err(error),
        }
    }
    Err(refused)
}

/// Follows what passes over `stream`, a connection to debugpy that was just made. Its end is said by a task of `tasks`.
///
/// # Errors
/// Where the system refuses an option of the socket.
pub fn follow(stream: TcpStream, tasks: TaskTracker) -> io::Result<Worker> {
    tcp::bound_silence(&stream)?;
    Ok(Worker::over(stream, tasks))
}

/// Leaves a prompt of the legacy debugger in order, once `pending` was said. To be owned by whoever waits for its end.
pub async fn let_go(stream: TcpStream, pending: BytesMut) {
    legacy::let_go(Stream::Direct(stream), pending).await;
}

impl Worker {
    /// Writes what can be written of `bytes`, cut anywhere: a relay has put its messages in order already. The rest of a
    /// message that was begun is to be [handed over](crate::wire::peer_stream::PeerStream::complete) at the end.
    ///
    /// # Errors
    /// Where the connection is gone.
    pub fn poll_forward(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Some(line) = self.line_mut() else {
            return Poll::Ready(Ok(bytes.len()));
        };
        ready!(line.poll_unsent(cx))?;
        let written = ready!(Pin::new(&mut line.stream).poll_write(cx, bytes))?;
        line.sent(&bytes[..written]);
        Poll::Ready(Ok(written))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn the_next_address_is_dialled_where_nothing_listens_at_the_first() {
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let nobody = closed.local_addr().unwrap();
        drop(closed);
        let open = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = open.local_addr().unwrap();
        let patience = Duration::from_secs(5);
        let dialled = dial(&[nobody, there], patience).await.unwrap();
        assert_eq!(dialled.peer_addr().unwrap(), there);
        for ways in [&[nobody, nobody][..], &[nobody]] {
            let why = dial(ways, patience).await.unwrap_err();
            assert_eq!(why.kind(), io::ErrorKind::ConnectionRefused);
        }
        assert!(dial(&[], patience).await.is_err());
    }
}
