//! The way to a worker's [debugger](crate::debugger), opened for a session's permit and never for a look.
//!
//! [`connect`] makes a [`Worker`], by dialling or by having the agent of the worker's node dial; `tenancy` gives the
//! breakpoint back when that is left, and looks after the task. `park` keeps a debugger without a client, and `restored` goes on
//! with those of a relay that was killed.

pub(crate) mod park;
pub(crate) mod restored;
mod tenancy;

use self::restored::Ownership;
pub use self::tenancy::LetRunError;
use self::tenancy::Tenancy;

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, debug};

use crate::agents::{Absence, Agents, NotOpened, Wanted, Way};
use crate::context::Context;
use crate::debugger::kept::{KeptConnection, Stored};
use crate::debugger::legacy::Entered;
use crate::debugger::unattended::Line;
use crate::debugger::{Direct, PROBE_AFTER, Stream, Worker};
use crate::identity::Principal;
use crate::identity::revocation::seconds;
use crate::keeper::Keeper;
use crate::memory::Account;
use crate::moment::Moment;
use crate::ray::registry::{self, Breakpoint, BreakpointId, Kind, Lease};
use crate::session::Permit;
use crate::session::refusal::SessionRefusal;
use crate::wire::dap::conversation::{Closed, Conversation};
use crate::wire::tcp;
use crate::wire::text::shortened;
use crate::wire::tunnel::messages::{Credential, Failure, Holder, Keep, Subject};

/// How long a dial whose session has given up is still waited for.
const DIAL: Duration = Duration::from_secs(30);

/// The deadline for a debugger to be over the session before: longer than its goodbye takes from the answer on.
const SETTLED: Duration = Duration::from_secs(2);

/// How long the debugger of a worker that is kept may still be at work on what was asked before.
const AT_WORK: Duration = Duration::from_secs(5);

/// Why the worker's debugger was not reached. `Display` names no address: it is for the client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The connection was refused or reset, or the node cannot be reached.
    #[error(
        "its debugger does not accept connections ({0}); the worker may just have ended, see `ray-relay list`"
    )]
    Refused(io::ErrorKind),
    /// Nothing listens: the worker lives on, its debugger does not.
    #[error(
        "its debugger is gone: nothing listens on its port any more, so the task cannot go on by itself. `ray-relay release --force {0}` ends its worker through Ray; attaching again tries the port anew"
    )]
    Gone(BreakpointId),
    /// Nothing came in time.
    #[error("its debugger did not answer within {} s; the node may be gone or overloaded, try again", .0.as_secs_f32())]
    TimedOut(Duration),
    /// The worker spoke something else, or closed.
    #[error("what listens there does not speak the debug adapter protocol ({0})")]
    NotDap(#[from] Closed),
    /// There is no way to it, or the agent of its node does not open one: why.
    #[error("{0}")]
    NoWay(String),
    /// The relay dialled it and reached nothing, which may be for want of an agent: why there is none.
    #[error("{0}; or its port is closed to this relay, and {1}")]
    Closed(Box<Self>, String),
    /// The debugger does not accept the client's `initialize`, in its own words.
    #[error("its debugger refuses the client's `initialize`: {0}")]
    Declined(String),
}

impl ConnectError {
    /// A refusal with `words` of a worker's, which are text where it is debugpy.
    pub fn declined(words: &Value) -> Self {
        Self::Declined(shortened(
            words.as_str().unwrap_or("it does not say why"),
            300,
        ))
    }

    /// The same, with what a refusal means where debugpy listened.
    fn of(self, id: BreakpointId) -> Self {
        match self {
            Self::Refused(io::ErrorKind::ConnectionRefused) => Self::Gone(id),
            other => other,
        }
    }

    /// The same, where the relay dialled because there was no agent.
    fn without(self, absence: Option<&Absence>) -> Self {
        match (self, absence) {
            (why @ (Self::Refused(_) | Self::Gone(_) | Self::TimedOut(_)), Some(absence)) => {
                Self::Closed(Box::new(why), absence.to_string())
            }
            (why, _) => why,
        }
    }

    /// Something has answered, and is not what was expected.
    pub fn is_answer(&self) -> bool {
        matches!(self, Self::NotDap(_) | Self::Declined(_))
    }

    /// Nothing listens, as far as was found out.
    fn is_gone(&self) -> bool {
        match self {
            Self::Gone(_) => true,
            Self::Closed(why, _) => why.is_gone(),
            _ => false,
        }
    }
}

/// What it takes to dial one worker's debugger.
struct Dialling {
    breakpoint: Arc<Breakpoint>,
    way: Way,
    agents: Arc<Agents>,
    /// For whom; `None` beside the session that holds it.
    holder: Option<Holder>,
    /// The owner, where the agent keeps the worker.
    resume: Option<Subject>,
    /// Who keeps the connection beyond this process, and what is written down of it.
    keeper: Option<(Arc<Keeper>, Value)>,
}

