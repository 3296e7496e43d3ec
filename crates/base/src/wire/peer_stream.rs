//! The connection to a peer.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, Join};
use tokio::net::TcpStream;
use tokio_util::either::Either;
use tracing::debug;

use super::tcp;

/// A connection to a debugger's client or to a worker's debugger.
pub trait PeerStream: AsyncRead + AsyncWrite + Unpin {
    /// The socket whose next bytes are those that a read would return; `None` if they are transformed or buffered on
    /// the way.
    fn source(&self) -> Option<&TcpStream> {
        None
    }

    /// Sets whether the peer is `doubted` to be alive. Data for a doubted peer fails within some seconds if it is not
    /// acknowledged.
    fn doubt(&self, doubted: bool) {
        let _ = doubted;
    }

    /// Whether the peer has answered since it became doubted; `None` if only its system's acknowledgements can tell.
    fn has_answered(&self) -> Option<bool> {
        None
    }

    /// Writes as much as possible of `messages`: whole ones, or the rest of one and its successors. The caller
    /// presents the remaining bytes again; if it ends before, it [hands them over](Self::complete).
    fn poll_pass(&mut self, cx: &mut Context<'_>, messages: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(self).poll_write(cx, messages)
    }

    /// Takes over, from `rest`, the remainder of a message that [`Self::poll_pass`] has written in part.
    fn complete(&mut self, rest: &[u8]) {
        let _ = rest;
    }
}

/// A stream within this process: the state of the connection behind it is unknown.
impl PeerStream for DuplexStream {
    fn has_answered(&self) -> Option<bool> {
        Some(false)
    }
}

impl<L: PeerStream, R: PeerStream> PeerStream for Either<L, R> {
    fn doubt(&self, doubted: bool) {
        match self {
            Self::Left(left) => left.doubt(doubted),
            Self::Right(right) => right.doubt(doubted),
        }
    }

    fn has_answered(&self) -> Option<bool> {
        match self {
            Self::Left(left) => left.has_answered(),
            Self::Right(right) => right.has_answered(),
        }
    }
}

/// A separate reader and writer, such as standard input and output.
impl<R, W> PeerStream for Join<R, W>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
}

impl PeerStream for TcpStream {
    fn source(&self) -> Option<&TcpStream> {
        Some(self)
    }

    fn doubt(&self, doubted: bool) {
        if let Err(error) = tcp::doubt(self, doubted) {
            debug!(%error, "cannot bound how long a client may be silent");
        }
    }
}
