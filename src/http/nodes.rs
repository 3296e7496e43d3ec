//! What agents of nodes ask for: their links, and the streams that they were asked for; and the list of nodes.
//!
//! Both are WebSockets that end at the relay. Who asks for one is recognised as for every request, needs the scope `node`, and
//! is judged by [`crate::agents`] before anything is said. Their connections are counted there, and not by admission control.

use std::sync::Arc;
use std::time::Duration;

use hyper::header::{HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use hyper::http::request::Parts;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tracing::{Instrument as _, debug};

use super::answer::{self, Body};
use super::audit::{self, Asked};
use super::authenticate;
use super::connection::Connection;
use super::hop;
use super::refusal::HttpRefusal;
use super::route::Route;
use super::websocket::{self, HANDSHAKE};
use crate::agents::Socket;
use crate::context::Context;
use crate::identity::Principal;
use crate::wire::tunnel::{
    LINK_PROTOCOL, SECRET_HEADER, STREAM_PROTOCOL, link_config, stream_config,
};

/// How long the heads are asked for their nodes, for a list.
const LISTED: Duration = Duration::from_secs(2);

/// `GET /relay/v1/nodes`.
pub(crate) async fn list(ctx: &Context, principal: &Principal) -> Response<Body> {
    // Without agents nobody keeps them.
    let live = ctx.registry.watch_nodes();
    if ctx.agents.is_empty() {
        let _ = timeout(LISTED, ctx.registry.nodes_refreshed()).await;
    }
    let live = Arc::clone(&live.borrow());
    let rows = ctx.agents.rows(&live, principal);
    let agents = &ctx.agents;
    let (replica, others) = (agents.replica(), agents.other_relays());
    let body = json!({ "nodes": rows, "replica": replica, "other_relays": others });
    answer::json(StatusCode::OK, &body)
}

/// The link of an agent, or a stream.
pub(crate) async fn open(
    ctx: &Arc<Context>,
    connection: &Connection,
    route: Route<'_>,
    parts: Parts,
    asked: &Asked,
) -> Result<Response<Body>, HttpRefusal> {
    let caller = authenticate::authenticate(ctx, connection, &parts, asked).await?;
    if let Some(missing) = route.access().missing(&caller.principal) {
        return Err(audit::deny(ctx, connection, &caller, asked, missing).await);
    }
    let principal = caller.principal;
    let stream = match route {
        Route::NodeStream(id) => Some(id),
        _ => None,
    };
    let protocol = match stream {
        Some(_) => STREAM_PROTOCOL,
        None => LINK_PROTOCOL,
    };
    if !websocket::is_asked_for(&parts.method, &parts.headers) {
        let sentence =
            "agents of nodes ask for this, as a WebSocket over HTTP/1.1: `ray-relay node` is one";
        return Ok(answer::error(StatusCode::UPGRADE_REQUIRED, sentence));
    }
    let key = match websocket::key(&parts.headers) {
        Ok(key) => key,
        Err(refused) => return Ok(*refused),
    };
    if !hop::listed(&parts.headers, &SEC_WEBSOCKET_PROTOCOL).any(|one| one == protocol) {
        let sentence = format!("what is spoken here is the WebSocket subprotocol {protocol}");
        return Ok(answer::error(StatusCode::BAD_REQUEST, sentence));
    }
    let tasks = &connection.tasks;
    match stream {
        None => {
            let Some(place) = ctx.agents.place() else {
                let sentence = "this relay has all the agents that it takes: have `upstream.max_agents` raised";
                return Ok(answer::error(StatusCode::SERVICE_UNAVAILABLE, sentence));
            };
            let (agents, peer) = (Arc::clone(&ctx.agents), connection.peer);
            let upgraded = hyper::upgrade::on(Request::from_parts(parts, ()));
            tasks.spawn(
                async move {
                    if let Some(socket) = socket(upgraded, link_config()).await {
                        agents.serve(socket, principal, peer, place).await;
                    }
                }
                .in_current_span(),
            );
        }
        Some(id) => {
            let shown = parts
                .headers
                .get(SECRET_HEADER)
                .and_then(|value| value.to_str().ok());
            let delivery = ctx.agents.take(id, shown.unwrap_or_default(), &principal);
            let Some(delivery) = delivery else {
                // The same for every reason.
                let sentence = "nobody waits for that stream";
                return Ok(answer::error(StatusCode::NOT_FOUND, sentence));
            };
            let agents = Arc::clone(&ctx.agents);
            let upgraded = hyper::upgrade::on(Request::from_parts(parts, ()));
            tasks.spawn(
                async move {
                    if let Some(socket) = socket(upgraded, stream_config()).await {
                        delivery.hand_over(&agents, socket, &principal).await;
                    }
                }
                .in_current_span(),
            );
        }
    }
    connection.info.place.set_apart();
    let protocol = HeaderValue::from_static(protocol);
    Ok(websocket::switch(&key, Some(&protocol)))
}

/// The WebSocket that `upgraded` becomes; `None`: it was not opened in time.
pub(super) async fn socket(upgraded: OnUpgrade, config: WebSocketConfig) -> Option<Socket> {
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
    let upgraded = TokioIo::new(upgraded);
    Some(WebSocketStream::from_raw_socket(upgraded, Role::Server, Some(config)).await)
}
