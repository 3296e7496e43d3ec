//! The terminal of the page: permissions, credentials, and messages in both directions.

use futures_util::{SinkExt, StreamExt};
use hyper::header::{COOKIE, HeaderName, ORIGIN, SEC_WEBSOCKET_PROTOCOL};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::Error;
use tokio_tungstenite::{WebSocketStream, client_async};

use super::*;

const PROTOCOL: &str = "ray-relay.terminal.v1";

/// A pong and a close frame of a client, masked with zeros.
const PONG: &[u8] = &[0x8a, 0x80, 0, 0, 0, 0];
const CLOSE: &[u8] = &[0x88, 0x80, 0, 0, 0, 0];

async fn dial(
    relay: &Relay,
    headers: &[(HeaderName, String)],
) -> Result<WebSocketStream<TcpStream>, u16> {
    let stream = TcpStream::connect(relay.address).await.unwrap();
    let url = format!("ws://{}/relay/v1/terminal", relay.address);
    let mut request = url.into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    match client_async(request, stream).await {
        Ok((socket, response)) => {
            // The server does not echo the protocol with the token.
            assert_eq!(response.headers()[SEC_WEBSOCKET_PROTOCOL], PROTOCOL);
            Ok(socket)
        }
        Err(Error::Http(response)) => Err(response.status().as_u16()),
        Err(other) => panic!("{other}"),
    }
}

fn with_token(subject: &str) -> (HeaderName, String) {
    let token = token_of(subject);
    let protocols = format!("{PROTOCOL}, ray-relay.bearer.{token}");
    (SEC_WEBSOCKET_PROTOCOL, protocols)
}

#[tokio::test]
async fn terminal_needs_the_permission_and_the_relay_origin() {
    let ann = User::new("ann", "\"list\", \"terminal\"", "");
    let bob = User::new("bob", "\"list\", \"debug\"", "");
    let relay = Relay::with_users(&[], &[&ann, &bob]).await;
    let refused = async |headers: &[(HeaderName, String)]| dial(&relay, headers).await.err();
    let plain = (SEC_WEBSOCKET_PROTOCOL, PROTOCOL.to_owned());
    assert_eq!(refused(std::slice::from_ref(&plain)).await, Some(401));
    assert_eq!(refused(&[with_token("bob")]).await, Some(403));
    let foreign_origin = (ORIGIN, "http://evil.example.com".to_owned());
    assert_eq!(
        refused(&[with_token("ann"), foreign_origin]).await,
        Some(403)
    );
    let bearer = (hyper::header::AUTHORIZATION, bearer("ann"));
    let unknown_protocol = (SEC_WEBSOCKET_PROTOCOL, "chat".to_owned());
    assert_eq!(
        refused(&[bearer.clone(), unknown_protocol]).await,
        Some(400)
    );
    // Only a script can set the subprotocol, so a different credential is ambiguous.
    let two_tokens = [with_token("bob"), bearer.clone()];
    assert_eq!(refused(&two_tokens).await, Some(400));
    assert_eq!(refused(&[bearer, plain]).await, None);
    let response = relay.get_as(&token_of("ann"), "/relay/v1/terminal").await;
    assert_eq!(response.status(), 426);
}

#[tokio::test]
async fn terminal_passes_both_ways_until_either_side_closes() {
    let ann = User::new("ann", "\"terminal\"", "");
    let relay = Relay::with_users(&[], &[&ann]).await;
    let port = relay.address.port();
    // A cookie of another user or of an earlier session is ignored if there is a token.
    let stale = format!("ray-authentication-token-{port}=stale");
    let own_origin = (ORIGIN, format!("http://{}", relay.address));
    let headers = [with_token("ann"), (COOKIE, stale), own_origin];
    let mut socket = dial(&relay, &headers).await.unwrap();
    let mut connection = relay.ctx.peers.links.arrived().await;
    assert_eq!(connection.principal.subject(), "ann");
    socket.send(Message::text("enter me\n")).await.unwrap();
    let mut received = [0; 9];
    connection.stream.read_exact(&mut received).await.unwrap();
    assert_eq!(&received, b"enter me\n");
    connection
        .stream
        .write_all(b"(Pdb) \xe2\x82")
        .await
        .unwrap();
    let message = socket.next().await.unwrap().unwrap();
    assert_eq!(message, Message::binary(&b"(Pdb) \xe2\x82"[..]));
    drop(connection);
    assert!(matches!(socket.next().await, Some(Ok(Message::Close(_)))));
    // The server waits for the client's close frame. To a browser, an earlier close is a lost connection.
    let stream = socket.get_mut();
    for frame in [PONG, CLOSE] {
        stream.write_all(frame).await.unwrap();
    }
    let mut remaining = Vec::new();
    stream.read_to_end(&mut remaining).await.unwrap();

    let mut socket = dial(&relay, &[with_token("ann")]).await.unwrap();
    let mut connection = relay.ctx.peers.links.arrived().await;
    socket.send(Message::text("q\n")).await.unwrap();
    socket.close(None).await.unwrap();
    let mut remaining = Vec::new();
    connection.stream.read_to_end(&mut remaining).await.unwrap();
    assert_eq!(remaining, b"q\n");
}
