//! From an accepted connection to its protocol: detect, terminate TLS, detect again, then route or refuse.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use super::detect::{Detection, MAX_PREFIX_BYTES, detect};
use super::pydevd;
use super::refusal::{self, HandshakeRefusal, PeerProtocol, TLS_ALERT};
use super::wire::ClientWire;
use ray_relay_access::connection::ConnectionInfo;
use ray_relay_access::connection::on_wake::WakeForwarder;
use ray_relay_access::identity::{AuthError, Authenticator, Principal};
use ray_relay_access::telemetry::metrics::{Handshake, Protocol, RefusalKind};
use ray_relay_access::tls::{Certificate, Tls};
use ray_relay_base::config::TlsMode;
use ray_relay_base::wire::prefixed::Prefixed;
use ray_relay_base::wire::tcp;
use ray_relay_http::{http, lineproto};
use ray_relay_session::connect::ArrivedStream;
use ray_relay_session::context::Context;

const UNKNOWN_ANSWER: &[u8] =
    b"ray-relay: these bytes are neither HTTP nor the debug adapter protocol.\r\n";

/// The answer to a user of `nc` who waits for output, and to a program whose `pydevd_pycharm.settrace` waits for its
/// IDE. It does not disturb a debugger, because the connection closes with it.
const SILENT_ANSWER: &[u8] = concat!(
    "ray-relay: nothing was said here for too long, so this connection is closed. In `nc`, press Enter for the list. ",
    "pydevd_pycharm.settrace is not spoken here: PyCharm 2025.3 and later attach with \"Attach to DAP\", and `ray-relay reverse` takes settrace to a debug server.\r\n",
    // pydevd prints a line that it does not understand, and would wait for ever. CMD_RUN makes it continue; it ignores
    // the text.
    "101\t0\t(to pydevd: run on)\r\n",
)
.as_bytes();

/// The detected protocol, and the bytes read for it.
struct First {
    detection: Detection,
    bytes: BytesMut,
}

/// Size of the first read: most first messages fit whole.
const FIRST_READ_BYTES: usize = 1024;

/// Memory of a terminal connection, in bytes: a line, and output in flight.
const TERMINAL_WEIGHT: usize = 24 * 1024;

/// How a connection began.
enum FirstBytes {
    /// The client's protocol is detected.
    Known(First),
    /// The client closed without sending anything.
    Closed,
    /// The client has not shown its protocol in time.
    Silent,
}

/// A connection in plain text, after TLS was terminated, or without TLS.
struct ClearConnection {
    wire: ClientWire,
    first: First,
    peer_protocol: PeerProtocol,
    /// The principal of the client's certificate, if any; or why the connection is refused.
    certificate: Result<Option<Principal>, HandshakeRefusal>,
}

/// A connection with a known protocol.
struct DetectedConnection {
    /// Replays the bytes that were read.
    stream: Prefixed<ClientWire>,
    detection: Detection,
    connection: ConnectionInfo,
    /// The answer if the protocol is unsupported.
    unknown: &'static [u8],
}

/// Future that serves a connection with a known protocol.
type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Serves one connection until it closes.
///
/// Each protocol's state is boxed, and so is the detection: a connection reserves no memory for other protocols, or for
/// finished stages.
pub(super) fn serve(
    context: Arc<Context>,
    tls: Arc<Tls>,
    stream: TcpStream,
    connection: ConnectionInfo,
) -> impl Future<Output = ()> + Send {
    serve_detected(Box::pin(async move {
        let recognised = recognise(&context, &tls, stream, connection).await?;
        Some(speak(context, recognised))
    }))
}

