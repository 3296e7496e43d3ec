//! The WebSockets that end at the relay: links and streams of agents, and of those who wait at a rendezvous.

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
use super::websocket::{self, HANDSHAKE};
use ray_relay_access::identity::Principal;
use ray_relay_base::wire::counted::Counted;
use ray_relay_base::wire::tunnel::{MAX_FRAME_BYTES, SECRET_HEADER, STREAM_PROTOCOL};
use ray_relay_session::agents::Socket;

/// A request for a WebSocket that is to be opened.
pub(super) struct Handshake {
    parts: Parts,
    key: HeaderValue,
    protocol: &'static str,
}

impl Handshake {
    /// Whether `parts` ask for a WebSocket that speaks `protocol`.
    ///
    /// # Errors
    /// To a client that does not, `who` says who should.
    pub(super) fn new(
        parts: Parts,
        protocol: &'static str,
        who: &'static str,
    ) -> Result<Self, HttpRefusal> {
        if !websocket::is_asked_for(&parts.method, &parts.headers) {
            return Err(HttpRefusal::NoWebSocket(who));
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

    /// What shows that the agent that opens a stream was asked for it.
    pub(super) fn secret(&self) -> &str {
        let shown = self.parts.headers.get(SECRET_HEADER);
        let shown = shown.and_then(|value| value.to_str().ok());
        shown.unwrap_or_default()
    }

    /// The answer that opens it. What it becomes then, with its memory from the account of `principal`, a task of the HTTP
    /// connection's has `carry` take; it does not where it is not opened in time.
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
        // A stream of an agent's is there for a session, which is not to end because of what other agents hold.
        let always = match self.protocol {
            STREAM_PROTOCOL => MAX_FRAME_BYTES,
            _ => 0,
        };
        let answer = websocket::switch(&self.key, Some(&protocol));
        let upgraded = hyper::upgrade::on(Request::from_parts(self.parts, ()));
        let carrying = async move {
            let upgraded: Upgraded = match timeout(HANDSHAKE, upgraded).await {
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

/// To a client that opens a stream without a session that waits for it, whatever the reason.
pub(super) fn unexpected() -> Response<Body> {
    answer::error(StatusCode::NOT_FOUND, "no session waits for that stream")
}
