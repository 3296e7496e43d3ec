//! Dials one worker's debugger, directly or through the agent of its node.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, debug};

use super::error::ConnectError;
use crate::agents::{Agents, NoAgentReason, NoStream, OpenRequest, WorkerRoute};
use crate::context::Context;
use crate::session::Permit;
use crate::session::refusal::SessionRefusal;
use ray_relay_base::memory::Account;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::dap::conversation::Conversation;
use ray_relay_base::wire::tcp;
use ray_relay_base::wire::tunnel::messages::{DialFailure, ParkTerms, Subject, WorkerTaker};
use ray_relay_debugger::debugger::kept::{KeptConnection, Stored};
use ray_relay_debugger::debugger::{Direct, PROBE_AFTER, Stream, Tenant, Worker};
use ray_relay_debugger::keeper::Keeper;
use ray_relay_ray::ray::registry::{self, Breakpoint};

/// Deadline of a dial whose session has given up.
const DIAL_TIMEOUT: Duration = Duration::from_secs(30);

/// Parameters of a dial.
pub(super) struct Dialling {
    pub(super) breakpoint: Arc<Breakpoint>,
    pub(super) route: WorkerRoute,
    pub(super) agents: Arc<Agents>,
    /// The session that takes the worker; `None` next to the session that holds it.
    pub(super) holder: Option<WorkerTaker>,
    /// The owner, if the agent keeps it parked.
    pub(super) resume: Option<Subject>,
    /// The subprocess to connect to; `None`: the worker itself.
    pub(super) process: Option<u32>,
    /// Terms by which the agent parks it from the first moment on, if known.
    pub(super) keep: Option<Box<ParkTerms>>,
    /// The keeper of the connection beyond this process, and the record stored with it.
    pub(super) keeper: Option<(Arc<Keeper>, Stored)>,
}

impl Dialling {
    /// Uses the route of `permit`, or the current one.
    pub(super) async fn of(context: &Context, permit: &Permit) -> Result<Self, ConnectError> {
        let (breakpoint, agents) = (permit.breakpoint(), &context.peers.agents);
        let mut dialling = match permit.route() {
            Some(route) => Self::by(route.clone(), breakpoint, agents),
            None => Self::again(breakpoint, agents).await?,
        };
        let holder = breakpoint.holder().filter(|_| permit.holds());
        dialling.holder = holder.map(taker_of);
        dialling.process = permit.process();
        Ok(dialling)
    }

    /// Dials a worker that a session had before.
    pub(super) async fn again(
        breakpoint: &Arc<Breakpoint>,
        agents: &Arc<Agents>,
    ) -> Result<Self, ConnectError> {
        let route = agents.route(breakpoint).await;
        let route = route.map_err(|why| ConnectError::NoRoute(why.to_string()))?;
        Ok(Self::by(route, breakpoint, agents))
    }

    fn by(route: WorkerRoute, breakpoint: &Arc<Breakpoint>, agents: &Arc<Agents>) -> Self {
        Self {
            breakpoint: Arc::clone(breakpoint),
            route,
            agents: Arc::clone(agents),
            holder: None,
            resume: None,
            process: None,
            keep: None,
            keeper: None,
        }
    }

    pub(super) async fn dial(self, patience: Duration) -> Result<Stream, ConnectError> {
        let breakpoint = &self.breakpoint;
        let (link, node_id) = match &self.route {
            WorkerRoute::Direct { .. } => {
                return match timeout(patience, self.connect()).await {
                    Ok(Ok(stream)) => Ok(Stream::Direct(stream)),
                    Ok(Err(error)) => Err(ConnectError::Refused(error.kind())),
                    Err(_) => Err(ConnectError::Unreachable(patience)),
                };
            }
            WorkerRoute::Agent { link, node_id } => (link, node_id),
        };
        let request = OpenRequest {
            breakpoint,
            node_id,
            holder: self.holder,
            resume: self.resume,
            process: self.process,
            keep: self.keep,
        };
        let opened = self.agents.open(link, request, patience).await;
        match opened {
            Ok(tunnel) => Ok(Stream::Tunnel(Box::new(tunnel))),
            Err(NoStream::Failed(DialFailure::Refused)) => {
                Err(ConnectError::Refused(io::ErrorKind::ConnectionRefused))
            }
            Err(NoStream::Failed(DialFailure::TimedOut)) => Err(ConnectError::TimedOut(patience)),
            Err(NoStream::Held(holder)) => {
                let refusal = SessionRefusal::in_use(breakpoint, &holder, Timestamp::now());
                Err(ConnectError::NoRoute(refusal.to_string()))
            }
            Err(why) => Err(ConnectError::NoRoute(why.to_string())),
        }
    }

