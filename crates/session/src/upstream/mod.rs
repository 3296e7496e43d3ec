//! The way to a worker's [debugger](ray_relay_debugger::debugger), opened for a session's permit and never for a look.
//!
//! [`connect`] makes a [`Worker`], by `dialling` or by having the agent of the worker's node dial; `tenancy` gives the
//! breakpoint back when that is left, and looks after the task. `park` keeps a debugger without a client, and `restored` goes on
//! with those of a relay that was killed.

mod dialling;
mod error;
pub mod look;
pub mod park;
pub mod restored;
mod subprocesses;
mod tenancy;

use self::dialling::{Dialling, greet, shown};
pub use self::error::ConnectError;
use self::restored::Ownership;
pub use self::subprocesses::let_subprocesses_run;
pub use self::tenancy::LetRunError;
use self::tenancy::Tenancy;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::Instrument as _;

use crate::agents::NoStream;
use crate::context::Context;
use crate::session::Permit;
use ray_relay_access::identity::Principal;
use ray_relay_access::identity::revocation::seconds;
use ray_relay_base::wire::dap::conversation::Conversation;
use ray_relay_base::wire::tcp;
use ray_relay_base::wire::tunnel::messages::{Credential, ParkTerms, Subject};
use ray_relay_debugger::debugger::kept::Stored;
use ray_relay_debugger::debugger::legacy::LegacySession;
use ray_relay_debugger::debugger::unattended::IdleConnection;
use ray_relay_debugger::debugger::{PROBE_AFTER, Stream, Worker};
use ray_relay_debugger::keeper::Keeper;
use ray_relay_ray::ray::registry::Kind;

/// The deadline for a debugger to be over the session before: longer than its goodbye takes from the answer on.
const SETTLED: Duration = Duration::from_secs(2);

/// How long the debugger of a worker that is kept may still be at work on what was asked before.
const AT_WORK: Duration = Duration::from_secs(5);

/// Largest message until `attach`, in bytes, of a debugger and of a client that is known.
pub const MAX_HANDSHAKE_FRAME: usize = 1 << 20;

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
    connect_within(context, permit, max_frame, patience).await
}

/// The same, within `patience` in place of `dap.connect_timeout`.
///
/// # Errors
/// [`ConnectError`].
pub async fn connect_within(
    context: &Context,
    permit: &Permit,
    max_frame: usize,
    patience: Duration,
) -> Result<Conversation<Worker>, ConnectError> {
    timeout(SETTLED, permit.settled())
        .await
        .map_err(|_| ConnectError::TimedOut(SETTLED))?;
    let mut dialling = Dialling::of(context, permit).await?;
    let kept = keeper(context, permit);
    dialling.keeper = kept.map(|(keeper, owner)| (keeper, Stored::of(owner)));
    let (absence, lease) = (dialling.absence(), permit.lease());
    let tasks = &context.shutdown.tasks;
    let account = context.account(permit.principal());
    let tenant = Tenancy::boxed(lease, context.peers.agents.needed(), tasks);
    let greeted = greet(dialling, tenant, patience, (max_frame, account), tasks).await;
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
fn keeper(context: &Context, permit: &Permit) -> Option<(Arc<Keeper>, serde_json::Value)> {
    let keeper = context.keeper.as_ref()?;
    Some((Arc::clone(keeper), owned(permit)?))
}

/// Who has the worker of `permit`, as the next process has to know.
fn owned(permit: &Permit) -> Option<serde_json::Value> {
    let which = (&**permit.breakpoint(), permit.process());
    Ownership::of(permit.principal(), which, permit.holder()?)
}

/// Goes on with the worker that `permit` names, which the agent of its node keeps for `owner`; gives by what it was kept. Dropped, the agent keeps it on.
///
/// # Errors
/// [`ConnectError`]; the whole takes at most `dap.connect_timeout`, and 5 s more where its debugger is at work.
pub async fn resume(
    context: &Context,
    permit: &Permit,
    owner: Subject,
) -> Result<(IdleConnection, Box<ParkTerms>), ConnectError> {
    let mut dialling = Dialling::of(context, permit).await?;
    dialling.resume = Some(owner);
    // When it was claimed, it stood for the session that is lost.
    let list = context.registry.snapshot();
    let now = list.find(permit.breakpoint().id);
    let holder = now.and_then(|now| now.holder()).filter(|_| permit.holds());
    dialling.holder = holder.map(shown);
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
                IdleConnection::Worker(Box::new(worker))
            }
            Kind::Pdb => {
                if let Some(lease) = permit.lease() {
                    lease.let_run();
                }
                IdleConnection::Legacy(Box::new(LegacySession::new(stream, tasks)))
            }
        };
        return Ok((line, keep));
    }
    Err(ConnectError::NoWay(NoStream::Garbage.to_string()))
}

/// Whose a worker is that an agent keeps for `principal`; `None`: the name is too long to be told as it is.
pub fn owner(principal: &Principal) -> Option<Subject> {
    let name = principal.known_subject().unwrap_or_default();
    let owner: Subject = name.as_str().into();
    (*owner == *name).then_some(owner)
}

/// What tells an agent's relays whether the credential of `principal` is revoked; `None`: its id is too long to be told as
/// it is.
pub fn credential(principal: &Principal) -> Option<Credential> {
    let id = principal.credential().id();
    let told = Credential {
        id: id.into(),
        issued: principal.issued_at().map(seconds),
    };
    (*told.id == *id).then_some(told)
}

/// Connects to the legacy debugger that `permit` names: the prompt's first words have not been read.
///
/// A client that connects has entered it, and a connection that closes makes the task fail. So this too is done in a task of
/// the daemon, and a connection that is not waited for any more is left in order there. Where this process is killed, it is
/// kept by `keep` from its first moment on.
///
/// # Errors
/// [`ConnectError`]; the whole takes at most `dap.connect_timeout`.
pub async fn connect_pdb(
    context: &Context,
    permit: &Permit,
    keep: Option<Box<ParkTerms>>,
) -> Result<LegacySession, ConnectError> {
    let patience = context.config.dap.connect_timeout;
    let mut dialling = Dialling::of(context, permit).await?;
    dialling.keeper = keeper(context, permit).map(|(keeper, owner)| {
        let stored = Stored::of_prompt(owner);
        let stored = match &keep {
            Some(keep) => stored.kept_by(keep),
            None => stored,
        };
        (keeper, stored)
    });
    dialling.keep = keep;
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
            let entered = LegacySession::new(stream, &tasks);
            let tuned = tuned.map_err(|error| ConnectError::Refused(error.kind()));
            tuned.map(|()| entered)
        });
        // Where it is not waited for, it is left in order.
        drop(connected.send(entered));
    };
    let tasks = &context.shutdown.tasks;
    tasks.spawn(connecting.in_current_span());
    taken
        .await
        .unwrap_or(Err(ConnectError::Refused(io::ErrorKind::Interrupted)))
        .map_err(|why| why.without(absence.as_ref()))
}