/// Serves a connection that was opened within another one. It has no TLS of its own, and its client is authenticated.
pub(super) fn serve_link(
    context: Arc<Context>,
    mut stream: ArrivedStream,
    connection: ConnectionInfo,
) -> impl Future<Output = ()> + Send {
    serve_detected(Box::pin(async move {
        let deadline = connection.accepted + context.config.listen.handshake_timeout;
        match read_first(&mut stream, deadline).await {
            Ok(FirstBytes::Known(first)) => {
                let wire = ClientWire::Linked(stream);
                let recognised = classified(&context, wire, first, connection);
                return Some(speak(context, recognised));
            }
            Ok(FirstBytes::Closed) => {}
            Ok(FirstBytes::Silent) => refusal::close(stream, SILENT_ANSWER).await,
            Err(error) => debug!(%error, "a link broke before its first bytes"),
        }
        None
    }))
}

/// Awaits the detection `recognised`, then serves the connection.
async fn serve_detected<F: Future<Output = Option<Serving>>>(recognised: Pin<Box<F>>) {
    if let Some(serving) = recognised.await {
        serving.await;
    }
}

/// Returns the future that serves the protocol of a connection.
fn speak(context: Arc<Context>, recognised: DetectedConnection) -> Serving {
    let DetectedConnection {
        stream,
        detection,
        connection,
        unknown,
    } = recognised;
    match detection {
        Detection::Http => {
            let draining = context.shutdown.drain.clone();
            let served = http::serve_connection(stream, connection, context.clone(), draining);
            // Boxed on its own: the select would hold it twice.
            let served = Box::pin(served);
            Box::pin(async move {
                let forwarder = WakeForwarder::default();
                let aborted = pin!(context.shutdown.abort.cancelled());
                tokio::select! {
                    biased;
                    () = served => {}
                    () = forwarder.run(aborted) => {}
                }
            })
        }
        Detection::Dap => {
            let session = context.sessions.table.open(&connection.summary);
            Box::pin(ray_relay_dap::serve(context, session, stream, connection))
        }
        // TLS inside TLS, or inside a link, is not supported.
        Detection::Tls => Box::pin(async move { unsupported(&context, stream, TLS_ALERT).await }),
        Detection::Terminal => {
            let session = context.sessions.table.open(&connection.summary);
            Box::pin(async move {
                lineproto::serve(&context, session, stream, connection).await;
            })
        }
        Detection::Unknown => Box::pin(async move { unsupported(&context, stream, unknown).await }),
    }
}

/// Detects the protocol of a connection; `None` if that failed, and the peer has its answer.
async fn recognise(
    context: &Context,
    tls: &Tls,
    mut stream: TcpStream,
    mut connection: ConnectionInfo,
) -> Option<DetectedConnection> {
    let deadline = connection.accepted + context.config.listen.handshake_timeout;
    let first = match read_first(&mut stream, deadline).await {
        Ok(FirstBytes::Known(first)) => first,
        Ok(FirstBytes::Closed) => return None,
        Ok(FirstBytes::Silent) => {
            debug!("connection said nothing in time");
            answer_silence(context, tls.mode(), stream, &connection, deadline).await;
            return None;
        }
        Err(error) => {
            debug!(%error, "connection broke before its first bytes");
            return None;
        }
    };
    let clear = if first.detection == Detection::Tls {
        connection.encrypted = true;
        connection.place.weigh(connection.tls_weight());
        // Boxed, so that plain connections do not reserve the size of a handshake.
        let clear = Box::pin(terminate(context, tls, stream, first, deadline)).await;
        if clear.is_none() {
            context.metrics.connection(Protocol::Tls);
            connection.summary.recognised(Protocol::Tls, false);
        }
        clear?
    } else {
        ClearConnection {
            peer_protocol: PeerProtocol::of(first.detection, &first.bytes, None),
            wire: ClientWire::Plain(stream),
            first,
            certificate: match tls.mode() {
                TlsMode::Required => Err(HandshakeRefusal::Plaintext),
                TlsMode::Off | TlsMode::Optional => Ok(None),
            },
        }
    };
    match clear.certificate {
        Ok(principal) => {
            if let Some(principal) = &principal {
                // A client over its quota gets an answer in its own protocol.
                let _ = connection.place.recognised(principal);
            }
            connection.certificate = principal;
            Some(classified(context, clear.wire, clear.first, connection))
        }
        Err(refused) => {
            record_protocol(context, &connection, clear.first.detection);
            if !connection.encrypted {
                connection
                    .place
                    .weigh(ray_relay_dap::unknown_weight(context));
            }
            let replayed = Prefixed::new(clear.first.bytes.freeze(), clear.wire);
            let (summary, peer_protocol) = (&connection.summary, clear.peer_protocol);
            refusal::send(
                context,
                replayed,
                summary,
                peer_protocol,
                &refused,
                deadline,
            )
            .await;
            None
        }
    }
}

