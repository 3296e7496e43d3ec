//! What two processes tell each other after a takeover, for as long as both live.

use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tracing::{Instrument as _, debug, info, info_span};

use super::messages::{ForwardedConnection, Message, PROTOCOL, ProcessState};
use super::{GENERATIONS, RequestedSession, Takeover};
use crate::ray::registry::BreakpointId;
use crate::wire::descriptors::{self, MessageReader, MessageWriter, channel};
use crate::wire::tunnel::messages::Name;

/// How long the other side may take to say who it is.
pub(super) const HELLO: Duration = Duration::from_secs(10);

/// What waits to be said.
const OUTBOX: usize = 64;

/// How often what there is to tell is looked at where no list has changed: cluster sessions are in none.
pub(super) const LOOK: Duration = Duration::from_millis(200);

/// Another process, from which this one has taken over, or which has taken over from this one.
#[derive(Debug)]
pub(super) struct PeerProcess {
    pub(super) pid: u32,
    pub(super) generation: u32,
    pub(super) is_predecessor: bool,
    outbox: mpsc::Sender<OutgoingMessage>,
    /// What it told last.
    state: Mutex<Option<ProcessState>>,
}

pub(super) type OutgoingMessage = descriptors::Outgoing<Message>;

/// A neighbour with which there is no link yet.
pub(super) struct UnlinkedPeer {
    pub(super) neighbour: Arc<PeerProcess>,
    pub(super) to_say: mpsc::Receiver<OutgoingMessage>,
}

/// Who the other side says that it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) protocol: u32,
    pub(super) version: Name,
    pub(super) pid: u32,
    pub(super) generation: u32,
}

fn is_in(ids: &[Name], id: BreakpointId) -> bool {
    let id = id.to_string();
    ids.iter().any(|known| **known == *id)
}

impl PeerProcess {
    /// It has what `wanted` belongs to.
    pub(super) fn has(&self, wanted: &RequestedSession<'_>) -> bool {
        let state = self.state.lock();
        let Some(state) = &*state else {
            return false;
        };
        match wanted {
            RequestedSession::Family(family) => {
                state.families.iter().any(|name| **name == **family)
            }
            RequestedSession::Subprocess(id) => is_in(&state.reached, *id),
            RequestedSession::Parked(id) => is_in(&state.parked, *id),
            RequestedSession::Any { peer, client } => state
                .restarts
                .iter()
                .any(|restart| restart.peer == *peer && *restart.client == **client),
        }
    }

    /// Has it told this and nothing else.
    #[cfg(test)]
    fn with(state: ProcessState) -> Self {
        Self {
            pid: 0,
            generation: 0,
            is_predecessor: true,
            outbox: mpsc::channel(1).0,
            state: Mutex::new(Some(state)),
        }
    }

    pub(super) fn set_state(&self, state: ProcessState) {
        *self.state.lock() = Some(state);
    }

    /// Has `message` said; `false`: too much waits already, or it has gone.
    pub(super) fn tell(&self, message: Message, descriptor: Option<OwnedFd>) -> bool {
        self.outbox.try_send((message, descriptor)).is_ok()
    }

    /// It is a successor that takes parks.
    pub(super) fn takes_parks(&self) -> bool {
        let state = self.state.lock();
        !self.is_predecessor && state.as_ref().is_some_and(|state| state.takes_parks)
    }

    /// Room for a park, where this is a successor that takes one.
    pub(super) fn place_for_park(&self) -> Option<mpsc::OwnedPermit<OutgoingMessage>> {
        let outbox = self.outbox.clone();
        self.takes_parks()
            .then(|| outbox.try_reserve_owned().ok())?
    }

    pub(super) fn pass(&self, about: ForwardedConnection, connection: UnixStream) -> bool {
        let Ok(connection) = connection.into_std() else {
            return false;
        };
        self.tell(Message::Passed(about), Some(connection.into()))
    }
}

impl Takeover {
    pub(super) fn hello(&self) -> Message {
        hello(self.generation.load(Ordering::Relaxed))
    }

