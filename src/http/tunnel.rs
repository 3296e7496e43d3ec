//! The WebSockets that end at the relay: links and streams of agents, and of those who wait at a rendezvous.

use std::sync::Arc;

use hyper::header::{HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use hyper::http::request::Parts;
use hyper::upgrade::Upgraded;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tracing::debug;

use super::answer::{self, Body};
use super::audit::{self, Asked};
use super::connection::Connection;
use super::refusal::HttpRefusal;
use super::route::Route;
use super::websocket::{self, HANDSHAKE};
use super::{authenticate, hop};
use crate::agents::Socket;
use crate::context::Context;
use crate::identity::Principal;
use crate::memory::Account;
use crate::wire::counted::Counted;
use crate::wire::tunnel::{LARGEST_FRAME, SECRET_HEADER, STREAM_PROTOCOL};

/// Who asks for `route`, where that is somebody who may.
pub(super) async fn authorised(
    ctx: &Arc<Context>,
    connection: &Connection,
    route: Route<'_>,
    parts: &Parts,
    asked: &Asked,
) -> Result<Principal, HttpRefusal> {
    let caller = authenticate::authenticate(ctx, connection, parts, asked).await?;
    match route.access().missing(&caller.principal) {
        Some(missing) => Err(audit::deny(ctx, connection, &caller, asked, missing).await),
        None => Ok(caller.principal),
    }
}

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
    /// The answer to who does not, to whom `who` says who should.
    pub(super) fn new(
        parts: Parts,
        protocol: &'static str,
        who: &'static str,
    ) -> Result<Self, Box<Response<Body>>> {
        if !websocket::is_asked_for(&parts.method, &parts.headers) {
            return Err(Box::new(answer::error(StatusCode::UPGRADE_REQUIRED, who)));
        }
        let key = websocket::key(&parts.headers)?;
        if !hop::listed(&parts.headers, &SEC_WEBSOCKET_PROTOCOL).any(|one| one == protocol) {
            let sentence = format!("what is spoken here is the WebSocket subprotocol {protocol}");
            return Err(Box::new(answer::error(StatusCode::BAD_REQUEST, sentence)));
        }
        Ok(Self {
            parts,
            key,
            protocol,
        })
    }

    /// What shows that whoever opens a stream was asked for it.
    pub(super) fn secret(&self) -> &str {
        let shown = self.parts.headers.get(SECRET_HEADER);
        let shown = shown.and_then(|value| value.to_str().ok());
        shown.unwrap_or_default()
    }

    /// The answer that opens it, and what it becomes then, with its memory from `account`; `None`: it was not opened in time.
    pub(super) fn accept(
        self,
        config: WebSocketConfig,
        account: Account,
    ) -> (Response<Body>, impl Future<Output = Option<Socket>>) {
        let protocol = HeaderValue::from_static(self.protocol);
        // A stream of an agent's is there for a session, which is not to end because of what other agents hold.
        let always = match self.protocol {
            STREAM_PROTOCOL => LARGEST_FRAME,
            _ => 0,
        };
        let answer = websocket::switch(&self.key, Some(&protocol));
        let upgraded = hyper::upgrade::on(Request::from_parts(self.parts, ()));
        let socket = async move {
            let upgraded: Upgraded = match timeout(HANDSHAKE, upgraded).await {
                Ok(Ok(upgraded)) => upgraded,
                Ok(Err(error)) => {
                    debug!(%error, "a websocket was not opened");
                    return None;
                }
                Err(_) => {
                    debug!("a websocket was not opened in time");
                    return None;
                }
            };
            let carrier = Counted::new(TokioIo::new(upgraded), &account).always(always);
            Some(WebSocketStream::from_raw_socket(carrier, Role::Server, Some(config)).await)
        };
        (answer, socket)
    }
}

/// To who opens a stream that nobody waits for, whatever the reason.
pub(super) fn unexpected() -> Response<Body> {
    answer::error(StatusCode::NOT_FOUND, "nobody waits for that stream")
}
