//! Traces of connections name the user and the duration, and contain no secrets.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::support::*;

/// The body of the next request, which is taken.
async fn accept_export(collector: &TcpListener) -> Vec<u8> {
    let accepted = timeout(TEST_TIMEOUT, collector.accept()).await;
    let (mut stream, _) = accepted.expect("traces come").unwrap();
    let mut read = Vec::new();
    let (head, length) = loop {
        assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0);
        let end = read.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        let Some(end) = end else { continue };
        let head = String::from_utf8(read[..end].to_vec())
            .unwrap()
            .to_lowercase();
        let length = head.split_once("content-length: ").unwrap().1;
        let length: usize = length.lines().next().unwrap().parse().unwrap();
        break (end + 4, length);
    };
    assert!(read.starts_with(b"POST /v1/traces HTTP/1.1\r\n"));
    while read.len() < head + length {
        assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0);
    }
    let response = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    stream.write_all(response).await.unwrap();
    read.split_off(head)
}

#[tokio::test]
async fn trace_has_the_request_id_and_no_token() {
    let collector = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", collector.local_addr().unwrap());
    let keys = Keys::new();
    let relay = start(|config| {
        config.auth.keys = vec![keys.public()];
        config.telemetry.otlp = Some(address);
    })
    .await;
    let at = relay.local_addr();
    let token = keys.token(|_| {});
    let mut received = Vec::new();
    for secret in [&*token, "wrong-t0ken.with.dots"] {
        let named = json!({"token": secret, "task": "square"});
        let (_dap, answer) = attach(dial(at).await, &named).await;
        let sentence = answer["message"].as_str().unwrap();
        let (_, id) = sentence.rsplit_once(" (request ").unwrap();
        received.push(id.trim_end_matches(')').to_owned());
    }
    let mut stream = dial(at).await;
    let ask = format!(
        "GET /relay/v1/nothing?secret=in-the-query HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(ask.as_bytes()).await.unwrap();
    let answer = rest(&mut stream).await;
    let (_, id) = answer.split_once("x-request-id: ").unwrap();
    received.push(id.split('.').next().unwrap().to_owned());

    let mut sent = Vec::new();
    let has = |sent: &[u8], text: &str| {
        let mut parts = sent.windows(text.len());
        parts.any(|bytes| bytes == text.as_bytes())
    };
    while !received.iter().all(|id| has(&sent, id)) {
        sent.extend(accept_export(&collector).await);
    }
    for part in [
        "handshake",
        "authentication",
        "ann",
        "refused",
        "dap",
        "vscode",
    ] {
        assert!(has(&sent, part), "{part}");
    }
    let (_, signature) = token.rsplit_once('.').unwrap();
    for secret in [&token, signature, "wrong-t0ken", "in-the-query"] {
        assert!(!has(&sent, secret), "{secret}");
    }
    relay.abort().await;
}
