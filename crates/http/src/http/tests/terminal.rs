//! The terminal of the page: who gets one, by which credential, and that what is said passes both ways.

use futures_util::{SinkExt, StreamExt};
use hyper::header::{COOKIE, HeaderName, ORIGIN, SEC_WEBSOCKET_PROTOCOL};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::Error;
use tokio_tungstenite::{WebSocketStream, client_async};

use super::*;

const PROTOCOL: &str = "ray-relay.terminal.v1";

/// A pong and a close of a client's, with a mask of zeros.
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
            // The one with the token is not said again.
            assert_eq!(response.headers()[SEC_WEBSOCKET_PROTOCOL], PROTOCOL);
            Ok(socket)
        }
        Err(Error::Http(response)) => Err(response.status().as_u16()),
        Err(other) => panic!("{other}"),
    }
}

fn with_token(subject: &str) -> (HeaderName, String) {
    let token = token_of(subject);
    let both = format!("{PROTOCOL}, ray-relay.bearer.{token}");
    (SEC_WEBSOCKET_PROTOCOL, both)
}

#[tokio::test]
async fn terminal_needs_the_permission_and_the_relay_origin() {
    let ann = Person::new("ann", "\"list\", \"terminal\"", "");
    let bob = Person::new("bob", "\"list\", \"debug\"", "");
    let relay = Relay::guarded(&[], &[&ann, &bob]).await;
    let refused = async |headers: &[(HeaderName, String)]| dial(&relay, headers).await.err();
    let plain = (SEC_WEBSOCKET_PROTOCOL, PROTOCOL.to_owned());
    assert_eq!(refused(std::slice::from_ref(&plain)).await, Some(401));
    assert_eq!(refused(&[with_token("bob")]).await, Some(403));
    let other = (ORIGIN, "http://evil.example.com".to_owned());
    assert_eq!(refused(&[with_token("ann"), other]).await, Some(403));
    let bearer = (hyper::header::AUTHORIZATION, bearer("ann"));
    let unknown = (SEC_WEBSOCKET_PROTOCOL, "chat".to_owned());
    assert_eq!(refused(&[bearer.clone(), unknown]).await, Some(400));
    // Another credential than that of the subprotocol, which a script has to have set.
    let two = [with_token("bob"), bearer.clone()];
    assert_eq!(refused(&two).await, Some(400));
    assert_eq!(refused(&[bearer, plain]).await, None);
    let response = relay.get_as(&token_of("ann"), "/relay/v1/terminal").await;
    assert_eq!(response.status(), 426);
}

#[tokio::test]
async fn terminal_passes_both_ways_until_either_side_closes() {
    let ann = Person::new("ann", "\"terminal\"", "");
    let relay = Relay::guarded(&[], &[&ann]).await;
    let port = relay.address.port();
    // Of another person, or from before: with a token it does not count.
    let stale = format!("ray-authentication-token-{port}=stale");
    let own = (ORIGIN, format!("http://{}", relay.address));
    let asked = [with_token("ann"), (COOKIE, stale), own];
    let mut socket = dial(&relay, &asked).await.unwrap();
    let mut arrived = relay.ctx.peers.links.arrived().await;
    assert_eq!(arrived.principal.subject(), "ann");
    socket.send(Message::text("enter me\n")).await.unwrap();
    let mut heard = [0; 9];
    arrived.stream.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"enter me\n");
    arrived.stream.write_all(b"(Pdb) \xe2\x82").await.unwrap();
    let shown = socket.next().await.unwrap().unwrap();
    assert_eq!(shown, Message::binary(&b"(Pdb) \xe2\x82"[..]));
    drop(arrived);
    assert!(matches!(socket.next().await, Some(Ok(Message::Close(_)))));
    // It is heard out until it has said so too: a connection that is closed before is a lost one to a browser.
    let stream = socket.get_mut();
    for frame in [PONG, CLOSE] {
        stream.write_all(frame).await.unwrap();
    }
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();

    let mut socket = dial(&relay, &[with_token("ann")]).await.unwrap();
    let mut arrived = relay.ctx.peers.links.arrived().await;
    socket.send(Message::text("q\n")).await.unwrap();
    socket.close(None).await.unwrap();
    let mut rest = Vec::new();
    arrived.stream.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"q\n");
}