    /// Connects. With a keeper, the connection outlives this process: the keeper gets the socket before it is
    /// connected.
    #[expect(
        clippy::disallowed_methods,
        reason = "here workers are dialled, for a permit"
    )]
    async fn connect(&self) -> io::Result<Direct> {
        let to = self.breakpoint.upstream();
        let Some((keeper, stored)) = &self.keeper else {
            return TcpStream::connect(to).await.map(Direct::new);
        };
        let socket = match to {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        let kept = match keeper.keep(socket.as_fd()) {
            Ok(slot) => Some(KeptConnection::dials(slot, stored.clone()).await),
            Err(why) => {
                debug!(%why, "a session does not outlive this process");
                None
            }
        };
        let stream = socket.connect(to).await?;
        Ok(match kept {
            Some(mut kept) => {
                kept.dialled();
                Direct::kept(stream, kept)
            }
            None => Direct::new(stream),
        })
    }

    /// Why no agent dials, if one is configured.
    pub(super) fn absence(&self) -> Option<NoAgentReason> {
        match &self.route {
            WorkerRoute::Direct { without } => without.clone(),
            WorkerRoute::Agent { .. } => None,
        }
    }
}

/// Converts `holder` for an agent, which shows it to other relays.
pub(super) fn taker_of(holder: &registry::Holder) -> WorkerTaker {
    WorkerTaker {
        name: holder.subject.as_deref().unwrap_or_default().into(),
        session: holder.session.to_string().as_str().into(),
        client: holder.client.as_str().into(),
        peer: holder.peer,
    }
}

/// Limits of what is read from a debugger.
pub(super) struct ReadLimits {
    /// Largest message.
    pub(super) max_frame: usize,
    /// Its bytes are charged to this.
    pub(super) account: Account,
}

/// Dials, and reads the first message of the greeting. The connection belongs to `tenant`.
pub(super) async fn greet(
    dialling: Dialling,
    tenant: Box<dyn Tenant>,
    patience: Duration,
    limits: ReadLimits,
    tasks: &TaskTracker,
) -> Result<Conversation<Worker>, ConnectError> {
    let owner = tasks.clone();
    let connected = CancellationToken::new();
    let is_connected = connected.clone();
    let greeting = async move {
        let stream = dialling.dial(DIAL_TIMEOUT).await?;
        is_connected.cancel();
        if let Some(socket) = stream.socket() {
            tcp::tune(socket, PROBE_AFTER)
                .and_then(|()| tcp::bound_silence(socket))
                .map_err(|error| ConnectError::Refused(error.kind()))?;
        }
        let worker = Worker::new(stream, Some(tenant), owner);
        let mut worker = Conversation::new(worker, limits.max_frame);
        worker.count(&limits.account);
        match timeout(patience, worker.read()).await {
            Ok(Ok(_)) => Ok(worker),
            Ok(Err(closed)) => Err(ConnectError::NotDap(closed)),
            Err(_) => Err(ConnectError::TimedOut(patience)),
        }
    };
    let greeted = tasks.spawn(greeting.in_current_span());
    match timeout(patience, greeted).await {
        // A task that neither returns nor panics was aborted with the runtime.
        Ok(result) => result.unwrap_or(Err(ConnectError::Refused(io::ErrorKind::Interrupted))),
        Err(_) if connected.is_cancelled() => Err(ConnectError::TimedOut(patience)),
        Err(_) => Err(ConnectError::Unreachable(patience)),
    }
}
