//! The bytes of a connection to a worker's debugger, direct or through an agent.

use std::fmt::Debug;
use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::kept::KeptConnection;
use ray_relay_base::wire::tunnel::messages::{ParkTerms, written};
use ray_relay_base::wire::{read_through, write_through};

/// Timeout for an agent to accept the end of a stream, or the terms for keeping a debugger.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection that an agent has made: bytes to and from the debugger, and texts to the agent among them.
pub trait Tunnelled: AsyncRead + AsyncWrite + Debug + Send + Sync + Unpin {
    /// Whether the agent can keep the debugger when this end is lost.
    fn keeps(&self) -> bool;

    /// Sends `text` to the agent.
    ///
    /// # Errors
    /// If the stream is gone.
    fn say(&mut self, text: String) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send + '_>>;

    /// The terms on which the agent kept the debugger; `None`: it was newly connected.
    fn take_resumed(&mut self) -> Option<Box<ParkTerms>>;
}

/// A socket connected to a debugger, and its keeper.
#[derive(Debug)]
pub struct Direct {
    socket: TcpStream,
    kept: Option<Box<KeptConnection>>,
}

impl Direct {
    /// A connection that ends with this process.
    pub fn new(socket: TcpStream) -> Self {
        let kept = None;
        Self { socket, kept }
    }

    /// A connection that `kept` keeps beyond this process.
    pub fn kept(socket: TcpStream, kept: KeptConnection) -> Self {
        let kept = Some(Box::new(kept));
        Self { socket, kept }
    }
}

impl Drop for Direct {
    /// Closing alone would not end a connection that another process holds open.
    fn drop(&mut self) {
        if self.kept.is_some() {
            // It may have ended by itself.
            _ = SockRef::from(&self.socket).shutdown(Shutdown::Both);
        }
    }
}

/// A connection to a worker's debugger.
#[derive(Debug)]
pub enum Stream {
    /// A direct connection of the relay or, in an agent, of the agent.
    Direct(Direct),
    /// A connection through the agent of the worker's node.
    Tunnel(Box<dyn Tunnelled>),
}

impl Stream {
    /// The socket, if nothing lies between it and the debugger.
    pub fn socket(&self) -> Option<&TcpStream> {
        match self {
            Self::Direct(direct) => Some(&direct.socket),
            Self::Tunnel(_) => None,
        }
    }

    /// The state stored for the next process.
    pub(super) fn kept_mut(&mut self) -> Option<&mut KeptConnection> {
        match self {
            Self::Direct(direct) => direct.kept.as_deref_mut(),
            Self::Tunnel(_) => None,
        }
    }

    /// The state stored for the next process.
    pub(super) fn kept(&self) -> Option<&KeptConnection> {
        match self {
            Self::Direct(direct) => direct.kept.as_deref(),
            Self::Tunnel(_) => None,
        }
    }

    /// Whether a keeper can hold the debugger when this end is lost, once it has [the terms](Self::keep_by).
    pub(super) fn has_keeper(&self) -> bool {
        match self {
            Self::Direct(direct) => direct.kept.is_some(),
            Self::Tunnel(tunnel) => tunnel.keeps(),
        }
    }

    /// Sets the terms for keeping the debugger when this end is lost: with an agent in between that supports it, which
    /// the result tells, or with the keeper of the connection. Cancel safe.
    pub(super) async fn keep_by(&mut self, keep: &ParkTerms) -> bool {
        match self {
            Self::Direct(Direct { kept, .. }) => {
                if let Some(kept) = kept {
                    kept.keep_by(keep);
                }
                false
            }
            Self::Tunnel(tunnel) if tunnel.keeps() => {
                // If this fails, the stream is about to break.
                let sent = timeout(SEND_TIMEOUT, tunnel.say(written(keep))).await;
                matches!(sent, Ok(Ok(())))
            }
            Self::Tunnel(_) => false,
        }
    }

    /// Whether it is kept when this process ends on purpose.
    pub(super) fn outlives_the_end(&self) -> bool {
        self.kept().is_some_and(KeptConnection::outlives_the_end)
    }

    /// Leaves it to its keeper.
    pub(super) fn leave(mut self) {
        if let Self::Direct(direct) = &mut self
            && let Some(kept) = direct.kept.take()
        {
            kept.leave();
        }
    }

    /// Ends it, after everything for the debugger was sent. Tells an agent that the end is intended.
    pub async fn end(mut self) {
        if let Self::Tunnel(tunnel) = &mut self {
            // Otherwise the agent finds out by itself.
            let _ = timeout(SEND_TIMEOUT, tunnel.shutdown()).await;
        }
    }
}

read_through!([] Stream { Self::Direct(Direct { socket, .. }) => socket, Self::Tunnel(tunnel) => tunnel });
write_through!([] Stream { Self::Direct(Direct { socket, .. }) => socket, Self::Tunnel(tunnel) => tunnel });
