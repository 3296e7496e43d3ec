//! Streams end when their principal's access ends, with the reason if the protocol allows it.

use super::websocket::{dial_as, echo, sockets};
use super::*;
use futures_util::{SinkExt, StreamExt, stream};
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::header::SEC_WEBSOCKET_PROTOCOL;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::Error;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

const TAIL: &str = "/api/jobs/1/logs/tail";

fn reader() -> User {
    User::new("ann", "\"list\", \"dashboard:write\"", "")
}

async fn rest_of(body: &mut Incoming) -> Result<String, hyper::Error> {
    let mut text = String::new();
    while let Some(frame) = body.frame().await {
        text.push_str(std::str::from_utf8(&frame?.into_data().unwrap()).unwrap());
    }
    Ok(text)
}

#[tokio::test]
async fn event_stream_reports_a_revoked_token() {
    let (ann, bob) = (reader(), User::new("bob", "\"list\"", ""));
    let relay = Relay::with_users(&[], &[&ann, &bob]).await;
    let mut body = relay
        .get_as(&token_of("ann"), "/relay/v1/events")
        .await
        .into_body();
    let mut other = relay
        .get_as(&token_of("bob"), "/relay/v1/events")
        .await
        .into_body();
    body.frame().await.unwrap().unwrap();
    other.frame().await.unwrap().unwrap();
    let started = Instant::now();
    revoke(&relay.ctx.auth, "ann").await;
    assert_eq!(
        rest_of(&mut body).await.unwrap(),
        "event: ended\ndata: {\"reason\":\"revoked\",\"error\":\"your token was revoked\"}\n\n"
    );
    assert!(started.elapsed() < Duration::from_secs(1));
    assert_eq!(
        relay
            .get_as(&token_of("ann"), "/relay/v1/events")
            .await
            .status(),
        401
    );
    relay.registry.insert(breakpoint("aa11"));
    assert!(other.frame().await.unwrap().is_ok(), "nobody else's");
}

#[tokio::test]
async fn event_stream_reports_an_expired_token() {
    let expiry = SystemTime::now() + Duration::from_secs(2);
    let ann = User::new("ann", "\"list\"", "");
    let relay = Relay::with_users(&[], &[&ann]).await;
    let mut body = relay
        .get_as(&token_until("ann", expiry), "/relay/v1/events")
        .await
        .into_body();
    let text = rest_of(&mut body).await.unwrap();
    assert!(
        text.ends_with("{\"reason\":\"expired\",\"error\":\"your token has expired\"}\n\n"),
        "{text}"
    );
}

#[tokio::test]
async fn revocation_cuts_a_streaming_answer() {
    let (address, _head) = head(|_| async {
        let endless_body = stream::unfold(true, |is_first| async move {
            if !is_first {
                std::future::pending::<()>().await;
            }
            Some((Ok(Frame::data("line".into())), false))
        });
        Response::new(StreamBody::new(endless_body).boxed_unsync())
    })
    .await;
    let ann = reader();
    let relay = Relay::with_users(&[("default", address)], &[&ann]).await;
    let mut body = relay
        .get_as(&token_of("ann"), "/api/v0/logs/stream")
        .await
        .into_body();
    assert!(body.frame().await.unwrap().is_ok());
    revoke(&relay.ctx.auth, "ann").await;
    let cut = timeout(Duration::from_secs(1), rest_of(&mut body)).await;
    assert!(
        cut.unwrap().is_err(),
        "an answer that is cut is no whole one"
    );
}

/// A request of ann's to upload a package, of which one part is sent. The upload ends when the sender is dropped.
async fn begun_upload(relay: &Relay) -> (Request<Body>, mpsc::Sender<Frame<Bytes>>) {
    let (send, receive) = mpsc::channel::<Frame<Bytes>>(1);
    let frames = stream::unfold(receive, |mut receive| async {
        receive.recv().await.map(|frame| (Ok(frame), receive))
    });
    let request = relay
        .request("PUT", "/api/packages/gcs/x.zip")
        .header("authorization", bearer("ann"))
        .body(StreamBody::new(frames).boxed_unsync())
        .unwrap();
    send.send(Frame::data("part".into())).await.unwrap();
    (request, send)
}

