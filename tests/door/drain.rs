//! A draining relay: the requests that it still answers, and its duration.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::support::*;

/// How long a relay with nothing to wait for may take.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

async fn get(relay: std::net::SocketAddr, path: &str) -> String {
    let mut stream = dial(relay).await;
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    // No `Connection: close`: the relay closes by itself.
    rest(&mut stream).await
}

#[tokio::test]
async fn draining_relay_answers_new_connections() {
    // A head that lets a request wait.
    let head = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = head.local_addr().unwrap();
    let relay = Arc::new(
        start(|config| {
            config.clusters[0].ray_address = format!("http://{address}");
            config.registry.request_timeout = Duration::from_secs(600);
        })
        .await,
    );
    let at = relay.local_addr();
    let waiting = tokio::spawn(async move { get(at, "/api/slow").await });
    let slow = loop {
        let (mut stream, _) = head.accept().await.unwrap();
        let mut request = [0; 1024];
        let read = stream.read(&mut request).await.unwrap();
        if request[..read].starts_with(b"GET /api/slow ") {
            break stream;
        }
        // A poll: it stays unanswered.
        tokio::spawn(async move { stream.read(&mut [0; 1]).await });
    };
    let draining = tokio::spawn({
        let relay = Arc::clone(&relay);
        async move { relay.drain().await }
    });
    while !get(at, "/relay/readyz").await.contains("being shut down") {}
    for (path, status_line) in [
        ("/relay/readyz", "HTTP/1.1 503"),
        ("/relay/healthz", "HTTP/1.1 200"),
        ("/relay/v1/breakpoints", "HTTP/1.1 200"),
    ] {
        let answer = get(at, path).await;
        assert!(answer.starts_with(status_line), "{path}: {answer}");
    }
    let (_dap, answer) = attach(dial(at).await, &json!({"all": true})).await;
    assert_eq!(answer["success"], false);
    let sentence = answer["message"].as_str().unwrap();
    assert!(
        sentence.contains("being shut down; try again in a moment"),
        "{sentence}"
    );
    let mut user = dial(at).await;
    user.write_all(b"\n").await.unwrap();
    assert!(rest(&mut user).await.contains("being shut down"));
    assert!(!draining.is_finished());
    // The request is finished, and the drain ends.
    answer_slowly(slow).await;
    assert!(waiting.await.unwrap().ends_with("done"));
    let began = Instant::now();
    draining.await.unwrap();
    assert!(began.elapsed() < DRAIN_TIMEOUT, "{:?}", began.elapsed());
    assert!(TcpStream::connect(at).await.is_err());
}

async fn answer_slowly(mut stream: TcpStream) {
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone";
    stream.write_all(answer).await.unwrap();
}

#[tokio::test]
async fn unfinished_conversations_release_their_resources() {
    let relay = start(|_| {}).await;
    let at = relay.local_addr();
    // A cluster session, a terminal at the list, a silent connection, and one at an open question.
    let (mut dap, answer) = attach(dial(at).await, &json!({"all": true})).await;
    assert_eq!(answer["event"], "initialized");
    let mut user = dial(at).await;
    user.write_all(b"\n").await.unwrap();
    let mut shown = [0; 10];
    user.read_exact(&mut shown).await.unwrap();
    let mut silent = dial(at).await;
    let mut idle = dial(at).await;
    idle.write_all(b"GET /relay/healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        .await
        .unwrap();
    idle.read_exact(&mut shown).await.unwrap();
    let began = Instant::now();
    relay.drain().await;
    assert!(began.elapsed() < DRAIN_TIMEOUT, "{:?}", began.elapsed());
    while read(&mut dap).await["event"] != "terminated" {}
    assert!(rest(&mut user).await.contains("being shut down"));
    assert_eq!(rest(&mut silent).await, "");
    rest(&mut idle).await;
}
