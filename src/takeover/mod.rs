//! A hot restart: a relay takes the listening sockets over from one that runs on the same machine, which serves what it
//! has to its end.
//!
//! A relay listens for its successor at `listen.takeover` ([`crate::wire::own_socket`]). The successor dials there before it binds
//! anything ([`succeed`]), gets every listening socket as a descriptor ([`crate::wire::descriptors`]), and says when it can serve; only then
//! the predecessor stops accepting ([`hand_over`]). The sockets are never closed in between: who dials waits in the
//! kernel's queue for a moment. Where the successor goes before that, the predecessor goes on as if nothing was.
//!
//! From then on the two are linked for as long as both live ([`link`]): each tells the other what its sessions hold, which
//! is claimed there as what is held through other relays' agents is, and what is revoked; and the successor passes those
//! connections on that belong to a session of the predecessor ([`Takeover::home_of`]).
//!
//! Bounds: one takeover at a time, [`GENERATIONS`] of predecessors, one message ([`LARGEST`](crate::wire::descriptors::LARGEST)).

mod hand_over;
mod link;
mod messages;
mod parks;
mod state;
mod succeed;
#[cfg(test)]
mod testing;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::debug;

pub(crate) use self::hand_over::Waiting;
use self::link::PeerProcess;
pub(crate) use self::messages::{ForwardedConnection, PassedCertificate};
use self::parks::COMING;
pub(crate) use self::parks::PassedPark;
pub(crate) use self::succeed::{Inherited, join};
#[cfg(test)]
pub(crate) use self::testing::{TestSuccessor, held_by_predecessor};
use crate::agents::Agents;
use crate::audit::Audit;
use crate::connection::ConnectionInfo;
use crate::identity::Authenticator;
use crate::ray::registry::{BreakpointId, Registry};
use crate::session::{Families, SessionTable};
use crate::shutdown::Shutdown;
use crate::wire::tunnel::messages::Replica;

/// Predecessors that may be there at a time. The oldest has to drain when there are more.
const GENERATIONS: usize = 4;

/// Connections that were passed on and are not served yet.
const PASSED: usize = 64;

/// Why there is no takeover.
#[derive(Debug, thiserror::Error)]
pub enum TakeoverError {
    /// The path, or who is there, is not to be trusted.
    #[error("listen.takeover {}: {}", .0.display(), .1)]
    Place(PathBuf, String),
    /// The relay at the path hands nothing over.
    #[error("the relay that listens at listen.takeover hands nothing over, and goes on: {0}")]
    Refused(String),
    /// The relay at the path is gone or says nothing.
    #[error(
        "a process listens at listen.takeover and does not answer as a relay does: {0}; end it, or name another path"
    )]
    Silent(String),
}

/// A listening socket, with the address that the configuration names for it.
#[derive(Debug, Clone)]
pub(crate) struct ListenSocket {
    /// As configured: port 0 stands for any.
    pub(crate) asked: SocketAddr,
    /// The socket.
    pub(crate) socket: Arc<TcpListener>,
}

/// Whether clients are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListenState {
    Open,
    /// Another process is about to take over, or has not handed over yet.
    Held,
    /// Another process has the sockets.
    Gone,
}

/// What all code about predecessors and successors shares. One for the process.
pub(crate) struct Takeover {
    replica: Replica,
    registry: Registry,
    agents: Arc<Agents>,
    auth: Arc<Authenticator>,
    audit: Arc<Audit>,
    sessions: Arc<SessionTable>,
    families: Arc<Families>,
    shutdown: Shutdown,
    doors: watch::Sender<ListenState>,
    /// Other processes that this one is linked with.
    neighbours: Mutex<Vec<Arc<PeerProcess>>>,
    /// A keeper gives this process what others leave.
    keeper_gives: AtomicBool,
    /// From how many processes in a row the sockets have come.
    generation: AtomicU32,
    passed: mpsc::Sender<(ForwardedConnection, UnixStream)>,
    arriving: Mutex<Option<mpsc::Receiver<(ForwardedConnection, UnixStream)>>>,
    parks: mpsc::Sender<PassedPark>,
    coming_parks: Mutex<Option<mpsc::Receiver<PassedPark>>>,
    /// Another process has taken over.
    succeeded: CancellationToken,
    /// A successor has told this process to drain.
    told_to_end: CancellationToken,
}

