//! Somebody who shows garbage, and a colleague behind the same address.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;

use super::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_from_the_same_address_keeps_no_right_token_out() {
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

/// The answer to a GET with `token`.
async fn get(relay: std::net::SocketAddr, path: &str, token: &str) -> String {
    let mut stream = dial(relay).await;
    let asked = format!(
        "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(asked.as_bytes()).await.unwrap();
    rest(&mut stream).await
}
