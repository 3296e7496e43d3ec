//! The connection to a worker's debugger, opened for a session and never for a look, and led to its end in the order that
//! debugpy survives.
//!
//! [`connect`] makes a [`Worker`]; `ledger` follows what passes over it; `goodbye` ends it. `let_run` attaches for no other
//! purpose than to leave. `legacy` is the same for Ray's older debugger,
//! and [`by_agent`] what an agent needs of it.

pub mod by_agent;
mod goodbye;
mod ledger;
pub(crate) mod legacy;
pub mod let_run;
mod worker;

pub use self::worker::Worker;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::ray::registry::{BreakpointId, Lease};
use crate::session::Permit;
use crate::wire::dap::conversation::{Closed, Conversation};
use crate::wire::tcp;
use crate::wire::text::shortened;

/// How long a dial whose session has given up is still waited for.
const DIAL: Duration = Duration::from_secs(30);

/// The deadline for a debugger to be over the session before: longer than its [`goodbye`] takes from the answer on.
const SETTLED: Duration = Duration::from_secs(2);

/// Idle time before a worker's node is asked whether it is still there.
const PROBE_AFTER: Duration = Duration::from_secs(10);

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
}

/// Connects to the worker that `permit` names, as soon as its debugger is over the session before, and reads the first
/// message of its greeting.
///
/// A connection that ends before the greeting has been read can stop the adapter from ever accepting
/// again (debugpy 1.8, seen). So the work is done in a task of `tasks` that this future only waits for: a client that
/// leaves at this moment does not cut it short, and what comes of it then is left as [`Worker`] says.
///
/// # Errors
/// [`ConnectError`]; the whole takes at most `patience`, and 2 s more where another session has just ended.
pub async fn connect(
    permit: &Permit,
    patience: Duration,
    max_frame: usize,
    tasks: &TaskTracker,
) -> Result<Conversation<Worker>, ConnectError> {
    timeout(SETTLED, permit.settled())
        .await
        .map_err(|_| ConnectError::TimedOut(SETTLED))?;
    let (address, lease) = (permit.upstream(), permit.lease());
    let greeted = greet(address, lease, patience, max_frame, tasks).await;
    let greeted = greeted.map_err(|why| why.of(permit.breakpoint().id));
    match &greeted {
        Ok(_) => permit.dialled(true),
        Err(ConnectError::Gone(_)) => permit.dialled(false),
        // Whether anything listens is not known.
        Err(_) => {}
    }
    greeted
}

#[expect(
    clippy::disallowed_methods,
    reason = "here workers are dialled, for a permit"
)]
async fn greet(
    address: SocketAddr,
    lease: Option<Lease>,
    patience: Duration,
    max_frame: usize,
    tasks: &TaskTracker,
) -> Result<Conversation<Worker>, ConnectError> {
    let owner = tasks.clone();
    let greeting = async move {
        let stream = timeout(DIAL, TcpStream::connect(address))
            .await
            .map_err(|_| ConnectError::TimedOut(DIAL))?
            .and_then(|stream| {
                tcp::tune(&stream, PROBE_AFTER)?;
                tcp::bound_silence(&stream)?;
                Ok(stream)
            })
            .map_err(|error| ConnectError::Refused(error.kind()))?;
        let mut worker = Conversation::new(Worker::new(stream, lease, owner), max_frame);
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
/// `tasks`, and a connection that nobody waits for any more is left in order there.
///
/// # Errors
/// [`ConnectError`]; the whole takes at most `patience`.
#[expect(
    clippy::disallowed_methods,
    reason = "here workers are dialled, for a permit"
)]
pub async fn connect_pdb(
    permit: &Permit,
    patience: Duration,
    tasks: &TaskTracker,
) -> Result<TcpStream, ConnectError> {
    let (address, lease) = (permit.upstream(), permit.lease());
    let (connected, taken) = oneshot::channel();
    let connecting = async move {
        let dialled = timeout(patience, TcpStream::connect(address)).await;
        if let (Ok(Ok(_)), Some(lease)) = (&dialled, &lease) {
            lease.let_run();
        }
        let dialled = match dialled {
            Ok(Ok(stream)) => tcp::tune(&stream, PROBE_AFTER)
                .map(|()| stream)
                .map_err(|error| ConnectError::Refused(error.kind())),
            Ok(Err(error)) => Err(ConnectError::Refused(error.kind())),
            Err(_) => Err(ConnectError::TimedOut(patience)),
        };
        if let Err(Ok(stream)) = connected.send(dialled) {
            legacy::let_go(stream, BytesMut::new()).await;
        }
    };
    tasks.spawn(connecting.in_current_span());
    taken
        .await
        .unwrap_or(Err(ConnectError::Refused(io::ErrorKind::Interrupted)))
}
