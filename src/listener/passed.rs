//! Connections that another process has accepted, which has taken over from this one: they belong to sessions here.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tracing::{Instrument as _, debug, info};

use super::wire::Wire;
use crate::connection::admission::{Admission, Guard};
use crate::connection::on_wake::OnWake;
use crate::connection::{self, ConnectionInfo};
use crate::context::Context;
use crate::dap;
use crate::identity::Principal;
use crate::takeover::{Passed, PassedCertificate, Takeover};
use crate::telemetry::metrics::{Protocol, RefusalKind};
use crate::wire::prefixed::Prefixed;

/// Serves what comes in `arriving` until the relay has drained. Who it is decides this process itself, by what the client
/// says; the successor is believed where the client comes from, and which certificate it has shown.
pub(crate) async fn run(
    mut arriving: mpsc::Receiver<(Passed, UnixStream)>,
    context: Arc<Context>,
    admission: Arc<Admission>,
) {
    let closed = context.shutdown.closed.clone();
    let accept = async {
        while let Some((about, stream)) = arriving.recv().await {
            let guard = admission.admit(about.peer.ip());
            let span = connection::span(about.peer);
            let served = serve(Arc::clone(&context), about, stream, guard);
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

async fn serve(context: Arc<Context>, about: Passed, stream: UnixStream, guard: Guard) {
    let Passed {
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
    context.metrics.connection(Protocol::Dap);
    info!("passed on by the process that has taken over");
    let connection = ConnectionInfo {
        encrypted,
        advertised_port,
        certificate,
        place: guard.place(),
        ..ConnectionInfo::plain(peer)
    };
    if let Some(principal) = &connection.certificate {
        // Who has too many is told so in the session.
        let _ = connection.place.recognised(principal);
    }
    connection.place.weigh(dap::unknown_weight(&context));
    let place = guard.place();
    let given_up = pin!(async {
        place.given_up().await;
        debug!("connection was given up for others");
        context.metrics.refused(RefusalKind::Limited);
    });
    let session = context.sessions.open(peer);
    let stream = Prefixed::new(Bytes::new(), Wire::Passed(stream));
    let beside = OnWake::new();
    tokio::select! {
        biased;
        () = Box::pin(dap::serve(&context, session, stream, connection)) => {}
        () = beside.run(given_up) => {}
    }
}

/// Whose certificate it is; `None`: nobody's who may be here.
fn recognise(
    context: &Context,
    certificate: &PassedCertificate,
    peer: SocketAddr,
) -> Option<Principal> {
    let expires = Takeover::expiry(certificate)?;
    let (subject, fingerprint) = (&certificate.subject, &certificate.fingerprint);
    match context.auth.certificate(subject, fingerprint, expires) {
        Ok(principal) => Some(principal),
        Err(why) => {
            info!(%why, %peer, "client not authenticated");
            None
        }
    }
}
