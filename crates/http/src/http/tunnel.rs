//! WebSockets that end at the relay: links and streams of agents, and of rendezvous.

use hyper::header::{HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use hyper::http::request::Parts;
use hyper::upgrade::Upgraded;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tracing::{Instrument as _, debug};

use super::answer::{self, Body};
use super::exchange::Exchange;
use super::hop;
use super::refusal::HttpRefusal;
use super::websocket::{self, HANDSHAKE_TIMEOUT};
use ray_relay_access::identity::Principal;
use ray_relay_base::wire::counted::Counted;
use ray_relay_base::wire::tunnel::{MAX_FRAME_BYTES, SECRET_HEADER, STREAM_PROTOCOL};
use ray_relay_session::agents::Socket;

/// A request for a WebSocket that is not accepted yet.
pub(super) struct Handshake {
    parts: Parts,
    key: HeaderValue,
    protocol: &'static str,
}

impl Handshake {
    /// Validates that `parts` request a WebSocket with `protocol`.
    ///
    /// # Errors
    /// The refusal; `hint` tells a client which program this is for.
    pub(super) fn new(
        parts: Parts,
        protocol: &'static str,
        hint: &'static str,
    ) -> Result<Self, HttpRefusal> {
        if !websocket::is_handshake(&parts.method, &parts.headers) {
            return Err(HttpRefusal::NoWebSocket(hint));
        }
        let key = websocket::key(&parts.headers)?;
        if !hop::listed(&parts.headers, &SEC_WEBSOCKET_PROTOCOL).any(|one| one == protocol) {
            let sentence = format!("this route speaks the WebSocket subprotocol {protocol}");
            return Err(HttpRefusal::Malformed(sentence.into()));
        }
        Ok(Self {
            parts,
            key,
            protocol,
        })
    }

    /// The secret that proves that the stream was requested from this agent.
    pub(super) fn secret(&self) -> &str {
        let presented = self.parts.headers.get(SECRET_HEADER);
        let presented = presented.and_then(|value| value.to_str().ok());
        presented.unwrap_or_default()
    }

    /// Returns the answer that opens the WebSocket. A task of the HTTP connection then runs `carry` on it, with its
    /// memory charged to `principal`, unless the upgrade times out.
    pub(super) fn accept<F>(
        self,
        exchange: &Exchange<'_>,
        config: WebSocketConfig,
        principal: &Principal,
        carry: impl FnOnce(Socket) -> F + Send + 'static,
    ) -> Response<Body>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let account = exchange.ctx.account(principal);
        let protocol = HeaderValue::from_static(self.protocol);
        // An agent's stream belongs to a session, which must not end because other agents use up the memory.
        let always = match self.protocol {
            STREAM_PROTOCOL => MAX_FRAME_BYTES,
            _ => 0,
        };
        let answer = websocket::switch(&self.key, Some(&protocol));
        let upgraded = hyper::upgrade::on(Request::from_parts(self.parts, ()));
        let carrying = async move {
            let upgraded: Upgraded = match timeout(HANDSHAKE_TIMEOUT, upgraded).await {
                Ok(Ok(upgraded)) => upgraded,
                Ok(Err(error)) => return debug!(%error, "a websocket was not opened"),
                Err(_) => return debug!("a websocket was not opened in time"),
            };
            let carrier = Counted::new(TokioIo::new(upgraded), &account).always(always);
            let socket = WebSocketStream::from_raw_socket(carrier, Role::Server, Some(config));
            carry(socket.await).await;
        };
        let tasks = &exchange.connection.tasks;
        tasks.spawn(carrying.in_current_span());
        answer
    }
}

/// Answer to a stream that no session waits for, whatever the reason.
pub(super) fn unexpected() -> Response<Body> {
    answer::error(StatusCode::NOT_FOUND, "no session waits for that stream")
}