#[tokio::test]
async fn revocation_aborts_a_pending_request() {
    let (sender, mut arrivals) = mpsc::unbounded_channel();
    let (address, _head) = head(move |request: Request<Incoming>| {
        let sender = sender.clone();
        async move {
            sender.send(()).unwrap();
            // The body ends with an error when the upload is cut.
            assert!(request.into_body().collect().await.is_err());
            sender.send(()).unwrap();
            std::future::pending().await
        }
    })
    .await;
    let ann = reader();
    let relay = Relay::with_users(&[("default", address)], &[&ann]).await;
    let (request, _upload) = begun_upload(&relay).await;
    let client = relay.client().await;
    let answered = tokio::spawn(client.send(request));
    arrivals.recv().await.unwrap();
    revoke(&relay.ctx.auth, "ann").await;
    let response = timeout(Duration::from_secs(1), answered)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(response.status(), 401);
    assert!(text(response).await.contains("your token was revoked"));
    arrivals.recv().await.unwrap();
}

/// So the end of its principal, which ends the answer, ends it too.
#[tokio::test]
async fn upload_ends_with_its_answer() {
    let (reached, mut seen) = mpsc::unbounded_channel();
    let (address, _head) = head(move |request: Request<Incoming>| {
        let reached = reached.clone();
        async move {
            let mut upload = request.into_body();
            tokio::spawn(async move {
                while let Some(frame) = upload.frame().await {
                    reached.send(frame.is_ok()).unwrap();
                }
            });
            ok("stored")
        }
    })
    .await;
    let ann = reader();
    let relay = Relay::with_users(&[("default", address)], &[&ann]).await;
    let (request, _upload) = begun_upload(&relay).await;
    let response = relay.client().await.send(request).await;
    assert!(seen.recv().await.unwrap());
    assert_eq!(text(response).await, "stored");
    let cut = timeout(Duration::from_secs(5), seen.recv()).await;
    assert_eq!(cut.unwrap(), Some(false));
}

#[tokio::test]
async fn revocation_closes_a_websocket_with_the_reason() {
    let (address, _head) = sockets(echo).await;
    let ann = reader();
    let relay = Relay::with_users(&[("default", address)], &[&ann]).await;
    let mut socket = dial_as(&relay, &token_of("ann"), TAIL).await.unwrap();
    socket.send(Message::text("a")).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("a"));
    let started = Instant::now();
    revoke(&relay.ctx.auth, "ann").await;
    let Some(Ok(Message::Close(Some(frame)))) = socket.next().await else {
        panic!("no close frame");
    };
    assert_eq!(
        (frame.code, &*frame.reason),
        (CloseCode::Policy, "your token was revoked")
    );
    assert!(started.elapsed() < Duration::from_secs(1));
}

#[tokio::test]
async fn websocket_needs_a_token_and_does_not_forward_it() {
    let head = UncontactedHead::new().await;
    let eve = User::new("eve", "\"list\"", "");
    let relay = Relay::with_users(&[("default", head.address)], &[&eve]).await;
    for (token, status) in [("wrong", 401), (&*token_of("eve"), 403)] {
        let refused = dial_as(&relay, token, TAIL).await;
        assert!(matches!(refused, Err(Error::Http(answer)) if answer.status() == status));
    }
    head.expect_uncontacted().await;

    let (address, mut requests, _head) = test_head(|| status(404)).await;
    let ann = reader();
    let relay = Relay::with_users(&[("default", address)], &[&ann]).await;
    let token = token_of("ann");
    let stream = TcpStream::connect(relay.address).await.unwrap();
    let url = format!("ws://{}{TAIL}", relay.address);
    let mut request = url.into_client_request().unwrap();
    let headers = request.headers_mut();
    let cookie = format!("ray-authentication-token={token}").parse().unwrap();
    headers.insert("cookie", cookie);
    let protocols = format!("bearer, {token}").parse().unwrap();
    headers.insert(SEC_WEBSOCKET_PROTOCOL, protocols);
    let answered = tokio_tungstenite::client_async(request, stream).await;
    assert!(matches!(answered, Err(Error::Http(answer)) if answer.status() == 404));
    let request = requests.recv().await.unwrap();
    assert_eq!(request.headers["upgrade"], "websocket");
    assert!(
        !format!("{request:?}").contains(&token_of("ann")),
        "{request:?}"
    );

    let (address, _head) = sockets(echo).await;
    // A socket that is not known to be read-only needs write access.
    let bob = User::new("bob", "\"dashboard:read\"", "");
    let relay = Relay::with_users(&[("default", address)], &[&bob]).await;
    let refused = dial_as(&relay, &token_of("bob"), "/api/other").await;
    assert!(matches!(refused, Err(Error::Http(answer)) if answer.status() == 403));
    assert!(dial_as(&relay, &token_of("bob"), TAIL).await.is_ok());
}
