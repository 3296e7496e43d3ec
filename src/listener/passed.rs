//! Connections that another process has accepted, which has taken over from this one: they belong to sessions here.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tracing::{Instrument as _, debug, info};

use super::connection_log::ConnectionLog;
use super::handshake;
use crate::connection::admission::{Admission, Guard};
use crate::connection::on_wake::WakeForwarder;
use crate::connection::summary::Summary;
use crate::connection::{self, ConnectionInfo};
use crate::context::Context;
use crate::identity::Principal;
use crate::takeover::{ForwardedConnection, PassedCertificate};
use crate::telemetry::metrics::RefusalKind;

/// Serves what comes in `arriving` until the relay has drained. Who it is decides this process itself, by what the client
/// says; the successor is believed where the client comes from, and which certificate it has shown.
pub(crate) async fn run(
    mut arriving: mpsc::Receiver<(ForwardedConnection, UnixStream)>,
    context: Arc<Context>,
    admission: Arc<Admission>,
) {
    let closed = context.shutdown.closed.clone();
    let accept = async {
        while let Some((about, stream)) = arriving.recv().await {
            admission.settled().await;
            let guard = admission.admit(about.peer.ip());
            let summary = Summary::new(about.peer);
            let span = connection::span(&summary);
            let served = serve(Arc::clone(&context), about, stream, summary, guard);
            // As of a connection that was accepted here.
            context.shutdown.tasks.spawn(served.instrument(span));
        }
        std::future::pending().await
    };
    tokio::select! {
        () = closed.cancelled() => {}
        () = accept => {}
    }
}

async fn serve(
    context: Arc<Context>,
    about: ForwardedConnection,
    stream: UnixStream,
    summary: Summary,
    guard: Guard,
) {
    let ForwardedConnection {
        peer,
        encrypted,
        advertised_port,
        certificate,
    } = about;
    let certificate = match certificate.map(|of| recognise(&context, &of, peer)) {
        Some(None) => return,
        known => known.flatten(),
    };
    let _open = context.metrics.connection_open();
    let _told = ConnectionLog::new(summary.clone(), &context);
    info!("forwarded by the successor");
    let connection = ConnectionInfo {
        encrypted,
        advertised_port,
        certificate,
        place: guard.place(),
        ..ConnectionInfo::of(summary.clone())
    };
    if let Some(principal) = &connection.certificate {
        // Who has too many is told so in the session.
        let _ = connection.place.recognised(principal);
    }
    let place = guard.place();
    let given_up = pin!(async {
        place.given_up().await;
        debug!("connection was evicted to make room for another");
        context.metrics.refused(RefusalKind::Limited);
    });
    let beside = WakeForwarder::new();
    tokio::select! {
        biased;
        () = handshake::serve_passed(Arc::clone(&context), stream, connection) => {}
        () = beside.run(given_up) => {}
    }
}

/// Whose certificate it is; `None`: of no person who may be here.
fn recognise(
    context: &Context,
    certificate: &PassedCertificate,
    peer: SocketAddr,
) -> Option<Principal> {
    let expires = certificate.expires()?;
    let (subject, fingerprint) = (&certificate.subject, &certificate.fingerprint);
    match context.auth.certificate(subject, fingerprint, expires) {
        Ok(principal) => Some(principal),
        Err(why) => {
            info!(%why, %peer, "client not authenticated");
            None
        }
    }
}
