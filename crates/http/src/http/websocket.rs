//! WebSockets through the dashboard proxy: job logs, and any other WebSocket of Ray.
//!
//! They end on both sides rather than being tunnelled: frames are bounded, and close codes pass in both directions.
//! When the relay drains or the principal ends (code 1008), it sends a close frame instead of cutting the connection.
//! No extension is negotiated; the subprotocol is between client and head.
//!
//! The connection's tracker owns the relaying task, which ends with either side, or when the connection is closing.
//! Messages pass one at a time in each direction, so a slow reader slows the writer down and the relay holds at most
//! one message a direction.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::header::{
    CONNECTION, HeaderMap, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS,
    SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{CapacityError, Error};
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::answer::{self, Body};
use super::dashboard::upstream::Upstream;
use super::exchange::Exchange;
use super::refusal::HttpRefusal;
use super::{guard, hop};
use ray_relay_access::identity::Principal;
use ray_relay_access::telemetry::metrics::{Direction, Editor, Metrics, Outcome, SessionProtocol};
use ray_relay_base::memory::{Account, OutOfMemory};
use ray_relay_base::wire::counted::Counted;

/// Maximum size of a message or frame. Ray's log tail sends the log's growth of a second; its own client accepts 4 MiB.
const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// Read buffer of each side: an idle WebSocket should cost little.
const READ_BUFFER_BYTES: usize = 8 * 1024;

/// Time limit from the answer's head until both connections are upgraded.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit for the closing handshake of one side.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

type UpgradedSocket = WebSocketStream<Counted<TokioIo<Upgraded>>>;

/// Whether the request asks for a WebSocket (RFC 6455; not over HTTP/2).
pub(super) fn is_handshake(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::GET
        && guard::wants_upgrade(headers)
        && hop::listed(headers, &UPGRADE).any(|name| name.eq_ignore_ascii_case("websocket"))
}

/// Opens the WebSocket at the head first, and answers the client as the head did.
pub(super) async fn open(
    exchange: &Exchange<'_>,
    upstream: &Upstream,
    principal: &Principal,
    mut request: Request<Incoming>,
) -> Response<Body> {
    let (ctx, connection) = (exchange.ctx, exchange.connection);
    let key = match key(request.headers()) {
        Ok(key) => key,
        Err(refused) => return refused.answer(ctx, true),
    };
    let client = hyper::upgrade::on(&mut request);
    let own_key = generate_key();
    let mut response = match upstream.send(ctx, head_request(request, &own_key)).await {
        Ok(response) => response,
        Err(response) => return response,
    };
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return upstream.stream(response, Some(principal));
    }
    let accepted = response.headers().get(SEC_WEBSOCKET_ACCEPT);
    if accepted.is_none_or(|accept| *accept != derive_accept_key(own_key.as_bytes())) {
        let sentence = "the Ray head's answer to the WebSocket request is not one; is this its dashboard address?";
        return answer::text(StatusCode::BAD_GATEWAY, sentence);
    }
    let session = WebSocketSession {
        client,
        head: hyper::upgrade::on(&mut response),
        closing: connection.closing.clone(),
        principal: principal.clone(),
        account: ctx.account(principal),
        metrics: Arc::clone(&ctx.metrics),
    };
    connection.tasks.spawn(session.run().in_current_span());
    switch(&key, response.headers().get(SEC_WEBSOCKET_PROTOCOL))
}

/// The key of a client's handshake, for the answer ([`switch`]).
pub(super) fn key(headers: &HeaderMap) -> Result<HeaderValue, HttpRefusal> {
    let version = headers.get(SEC_WEBSOCKET_VERSION);
    if version.is_none_or(|version| version != "13") {
        return Err(HttpRefusal::WebSocketVersion);
    }
    let missing = "a WebSocket request needs a Sec-WebSocket-Key";
    let key = headers.get(SEC_WEBSOCKET_KEY).cloned();
    key.ok_or(HttpRefusal::Malformed(missing.into()))
}