/// Answers a client that sent nothing in time.
async fn answer_silence(
    context: &Context,
    mode: TlsMode,
    stream: TcpStream,
    connection: &ConnectionInfo,
    deadline: Instant,
) {
    match mode {
        TlsMode::Required => {
            let (summary, refused) = (&connection.summary, &HandshakeRefusal::Plaintext);
            refusal::send(
                context,
                stream,
                summary,
                PeerProtocol::Text,
                refused,
                deadline,
            )
            .await;
        }
        TlsMode::Off | TlsMode::Optional => refusal::close(stream, SILENT_ANSWER).await,
    }
}

/// Configures a connection for its protocol: from now on its memory is charged accordingly.
fn classified(
    context: &Context,
    wire: ClientWire,
    first: First,
    connection: ConnectionInfo,
) -> DetectedConnection {
    record_protocol(context, &connection, first.detection);
    if let Some(tcp) = wire.tcp() {
        let bounded = match first.detection {
            Detection::Dap | Detection::Terminal => tcp::bound_silence(tcp),
            Detection::Http => tcp::bound_unsent(tcp),
            Detection::Tls | Detection::Unknown => Ok(()),
        };
        if let Err(error) = bounded {
            debug!(%error, "cannot bound how long a client may be silent, or what waits to be sent to it");
        }
    }
    let unknown = match pydevd::speaks(&first.bytes) {
        Some(true) => pydevd::ANSWER,
        Some(false) | None => UNKNOWN_ANSWER,
    };
    connection.place.weigh(
        connection.tls_weight()
            + match first.detection {
                Detection::Dap => ray_relay_dap::unknown_weight(context),
                Detection::Http => http::IDLE_WEIGHT,
                Detection::Terminal => TERMINAL_WEIGHT,
                Detection::Tls | Detection::Unknown => 0,
            },
    );
    DetectedConnection {
        stream: Prefixed::new(first.bytes.freeze(), wire),
        detection: first.detection,
        connection,
        unknown,
    }
}

/// Terminates TLS and detects the protocol inside; `None` if that failed, and the peer has its answer.
async fn terminate(
    context: &Context,
    tls: &Tls,
    stream: TcpStream,
    first: First,
    deadline: Instant,
) -> Option<ClearConnection> {
    let stream = Prefixed::new(first.bytes.freeze(), stream);
    let Some(acceptor) = tls.acceptor() else {
        unsupported(context, stream, TLS_ALERT).await;
        return None;
    };
    let accepting = acceptor.accept(stream).into_fallible();
    let mut stream = match timeout_at(deadline, accepting).await {
        Ok(Ok(stream)) => Box::new(stream),
        Ok(Err((error, stream))) => {
            debug!(%error, "TLS handshake failed");
            context.metrics.tls_handshake(Handshake::Failed);
            // A reset must not overtake the alert.
            refusal::close(stream, b"").await;
            return None;
        }
        Err(_) => {
            debug!("TLS handshake took too long");
            context.metrics.tls_handshake(Handshake::Timeout);
            return None;
        }
    };
    context.metrics.tls_handshake(Handshake::Ok);
    let session = stream.get_ref().1;
    let alpn = session.alpn_protocol().map(<[u8]>::to_vec);
    let certificate = match session.peer_certificates().and_then(<[_]>::first) {
        Some(certificate) => certificate_principal(&context.auth, certificate).map(Some),
        None => Ok(None),
    };
    let first = match alpn {
        // ALPN already names the protocol, so the client may take its time.
        Some(_) => First {
            detection: Detection::Http,
            bytes: BytesMut::new(),
        },
        None => match read_first(&mut stream, deadline).await {
            Ok(FirstBytes::Known(first)) => first,
            Ok(FirstBytes::Closed) => return None,
            Ok(FirstBytes::Silent) => {
                debug!("connection said nothing in time inside TLS");
                refusal::close(stream, SILENT_ANSWER).await;
                return None;
            }
            Err(error) => {
                debug!(%error, "connection broke before its first bytes inside TLS");
                return None;
            }
        },
    };
    let peer_protocol = PeerProtocol::of(first.detection, &first.bytes, alpn.as_deref());
    Some(ClearConnection {
        wire: ClientWire::Encrypted(stream),
        first,
        peer_protocol,
        certificate,
    })
}