impl Dialling {
    /// By the way that `permit` goes, or that there is now.
    async fn of(context: &Context, permit: &Permit) -> Result<Self, ConnectError> {
        let (breakpoint, agents) = (permit.breakpoint(), &context.peers.agents);
        let mut dialling = match permit.way() {
            Some(way) => Self {
                breakpoint: Arc::clone(breakpoint),
                way: way.clone(),
                agents: Arc::clone(agents),
                holder: None,
                resume: None,
                keeper: None,
            },
            None => Self::again(breakpoint, agents).await?,
        };
        let holder = breakpoint.holder().filter(|_| permit.holds());
        dialling.holder = holder.map(shown);
        Ok(dialling)
    }

    /// Once more, for a worker that a session had.
    async fn again(
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
            keeper: None,
        })
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "here workers are dialled, for a permit"
    )]
    async fn dial(self, patience: Duration) -> Result<Stream, ConnectError> {
        let breakpoint = &self.breakpoint;
        let (link, node_id) = match &self.way {
            Way::Direct { .. } => {
                return match timeout(patience, TcpStream::connect(breakpoint.upstream())).await {
                    Ok(Ok(stream)) => Ok(Stream::Direct(self.kept(stream))),
                    Ok(Err(error)) => Err(ConnectError::Refused(error.kind())),
                    Err(_) => Err(ConnectError::TimedOut(patience)),
                };
            }
            Way::Agent { link, node_id } => (link, node_id),
        };
        let wanted = Wanted {
            breakpoint,
            node_id,
            holder: self.holder,
            resume: self.resume,
        };
        let opened = self.agents.open(link, wanted, patience).await;
        match opened {
            Ok(tunnel) => Ok(Stream::Tunnel(Box::new(tunnel))),
            Err(NotOpened::Failed(Failure::Refused)) => {
                Err(ConnectError::Refused(io::ErrorKind::ConnectionRefused))
            }
            Err(NotOpened::Failed(Failure::TimedOut)) => Err(ConnectError::TimedOut(patience)),
            Err(NotOpened::Held(holder)) => {
                let refusal = SessionRefusal::in_use(breakpoint, &holder, Moment::now());
                Err(ConnectError::NoWay(refusal.to_string()))
            }
            Err(why) => Err(ConnectError::NoWay(why.to_string())),
        }
    }

    /// `stream`, which outlives this process where somebody keeps it.
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
    fn absence(&self) -> Option<Absence> {
        match &self.way {
            Way::Direct { without } => without.clone(),
            Way::Agent { .. } => None,
        }
    }
}

/// `holder`, as an agent tells others of it.
fn shown(holder: &registry::Holder) -> Holder {
    Holder {
        name: holder.subject.as_deref().unwrap_or_default().into(),
        session: holder.session.to_string().as_str().into(),
        client: holder.client.as_str().into(),
        peer: holder.peer,
    }
}

/// Connects to the worker that `permit` names, as soon as its debugger is over the session before, and reads the first
/// message of its greeting.
///
/// A connection that ends before the greeting has been read can stop the adapter from ever accepting
/// again (debugpy 1.8, seen). So the work is done in a task of the daemon that this future only waits for: a client that
/// leaves at this moment does not cut it short, and what comes of it then is left as [`Worker`] says.
///
/// # Errors
/// [`ConnectError`]; the whole takes at most `dap.connect_timeout`, and 2 s more where another session has just ended.
pub async fn connect(
    context: &Context,
    permit: &Permit,
    max_frame: usize,
) -> Result<Conversation<Worker>, ConnectError> {
    let patience = context.config.dap.connect_timeout;
    timeout(SETTLED, permit.settled())
        .await
        .map_err(|_| ConnectError::TimedOut(SETTLED))?;
    let mut dialling = Dialling::of(context, permit).await?;
    dialling.keeper = keeper(context, permit);
    let (absence, lease) = (dialling.absence(), permit.lease());
    let tasks = &context.shutdown.tasks;
    let account = context.account(permit.principal());
    let greeted = greet(dialling, lease, patience, (max_frame, account), tasks).await;
    let greeted = greeted.map_err(|why| why.of(permit.breakpoint().id).without(absence.as_ref()));
    match &greeted {
        Ok(_) => permit.dialled(true),
        Err(why) if why.is_gone() => permit.dialled(false),
        // Whether anything listens is not known.
        Err(_) => {}
    }
    greeted
}

/// Who keeps the connection of `permit` beyond this process, and what is written down of it.
fn keeper(context: &Context, permit: &Permit) -> Option<(Arc<Keeper>, Value)> {
    let holder = permit.breakpoint().holder().filter(|_| permit.holds());
    let (keeper, holder) = context.keeper.as_ref().zip(holder)?;
    let owner = Ownership::of(permit.principal(), permit.breakpoint(), holder)?;
    Some((Arc::clone(keeper), owner))
}

