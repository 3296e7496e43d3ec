//! The bytes of a connection to a worker's debugger, by whichever way.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::agents::Tunnel;
use crate::wire::write_through;

/// How long an agent may take the end of a stream.
const SAID: Duration = Duration::from_secs(1);

/// A connection to a worker's debugger.
#[derive(Debug)]
pub enum Stream {
    /// A connection of the relay's own, or, in an agent, of the agent's.
    Direct(TcpStream),
    /// A connection of the agent's of its node.
    Tunnel(Box<Tunnel>),
}

impl Stream {
    /// The socket, where nothing lies between it and the debugger.
    pub(super) fn socket(&self) -> Option<&TcpStream> {
        match self {
            Self::Direct(stream) => Some(stream),
            Self::Tunnel(_) => None,
        }
    }

    /// Ends it, once everything that the debugger has to hear was said. An agent is told that this end is meant.
    pub(crate) async fn end(mut self) {
        if let Self::Tunnel(tunnel) = &mut self {
            // It finds out by itself otherwise.
            let _ = timeout(SAID, tunnel.shutdown()).await;
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Direct(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tunnel(tunnel) => Pin::new(tunnel).poll_read(cx, buf),
        }
    }
}

write_through!([] Stream { Self::Direct(stream) => stream, Self::Tunnel(tunnel) => tunnel });
