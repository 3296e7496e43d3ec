//! The terminal of the page: the line protocol of `nc` over a WebSocket, for an authenticated principal.
//!
//! A browser's script cannot set the headers of a WebSocket request. So a token comes as one more subprotocol,
//! `ray-relay.bearer.TOKEN`, and then cookies, which the browser sends automatically, do not count. [`super::guard`]
//! checks the origin, as for every request. A task of the HTTP connection relays the lines. It pings the browser every
//! 15 s, and ends with either side.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hyper::Response;
use hyper::header::{AUTHORIZATION, COOKIE, HeaderMap, HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use hyper::http::request::Parts;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, split};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::tungstenite::Message;

use super::answer::Body;
use super::exchange::Exchange;
use super::hop;
use super::refusal::HttpRefusal;
use super::tunnel::Handshake;
use ray_relay_access::identity::Principal;
use ray_relay_base::wire::tunnel::stream_config;
use ray_relay_session::agents::Socket;

/// The subprotocol.
const PROTOCOL: &str = "ray-relay.terminal.v1";
/// Prefix of the subprotocol with a token.
const BEARER: &str = "ray-relay.bearer.";
/// Read buffer size, in bytes.
const READ_BUFFER_BYTES: usize = 16 * 1024;
/// Ping interval, which also keeps proxies from closing an idle connection.
const PING_INTERVAL: Duration = Duration::from_secs(15);
/// A browser that sends nothing for so long, not even a pong, is gone.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(50);
/// Time limit for writing one message to the browser.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for the closing handshake.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens a terminal.
pub(super) async fn open(
    exchange: &Exchange<'_>,
    principal: Principal,
    parts: Parts,
) -> Result<Response<Body>, HttpRefusal> {
    let hint = "this is asked for as a WebSocket over HTTP/1.1: the page at /relay/ does, and for a terminal there is `nc`";
    let handshake = Handshake::new(parts, PROTOCOL, hint)?;
    let (ctx, peer) = (Arc::clone(exchange.ctx), exchange.connection.peer);
    let owner = principal.clone();
    let speak = async move |socket: Socket| {
        let (mut to_browser, mut from_browser) = socket.split();
        if let Some(stream) = ctx.peers.links.dial(&owner, peer).await {
            carry(&mut to_browser, &mut from_browser, stream).await;
        }
        close(to_browser, from_browser).await;
    };
    Ok(handshake.accept(exchange, stream_config(), &principal, speak))
}

/// Moves a token from the subprotocol to the `Authorization` header, and drops cookies.
pub(super) fn take_token(headers: &mut HeaderMap) {
    let protocols = hop::listed(headers, &SEC_WEBSOCKET_PROTOCOL);
    let token = protocols.filter_map(|one| one.strip_prefix(BEARER)).next();
    let bearer = token.and_then(|token| HeaderValue::try_from(format!("Bearer {token}")).ok());
    let Some(mut bearer) = bearer else { return };
    bearer.set_sensitive(true);
    headers.remove(COOKIE);
    // Appended, so that an existing header makes two, which is refused.
    headers.append(AUTHORIZATION, bearer);
}

/// Relays both directions, until either side has ended.
async fn carry(
    to_browser: &mut SplitSink<Socket, Message>,
    from_browser: &mut SplitStream<Socket>,
    stream: DuplexStream,
) {
    let (from_relay, to_relay) = split(stream);
    tokio::select! {
        () = up(from_browser, to_relay) => {}
        () = down(from_relay, to_browser) => {}
    }
}

async fn up(browser: &mut SplitStream<Socket>, mut relay: WriteHalf<DuplexStream>) {
    while let Ok(Some(Ok(message))) = timeout(SILENCE_TIMEOUT, browser.next()).await {
        let written = match message {
            Message::Text(text) => relay.write_all(text.as_bytes()).await,
            Message::Binary(bytes) => relay.write_all(&bytes).await,
            Message::Ping(_) | Message::Pong(_) => Ok(()),
            Message::Close(_) | Message::Frame(_) => break,
        };
        if written.is_err() {
            // The session is over: `down` still delivers its final output, and then ends.
            return pending().await;
        }
    }
}

async fn down(mut relay: ReadHalf<DuplexStream>, browser: &mut SplitSink<Socket, Message>) {
    let mut bytes = vec![0; READ_BUFFER_BYTES];
    let mut probe = Instant::now() + PING_INTERVAL;
    loop {
        let message = tokio::select! {
            read = relay.read(&mut bytes) => match read {
                Ok(0) | Err(_) => return,
                Ok(read) => Message::binary(bytes[..read].to_vec()),
            },
            () = sleep_until(probe) => {
                probe = Instant::now() + PING_INTERVAL;
                Message::Ping(Bytes::new())
            }
        };
        if !matches!(
            timeout(WRITE_TIMEOUT, browser.send(message)).await,
            Ok(Ok(()))
        ) {
            return;
        }
    }
}

/// Completes the closing handshake: without it, the browser would report a lost connection.
async fn close(mut to_browser: SplitSink<Socket, Message>, mut from_browser: SplitStream<Socket>) {
    let both = async {
        // If the browser closed first, this is the reply.
        let _ = to_browser.close().await;
        while let Some(Ok(_)) = from_browser.next().await {}
    };
    let _ = timeout(CLOSE_TIMEOUT, both).await;
}