/// Goes on with the worker that `permit` names, which the agent of its node keeps for `owner`; gives by what it was kept. Dropped, the agent keeps it on.
///
/// # Errors
/// [`ConnectError`]; the whole takes at most `dap.connect_timeout`, and 5 s more where its debugger is at work.
pub(crate) async fn resume(
    context: &Context,
    permit: &Permit,
    owner: Subject,
) -> Result<(Line, Box<Keep>), ConnectError> {
    let mut dialling = Dialling::of(context, permit).await?;
    dialling.resume = Some(owner);
    // When it was claimed, it stood for the session that is lost.
    let list = context.registry.snapshot();
    let now = list.find(permit.breakpoint().id);
    dialling.holder = now.and_then(|now| now.holder()).map(shown);
    let agents = dialling.agents.needed();
    let patience = context.config.dap.connect_timeout + AT_WORK;
    if let Stream::Tunnel(mut tunnel) = dialling.dial(patience).await?
        && let Some(keep) = tunnel.take_resumed()
    {
        let tasks = &context.shutdown.tasks;
        let stream = Stream::Tunnel(tunnel);
        let line = match permit.breakpoint().kind {
            Kind::Debugpy => {
                let tenancy = Tenancy::boxed(permit.lease(), agents, tasks);
                let worker = Worker::resumed(stream, Some(tenancy), tasks.clone());
                Line::Worker(Box::new(worker))
            }
            Kind::Pdb => {
                if let Some(lease) = permit.lease() {
                    lease.let_run();
                }
                Line::Legacy(Box::new(Entered::new(stream, tasks)))
            }
        };
        return Ok((line, keep));
    }
    Err(ConnectError::NoWay(NotOpened::Garbage.to_string()))
}

/// Whose a worker is that an agent keeps for `principal`; `None`: the name is too long to be told as it is.
pub(crate) fn owner(principal: &Principal) -> Option<Subject> {
    let name = principal.known_subject().unwrap_or_default();
    let owner: Subject = name.as_str().into();
    (*owner == *name).then_some(owner)
}

/// What tells an agent's relays whether the credential of `principal` is revoked; `None`: its id is too long to be told as
/// it is.
pub(crate) fn credential(principal: &Principal) -> Option<Credential> {
    let id = principal.credential().id();
    let told = Credential {
        id: id.into(),
        issued: principal.issued_at().map(seconds),
    };
    (*told.id == *id).then_some(told)
}

async fn greet(
    dialling: Dialling,
    lease: Option<Lease>,
    patience: Duration,
    (max_frame, account): (usize, Account),
    tasks: &TaskTracker,
) -> Result<Conversation<Worker>, ConnectError> {
    let owner = tasks.clone();
    let greeting = async move {
        let agents = dialling.agents.needed();
        let stream = dialling.dial(DIAL).await?;
        if let Some(socket) = stream.socket() {
            tcp::tune(socket, PROBE_AFTER)
                .and_then(|()| tcp::bound_silence(socket))
                .map_err(|error| ConnectError::Refused(error.kind()))?;
        }
        let tenancy = Tenancy::boxed(lease, agents, &owner);
        let worker = Worker::new(stream, Some(tenancy), owner);
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

/// Connects to the legacy debugger that `permit` names: the prompt's first words have not been read.
///
/// Whoever connects has entered it, and a connection that closes makes the task fail. So this too is done in a task of
/// the daemon, and a connection that nobody waits for any more is left in order there.
///
/// # Errors
/// [`ConnectError`]; the whole takes at most `dap.connect_timeout`.
pub(crate) async fn connect_pdb(
    context: &Context,
    permit: &Permit,
) -> Result<Entered, ConnectError> {
    let patience = context.config.dap.connect_timeout;
    let mut dialling = Dialling::of(context, permit).await?;
    dialling.keeper = keeper(context, permit);
    let (absence, lease) = (dialling.absence(), permit.lease());
    let (connected, taken) = oneshot::channel();
    let tasks = context.shutdown.tasks.clone();
    let connecting = async move {
        let dialled = dialling.dial(patience).await;
        if let (Ok(_), Some(lease)) = (&dialled, &lease) {
            lease.let_run();
        }
        let entered = dialled.and_then(|stream| {
            let tuned = match stream.socket() {
                Some(socket) => tcp::tune(socket, PROBE_AFTER),
                None => Ok(()),
            };
            let entered = Entered::new(stream, &tasks);
            let tuned = tuned.map_err(|error| ConnectError::Refused(error.kind()));
            tuned.map(|()| entered)
        });
        // Where nobody waits for it, it is left in order.
        drop(connected.send(entered));
    };
    let tasks = &context.shutdown.tasks;
    tasks.spawn(connecting.in_current_span());
    taken
        .await
        .unwrap_or(Err(ConnectError::Refused(io::ErrorKind::Interrupted)))
        .map_err(|why| why.without(absence.as_ref()))
}
