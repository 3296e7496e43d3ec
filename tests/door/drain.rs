//! A relay that is told to end: what it still answers, and how long it stays.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::support::*;

/// What a relay may take that has nothing to wait for.
const SOON: Duration = Duration::from_secs(5);

async fn get(relay: std::net::SocketAddr, path: &str) -> String {
    let mut stream = dial(relay).await;
    let asked = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    stream.write_all(asked.as_bytes()).await.unwrap();
    // No `Connection: close`: the relay closes by itself.
    rest(&mut stream).await
}

#[tokio::test]
async fn whoever_comes_while_it_drains_is_answered() {
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
        let mut asked = [0; 1024];
        let read = stream.read(&mut asked).await.unwrap();
        if asked[..read].starts_with(b"GET /api/slow ") {
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
    for (path, told) in [
        ("/relay/readyz", "HTTP/1.1 503"),
        ("/relay/healthz", "HTTP/1.1 200"),
        ("/relay/v1/breakpoints", "HTTP/1.1 200"),
    ] {
        let answer = get(at, path).await;
        assert!(answer.starts_with(told), "{path}: {answer}");
    }
    let (_dap, answer) = attach(dial(at).await, &json!({"all": true})).await;
    assert_eq!(answer["success"], false);
    let sentence = answer["message"].as_str().unwrap();
    assert!(
        sentence.contains("being shut down; try again in a moment"),
        "{sentence}"
    );
    let mut person = dial(at).await;
    person.write_all(b"\n").await.unwrap();
    assert!(rest(&mut person).await.contains("being shut down"));
    assert!(!draining.is_finished());
    // The request is finished, and then nothing is left to wait for.
    answer_slowly(slow).await;
    assert!(waiting.await.unwrap().ends_with("done"));
    let began = Instant::now();
    draining.await.unwrap();
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert!(TcpStream::connect(at).await.is_err());
}

async fn answer_slowly(mut stream: TcpStream) {
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone";
    stream.write_all(answer).await.unwrap();
}

#[tokio::test]
async fn nobody_in_the_middle_of_something_keeps_it() {
    let relay = start(|_| {}).await;
    let at = relay.local_addr();
    // A cluster session, a person at the list, a silent connection, and one that has been asked something.
    let (mut dap, answer) = attach(dial(at).await, &json!({"all": true})).await;
    assert_eq!(answer["event"], "initialized");
    let mut person = dial(at).await;
    person.write_all(b"\n").await.unwrap();
    let mut shown = [0; 10];
    person.read_exact(&mut shown).await.unwrap();
    let mut silent = dial(at).await;
    let mut idle = dial(at).await;
    idle.write_all(b"GET /relay/healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        .await
        .unwrap();
    idle.read_exact(&mut shown).await.unwrap();
    let began = Instant::now();
    relay.drain().await;
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    while read(&mut dap).await["event"] != "terminated" {}
    assert!(rest(&mut person).await.contains("being shut down"));
    assert_eq!(rest(&mut silent).await, "");
    rest(&mut idle).await;
}
