//! The predecessor's side of a takeover.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::time::timeout;
use tracing::{info, warn};

use super::link::{Who, who};
use super::messages::{Message, PROTOCOL};
use super::{ListenSocket, ListenState, Takeover, TakeoverError};
use crate::wire::descriptors::{MessageReader, MessageWriter, channel};
use crate::wire::own_socket::OwnSocket;

/// How long a successor may take to be ready: it reads its files, and asks every Ray head once.
const READY: Duration = Duration::from_secs(60);

/// How long it may take to accept once it may.
const ACCEPTS: Duration = Duration::from_secs(15);

/// Pause after `accept` failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Where a relay listens for its successor.
pub(crate) struct Waiting(OwnSocket);

impl Waiting {
    /// Listens at `path`, where no process does.
    ///
    /// # Errors
    /// [`TakeoverError::Place`].
    pub(crate) fn bind(path: &Path) -> Result<Self, TakeoverError> {
        let wrong = |why| TakeoverError::Place(path.to_owned(), why);
        OwnSocket::bind(path).map(Self).map_err(wrong)
    }

    pub(super) fn inherited(place: OwnSocket) -> Self {
        Self(place)
    }
}

/// A successor that has taken over.
struct Successor {
    who: Who,
    reader: MessageReader<Message>,
    writer: MessageWriter,
}

impl Takeover {
    /// Hands `doors` over to the first successor that dials `waiting` and becomes ready, and is linked with it from then on.
    /// Returns when the relay ends; where there is no successor by then, nothing is left at the path.
    pub(crate) async fn hand_over(self: Arc<Self>, waiting: Waiting, doors: Vec<ListenSocket>) {
        let Waiting(place) = waiting;
        let closed = self.shutdown.closed.clone();
        let mut own = self.doors();
        tokio::select! {
            // Until then the socket at the path is the predecessor's, and so is the path where that goes on.
            _ = own.open() => {}
            () = closed.cancelled() => return,
        }
        let successor = tokio::select! {
            successor = self.first(&place, &doors) => successor,
            () = closed.cancelled() => return place.remove(),
        };
        // The successor has duplicates: the sockets live on.
        drop((place, doors));
        let Successor {
            who,
            reader,
            writer,
        } = successor;
        info!(pid = who.pid, version = %who.version, "another process has taken over");
        let entered = self.enter(&who, false);
        self.link(entered, reader, writer);
        self.succeeded.cancel();
        closed.cancelled().await;
    }

    async fn first(self: &Arc<Self>, place: &OwnSocket, doors: &[ListenSocket]) -> Successor {
        loop {
            let socket = match place.accept().await {
                Ok(socket) => socket,
                Err(why) => {
                    warn!(%why, "cannot accept a successor at the moment; trying again");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let (mut reader, writer) = channel(socket);
            let handed = {
                let mut handing = pin!(self.hand_to(&mut reader, &writer, place, doors));
                loop {
                    tokio::select! {
                        handed = &mut handing => break handed,
                        Ok(another) = place.accept() => {
                            let (_, writer) = channel::<Message>(another);
                            let reason = "another process is taking over at the moment".into();
                            // It goes away by itself.
                            let _ = writer.write(&Message::Refused { reason }, None).await;
                        }
                    }
                }
            };
            match handed {
                Ok(who) => {
                    return Successor {
                        who,
                        reader,
                        writer,
                    };
                }
                Err(why) => {
                    // So that it does not take the end of this for the end of this process.
                    let reason = why.to_string().as_str().into();
                    let _ = writer.write(&Message::Refused { reason }, None).await;
                    self.open();
                    self.audit.take_back().await;
                    warn!(%why, "not taken over: this relay goes on as before");
                }
            }
        }
    }

    /// Hands everything to the process at the other end, and says who that is once it has it.
    async fn hand_to(
        &self,
        reader: &mut MessageReader<Message>,
        writer: &MessageWriter,
        place: &OwnSocket,
        doors: &[ListenSocket],
    ) -> io::Result<Who> {
        writer.write(&self.hello(), None).await?;
        let who = who(reader).await?;
        if who.protocol != PROTOCOL {
            return Err(io::Error::other(format!(
                "the other process speaks version {} of the protocol of takeovers, and this one {PROTOCOL}: end this one before the other is started",
                who.protocol
            )));
        }
        info!(pid = who.pid, version = %who.version, "another process is about to take over");
        // One process at a time writes an audit file.
        self.audit.move_aside().await.map_err(io::Error::other)?;
        for ListenSocket { asked, socket } in doors {
            let listener = Message::Listener { asked: *asked };
            writer.write(&listener, Some(socket.as_fd())).await?;
        }
        let takeover = Some(place.socket.as_fd());
        writer.write(&Message::Takeover, takeover).await?;
        self.introduce(writer).await?;
        self.say_state(writer).await?;
        writer.write(&Message::Prepared, None).await?;
        expect(reader, &Message::Ready, READY).await?;
        self.doors.send_replace(ListenState::Held);
        // As it is now that no more clients come.
        self.say_state(writer).await?;
        writer.write(&Message::Yours, None).await?;
        expect(reader, &Message::Mine, ACCEPTS).await?;
        self.doors.send_replace(ListenState::Gone);
        Ok(who)
    }

    /// Has the successor linked with those from whom this relay has taken over.
    async fn introduce(&self, writer: &MessageWriter) -> io::Result<()> {
        let neighbours = self.neighbours.lock().clone();
        for older in neighbours.iter().filter(|known| known.is_predecessor) {
            let (near, far) = UnixStream::pair()?;
            let near = near.into_std()?;
            if older.tell(Message::Successor, Some(near.into())) {
                let predecessor = Some(far.as_fd());
                writer.write(&Message::Predecessor, predecessor).await?;
            }
        }
        Ok(())
    }

    async fn say_state(&self, writer: &MessageWriter) -> io::Result<()> {
        let state = Box::new(self.own_state());
        writer.write(&Message::State(state), None).await
    }
}

/// Waits for `message`.
async fn expect(
    reader: &mut MessageReader<Message>,
    message: &Message,
    patience: Duration,
) -> io::Result<()> {
    let waited = async {
        loop {
            let (heard, _) = reader.read().await?;
            match heard {
                Message::Unknown => {}
                heard if heard == *message => return Ok(()),
                _ => {
                    return Err(io::Error::other(
                        "the other process sent an unexpected message",
                    ));
                }
            }
        }
    };
    match timeout(patience, waited).await {
        Ok(Err(why)) if why.kind() == io::ErrorKind::UnexpectedEof => Err(io::Error::other(
            "the other process has gone before it was ready",
        )),
        Ok(waited) => waited,
        Err(_) => Err(io::Error::other(format!(
            "the other process was not ready within {} s",
            patience.as_secs()
        ))),
    }
}
