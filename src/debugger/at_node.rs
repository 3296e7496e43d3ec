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
use tokio::io::{AsyncReadExt as _, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::worker::{Line, Worker};
use super::{Direct, PROBE_AFTER, Stream, legacy};
use crate::wire::dap::kept::Kept;
use crate::wire::tcp;

/// Bytes of a message that nobody hears any more that are read at once.
const READ: usize = 16 * 1024;

/// Bytes of a message that waits for its end before any of it is written.
const LONGEST: usize = 1 << 24;

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
    let mut worker = Worker::over(stream, tasks);
    if let Some(line) = worker.line_mut() {
        line.ledger.stands = Some(Box::default());
    }
    Ok(worker)
}

/// Leaves a prompt of the legacy debugger in order, once `pending` was said. To be owned by whoever waits for its end.
pub async fn let_go(stream: TcpStream, pending: BytesMut) {
    legacy::let_go(Stream::Direct(Direct::new(stream)), pending).await;
}

impl Worker {
    /// Everything that was sent is whole messages, or will be, and another client could go on.
    pub fn can_be_kept(&mut self) -> bool {
        let whole = |line: &mut Line| line.ledger.between_messages();
        self.stays() && self.line_mut().is_some_and(whole)
    }

    /// The threads that stand. What stops or runs from now on is for the caller to see.
    pub fn stands(&mut self) -> Kept {
        let stands = self.line_mut().and_then(|line| line.ledger.stands.take());
        stands.map_or_else(Kept::default, |stands| *stands)
    }

    /// Sees again for itself which threads stand: those of `kept`, and what changes that.
    pub fn stand(&mut self, kept: Kept) {
        if let Some(line) = self.line_mut() {
            line.ledger.stands = Some(Box::new(kept));
        }
    }

    /// Reads and drops the rest of the message that the debugger is in the middle of; gives the part of a header that was
    /// read of the next.
    ///
    /// # Errors
    /// Where the connection is gone.
    pub async fn skip_rest(&mut self) -> io::Result<Vec<u8>> {
        let mut room = vec![0; READ];
        loop {
            let Some(line) = self.line_mut() else {
                return Err(io::ErrorKind::NotConnected.into());
            };
            let (left, part) = line.ledger.rest();
            if left == 0 {
                return Ok(part.to_vec());
            }
            let now = left.min(READ);
            if self.read(&mut room[..now]).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Takes what can be taken of `bytes`, cut anywhere: a relay has put its messages in order already. No message is written
    /// before it is whole: a debugger that has half a message of a relay that is lost could hear nobody else. One of more
    /// than [`LONGEST`] bytes goes as it comes. The rest of what was begun to be written is to be [handed
    /// over](crate::wire::peer_stream::PeerStream::complete) at the end.
    ///
    /// # Errors
    /// Where the connection is gone.
    pub fn poll_forward(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Some(line) = self.line_mut() else {
            return Poll::Ready(Ok(bytes.len()));
        };
        ready!(line.poll_unsent(cx))?;
        let mut taken = bytes.len();
        if line.part.is_empty() {
            let whole = &bytes[..line.ledger.whole(bytes)];
            if !whole.is_empty() {
                let written = ready!(Pin::new(&mut line.stream).poll_write(cx, whole))?;
                line.sent(&bytes[..written]);
                return Poll::Ready(Ok(written));
            }
        } else {
            taken = line.ledger.under_way(bytes);
        }
        line.part.extend_from_slice(&bytes[..taken]);
        line.sent(&bytes[..taken]);
        if line.ledger.between_messages() || line.part.len() > LONGEST {
            line.unsent = std::mem::take(&mut line.part);
        }
        Poll::Ready(Ok(taken))
    }

    /// Forgets what has come of a message whose rest never will.
    pub fn forget_part(&mut self) {
        if let Some(line) = self.line_mut()
            && !line.part.is_empty()
        {
            line.part = Vec::new();
            line.ledger.forget_part();
        }
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
