//! WebSockets of node agents: their links and the streams requested from them. Also the list of nodes.
//!
//! Both end at the relay. The agent is authenticated like any client, needs the scope `node`, and is checked by
//! [`ray_relay_session::agents`] before data flows. Their connections are counted there, and not by admission control.

use std::sync::Arc;
use std::time::Duration;

use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::answer::{self, Body};
use super::exchange::Exchange;
use super::refusal::HttpRefusal;
use super::tunnel::{self, Handshake};
use ray_relay_access::identity::Principal;
use ray_relay_base::wire::tunnel::{LINK_PROTOCOL, STREAM_PROTOCOL, link_config, stream_config};
use ray_relay_session::context::Context;

/// Time limit for querying the heads for their nodes, for a list.
const LIST_TIMEOUT: Duration = Duration::from_secs(2);

/// `GET /relay/v1/nodes`.
pub(super) async fn list(
    exchange: &Exchange<'_>,
    _: &Parts,
    principal: &Principal,
) -> Response<Body> {
    answer::json(StatusCode::OK, &listed(exchange.ctx, principal).await)
}

/// The body of that answer.
pub(super) async fn listed(ctx: &Context, principal: &Principal) -> Value {
    // Without agents, no background task keeps the nodes fresh.
    let live = ctx.registry.watch_nodes();
    if ctx.peers.agents.is_empty() {
        let _ = timeout(LIST_TIMEOUT, ctx.registry.nodes_refreshed()).await;
    }
    let live = Arc::clone(&live.borrow());
    let rows = ctx.peers.agents.rows(&live, principal);
    let agents = &ctx.peers.agents;
    let (replica, others) = (agents.replica(), agents.other_relays());
    let version = env!("CARGO_PKG_VERSION");
    let post_mortem = ctx.config.post_mortem.enabled;
    json!({ "nodes": rows, "post_mortem": post_mortem, "version": version, "replica": replica, "other_relays": others })
}

/// Opens the link of an agent, or a stream.
pub(super) async fn open(
    exchange: &Exchange<'_>,
    principal: Principal,
    parts: Parts,
) -> Result<Response<Body>, HttpRefusal> {
    let connection = exchange.connection;
    let [stream, _] = exchange.words;
    let protocol = match stream {
        Some(_) => STREAM_PROTOCOL,
        None => LINK_PROTOCOL,
    };
    let hint =
        "agents of nodes ask for this, as a WebSocket over HTTP/1.1: `ray-relay node` is one";
    let handshake = Handshake::new(parts, protocol, hint)?;
    let agents = Arc::clone(&exchange.ctx.peers.agents);
    let owner = principal.clone();
    let answer = match stream {
        None => {
            let peer = connection.peer;
            let Some(newcomer) = agents.newcomer(&principal, peer) else {
                let sentence = "too many agents with this credential, or from this address, have not announced themselves yet: try again in a moment";
                return Ok(answer::error(StatusCode::SERVICE_UNAVAILABLE, sentence));
            };
            let serve = async move |socket| agents.serve(socket, owner, peer, newcomer).await;
            handshake.accept(exchange, link_config(), &principal, serve)
        }
        Some(id) => {
            let Some(delivery) = agents.take(id, handshake.secret(), &principal) else {
                return Ok(tunnel::unexpected());
            };
            let carry = async move |socket| delivery.hand_over(&agents, socket, &owner).await;
            handshake.accept(exchange, stream_config(), &principal, carry)
        }
    };
    connection.info.place.set_apart();
    Ok(answer)
}
