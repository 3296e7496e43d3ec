//! The bytes of a connection to a worker's debugger, by whichever way.

use std::fmt::Debug;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::wire::tunnel::messages::Keep;
use crate::wire::write_through;

/// How long an agent may take the end of a stream.
const SAID: Duration = Duration::from_secs(1);

/// A connection that an agent has made: bytes to and from the debugger, and words to the agent among them.
pub trait Tunnelled: AsyncRead + AsyncWrite + Debug + Send + Sync + Unpin {
    /// The agent can keep the debugger when this end is lost.
    fn keeps(&self) -> bool;

    /// Says `text` to the agent.
    ///
    /// # Errors
    /// Where the stream is gone.
    fn say(&mut self, text: String) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send + '_>>;

    /// By what the agent has kept the debugger; `None`: it was dialled.
    fn take_resumed(&mut self) -> Option<Box<Keep>>;
}

/// A connection to a worker's debugger.
#[derive(Debug)]
pub enum Stream {
    /// A connection of the relay's own, or, in an agent, of the agent's.
    Direct(TcpStream),
    /// A connection of the agent's of its node.
    Tunnel(Box<dyn Tunnelled>),
}

impl Stream {
    /// The socket, where nothing lies between it and the debugger.
    pub(crate) fn socket(&self) -> Option<&TcpStream> {
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
