//! WebSockets through the proxy.

use super::*;
use futures_util::{SinkExt, StreamExt};
use hyper::header::{SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::Error;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};
use tokio_tungstenite::{WebSocketStream, client_async};

type Socket = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

/// Starts a head with a WebSocket, run by `serve`, on every path except /none.
pub(super) async fn sockets<F>(serve: fn(Socket) -> F) -> (SocketAddr, JoinSet<()>)
where
    F: Future<Output = ()> + Send + 'static,
{
    head(move |mut request: Request<Incoming>| async move {
        if request.uri().path() == "/none" {
            return super::with(super::status(404), &[("x-ray", "1")]);
        }
        assert!(!request.headers().contains_key(SEC_WEBSOCKET_EXTENSIONS));
        // The user who runs the tests may have a token of Ray's own. Those of the relay are JWTs.
        let token = request.headers().get("authorization");
        assert!(token.is_none_or(|token| !token.to_str().unwrap().contains("eyJ")));
        let key = derive_accept_key(request.headers()[SEC_WEBSOCKET_KEY].as_bytes());
        let mut response = super::status(101);
        let headers = response.headers_mut();
        headers.insert("connection", "Upgrade".parse().unwrap());
        headers.insert("upgrade", "websocket".parse().unwrap());
        headers.insert("sec-websocket-accept", key.parse().unwrap());
        if let Some(protocol) = request.headers().get(SEC_WEBSOCKET_PROTOCOL) {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol.clone());
        }
        *response.body_mut() = answer::empty();
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let upgraded = TokioIo::new(upgrade.await.unwrap());
            serve(WebSocketStream::from_raw_socket(upgraded, Role::Server, None).await).await;
        });
        response
    })
    .await
}

pub(super) async fn echo(mut socket: Socket) {
    while let Some(Ok(message)) = socket.next().await {
        if message.is_text() || message.is_binary() {
            socket.send(message).await.unwrap();
        }
    }
}

async fn dial(relay: &Relay, path: &str) -> Result<WebSocketStream<TcpStream>, Error> {
    dial_as(relay, "mine", path).await
}

pub(super) async fn dial_as(
    relay: &Relay,
    token: &str,
    path: &str,
) -> Result<WebSocketStream<TcpStream>, Error> {
    let stream = TcpStream::connect(relay.address).await.unwrap();
    let mut request = format!("ws://{}{path}", relay.address)
        .into_client_request()
        .unwrap();
    let headers = request.headers_mut();
    headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
    headers.insert(
        SEC_WEBSOCKET_EXTENSIONS,
        "permessage-deflate".parse().unwrap(),
    );
    headers.insert(SEC_WEBSOCKET_PROTOCOL, "chat".parse().unwrap());
    let (socket, response) = client_async(request, stream).await?;
    assert_eq!(response.headers()[SEC_WEBSOCKET_PROTOCOL], "chat");
    assert!(!response.headers().contains_key(SEC_WEBSOCKET_EXTENSIONS));
    Ok(socket)
}

/// Sends one message and ends.
async fn send_one_message(mut socket: Socket) {
    socket.send(Message::text("b")).await.unwrap();
    _ = socket.close(None).await;
}

#[tokio::test]
async fn named_cluster_has_separate_websockets() {
    let (first, _first) = sockets(echo).await;
    let (other, _other) = sockets(send_one_message).await;
    let relay = Relay::start(&[("default", first), ("b", other)], |_| {}).await;
    let mut socket = dial(&relay, "/relay/clusters/b/api/jobs/1/logs/tail")
        .await
        .unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("b"));
    let mut socket = dial(&relay, "/api/jobs/1/logs/tail").await.unwrap();
    socket.send(Message::text("a")).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("a"));
    let refused = dial(&relay, "/relay/clusters/b/none").await;
    assert!(matches!(refused, Err(Error::Http(refused)) if refused.headers()["x-ray"] == "1"));
}

fn frame(code: u16, reason: &'static str) -> CloseFrame {
    CloseFrame {
        code: CloseCode::from(code),
        reason: Utf8Bytes::from_static(reason),
    }
}

#[tokio::test]
async fn messages_pass_both_ways() {
    let (address, _head) = sockets(echo).await;
    let mut relay = Relay::start(&[("default", address)], |_| {}).await;
    let mut socket = dial(&relay, "/api/jobs/1/logs/tail").await.unwrap();
    for message in [
        Message::text("log ünd line"),
        Message::binary(vec![0; 3_000_000]),
    ] {
        socket.send(message.clone()).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), message);
    }
    socket
        .send(Message::Ping("are you there".into()))
        .await
        .unwrap();
    assert_eq!(
        socket.next().await.unwrap().unwrap(),
        Message::Pong("are you there".into())
    );
    socket.close(Some(frame(4001, "enough"))).await.unwrap();
    relay.until_disconnected().await;
    let metrics = text(relay.get("/relay/metrics").await).await;
    let line =
        r#"ray_relay_sessions_total{client="other",outcome="client",protocol="websocket"} 1"#;
    assert!(metrics.contains(line), "{metrics}");
}

