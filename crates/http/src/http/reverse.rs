//! Server side of `ray-relay reverse`: the link of a rendezvous, and a stream for each worker that dials it.
//!
//! Both are WebSockets that end at the relay. The client is authenticated like any other, and needs the scope `debug`
//! somewhere. [`ray_relay_session::reverse`] decides for each worker whether the user may debug it.

use std::sync::Arc;

use hyper::http::request::Parts;
use hyper::{Response, StatusCode};

use super::answer::{self, Body};
use super::exchange::Exchange;
use super::refusal::HttpRefusal;
use super::tunnel::{self, Handshake};
use ray_relay_access::identity::Principal;
use ray_relay_base::wire::tunnel::reverse::{
    REVERSE_PROTOCOL, REVERSE_STREAM_PROTOCOL, RendezvousName,
};
use ray_relay_base::wire::tunnel::{link_config, stream_config};
use ray_relay_session::reverse;

/// Opens the link of a rendezvous, or a stream.
pub(super) async fn open(
    exchange: &Exchange<'_>,
    principal: Principal,
    parts: Parts,
) -> Result<Response<Body>, HttpRefusal> {
    let [name, stream] = exchange.words;
    let name: RendezvousName = match name.unwrap_or_default().parse() {
        Ok(name) => name,
        Err(wrong) => return Ok(answer::error(StatusCode::NOT_FOUND, wrong)),
    };
    let protocol = match stream {
        Some(_) => REVERSE_STREAM_PROTOCOL,
        None => REVERSE_PROTOCOL,
    };
    let hint = "this is asked for as a WebSocket over HTTP/1.1: `ray-relay reverse` does";
    let handshake = Handshake::new(parts, protocol, hint)?;
    Ok(match stream {
        None => {
            let (ctx, owner) = (Arc::clone(exchange.ctx), principal.clone());
            let summary = exchange.connection.info.summary.clone();
            let serve = async move |socket| reverse::serve(ctx, socket, owner, summary, name).await;
            handshake.accept(exchange, link_config(), &principal, serve)
        }
        Some(id) => {
            let agents = &exchange.ctx.peers.agents;
            match agents.expected(id, handshake.secret(), &principal) {
                Some(handover) => {
                    let carry = async move |socket| handover.hand_over(socket).await;
                    handshake.accept(exchange, stream_config(), &principal, carry)
                }
                None => tunnel::unexpected(),
            }
        }
    })
}
