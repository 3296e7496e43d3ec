//! The connection to a worker's debugger, opened for a session and never for a look.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::dap::conversation::{Conversation, Over};
use crate::session::Permit;

/// How long data may go unacknowledged, and an idle peer unanswered, before a connection counts as dead.
pub const DEAD_AFTER: Duration = Duration::from_secs(30);

/// Why the worker's debugger was not reached. `Display` names no address: it is for the client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Refused, unreachable, reset.
    #[error(
        "its debugger does not accept connections ({0}); the worker may just have ended, see `ray-relay list`"
    )]
    Refused(io::ErrorKind),
    /// Nothing came in time.
    #[error("its debugger did not answer within {} s; the node may be gone or overloaded, try again", .0.as_secs_f32())]
    Silent(Duration),
    /// It spoke something else, or closed.
    #[error("what listens there does not speak the debug adapter protocol ({0})")]
    Strange(Over),
}

/// Connects to the worker that `permit` names and reads the first message of its debugger's greeting.
///
/// A connection that ends before the greeting has been read can stop the adapter from ever accepting
/// again (debugpy 1.8, seen). So the work is done in a task of `tasks` that this future only waits for: a client that
/// leaves at this moment does not cut it short.
///
/// # Errors
/// [`ConnectError`]; the whole takes at most `patience`.
pub async fn connect(
    permit: &Permit,
    patience: Duration,
    max_frame: usize,
    tasks: &TaskTracker,
) -> Result<Conversation<TcpStream>, ConnectError> {
    let address = permit.upstream();
    let greeted = tasks.spawn(async move {
        match timeout(patience, greet(address, max_frame)).await {
            Ok(result) => result,
            Err(_) => Err(ConnectError::Silent(patience)),
        }
    });
    // A task that neither returns nor panics was aborted with the runtime.
    greeted
        .await
        .unwrap_or(Err(ConnectError::Refused(io::ErrorKind::Interrupted)))
}

async fn greet(
    address: SocketAddr,
    max_frame: usize,
) -> Result<Conversation<TcpStream>, ConnectError> {
    let stream = TcpStream::connect(address)
        .await
        .map_err(|error| ConnectError::Refused(error.kind()))?;
    tune(&stream, Duration::from_secs(10)).map_err(|error| ConnectError::Refused(error.kind()))?;
    let mut worker = Conversation::new(stream, max_frame);
    worker.read().await.map_err(ConnectError::Strange)?;
    Ok(worker)
}

/// No delay for small messages; a peer that is gone without a word is noticed within [`DEAD_AFTER`] or so, by
/// probes when idle and by unacknowledged data when not.
///
/// # Errors
/// Where the system refuses an option.
pub fn tune(stream: &TcpStream, idle: Duration) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    let probe = (idle / 4).max(Duration::from_secs(1));
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(idle)
            .with_interval(probe)
            .with_retries(4),
    )?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(DEAD_AFTER.max(idle * 2)))?;
    Ok(())
}
