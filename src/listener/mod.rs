//! The one port: accepts connections, and gives each a task, a deadline and a permit of its own.

mod connection_log;
pub mod detect;
mod handshake;
mod pydevd;
mod refusal;
mod wire;

use self::connection_log::ConnectionLog;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::sleep;
use tracing::{Instrument as _, debug, error, warn};

use ray_relay_access::connection::admission::{Admission, ConnectionPermit, Guard};
use ray_relay_access::connection::on_wake::WakeForwarder;
use ray_relay_access::connection::summary::Summary;
use ray_relay_access::connection::{self, ConnectionInfo};
use ray_relay_access::telemetry::metrics::RefusalKind;
use ray_relay_access::tls::Tls;
use ray_relay_base::wire::passed_descriptors::PassedDescriptors;
use ray_relay_base::wire::tcp;
use ray_relay_session::connect::InnerConnection;
use ray_relay_session::context::Context;

/// Length of the kernel's queue of connections that are not accepted yet.
const MAX_BACKLOG: u32 = 512;

/// Pause after an accept error that no single connection caused, such as running out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Time for the first request of a connection accepted just before the relay had drained. Less than the time that
/// [`crate::app`] gives connections to close.
const LAST_REQUEST_GRACE: Duration = Duration::from_millis(200);

/// The relay cannot listen on the address.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}{}", hint(.source))]
pub struct BindError {
    /// The requested address.
    pub address: SocketAddr,
    /// The system's error.
    pub source: io::Error,
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; something else listens there already: stop it, or choose another with --listen"
        }
        io::ErrorKind::AddrNotAvailable => {
            "; this machine has no such address: choose another with --listen"
        }
        io::ErrorKind::PermissionDenied => {
            "; ports below 1024 need privileges: choose another with --listen"
        }
        _ => "",
    }
}

/// Listens at `address`: on the socket that the service manager passed for it, or on a new one.
///
/// # Errors
/// [`BindError`] with the next step.
pub(crate) fn bind(
    address: SocketAddr,
    passed: &mut PassedDescriptors,
) -> Result<TcpListener, BindError> {
    let mut attempt = || {
        if let Some(listener) = passed.listener(address) {
            listener.set_nonblocking(true)?;
            return TcpListener::from_std(listener);
        }
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        // A restarted relay reuses its port while old connections are still closing.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(MAX_BACKLOG)
    };
    attempt().map_err(|source| BindError { address, source })
}

/// Accepts on `listener` until the relay has drained; a client that connects meanwhile gets an answer. Accept errors
/// never end it.
///
/// `admission` bounds the connections of all listeners together. It never waits, but evicts stalled connections.
/// `advertised` is the port of a listener that belongs to one breakpoint (`advertise = "ports"`).
pub async fn run(
    listener: TcpListener,
    context: Arc<Context>,
    tls: Arc<Tls>,
    admission: Arc<Admission>,
    advertised: Option<u16>,
) {
    if let Err(error) = tcp::tune(&listener, context.config.listen.keepalive) {
        // Without keepalive, clients that vanish would never be detected.
        error!(%error, "cannot set the options of a listening socket");
        return;
    }
    let closed = context.shutdown.closed.clone();
    let accept = async {
        loop {
            admission.settled().await;
            let (stream, peer) = accept(&listener, &context).await;
            ray_relay_base::fault::strike("listener");
            let guard = admission.admit(peer.ip());
            let (serving, tls) = (context.clone(), tls.clone());
            // Owned by the tracker; ends by its own deadlines and by `abort`.
            let summary = Summary::new(peer);
            let span = connection::span(&summary);
            let served = serve(serving, tls, stream, summary, advertised, guard);
            context.shutdown.tasks.spawn(served.instrument(span));
        }
    };
    tokio::select! {
        () = closed.cancelled() => {}
        () = accept => {}
    }
}

/// Serves connections through links of `ray-relay connect` and terminals of the page like those to the port, until the
/// relay has drained.
pub async fn run_links(context: Arc<Context>) {
    let closed = context.shutdown.closed.clone();
    let accept = async {
        loop {
            let InnerConnection {
                stream,
                principal,
                peer,
            } = context.peers.links.arrived().await;
            let summary = Summary::new(peer);
            let span = connection::span(&summary);
            let connection = ConnectionInfo {
                certificate: (!principal.is_anonymous()).then_some(principal),
                linked: true,
                ..ConnectionInfo::of(summary.clone())
            };
            let serving = context.clone();
            // Owned by the tracker; ends by its own deadlines and by `abort`.
            let served = async move {
                let _open = serving.metrics.connection_open();
                let _told = ConnectionLog::new(summary, &serving);
                handshake::serve_link(serving.clone(), stream, connection).await;
            };
            context.shutdown.tasks.spawn(served.instrument(span));
        }
    };
    tokio::select! {
        () = closed.cancelled() => {}
        () = accept => {}
    }
}

async fn accept(listener: &TcpListener, context: &Context) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                context.metrics.accept_error();
                if of_one_connection(&error) {
                    debug!(%error, "a connection ended before it was accepted");
                } else {
                    warn!(%error, "cannot accept connections at the moment; trying again");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// Whether the error concerns only the connection to accept (accept(2): errors of the new socket are passed on), so
/// that the next may succeed at once.
fn of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
            | io::ErrorKind::TimedOut
    )
}

/// Serves one connection until it closes, and frees its slot then.
fn serve(
    context: Arc<Context>,
    tls: Arc<Tls>,
    stream: TcpStream,
    summary: Summary,
    advertised: Option<u16>,
    guard: Guard,
) -> impl Future<Output = ()> + Send {
    let connection = ConnectionInfo {
        advertised_port: advertised,
        place: guard.place(),
        ..ConnectionInfo::of(summary.clone())
    };
    let served = handshake::serve(Arc::clone(&context), tls, stream, connection);
    async move {
        let _open = context.metrics.connection_open();
        let _told = ConnectionLog::new(summary, &context);
        let permit = guard.place();
        let ending = pin!(async {
            tokio::select! {
                // Only an unauthenticated client is evicted: it has begun nothing that needs cleanup.
                () = permit.given_up() => {
                    debug!("connection was evicted to make room for another");
                    context.metrics.refused(RefusalKind::Limited);
                }
                () = drained(&context, &permit) => {}
            }
        });
        let forwarder = WakeForwarder::default();
        tokio::select! {
            biased;
            () = served => {}
            () = forwarder.run(ending) => {}
        }
    }
}

/// Resolves when the relay has drained and this connection is idle. A request already on its way is still answered.
async fn drained(context: &Context, permit: &ConnectionPermit) {
    context.shutdown.closed.cancelled().await;
    sleep(LAST_REQUEST_GRACE).await;
    if !permit.owes_a_credential() {
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests;
