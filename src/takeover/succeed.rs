//! The successor's side of a takeover.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::time::timeout;
use tracing::{info, warn};

use super::hand_over::Waiting;
use super::link::{Who, hello, stream, who};
use super::messages::{Message, PROTOCOL, ProcessState};
use super::{ListenState, Takeover, TakeoverError};
use crate::wire::descriptors::{MessageReader, MessageWriter, channel};
use crate::wire::own_socket::{OwnSocket, dial};

/// How long the predecessor may take with each message.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long the Ray heads may take to say what is paused before clients are accepted all the same.
const POLLED: Duration = Duration::from_secs(15);

/// What a predecessor has handed over. Dropped, it has the predecessor go on as before.
pub(crate) struct Inherited {
    who: Who,
    reader: MessageReader<Message>,
    writer: MessageWriter,
    doors: Vec<(SocketAddr, TcpListener)>,
    place: Option<OwnSocket>,
    predecessors: Vec<UnixStream>,
    state: Option<ProcessState>,
}

/// Asks the relay that listens at `path` to hand over to this process; `None`: no process listens.
///
/// # Errors
/// [`TakeoverError`]: it is not to be trusted, or does not hand over.
pub(crate) async fn join(path: &Path) -> Result<Option<Inherited>, TakeoverError> {
    let dialled = dial(path).await;
    let Some(socket) = dialled.map_err(|why| TakeoverError::Place(path.to_owned(), why))? else {
        return Ok(None);
    };
    let inherited = inherit(socket, path).await;
    inherited.map(Some).map_err(|why| match why.kind() {
        io::ErrorKind::PermissionDenied => TakeoverError::Refused(why.to_string()),
        io::ErrorKind::UnexpectedEof => {
            TakeoverError::Silent("it has closed the connection".to_owned())
        }
        _ => TakeoverError::Silent(why.to_string()),
    })
}

async fn inherit(socket: UnixStream, path: &Path) -> io::Result<Inherited> {
    let (mut reader, writer) = channel(socket);
    let said = writer.write(&hello(0), None).await;
    // One that refuses at once may have gone already, and has said why.
    let predecessor = who(&mut reader).await?;
    said?;
    if predecessor.protocol != PROTOCOL {
        return Err(refused(&format!(
            "it speaks version {} of the protocol of takeovers, and this process {PROTOCOL}: end it, and start this one then",
            predecessor.protocol
        )));
    }
    let mut inherited = Inherited {
        who: predecessor,
        reader,
        writer,
        doors: Vec::new(),
        place: None,
        predecessors: Vec::new(),
        state: None,
    };
    loop {
        let heard = timeout(PATIENCE, inherited.reader.read()).await;
        match heard.unwrap_or(Err(io::ErrorKind::TimedOut.into()))? {
            (Message::Listener { asked }, Some(socket)) => {
                inherited.doors.push((asked, listener(socket)?));
            }
            (Message::Takeover, Some(socket)) => {
                let socket = std::os::unix::net::UnixListener::from(socket);
                socket.set_nonblocking(true)?;
                inherited.place = Some(OwnSocket {
                    path: path.to_owned(),
                    socket: UnixListener::from_std(socket)?,
                });
            }
            (Message::Predecessor, Some(socket)) => inherited.predecessors.push(stream(socket)?),
            (Message::State(state), _) => inherited.state = Some(*state),
            (Message::Prepared, _) => return Ok(inherited),
            (Message::Refused { reason }, _) => {
                return Err(refused(&reason));
            }
            // Of a newer one.
            _ => {}
        }
    }
}

fn listener(socket: OwnedFd) -> io::Result<TcpListener> {
    let socket = std::net::TcpListener::from(socket);
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket)
}

impl Inherited {
    /// The socket that the predecessor was told to listen with at `asked`; `None`: it has none.
    pub(crate) fn door(&mut self, asked: SocketAddr) -> Option<TcpListener> {
        let at = self.doors.iter().position(|(known, _)| *known == asked)?;
        Some(self.doors.swap_remove(at).1)
    }

    /// Where the next successor dials.
    pub(crate) fn waiting(&mut self) -> Option<Waiting> {
        self.place.take().map(Waiting::inherited)
    }
}

impl Takeover {
    /// Accepts no client until [`Self::succeed`].
    pub(crate) fn hold(&self) {
        self.doors.send_replace(ListenState::Held);
    }

    /// Accepts clients.
    pub(crate) fn open(&self) {
        self.doors.send_replace(ListenState::Open);
    }

    /// Becomes ready, has the predecessor stop accepting, and accepts. Where the predecessor dies meanwhile, its sockets are
    /// here all the same.
    ///
    /// # Errors
    /// [`TakeoverError`]: the predecessor goes on, or may.
    pub(crate) async fn succeed(
        self: &Arc<Self>,
        inherited: Inherited,
    ) -> Result<(), TakeoverError> {
        if timeout(POLLED, self.registry.refreshed()).await.is_err() {
            warn!("a Ray head has not listed its paused workers yet: taking over all the same");
        }
        let Inherited {
            who,
            mut reader,
            writer,
            predecessors,
            state,
            ..
        } = inherited;
        let pid = who.pid;
        let generation = who.generation.saturating_add(1);
        self.generation.store(generation, Ordering::Relaxed);
        let agreed = timeout(PATIENCE, agreed(&mut reader, &writer, state)).await;
        let agreed = agreed.unwrap_or(Err(io::ErrorKind::TimedOut.into()));
        for older in predecessors {
            self.link_anew(older, true);
        }
        match agreed {
            Ok(state) => {
                let entered = self.enter(&who, true);
                if let Some(state) = state {
                    self.take_in(&entered.neighbour, state).await;
                }
                if let Err(why) = writer.write(&Message::Mine, None).await {
                    warn!(%why, pid, "the predecessor has gone while it handed over");
                }
                self.link(entered, reader, writer);
            }
            Err(why) if why.kind() == io::ErrorKind::PermissionDenied => {
                return Err(TakeoverError::Refused(why.to_string()));
            }
            Err(why) if why.kind() == io::ErrorKind::TimedOut => {
                return Err(TakeoverError::Silent(
                    "it does not say that it hands over".to_owned(),
                ));
            }
            Err(why) => warn!(%why, pid, "the predecessor has gone while it handed over"),
        }
        self.open();
        info!(pid, "taken over from another process");
        Ok(())
    }
}

/// Says that this process is ready, and hears that it may accept; with what the predecessor told last.
async fn agreed(
    reader: &mut MessageReader<Message>,
    writer: &MessageWriter,
    mut state: Option<ProcessState>,
) -> io::Result<Option<ProcessState>> {
    writer.write(&Message::Ready, None).await?;
    loop {
        match reader.read().await? {
            (Message::State(newer), _) => state = Some(*newer),
            (Message::Yours, _) => return Ok(state),
            (Message::Refused { reason }, _) => return Err(refused(&reason)),
            _ => {}
        }
    }
}

fn refused(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, reason.to_owned())
}
