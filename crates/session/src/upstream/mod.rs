//! Connections to a worker's [debugger](ray_relay_debugger::debugger), opened with a session's permit.
//!
//! [`connect`] makes a [`Worker`], dialled directly (`dialling`) or by the agent of its node. `tenancy` releases the
//! breakpoint afterwards, and watches the task. `park` keeps a debugger without a client, and `restored` adopts those
//! of a relay that was killed.

mod dialling;
mod error;
pub mod look;
pub mod park;
pub mod restored;
mod subprocesses;
mod tenancy;

use self::dialling::{Dialling, ReadLimits, greet, taker_of};
pub use self::error::ConnectError;
use self::restored::Ownership;
pub use self::subprocesses::release_subprocesses;
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

/// Deadline for a debugger to finish the previous session: longer than its detach sequence takes after the answer.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the debugger of a parked worker may still be busy with an earlier request.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Largest message until `attach`, in bytes, of a debugger and of an authenticated client.
pub const MAX_HANDSHAKE_FRAME: usize = 1 << 20;

/// Connects to the worker that `permit` names, as soon as its debugger has finished the previous session, and reads the
/// first message of its greeting.
///
/// A connection that ends before its greeting was read can stop the adapter from ever accepting again (debugpy 1.8,
/// seen). So a task of its own does this: a client that disconnects at this moment does not cut it short, and the
/// result is detached as [`Worker`] describes.
///
/// # Errors
/// [`ConnectError`]; takes at most `dap.connect_timeout`, and 2 s more if another session has just ended.
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
    timeout(SETTLE_TIMEOUT, permit.settled())
        .await
        .map_err(|_| ConnectError::TimedOut(SETTLE_TIMEOUT))?;
    let mut dialling = Dialling::of(context, permit).await?;
    let kept = keeper(context, permit);
    dialling.keeper = kept.map(|(keeper, owner)| (keeper, Stored::of(owner)));
    let (absence, lease) = (dialling.absence(), permit.lease());
    let tasks = &context.shutdown.tasks;
    let limits = ReadLimits {
        max_frame,
        account: context.account(permit.principal()),
    };
    let tenant = Tenancy::boxed(lease, context.peers.agents.needed(), tasks);
    let greeted = greet(dialling, tenant, patience, limits, tasks).await;
    let greeted = greeted.map_err(|why| why.of(permit.breakpoint().id).without(absence.as_ref()));
    match &greeted {
        Ok(_) => permit.dialled(true),
        Err(why) if why.is_gone() => permit.dialled(false),
        // It is not known whether anything listens.
        Err(_) => {}
    }
    greeted
}

/// The keeper of the connection of `permit` beyond this process, and the record stored with it.
fn keeper(context: &Context, permit: &Permit) -> Option<(Arc<Keeper>, serde_json::Value)> {
    let keeper = context.keeper.as_ref()?;
    Some((Arc::clone(keeper), owned(permit)?))
}

/// The owner of the worker of `permit`, as stored for the next process.
fn owned(permit: &Permit) -> Option<serde_json::Value> {
    let holder = permit.holder()?;
    Ownership::of(
        permit.principal(),
        permit.breakpoint(),
        permit.process(),
        holder,
    )
}

/// Resumes the worker that `permit` names, which the agent of its node keeps for `owner`; returns its park terms. If
/// dropped, the agent keeps it.
///
/// # Errors
/// [`ConnectError`]; takes at most `dap.connect_timeout`, and 5 s more if its debugger is busy.
pub async fn resume(
    context: &Context,
    permit: &Permit,
    owner: Subject,
) -> Result<(IdleConnection, Box<ParkTerms>), ConnectError> {
    let mut dialling = Dialling::of(context, permit).await?;
    dialling.resume = Some(owner);
    // At the time of the claim, the holder was that of the lost session.
    let list = context.registry.snapshot();
    let now = list.find(permit.breakpoint().id);
    let holder = now.and_then(|now| now.holder()).filter(|_| permit.holds());
    dialling.holder = holder.map(taker_of);
    let agents = dialling.agents.needed();
    let patience = context.config.dap.connect_timeout + BUSY_TIMEOUT;
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
    Err(ConnectError::NoRoute(NoStream::Garbage.to_string()))
}

/// The owner name of a worker that an agent keeps for `principal`; `None`: the name does not fit unchanged.
pub fn owner(principal: &Principal) -> Option<Subject> {
    let name = principal.known_subject().unwrap_or_default();
    let owner: Subject = name.as_str().into();
    (*owner == *name).then_some(owner)
}

/// Identifies the credential of `principal` for relays that check revocations; `None`: its id does not fit unchanged.
pub fn credential(principal: &Principal) -> Option<Credential> {
    let id = principal.credential().id();
    let wire = Credential {
        id: id.into(),
        issued: principal.issued_at().map(seconds),
    };
    (*wire.id == *id).then_some(wire)
}

/// Connects to the legacy debugger that `permit` names; the prompt's first output is not read yet.
///
/// Connecting enters the debugger, and closing the connection makes the task fail. So this too runs in a task of its
/// own, and a connection that is no longer needed is detached there in order. If this process is killed, `keep` holds
/// from the first moment on.
///
/// # Errors
/// [`ConnectError`]; takes at most `dap.connect_timeout`.
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
    let (connected, connection) = oneshot::channel();
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
        // If no caller waits, dropping it detaches in order.
        drop(connected.send(entered));
    };
    let tasks = &context.shutdown.tasks;
    tasks.spawn(connecting.in_current_span());
    connection
        .await
        .unwrap_or(Err(ConnectError::Refused(io::ErrorKind::Interrupted)))
        .map_err(|why| why.without(absence.as_ref()))
}