impl Takeover {
    /// There is neither a successor nor a predecessor.
    pub(crate) fn new(
        registry: Registry,
        agents: Arc<Agents>,
        auth: Arc<Authenticator>,
        audit: Arc<Audit>,
        sessions: Arc<SessionTable>,
        families: Arc<Families>,
        shutdown: Shutdown,
    ) -> Self {
        let (passed, arriving) = mpsc::channel(PASSED);
        let (parks, coming_parks) = mpsc::channel(COMING);
        Self {
            replica: agents.replica(),
            registry,
            agents,
            auth,
            audit,
            sessions,
            families,
            shutdown,
            doors: watch::Sender::new(ListenState::Open),
            neighbours: Mutex::default(),
            keeper_gives: AtomicBool::new(false),
            generation: AtomicU32::new(0),
            passed,
            arriving: Mutex::new(Some(arriving)),
            parks,
            coming_parks: Mutex::new(Some(coming_parks)),
            succeeded: CancellationToken::new(),
            told_to_end: CancellationToken::new(),
        }
    }

    /// What another process leaves will come from a keeper, and stays held until then.
    pub(crate) fn expect_left(&self) {
        self.keeper_gives.store(true, Ordering::Relaxed);
    }

    /// Whether clients are to be accepted, for one listener.
    pub(crate) fn doors(&self) -> Watched {
        Watched(self.doors.subscribe())
    }

    /// The connections that successors pass on; once.
    pub(crate) fn arriving(&self) -> Option<mpsc::Receiver<(ForwardedConnection, UnixStream)>> {
        self.arriving.lock().take()
    }

    /// Resolves when another process has taken over. Cancel safe.
    pub(crate) async fn succeeded(&self) {
        self.succeeded.cancelled().await;
    }

    /// Resolves when a successor has told this process to drain. Cancel safe.
    pub(crate) async fn told_to_end(&self) {
        self.told_to_end.cancelled().await;
    }

    /// The predecessor that has what `wanted` belongs to.
    pub(crate) fn home_of(&self, wanted: &RequestedSession<'_>) -> Option<OwningProcess> {
        let neighbours = self.neighbours.lock();
        let mut predecessors = neighbours.iter().filter(|known| known.is_predecessor);
        let home = predecessors.find(|predecessor| predecessor.has(wanted))?;
        Some(OwningProcess(Arc::clone(home)))
    }

    /// The predecessor from which this process has its sockets: a session that is not of this process is its, or of one before it.
    pub(crate) fn predecessor(&self) -> Option<OwningProcess> {
        let neighbours = self.neighbours.lock();
        let predecessors = neighbours.iter().filter(|known| known.is_predecessor);
        let newest = predecessors.max_by_key(|predecessor| predecessor.generation)?;
        Some(OwningProcess(Arc::clone(newest)))
    }
}

/// What a client asks for, as far as a session of a predecessor may have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestedSession<'a> {
    /// To join the cluster session of that name.
    Family(&'a str),
    /// A subprocess of the worker of that breakpoint.
    Subprocess(BreakpointId),
    /// The worker of that breakpoint, whose session may be parked.
    Parked(BreakpointId),
    /// Something else: it may be the restart of a cluster session.
    Any {
        /// The client's address.
        peer: IpAddr,
        /// What it calls itself.
        client: &'a str,
    },
}

/// The predecessor to which a connection belongs.
pub(crate) struct OwningProcess(Arc<PeerProcess>);

impl OwningProcess {
    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.0.pid
    }

    /// Hands it the `connection` of a client, and gives the near end: what is written there is what the client says. From then
    /// on the connection is counted and bounded there, by the same limits. `None` where the predecessor has gone, or takes no
    /// more.
    pub(crate) fn pass(&self, connection: &ConnectionInfo) -> Option<UnixStream> {
        let (near, far) = UnixStream::pair().ok()?;
        if !self.0.pass(ForwardedConnection::of(connection), far) {
            debug!(pid = self.pid(), "the predecessor takes no connection");
            return None;
        }
        connection.place.set_apart();
        Some(near)
    }
}

/// Whether clients are to be accepted.
pub(crate) struct Watched(watch::Receiver<ListenState>);

impl Watched {
    /// Resolves as soon as they are: `true`; `false`: they never will be again. Cancel safe.
    pub(crate) async fn open(&mut self) -> bool {
        let decided = self.0.wait_for(|doors| *doors != ListenState::Held).await;
        decided.is_ok_and(|doors| *doors == ListenState::Open)
    }

    /// Resolves as soon as they are not. Cancel safe.
    pub(crate) async fn shut(&mut self) {
        // The sender lives as long as the relay.
        let _ = self.0.wait_for(|doors| *doors != ListenState::Open).await;
    }
}

impl std::fmt::Debug for Takeover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Takeover").finish_non_exhaustive()
    }
}
