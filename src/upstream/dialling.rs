//! One worker's debugger, dialled by the relay or by the agent of its node.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, debug};

use super::error::ConnectError;
use crate::agents::{Agents, NoAgentReason, NoStream, OpenRequest, WorkerRoute};
use crate::context::Context;
use crate::debugger::kept::{KeptConnection, Stored};
use crate::debugger::{Direct, PROBE_AFTER, Stream, Tenant, Worker};
use crate::keeper::Keeper;
use crate::memory::Account;
use crate::ray::registry::{self, Breakpoint, Kind};
use crate::session::Permit;
use crate::session::refusal::SessionRefusal;
use crate::timestamp::Timestamp;
use crate::wire::dap::conversation::Conversation;
use crate::wire::tcp;
use crate::wire::tunnel::messages::{DialFailure, Subject, WorkerTaker};

/// How long a dial whose session has given up is still waited for.
const DIAL: Duration = Duration::from_secs(30);

/// What it takes to dial one worker's debugger.
pub(super) struct Dialling {
    pub(super) breakpoint: Arc<Breakpoint>,
    pub(super) way: WorkerRoute,
    pub(super) agents: Arc<Agents>,
    /// For whom; `None` beside the session that holds it.
    pub(super) holder: Option<WorkerTaker>,
    /// The owner, where the agent keeps it.
    pub(super) resume: Option<Subject>,
    /// The subprocess of the worker that the connection is for; `None`: the worker itself.
    pub(super) process: Option<u32>,
    /// Who keeps the connection beyond this process, and what is written down of it.
    pub(super) keeper: Option<(Arc<Keeper>, Value)>,
}

impl Dialling {
    /// By the way that `permit` goes, or that there is now.
    pub(super) async fn of(context: &Context, permit: &Permit) -> Result<Self, ConnectError> {
        let (breakpoint, agents) = (permit.breakpoint(), &context.peers.agents);
        let mut dialling = match permit.way() {
            Some(way) => Self {
                breakpoint: Arc::clone(breakpoint),
                way: way.clone(),
                agents: Arc::clone(agents),
                holder: None,
                resume: None,
                process: None,
                keeper: None,
            },
            None => Self::again(breakpoint, agents).await?,
        };
        let holder = breakpoint.holder().filter(|_| permit.holds());
        dialling.holder = holder.map(shown);
        dialling.process = permit.process();
        Ok(dialling)
    }

    /// Once more, for a worker that a session had.
    pub(super) async fn again(
        breakpoint: &Arc<Breakpoint>,
        agents: &Arc<Agents>,
    ) -> Result<Self, ConnectError> {
        let way = agents.way(breakpoint).await;
        Ok(Self {
            breakpoint: Arc::clone(breakpoint),
            way: way.map_err(|why| ConnectError::NoWay(why.to_string()))?,
            agents: Arc::clone(agents),
            holder: None,
            resume: None,
            process: None,
            keeper: None,
        })
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "here workers are dialled, for a permit"
    )]
    pub(super) async fn dial(self, patience: Duration) -> Result<Stream, ConnectError> {
        let breakpoint = &self.breakpoint;
        let (link, node_id) = match &self.way {
            WorkerRoute::Direct { .. } => {
                return match timeout(patience, TcpStream::connect(breakpoint.upstream())).await {
                    Ok(Ok(stream)) => Ok(Stream::Direct(self.kept(stream))),
                    Ok(Err(error)) => Err(ConnectError::Refused(error.kind())),
                    Err(_) => Err(ConnectError::TimedOut(patience)),
                };
            }
            WorkerRoute::Agent { link, node_id } => (link, node_id),
        };
        let wanted = OpenRequest {
            breakpoint,
            node_id,
            holder: self.holder,
            resume: self.resume,
            process: self.process,
        };
        let opened = self.agents.open(link, wanted, patience).await;
        match opened {
            Ok(tunnel) => Ok(Stream::Tunnel(Box::new(tunnel))),
            Err(NoStream::Failed(DialFailure::Refused)) => {
                Err(ConnectError::Refused(io::ErrorKind::ConnectionRefused))
            }
            Err(NoStream::Failed(DialFailure::TimedOut)) => Err(ConnectError::TimedOut(patience)),
            Err(NoStream::Held(holder)) => {
                let refusal = SessionRefusal::in_use(breakpoint, &holder, Timestamp::now());
                Err(ConnectError::NoWay(refusal.to_string()))
            }
            Err(why) => Err(ConnectError::NoWay(why.to_string())),
        }
    }

    /// `stream`, which outlives this process where a keeper has it.
    fn kept(&self, stream: TcpStream) -> Direct {
        let Some((keeper, owner)) = &self.keeper else {
            return Direct::new(stream);
        };
        match keeper.keep(stream.as_fd()) {
            Ok(slot) => {
                let stored = match self.breakpoint.kind {
                    Kind::Debugpy => Stored::of(owner.clone()),
                    Kind::Pdb => Stored::of_prompt(owner.clone()),
                };
                Direct::kept(stream, KeptConnection::new(slot, stored))
            }
            Err(why) => {
                debug!(%why, "a session does not outlive this process");
                Direct::new(stream)
            }
        }
    }

    /// Why no agent dials, where one would.
    pub(super) fn absence(&self) -> Option<NoAgentReason> {
        match &self.way {
            WorkerRoute::Direct { without } => without.clone(),
            WorkerRoute::Agent { .. } => None,
        }
    }
}

/// `holder`, as an agent tells others of it.
pub(super) fn shown(holder: &registry::Holder) -> WorkerTaker {
    WorkerTaker {
        name: holder.subject.as_deref().unwrap_or_default().into(),
        session: holder.session.to_string().as_str().into(),
        client: holder.client.as_str().into(),
        peer: holder.peer,
    }
}

/// Dials, and reads the first message of the greeting. The connection is there for `tenant`.
pub(super) async fn greet(
    dialling: Dialling,
    tenant: Box<dyn Tenant>,
    patience: Duration,
    (max_frame, account): (usize, Account),
    tasks: &TaskTracker,
) -> Result<Conversation<Worker>, ConnectError> {
    let owner = tasks.clone();
    let greeting = async move {
        let stream = dialling.dial(DIAL).await?;
        if let Some(socket) = stream.socket() {
            tcp::tune(socket, PROBE_AFTER)
                .and_then(|()| tcp::bound_silence(socket))
                .map_err(|error| ConnectError::Refused(error.kind()))?;
        }
        let worker = Worker::new(stream, Some(tenant), owner);
        let mut worker = Conversation::new(worker, max_frame);
        worker.count(&account);
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
        Err(_) => Err(ConnectError::TimedOut(patience)),
    }
}
