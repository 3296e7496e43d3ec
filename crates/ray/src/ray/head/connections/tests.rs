#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;

use http_body_util::{BodyExt, Empty};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::*;
use ray_relay_base::dial::Proxies;
use ray_relay_base::dial::http::{Roots, trusting};

/// Returns the connections of a head, and its listener.
async fn head_connections() -> (Arc<Connections>, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let tls = trusting(Roots::None).unwrap().with_no_client_auth();
    let connector = Connector::new(tls, Duration::from_secs(5), Proxies::none());
    let to = format!("http://{address}").parse().unwrap();
    (Connections::new(connector, to), listener)
}

fn request() -> Request<RequestBody> {
    let body = Empty::new().map_err(|never| match never {}).boxed();
    Request::get("/").header("host", "head").body(body).unwrap()
}

/// Reads the head of a request, and answers it with `answer`.
async fn respond(stream: &mut TcpStream, respond: &[u8]) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    stream.write_all(respond).await.unwrap();
}

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nyes";

async fn read_body(respond: Response<HeadBody>) -> Bytes {
    respond.into_body().collect().await.unwrap().to_bytes()
}

async fn is_closed(stream: &mut TcpStream) -> bool {
    matches!(stream.read_u8().await, Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof)
}

#[tokio::test]
async fn connection_is_reused_after_a_complete_answer() {
    let (connections, listener) = head_connections().await;
    let mut head = JoinSet::new();
    head.spawn(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        for _ in 0..3 {
            respond(&mut first, RESPONSE).await;
        }
        // A chunked body and an empty one.
        respond(
            &mut first,
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nyes\r\n0\r\n\r\n",
        )
        .await;
        respond(&mut first, b"HTTP/1.1 204 No Content\r\n\r\n").await;
        respond(&mut first, RESPONSE).await;
    });
    for text in ["yes", "yes", "yes", "yes", "", "yes"] {
        assert_eq!(
            read_body(connections.send(request()).await.unwrap()).await,
            text
        );
    }
    head.join_all().await;
}

#[tokio::test]
async fn dropped_answer_closes_its_connection() {
    let (connections, listener) = head_connections().await;
    let (send, mut response_sent) = mpsc::channel(1);
    let mut head = JoinSet::new();
    head.spawn(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        respond(&mut first, &RESPONSE[..RESPONSE.len() - 1]).await;
        send.send(()).await.unwrap();
        assert!(is_closed(&mut first).await);
        let (mut second, _) = listener.accept().await.unwrap();
        respond(&mut second, RESPONSE).await;
    });
    let incomplete = connections.send(request()).await.unwrap();
    response_sent.recv().await.unwrap();
    drop(incomplete);
    assert_eq!(
        read_body(connections.send(request()).await.unwrap()).await,
        "yes"
    );
    head.join_all().await;
}

#[tokio::test]
async fn connection_closed_by_the_head_is_not_reused() {
    let (connections, listener) = head_connections().await;
    let mut head = JoinSet::new();
    head.spawn(async move {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.unwrap();
            respond(&mut stream, RESPONSE).await;
        }
    });
    assert_eq!(
        read_body(connections.send(request()).await.unwrap()).await,
        "yes"
    );
    // Wait until the end of the connection has arrived.
    let is_reusable = || {
        let mut idle = connections.idle.lock();
        let mut connections = idle.pool.iter_mut();
        connections.any(|(_, connection)| connection.is_ready())
    };
    while is_reusable() {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        read_body(connections.send(request()).await.unwrap()).await,
        "yes"
    );
    head.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn idle_connection_is_closed_after_a_timeout() {
    let (connections, listener) = head_connections().await;
    let mut head = JoinSet::new();
    head.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        respond(&mut stream, RESPONSE).await;
        let answered = Instant::now();
        assert!(is_closed(&mut stream).await);
        assert_eq!(answered.elapsed().as_secs(), IDLE_TIMEOUT.as_secs());
    });
    assert_eq!(
        read_body(connections.send(request()).await.unwrap()).await,
        "yes"
    );
    head.join_all().await;
    assert!(connections.idle.lock().closing.is_none());
}
