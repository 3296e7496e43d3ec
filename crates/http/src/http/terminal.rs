//! The terminal of the page: a WebSocket on which the plain lines of `nc` are spoken, by a principal that is authenticated already.
//!
//! A browser lets no script set the headers of a WebSocket's request, so a token comes as one more subprotocol,
//! `ray-relay.bearer.TOKEN`; where there is one, cookies, which the browser sends by itself, do not count. Whose page asks is
//! checked of every request ([`super::guard`]). What is said is passed on by a task of the HTTP connection's, which asks every
//! 15 s whether the browser is still there, and ends with either side.

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

/// What is spoken.
const PROTOCOL: &str = "ray-relay.terminal.v1";
/// How the subprotocol begins that has a token.
const BEARER: &str = "ray-relay.bearer.";
/// Bytes that are read at a time.
const ROOM: usize = 16 * 1024;
/// How often the browser is asked whether it is there, which also keeps what is in between from thinking that it is not.
const PROBE: Duration = Duration::from_secs(15);
/// A browser that has said nothing for so long, not even in answer to that, is gone.
const SILENCE: Duration = Duration::from_secs(50);
/// How long a browser may take to read a piece.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long both may take to say that it is over.
const GOODBYE: Duration = Duration::from_secs(5);

/// Opens a terminal.
pub(super) async fn open(
    exchange: &Exchange<'_>,
    principal: Principal,
    parts: Parts,
) -> Result<Response<Body>, HttpRefusal> {
    let who = "this is asked for as a WebSocket over HTTP/1.1: the page at /relay/ does, and for a terminal there is `nc`";
    let handshake = Handshake::new(parts, PROTOCOL, who)?;
    let (ctx, peer) = (Arc::clone(exchange.ctx), exchange.connection.peer);
    let owner = principal.clone();
    let speak = async move |socket: Socket| {
        let (mut to_browser, mut from_browser) = socket.split();
        if let Some(near) = ctx.peers.links.dial(&owner, peer).await {
            carry(&mut to_browser, &mut from_browser, near).await;
        }
        close(to_browser, from_browser).await;
    };
    Ok(handshake.accept(exchange, stream_config(), &principal, speak))
}

/// Puts a token that came as a subprotocol where tokens are, in place of any cookie.
pub(super) fn take_token(headers: &mut HeaderMap) {
    let protocols = hop::listed(headers, &SEC_WEBSOCKET_PROTOCOL);
    let token = protocols.filter_map(|one| one.strip_prefix(BEARER)).next();
    let bearer = token.and_then(|token| HeaderValue::try_from(format!("Bearer {token}")).ok());
    let Some(mut bearer) = bearer else { return };
    bearer.set_sensitive(true);
    headers.remove(COOKIE);
    // Another one that stands there already is two, and refused.
    headers.append(AUTHORIZATION, bearer);
}

/// Passes on what is said, until either side has ended.
async fn carry(
    to_browser: &mut SplitSink<Socket, Message>,
    from_browser: &mut SplitStream<Socket>,
    near: DuplexStream,
) {
    let (from_relay, to_relay) = split(near);
    tokio::select! {
        () = up(from_browser, to_relay) => {}
        () = down(from_relay, to_browser) => {}
    }
}

async fn up(browser: &mut SplitStream<Socket>, mut relay: WriteHalf<DuplexStream>) {
    while let Ok(Some(Ok(message))) = timeout(SILENCE, browser.next()).await {
        let written = match message {
            Message::Text(text) => relay.write_all(text.as_bytes()).await,
            Message::Binary(bytes) => relay.write_all(&bytes).await,
            Message::Ping(_) | Message::Pong(_) => Ok(()),
            Message::Close(_) | Message::Frame(_) => break,
        };
        if written.is_err() {
            // The session is over: `down` has its last words, and then its end.
            return pending().await;
        }
    }
}

async fn down(mut relay: ReadHalf<DuplexStream>, browser: &mut SplitSink<Socket, Message>) {
    let mut bytes = vec![0; ROOM];
    let mut probe = Instant::now() + PROBE;
    loop {
        let message = tokio::select! {
            read = relay.read(&mut bytes) => match read {
                Ok(0) | Err(_) => return,
                Ok(read) => Message::binary(bytes[..read].to_vec()),
            },
            () = sleep_until(probe) => {
                probe = Instant::now() + PROBE;
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

/// Says that it is over, and hears the browser say it too: a WebSocket whose connection ends before that is one that was lost.
async fn close(mut to_browser: SplitSink<Socket, Message>, mut from_browser: SplitStream<Socket>) {
    let both = async {
        // Where the browser has said it first, this is the answer.
        let _ = to_browser.close().await;
        while let Some(Ok(_)) = from_browser.next().await {}
    };
    let _ = timeout(GOODBYE, both).await;
}