/// The handshake towards the head.
fn head_request(
    request: Request<Incoming>,
    key: &str,
) -> Request<ray_relay_ray::ray::head::RequestBody> {
    let (mut parts, _) = request.into_parts();
    hop::strip_request(&mut parts.headers);
    parts.headers.remove(SEC_WEBSOCKET_EXTENSIONS);
    parts
        .headers
        .insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    parts
        .headers
        .insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(key) = HeaderValue::try_from(key) {
        parts.headers.insert(SEC_WEBSOCKET_KEY, key);
    }
    Request::from_parts(parts, Empty::new().map_err(|never| match never {}).boxed())
}

/// The answer that completes the client's handshake.
pub(super) fn switch(key: &HeaderValue, protocol: Option<&HeaderValue>) -> Response<Body> {
    let mut response = Response::new(answer::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::try_from(derive_accept_key(key.as_bytes())) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    if let Some(protocol) = protocol {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol.clone());
    }
    response
}

struct WebSocketSession {
    client: OnUpgrade,
    head: OnUpgrade,
    closing: CancellationToken,
    principal: Principal,
    account: Account,
    metrics: Arc<Metrics>,
}

impl WebSocketSession {
    async fn run(self) {
        let upgraded = async { tokio::try_join!(self.client, self.head) };
        // Bytes that followed the handshakes are inside the upgraded streams.
        let (client, head) = match timeout(HANDSHAKE_TIMEOUT, upgraded).await {
            Ok(Ok(both)) => both,
            Ok(Err(error)) => return tracing::debug!(%error, "websocket was not opened"),
            Err(_) => return tracing::debug!("websocket was not opened in time"),
        };
        let _open = self.metrics.session_open(SessionProtocol::WebSocket);
        let client = socket(client, Role::Server, &self.account).await;
        let head = socket(head, Role::Client, &self.account).await;
        let end = ended_by_relay(&self.closing, &self.principal);
        let outcome = relay(client, head, end, &self.metrics).await;
        self.metrics
            .session_ended(SessionProtocol::WebSocket, Editor::Other, outcome);
    }
}

async fn socket(upgraded: Upgraded, role: Role, account: &Account) -> UpgradedSocket {
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES))
        .read_buffer_size(READ_BUFFER_BYTES)
        // Every message is flushed at once anyway.
        .write_buffer_size(0);
    let carrier = Counted::new(TokioIo::new(upgraded), account);
    WebSocketStream::from_raw_socket(carrier, role, Some(config)).await
}

/// How one direction ended.
enum WebSocketEnd {
    /// The sender's close frame, with its code and reason if it gave one.
    Closed(Option<CloseFrame>),
    /// The sender vanished, or sent something that is no WebSocket or too large.
    Sender(Error),
    /// The receiver stopped reading.
    Receiver,
}

async fn pump(
    from: &mut SplitStream<UpgradedSocket>,
    to: &mut SplitSink<UpgradedSocket, Message>,
    metrics: &Metrics,
    direction: Direction,
) -> WebSocketEnd {
    loop {
        let message = match from.next().await {
            Some(Ok(Message::Close(frame))) => return WebSocketEnd::Closed(frame),
            Some(Ok(message)) => message,
            Some(Err(error)) => return WebSocketEnd::Sender(error),
            None => return WebSocketEnd::Sender(Error::ConnectionClosed),
        };
        metrics.session_bytes(direction, message.len() as u64);
        if to.send(message).await.is_err() {
            return WebSocketEnd::Receiver;
        }
    }
}