    /// Links with a process over `socket`, from its hello on.
    pub(super) fn link_anew(self: &Arc<Self>, socket: UnixStream, is_predecessor: bool) {
        let (reader, writer) = channel(socket);
        let (this, closed) = (Arc::clone(self), self.shutdown.closed.clone());
        self.shutdown.tasks.spawn(async move {
            let greeted = async {
                let mut reader = reader;
                writer.write(&this.hello(), None).await?;
                let who = who(&mut reader).await?;
                io::Result::Ok((who, reader, writer))
            };
            let greeted = tokio::select! {
                greeted = greeted => greeted,
                () = closed.cancelled() => return,
            };
            match greeted {
                Ok((who, reader, writer)) => {
                    let entered = this.enter(&who, is_predecessor);
                    this.keep(entered, reader, writer).await;
                }
                Err(why) => debug!(%why, "not linked with another relay of this machine"),
            }
        });
    }

    /// Is linked with `entered` until that goes, or this process ends.
    pub(super) fn link(
        self: &Arc<Self>,
        entered: UnlinkedPeer,
        reader: MessageReader<Message>,
        writer: MessageWriter,
    ) {
        let this = Arc::clone(self);
        let keeping = async move { this.keep(entered, reader, writer).await };
        self.shutdown.tasks.spawn(keeping);
    }

    /// Enters a process with which there will be a link.
    pub(super) fn enter(&self, who: &Who, is_predecessor: bool) -> UnlinkedPeer {
        let (outbox, to_say) = mpsc::channel(OUTBOX);
        let neighbour = Arc::new(PeerProcess {
            pid: who.pid,
            generation: who.generation,
            is_predecessor,
            outbox,
            state: Mutex::default(),
        });
        self.neighbours.lock().push(Arc::clone(&neighbour));
        if is_predecessor {
            self.end_oldest();
        }
        UnlinkedPeer { neighbour, to_say }
    }

    async fn keep(
        self: &Arc<Self>,
        entered: UnlinkedPeer,
        reader: MessageReader<Message>,
        writer: MessageWriter,
    ) {
        let UnlinkedPeer {
            neighbour,
            mut to_say,
        } = entered;
        let span = info_span!("neighbour", pid = neighbour.pid);
        let talk = async {
            let saying = async {
                let ended = tokio::select! {
                    ended = writer.write_all(&mut to_say, self.over()) => ended,
                    never = self.tell_state(&neighbour) => never,
                };
                if ended.is_err() {
                    // What the other side said before it went is heard to its end: there may be parks among it.
                    sleep(HELLO).await;
                }
                ended
            };
            let ended = tokio::select! {
                ended = self.hear_all(&neighbour, reader) => ended,
                ended = saying => ended,
            };
            match ended {
                Err(why) if why.kind() != io::ErrorKind::UnexpectedEof => {
                    info!(%why, "the link with another relay of this machine is lost");
                }
                _ if neighbour.is_predecessor => info!("the predecessor has ended"),
                _ => debug!("the successor has ended"),
            }
        };
        talk.instrument(span).await;
        self.neighbours
            .lock()
            .retain(|known| !Arc::ptr_eq(known, &neighbour));
        if let Some(state) = &*neighbour.state.lock() {
            let given_back = self.keeper_gives.load(Ordering::Relaxed);
            self.agents.lose_neighbour(state.replica, given_back);
        }
    }

    /// Resolves when this process ends, and what its sessions held is left: until then others must not have it.
    async fn over(&self) {
        self.shutdown.closed.cancelled().await;
        self.registry.claims_ended().await;
    }

