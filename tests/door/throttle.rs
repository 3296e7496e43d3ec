//! Garbage credentials, and another client behind the same address.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_from_one_address_does_not_lock_out_a_valid_token() {
    let keys = Keys::new();
    let relay = start(|config| config.auth.keys = vec![keys.public()]).await;
    let address = relay.local_addr();
    let (over, shown) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let flood: Vec<_> = (0..4)
        .map(|lane| {
            let (over, shown) = (Arc::clone(&over), Arc::clone(&shown));
            tokio::spawn(async move {
                for n in 0.. {
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    get(address, "/relay/v1/breakpoints", &format!("x.{lane}.{n}")).await;
                    shown.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    // Long enough for the address to be in back-off.
    while !get(address, "/relay/v1/breakpoints", "x.y.z")
        .await
        .starts_with("HTTP/1.1 429")
    {}
    for n in 0..90 {
        let token = keys.token(|claims| claims["jti"] = n.to_string().into());
        let began = Instant::now();
        let answer = get(address, "/relay/v1/breakpoints", &token).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{n}: {answer}");
        assert!(began.elapsed() < Duration::from_secs(2), "{n}");
    }
    over.store(true, Ordering::Relaxed);
    for lane in flood {
        lane.await.unwrap();
    }
    assert!(shown.load(Ordering::Relaxed) > 20);
    relay.abort().await;
}

/// Connections that are being answered keep their slots. At 2,000 requests a second the next valid token had none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_connection_frees_its_slot() {
    let keys = Keys::new();
    let relay = start(|config| config.auth.keys = vec![keys.public()]).await;
    let asks = |token: &str| {
        format!(
            "GET /relay/v1/breakpoints HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
        )
    };
    let mut refused = dial(relay.local_addr()).await;
    refused.write_all(asks("garbage").as_bytes()).await.unwrap();
    let answer = rest(&mut refused).await;
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    // An authenticated connection continues, even if one of several tokens is wrong.
    let mut known = dial(relay.local_addr()).await;
    for (token, status) in [
        (&*keys.token(|_| {}), 200),
        ("garbage", 401),
        (&*keys.token(|_| {}), 200),
    ] {
        known.write_all(asks(token).as_bytes()).await.unwrap();
        let answer = one_answer(&mut known).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{answer}"
        );
    }
    relay.abort().await;
}

/// The next answer, up to the end of its head and body.
async fn one_answer(stream: &mut tokio::net::TcpStream) -> String {
    let mut answer = String::new();
    let is_complete = |answer: &str| {
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))?;
        (body.len() >= length.parse().ok()?).then_some(())
    };
    while is_complete(&answer).is_none() {
        let mut bytes = [0; 4096];
        let read = stream.read(&mut bytes).await.unwrap();
        assert!(read > 0, "closed after {answer}");
        answer += std::str::from_utf8(&bytes[..read]).unwrap();
    }
    answer
}

/// The answer to a GET with `token`.
async fn get(relay: std::net::SocketAddr, path: &str, token: &str) -> String {
    let mut stream = dial(relay).await;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    rest(&mut stream).await
}