async fn relay(
    client: UpgradedSocket,
    head: UpgradedSocket,
    ended_here: impl Future<Output = (Outcome, CloseFrame, CloseFrame)>,
    metrics: &Metrics,
) -> Outcome {
    let (mut to_client, mut from_client) = client.split();
    let (mut to_head, mut from_head) = head.split();
    let (outcome, for_client, for_head) = {
        // Dropping a direction half-way loses at most its current message, and only when the other direction has ended
        // the session.
        // Not biased: a flood from one side must not keep the other from being read.
        tokio::select! {
            (outcome, for_client, for_head) = ended_here => {
                (outcome, Some(for_client), Some(for_head))
            }
            end = pump(&mut from_head, &mut to_client, metrics, Direction::Down) => match end {
                WebSocketEnd::Closed(frame) => (Outcome::Upstream, frame.clone(), frame),
                WebSocketEnd::Sender(error) => {
                    let (code, reason) = close_code_of(&error, "the Ray head broke the WebSocket off");
                    (Outcome::Failed, Some(close(code, reason)), Some(close(code, reason)))
                }
                WebSocketEnd::Receiver => client_gone(),
            },
            end = pump(&mut from_client, &mut to_head, metrics, Direction::Up) => match end {
                WebSocketEnd::Closed(frame) => (Outcome::Client, frame.clone(), frame),
                WebSocketEnd::Sender(error @ (Error::Capacity(_) | Error::Io(_))) if close_code_of(&error, "").0 != CloseCode::Error => {
                    let (code, reason) = close_code_of(&error, "");
                    (Outcome::Failed, Some(close(code, reason)), Some(close(CloseCode::Away, "the client is gone")))
                }
                WebSocketEnd::Sender(_) => client_gone(),
                WebSocketEnd::Receiver => {
                    let frame = close(CloseCode::Error, "the Ray head broke the WebSocket off");
                    (Outcome::Failed, Some(frame.clone()), Some(frame))
                }
            },
        }
    };
    // The halves belong to the same socket, so reuniting them cannot fail.
    if let (Ok(client), Ok(head)) = (to_client.reunite(from_client), to_head.reunite(from_head)) {
        tokio::join!(finish(client, for_client), finish(head, for_head));
    }
    outcome
}

/// Resolves when the relay itself ends the session: because it drains, or the principal expires or is revoked.
async fn ended_by_relay(
    closing: &CancellationToken,
    principal: &Principal,
) -> (Outcome, CloseFrame, CloseFrame) {
    tokio::select! {
        () = closing.cancelled() => {
            let frame = close(CloseCode::Away, "ray-relay is shutting down");
            (Outcome::Drained, frame.clone(), frame)
        }
        ended = principal.ended() => {
            let for_client = CloseFrame {
                code: CloseCode::Policy,
                reason: ended.to_string().into(),
            };
            (Outcome::Client, for_client, close(CloseCode::Away, "the client is gone"))
        }
    }
}

fn client_gone() -> (Outcome, Option<CloseFrame>, Option<CloseFrame>) {
    let frame = close(CloseCode::Away, "the client is gone");
    (Outcome::Client, Some(frame.clone()), Some(frame))
}

fn close(code: CloseCode, reason: &'static str) -> CloseFrame {
    CloseFrame {
        code,
        reason: Utf8Bytes::from_static(reason),
    }
}

fn close_code_of(error: &Error, otherwise: &'static str) -> (CloseCode, &'static str) {
    match error {
        Error::Capacity(CapacityError::MessageTooLong { .. } | CapacityError::TooManyHeaders) => (
            CloseCode::Size,
            "ray-relay passes WebSocket messages of up to 16 MiB",
        ),
        Error::Io(error) if error.get_ref().is_some_and(|why| why.is::<OutOfMemory>()) => (
            CloseCode::Again,
            "ray-relay has no memory for so large a message now",
        ),
        _ => (CloseCode::Error, otherwise),
    }
}

/// Completes the closing handshake as far as the peer cooperates.
async fn finish(mut socket: UpgradedSocket, frame: Option<CloseFrame>) {
    let closing = async {
        // Fails if the peer has already closed; then reading answers its frame.
        _ = socket.close(frame).await;
        while let Some(Ok(_)) = socket.next().await {}
    };
    _ = timeout(CLOSE_TIMEOUT, closing).await;
}