/// The principal of a certificate that rustls has verified, now or at the start of the resumed session.
fn certificate_principal(auth: &Authenticator, der: &[u8]) -> Result<Principal, HandshakeRefusal> {
    let refused =
        |sentence: &dyn std::fmt::Display| HandshakeRefusal::Certificate(sentence.to_string());
    let certificate = Certificate::read(der).map_err(|why| refused(&why))?;
    if certificate.expires <= SystemTime::now() {
        return Err(refused(&"your client certificate has expired"));
    }
    let principal = auth.certificate(
        &certificate.subject,
        &certificate.fingerprint,
        certificate.expires,
    );
    principal.map_err(|error| match error {
        AuthError::Missing | AuthError::Refused => refused(&format!(
            "your client certificate ({}) gives no access to this relay",
            certificate.subject
        )),
        error => refused(&error),
    })
}

/// Records the protocol of `connection`.
fn record_protocol(context: &Context, connection: &ConnectionInfo, detection: Detection) {
    let protocol = match detection {
        Detection::Http => Protocol::Http,
        Detection::Dap => Protocol::Dap,
        Detection::Tls => Protocol::Tls,
        Detection::Terminal => Protocol::Terminal,
        Detection::Unknown => Protocol::Unknown,
    };
    context.metrics.connection(protocol);
    connection
        .summary
        .recognised(protocol, connection.encrypted);
}

async fn unsupported<S: AsyncRead + AsyncWrite + Unpin>(
    context: &Context,
    stream: S,
    answer: &[u8],
) {
    context.metrics.refused(RefusalKind::Unsupported);
    refusal::close(stream, answer).await;
}

/// Reads until the protocol is detected, or until `deadline`. It sends nothing meanwhile. An editor on a busy laptop or
/// behind a slow tunnel sends its first message only seconds after it connected, and unexpected text before the answer
/// would make it hang.
async fn read_first<S: AsyncRead + Unpin>(
    stream: &mut S,
    deadline: Instant,
) -> io::Result<FirstBytes> {
    let mut bytes = BytesMut::with_capacity(FIRST_READ_BYTES);
    loop {
        let Ok(read) = timeout_at(deadline, stream.read_buf(&mut bytes)).await else {
            return Ok(FirstBytes::Silent);
        };
        if read? == 0 {
            if bytes.is_empty() {
                return Ok(FirstBytes::Closed);
            }
            let detection = detect(&bytes).unwrap_or(Detection::Unknown);
            return Ok(FirstBytes::Known(First { detection, bytes }));
        }
        if let Some(detection) = detect(&bytes) {
            return Ok(FirstBytes::Known(First { detection, bytes }));
        }
        bytes.reserve(MAX_PREFIX_BYTES);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[path = "handshake/tests.rs"]
mod tests;
