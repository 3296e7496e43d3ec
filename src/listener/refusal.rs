//! Refuses connections during the handshake, each in its own protocol.
//!
//! Called by [`super::handshake`] before any other module uses the connection. It never reaches a worker.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use super::detect::Detection;
use ray_relay_access::connection::summary::Summary;
use ray_relay_access::telemetry::metrics::RefusalKind;
use ray_relay_base::wire::dap::conversation::Conversation;
use ray_relay_base::wire::dap::message::Request;
use ray_relay_dap::refusal::refuse as refuse_request;
use ray_relay_dap::unknown_frame;
use ray_relay_session::context::Context;

/// How long a refused connection may take to read the answer and close.
const REFUSAL_LINGER: Duration = Duration::from_secs(2);

/// TLS alert record, fatal, `handshake_failure` (RFC 8446 section 6): the answer of a server without TLS.
pub(super) const TLS_ALERT: &[u8] = &[0x15, 0x03, 0x01, 0x00, 0x02, 0x02, 0x28];

/// HTTP/2: an empty SETTINGS frame, which a server has to send first (RFC 9113 section 3.4).
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

/// INADEQUATE_SECURITY (RFC 9113 section 7).
const INADEQUATE_SECURITY: u8 = 0x0c;

/// Why a client is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HandshakeRefusal {
    /// Plain text, although TLS is required.
    Plaintext,
    /// A client certificate without a principal, with a sentence.
    Certificate(String),
}

/// The protocol of a refused peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PeerProtocol {
    Http1,
    Http2,
    Dap,
    Tls,
    Text,
}

impl PeerProtocol {
    pub(super) fn of(detection: Detection, first: &[u8], alpn: Option<&[u8]>) -> Self {
        match detection {
            Detection::Http if alpn == Some(b"h2") || first.starts_with(b"PRI ") => Self::Http2,
            Detection::Http => Self::Http1,
            Detection::Dap => Self::Dap,
            Detection::Tls => Self::Tls,
            Detection::Terminal | Detection::Unknown => Self::Text,
        }
    }
}

impl HandshakeRefusal {
    /// The sentence for the client: the problem, and the solution.
    fn sentence(&self, peer_protocol: PeerProtocol) -> String {
        match (self, peer_protocol) {
            (Self::Certificate(sentence), _) => sentence.clone(),
            (Self::Plaintext, PeerProtocol::Http1 | PeerProtocol::Http2) => {
                "this relay takes TLS alone: use https:// instead of http://".to_owned()
            }
            (Self::Plaintext, PeerProtocol::Dap) => {
                "this relay takes TLS alone, which editors do not speak themselves: attach through something on this machine that adds it, \
                 such as `socat TCP-LISTEN:5678,bind=127.0.0.1,reuseaddr,fork OPENSSL:RELAY:5678,cafile=CA.pem`"
                    .to_owned()
            }
            (Self::Plaintext, PeerProtocol::Tls | PeerProtocol::Text) => {
                "this relay takes TLS alone: use `openssl s_client -quiet -connect HOST:PORT` or `ncat --ssl HOST PORT`"
                    .to_owned()
            }
        }
    }

    /// Status line and related headers.
    fn status(&self) -> &'static str {
        match self {
            // RFC 9110 section 15.5.22.
            Self::Plaintext => {
                "426 Upgrade Required\r\nupgrade: TLS/1.2\r\nconnection: upgrade, close"
            }
            Self::Certificate(_) => "403 Forbidden\r\nconnection: close",
        }
    }
}

/// Sends the refusal in the peer's own protocol, and closes.
pub(super) async fn send<S>(
    context: &Context,
    stream: S,
    summary: &Summary,
    peer_protocol: PeerProtocol,
    refused: &HandshakeRefusal,
    deadline: Instant,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    debug!(speaks = ?peer_protocol, ?refused, "connection refused");
    context.metrics.refused(RefusalKind::Forbidden);
    let sentence = summary.refusal(&refused.sentence(peer_protocol));
    match peer_protocol {
        PeerProtocol::Http1 => close(stream, http1(refused, &sentence).as_bytes()).await,
        PeerProtocol::Http2 => close(stream, &http2(&sentence)).await,
        PeerProtocol::Dap => dap(context, stream, &sentence, deadline).await,
        PeerProtocol::Tls => close(stream, TLS_ALERT).await,
        PeerProtocol::Text => close(stream, format!("ray-relay: {sentence}\r\n").as_bytes()).await,
    }
}

/// The complete answer to any request.
fn http1(refused: &HandshakeRefusal, sentence: &str) -> String {
    let body = format!("{}\n", serde_json::json!({ "error": sentence }));
    format!(
        "HTTP/1.1 {}\r\ncontent-type: application/json\r\ncache-control: no-store\r\ncontent-length: {}\r\n\r\n{body}",
        refused.status(),
        body.len()
    )
}

/// GOAWAY with the sentence as its debug data: requests are ignored.
fn http2(sentence: &str) -> Vec<u8> {
    let mut payload = vec![0, 0, 0, 0, 0, 0, 0, INADEQUATE_SECURITY];
    payload.extend_from_slice(sentence.as_bytes());
    let mut answer = SETTINGS.to_vec();
    let length = u32::try_from(payload.len())
        .unwrap_or_default()
        .to_be_bytes();
    answer.extend_from_slice(&length[1..]);
    answer.extend_from_slice(&[7, 0, 0, 0, 0, 0]);
    answer.extend_from_slice(&payload);
    answer
}

/// Fails the first request, because clients show nothing for a bare close.
async fn dap<S>(context: &Context, stream: S, sentence: &str, deadline: Instant)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut client = Conversation::new(stream, unknown_frame(context));
    let first = async {
        loop {
            if let Some(request) = Request::read(&mut client.read().await.ok()?) {
                return Some(request);
            }
        }
    };
    if let Ok(Some(request)) = timeout_at(deadline, first).await {
        refuse_request(client, &request, sentence).await;
    }
}

/// Sends `answer`, then closes so that it arrives: for a moment, it reads and discards what the peer still sends.
pub(super) async fn close<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, answer: &[u8]) {
    let sent = async {
        stream.write_all(answer).await?;
        stream.shutdown().await?;
        let mut sink = [0; 1024];
        while stream.read(&mut sink).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = timeout_at(Instant::now() + REFUSAL_LINGER, sent).await;
}