#[tokio::test]
async fn close_codes_pass_both_ways() {
    let (address, _head) = sockets(|mut socket| async move {
        // The first message often arrives together with the handshake.
        socket.send(Message::text("at once")).await.unwrap();
        socket
            .close(Some(frame(4002, "the job is done")))
            .await
            .unwrap();
        while let Some(Ok(_)) = socket.next().await {}
    })
    .await;
    let mut relay = Relay::start(&[("default", address)], |_| {}).await;
    let mut socket = dial(&relay, "/").await.unwrap();
    assert_eq!(
        socket.next().await.unwrap().unwrap(),
        Message::text("at once")
    );
    assert_eq!(
        socket.next().await.unwrap().unwrap(),
        Message::Close(Some(frame(4002, "the job is done")))
    );
    while let Some(Ok(_)) = socket.next().await {}
    relay.until_disconnected().await;

    let (address, _head) = sockets(|mut socket| async move {
        assert_eq!(
            socket.next().await.unwrap().unwrap(),
            Message::Close(Some(frame(4003, "bye")))
        );
    })
    .await;
    let mut relay = Relay::start(&[("default", address)], |_| {}).await;
    let mut socket = dial(&relay, "/").await.unwrap();
    socket.close(Some(frame(4003, "bye"))).await.unwrap();
    assert_eq!(
        socket.next().await.unwrap().unwrap(),
        Message::Close(Some(frame(4003, "bye")))
    );
    relay.until_disconnected().await;
}

#[tokio::test]
async fn broken_head_is_reported_to_the_client() {
    let (address, _head) = sockets(|socket| async move { drop(socket) }).await;
    let mut relay = Relay::start(&[("default", address)], |_| {}).await;
    let mut socket = dial(&relay, "/").await.unwrap();
    let expected = frame(1011, "the Ray head broke the WebSocket off");
    assert_eq!(
        socket.next().await.unwrap().unwrap(),
        Message::Close(Some(expected))
    );
    while let Some(Ok(_)) = socket.next().await {}
    relay.until_disconnected().await;
}

#[tokio::test]
async fn drain_closes_with_a_reason() {
    let (address, _head) = sockets(echo).await;
    let mut relay = Relay::start(&[("default", address)], |_| {}).await;
    let mut socket = dial(&relay, "/").await.unwrap();
    socket.send(Message::text("a")).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("a"));
    relay.shutdown.cancel();
    let expected = frame(1001, "ray-relay is shutting down");
    assert_eq!(
        socket.next().await.unwrap().unwrap(),
        Message::Close(Some(expected))
    );
    while let Some(Ok(_)) = socket.next().await {}
    relay.until_disconnected().await;
}

#[tokio::test]
async fn messages_are_bounded() {
    let (address, _head) = sockets(echo).await;
    let relay = Relay::start(&[("default", address)], |_| {}).await;
    let socket = dial(&relay, "/").await.unwrap();
    let (mut send, mut receive) = socket.split();
    let sending =
        tokio::spawn(async move { _ = send.send(Message::binary(vec![0; 17 << 20])).await });
    match receive.next().await.unwrap() {
        Ok(Message::Close(Some(frame))) => assert_eq!(frame.code, CloseCode::Size),
        other => panic!("{other:?}"),
    }
    sending.await.unwrap();
}

#[tokio::test]
async fn websocket_refusals_have_their_status() {
    let (address, _head) = sockets(echo).await;
    let relay = Relay::start(&[("default", address)], |_| {}).await;
    match dial(&relay, "/none").await {
        Err(Error::Http(response)) => {
            assert_eq!(response.status(), 404);
            assert_eq!(response.headers()["x-ray"], "1");
        }
        other => panic!("{other:?}"),
    }
    let upgrade = |origin: Option<&'static str>, version: &'static str| {
        let mut request = relay
            .request("GET", "/")
            .header("connection", "keep-alive, Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", version)
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        request.body(answer::empty()).unwrap()
    };
    let response = relay
        .client()
        .await
        .send(upgrade(Some("http://evil.example.com"), "13"))
        .await;
    assert_eq!(response.status(), 403);
    let response = relay.client().await.send(upgrade(None, "8")).await;
    assert_eq!(response.headers()["sec-websocket-version"], "13");
    let response = relay.client().await.send(upgrade(None, "13")).await;
    assert_eq!(response.status(), 101);
    assert_eq!(
        response.headers()["sec-websocket-accept"],
        "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    );
}