    async fn hear_all(
        self: &Arc<Self>,
        neighbour: &Arc<PeerProcess>,
        mut reader: MessageReader<Message>,
    ) -> io::Result<()> {
        loop {
            let (message, descriptor) = reader.read().await?;
            match (message, descriptor) {
                (Message::State(state), _) => self.take_in(neighbour, *state).await,
                (Message::Passed(about), Some(connection)) if !neighbour.is_predecessor => {
                    // Where it is never begun, the client sees an end, as at a relay that is full.
                    let stream = stream(connection)?;
                    if self.passed.try_send((about, stream)).is_err() {
                        debug!("refused a forwarded connection: there are too many");
                    }
                }
                (Message::Parked { stored }, Some(connection)) if neighbour.is_predecessor => {
                    self.take_park(connection, stored);
                }
                (Message::Successor, Some(connection)) if !neighbour.is_predecessor => {
                    self.link_anew(stream(connection)?, false);
                }
                (Message::End, _) if !neighbour.is_predecessor => self.told_to_end.cancel(),
                _ => debug!("another relay sent a message that this version does not know"),
            }
        }
    }

    /// Tells what there is whenever it has changed.
    async fn tell_state(&self, neighbour: &PeerProcess) -> ! {
        let mut lists = self.registry.watch();
        let mut told = None;
        loop {
            lists.mark_unchanged();
            let state = self.own_state();
            if told.as_ref() != Some(&state) {
                let message = Message::State(Box::new(state.clone()));
                if neighbour.outbox.send((message, None)).await.is_err() {
                    // What was said before is being written still.
                    pending::<()>().await;
                }
                told = Some(state);
            }
            tokio::select! {
                () = sleep(LOOK) => {}
                Ok(()) = lists.changed() => {}
            }
        }
    }

    /// Has the oldest predecessors drain where there are more than there may be.
    fn end_oldest(&self) {
        let neighbours = self.neighbours.lock();
        let mut predecessors: Vec<_> = neighbours.iter().filter(|n| n.is_predecessor).collect();
        predecessors.sort_by_key(|predecessor| predecessor.generation);
        let surplus = predecessors.len().saturating_sub(GENERATIONS);
        for oldest in &predecessors[..surplus] {
            info!(
                pid = oldest.pid,
                "the oldest of {} predecessors is told to end its sessions",
                predecessors.len()
            );
            oldest.tell(Message::End, None);
        }
    }
}

pub(super) fn hello(generation: u32) -> Message {
    Message::Hello {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        generation,
    }
}

/// Who is at the other end of `reader`.
///
/// # Errors
/// Where it does not say so in time; with what it says, where it refuses.
pub(super) async fn who(reader: &mut MessageReader<Message>) -> io::Result<Who> {
    match timeout(HELLO, reader.read()).await {
        Ok(Ok((
            Message::Hello {
                protocol,
                version,
                pid,
                generation,
            },
            _,
        ))) => Ok(Who {
            protocol,
            version,
            pid,
            generation,
        }),
        Ok(Ok((Message::Refused { reason }, _))) => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            reason.to_string(),
        )),
        Ok(Ok(_)) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it did not introduce itself first",
        )),
        Ok(Err(why)) => Err(why),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// The connection behind a descriptor that has come.
pub(super) fn stream(descriptor: OwnedFd) -> io::Result<UnixStream> {
    let stream = std::os::unix::net::UnixStream::from(descriptor);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::tunnel::text::Hex;

    #[test]
    fn what_belongs_to_it_is_told_apart() {
        let id = |worker: &str| BreakpointId::derive("default", worker);
        let name = |worker: &str| id(worker).to_string().as_str().into();
        let predecessor = PeerProcess::with(ProcessState {
            replica: Hex([1; 8]),
            holds: Vec::new(),
            reached: vec![name("reached")],
            parked: vec![name("parked")],
            families: vec!["family".into()],
            restarts: Vec::new(),
            takes_parks: false,
            revocations: Vec::new(),
        });
        for wanted in [
            RequestedSession::Family("family"),
            RequestedSession::Subprocess(id("reached")),
            RequestedSession::Parked(id("parked")),
        ] {
            assert!(predecessor.has(&wanted), "{wanted:?}");
        }
        let peer = [10, 0, 0, 1].into();
        let client = "Visual Studio Code";
        for wanted in [
            RequestedSession::Family("another"),
            RequestedSession::Subprocess(id("parked")),
            RequestedSession::Parked(id("reached")),
            RequestedSession::Any { peer, client },
        ] {
            assert!(!predecessor.has(&wanted), "{wanted:?}");
        }
    }
}
