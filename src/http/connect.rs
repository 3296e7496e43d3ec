//! What `ray-relay connect` asks for: a link for each connection that somebody makes to it, and that link again when its network was
//! gone.
//!
//! Both are WebSockets that end at the relay, for everybody who is recognised: what may be done with a connection is decided as
//! for every other one. The links are counted by [`crate::connect`], and not by admission control.

use std::sync::Arc;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use tracing::Instrument as _;

use super::answer::{self, Body};
use super::audit::Asked;
use super::connection::Connection;
use super::refusal::HttpRefusal;
use super::route::Route;
use super::tunnel::{self, Handshake};
use crate::connect::{Links, NotOpened};
use crate::context::Context;
use crate::session::shares::Shortage;
use crate::wire::resumed::messages::Opener;
use crate::wire::resumed::{CONNECT_PROTOCOL, OPENER_HEADER, RECEIVED_HEADER, REPLICA_HEADER};
use crate::wire::tunnel::stream_config;

/// A link, or one more transport of it.
pub(crate) async fn open(
    ctx: &Arc<Context>,
    connection: &Connection,
    route: Route<'_>,
    parts: Parts,
    asked: &Asked,
) -> Result<Response<Body>, HttpRefusal> {
    let principal = tunnel::authorised(ctx, connection, route, &parts, asked).await?;
    let received = received(&parts.headers);
    let opener = parts.headers.get(OPENER_HEADER);
    let opener = opener.and_then(|value| Opener::parse(value.to_str().ok()?));
    let who = "this is asked for as a WebSocket over HTTP/1.1: `ray-relay connect` does";
    let handshake = match Handshake::new(parts, CONNECT_PROTOCOL, who) {
        Ok(handshake) => handshake,
        Err(refused) => return Ok(*refused),
    };
    let transport = match route {
        Route::ConnectAgain(id) => {
            let secret = handshake.secret();
            match ctx.links.resume(id, secret, &principal, received) {
                Some(transport) => transport,
                None => return Ok(unknown(&ctx.links)),
            }
        }
        _ => match ctx
            .links
            .begin(&principal, &connection.info.summary, opener)
        {
            Ok(transport) => transport,
            Err(why) => return Ok(not_opened(why)),
        },
    };
    let (answer, socket) = handshake.accept(stream_config(), ctx.account(&principal));
    let carrying = async move {
        if let Some(socket) = socket.await {
            transport.carry(socket).await;
        }
    };
    connection.tasks.spawn(carrying.in_current_span());
    connection.info.place.set_apart();
    Ok(answer)
}

/// How far the command has received.
fn received(headers: &HeaderMap) -> u64 {
    let value = headers.get(RECEIVED_HEADER);
    let value = value.and_then(|value| value.to_str().ok()?.parse().ok());
    value.unwrap_or_default()
}

fn unknown(links: &Links) -> Response<Body> {
    let sentence = "this relay does not hold that connection (any more)";
    let mut response = answer::error(StatusCode::NOT_FOUND, sentence);
    if let Ok(replica) = HeaderValue::try_from(links.replica().digits()) {
        let name = HeaderName::from_static(REPLICA_HEADER);
        response.headers_mut().insert(name, replica);
    }
    response
}

fn not_opened(why: NotOpened) -> Response<Body> {
    let (status, sentence) = match why {
        NotOpened::Crowded(Shortage::All(most)) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!(
                "all {most} connections through `ray-relay connect` are in use: close one, or have `connect.max_links` raised"
            ),
        ),
        NotOpened::Crowded(Shortage::Yours(most)) => (
            StatusCode::TOO_MANY_REQUESTS,
            format!(
                "you have {most} connections through `ray-relay connect`, a quarter of `connect.max_links`, which is all that one person may have: close one"
            ),
        ),
        NotOpened::NoSecrets => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the relay's system has no randomness; try again".to_owned(),
        ),
    };
    answer::error(status, sentence)
}
