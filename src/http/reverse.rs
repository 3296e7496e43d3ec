//! What `ray-relay reverse` asks for: the link of a rendezvous, and a stream for each worker that dials it.
//!
//! Both are WebSockets that end at the relay. Who asks for one is recognised as for every request, and needs the scope `debug`
//! on something; which worker the person may debug is judged by [`crate::reverse`], one by one.

use std::sync::Arc;

use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use tracing::Instrument as _;

use super::answer::{self, Body};
use super::audit::Asked;
use super::connection::Connection;
use super::refusal::HttpRefusal;
use super::route::Route;
use super::tunnel::{self, Handshake};
use crate::context::Context;
use crate::reverse;
use crate::wire::tunnel::reverse::{REVERSE_PROTOCOL, REVERSE_STREAM_PROTOCOL, RendezvousName};
use crate::wire::tunnel::{link_config, stream_config};

/// The link of a rendezvous, or a stream.
pub(crate) async fn open(
    ctx: &Arc<Context>,
    connection: &Connection,
    route: Route<'_>,
    parts: Parts,
    asked: &Asked,
) -> Result<Response<Body>, HttpRefusal> {
    let principal = tunnel::authorised(ctx, connection, route, &parts, asked).await?;
    let (name, stream) = match route {
        Route::Reverse(name) => (name, None),
        Route::ReverseStream(name, id) => (name, Some(id)),
        _ => ("", None),
    };
    let name: RendezvousName = match name.parse() {
        Ok(name) => name,
        Err(wrong) => return Ok(answer::error(StatusCode::NOT_FOUND, wrong)),
    };
    let protocol = match stream {
        Some(_) => REVERSE_STREAM_PROTOCOL,
        None => REVERSE_PROTOCOL,
    };
    let who = "this is asked for as a WebSocket over HTTP/1.1: `ray-relay reverse` does";
    let handshake = match Handshake::new(parts, protocol, who) {
        Ok(handshake) => handshake,
        Err(refused) => return Ok(*refused),
    };
    let answer = match stream {
        None => {
            let (ctx, summary) = (Arc::clone(ctx), connection.info.summary.clone());
            let (answer, socket) = handshake.accept(link_config(), ctx.account(&principal));
            let serving = async move {
                if let Some(socket) = socket.await {
                    reverse::serve(ctx, socket, principal, summary, name).await;
                }
            };
            connection.tasks.spawn(serving.in_current_span());
            answer
        }
        Some(id) => {
            let expected = ctx.agents.expected(id, handshake.secret(), &principal);
            let Some(handover) = expected else {
                return Ok(tunnel::unexpected());
            };
            let (answer, socket) = handshake.accept(stream_config(), ctx.account(&principal));
            let serving = async move {
                if let Some(socket) = socket.await {
                    handover.hand_over(socket).await;
                }
            };
            connection.tasks.spawn(serving.in_current_span());
            answer
        }
    };
    Ok(answer)
}
