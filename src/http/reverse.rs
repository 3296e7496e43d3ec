//! What `ray-relay reverse` asks for: the link of a rendezvous, and a stream for each worker that dials it.
//!
//! Both are WebSockets that end at the relay. Who asks for one is recognised as for every request, and needs the scope `debug`
//! on something; which worker the person may debug is judged by [`crate::reverse`], one by one.

use std::sync::Arc;

use hyper::header::{HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode};
use tracing::Instrument as _;

use super::answer::{self, Body};
use super::audit::{self, Asked};
use super::connection::Connection;
use super::nodes::socket;
use super::refusal::HttpRefusal;
use super::route::Route;
use super::{authenticate, hop, websocket};
use crate::context::Context;
use crate::reverse;
use crate::wire::tunnel::reverse::{REVERSE_PROTOCOL, REVERSE_STREAM_PROTOCOL, RendezvousName};
use crate::wire::tunnel::{SECRET_HEADER, link_config, stream_config};

/// The link of a rendezvous, or a stream.
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
    if !websocket::is_asked_for(&parts.method, &parts.headers) {
        let sentence = "this is asked for as a WebSocket over HTTP/1.1: `ray-relay reverse` does";
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
    match stream {
        None => {
            let (ctx, peer) = (Arc::clone(ctx), connection.peer);
            let upgraded = hyper::upgrade::on(Request::from_parts(parts, ()));
            let serving = async move {
                if let Some(socket) = socket(upgraded, link_config()).await {
                    reverse::serve(ctx, socket, principal, peer, name).await;
                }
            };
            connection.tasks.spawn(serving.in_current_span());
        }
        Some(id) => {
            let shown = parts
                .headers
                .get(SECRET_HEADER)
                .and_then(|value| value.to_str().ok());
            let expected = ctx
                .agents
                .expected(id, shown.unwrap_or_default(), &principal);
            let Some(handover) = expected else {
                // The same for every reason.
                let sentence = "nobody waits for that stream";
                return Ok(answer::error(StatusCode::NOT_FOUND, sentence));
            };
            let upgraded = hyper::upgrade::on(Request::from_parts(parts, ()));
            let serving = async move {
                if let Some(socket) = socket(upgraded, stream_config()).await {
                    handover.hand_over(socket).await;
                }
            };
            connection.tasks.spawn(serving.in_current_span());
        }
    }
    let protocol = HeaderValue::from_static(protocol);
    Ok(websocket::switch(&key, Some(&protocol)))
}
