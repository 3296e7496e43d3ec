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
    /// The socket whose next bytes are those that a read would give; `None` where they are changed or held on the way.
    fn source(&self) -> Option<&TcpStream> {
        None
    }

    /// Whether the peer is still there is `doubted`, or no longer: what is sent to it fails within some seconds then where
    /// it is not taken.
    fn doubt(&self, doubted: bool) {
        let _ = doubted;
    }

    /// Whether the peer has answered since it is doubted; `None` where nothing tells but what its system acknowledges.
    fn has_answered(&self) -> Option<bool> {
        None
    }

    /// Writes what can be written of `messages`, whole ones or the rest of one and what follows. The caller keeps what is left of
    /// them and comes with it again; if it ends before, it [hands it over](Self::complete).
    fn poll_pass(&mut self, cx: &mut Context<'_>, messages: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(self).poll_write(cx, messages)
    }

    /// Takes over, from `rest`, what is left of a message that [`Self::poll_pass`] has written in part.
    fn complete(&mut self, rest: &[u8]) {
        let _ = rest;
    }
}

/// Within this process: it is not known apart from the connection that it carries.
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

/// Two ends of their own, as standard input and output are.
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
