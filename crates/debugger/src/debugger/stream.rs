//! The bytes of a connection to a worker's debugger, by whichever way.

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

/// How long an agent may take the end of a stream, or to be told by what to keep a debugger.
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
    fn take_resumed(&mut self) -> Option<Box<ParkTerms>>;
}

/// A socket that is connected to a debugger, and who else keeps it open.
#[derive(Debug)]
pub struct Direct {
    socket: TcpStream,
    kept: Option<Box<KeptConnection>>,
}

impl Direct {
    /// One that ends with this process.
    pub fn new(socket: TcpStream) -> Self {
        let kept = None;
        Self { socket, kept }
    }

    /// One that `kept` keeps beyond this process.
    pub fn kept(socket: TcpStream, kept: KeptConnection) -> Self {
        let kept = Some(Box::new(kept));
        Self { socket, kept }
    }
}

impl Drop for Direct {
    /// Closing alone would not end a connection that another process has open.
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
    /// A connection of the relay's own, or, in an agent, of the agent's.
    Direct(Direct),
    /// A connection of the agent's of its node.
    Tunnel(Box<dyn Tunnelled>),
}

impl Stream {
    /// The socket, where nothing lies between it and the debugger.
    pub fn socket(&self) -> Option<&TcpStream> {
        match self {
            Self::Direct(direct) => Some(&direct.socket),
            Self::Tunnel(_) => None,
        }
    }

    /// What is written down of it for the next process.
    pub(super) fn kept_mut(&mut self) -> Option<&mut KeptConnection> {
        match self {
            Self::Direct(direct) => direct.kept.as_deref_mut(),
            Self::Tunnel(_) => None,
        }
    }

    /// The same.
    pub(super) fn kept(&self) -> Option<&KeptConnection> {
        match self {
            Self::Direct(direct) => direct.kept.as_deref(),
            Self::Tunnel(_) => None,
        }
    }

    /// There is who keeps the debugger when this end is lost, once that is told [by what](Self::keep_by).
    pub(super) fn has_keeper(&self) -> bool {
        match self {
            Self::Direct(direct) => direct.kept.is_some(),
            Self::Tunnel(tunnel) => tunnel.keeps(),
        }
    }

    /// Has the debugger kept by `keep` when this end is lost: by an agent, where one is in between that can, which this says, or
    /// by the keeper of the connection beyond this process. Cancel safe.
    pub(super) async fn keep_by(&mut self, keep: &ParkTerms) -> bool {
        match self {
            Self::Direct(Direct { kept, .. }) => {
                if let Some(kept) = kept {
                    kept.keep_by(keep);
                }
                false
            }
            Self::Tunnel(tunnel) if tunnel.keeps() => {
                // Where it cannot be said, the stream is about to break.
                let said = timeout(SAID, tunnel.say(written(keep))).await;
                matches!(said, Ok(Ok(())))
            }
            Self::Tunnel(_) => false,
        }
    }

    /// It is kept beyond an end of this process that is meant.
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

    /// Ends it, once everything that the debugger has to hear was said. An agent is told that this end is meant.
    pub async fn end(mut self) {
        if let Self::Tunnel(tunnel) = &mut self {
            // It finds out by itself otherwise.
            let _ = timeout(SAID, tunnel.shutdown()).await;
        }
    }
}

read_through!([] Stream { Self::Direct(Direct { socket, .. }) => socket, Self::Tunnel(tunnel) => tunnel });
write_through!([] Stream { Self::Direct(Direct { socket, .. }) => socket, Self::Tunnel(tunnel) => tunnel });
