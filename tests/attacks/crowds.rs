//! Crowds of clients without credentials cannot lock others out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::head;
use super::relay::*;

const CROWD_SIZE: usize = 5000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crowd_does_not_lock_out_a_token() {
    let relay = Arc::new(Relay::start(head::start().await, true));
    for (what, bytes) in [
        ("silent", &b""[..]),
        ("in the middle of a frame", b"Content-Length: 1000\r\n\r\n{"),
        ("in the middle of a request", b"GET / HTTP/1.1\r\nHost: a"),
        ("at the token prompt", b"\n"),
    ] {
        for from in [vec![LOCALHOST], everywhere()] {
            let crowd = relay.crowd(CROWD_SIZE, &from, bytes).await;
            for n in 0..3 {
                let token = relay.token(&format!("person {n}"));
                let (_dap, answer, elapsed) = relay.attach(&token).await;
                assert_eq!(answer["event"], "initialized", "{what}: {answer}");
                assert!(
                    elapsed < ATTACH_TIMEOUT,
                    "{what}, {} addresses: {elapsed:?}",
                    from.len()
                );
            }
            drop(crowd);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reconnecting_crowd_does_not_lock_out_a_token() {
    let relay = Arc::new(Relay::start(head::start().await, true));
    let over = Arc::new(AtomicBool::new(false));
    let crowd = relay.crowd(2000, &[LOCALHOST], b"").await;
    let lanes: Vec<_> = (0..4)
        .map(|_| {
            let (relay, over) = (Arc::clone(&relay), Arc::clone(&over));
            tokio::spawn(async move {
                let mut held = std::collections::VecDeque::new();
                while !over.load(Ordering::Relaxed) {
                    if let Ok(stream) = relay.dial(LOCALHOST).await {
                        held.push_back(stream);
                    }
                    if held.len() > 1000 {
                        held.pop_front();
                    }
                    // A thousand a second: saturating the machine would not test the relay.
                    tokio::time::sleep(Duration::from_millis(4)).await;
                }
            })
        })
        .collect();
    for n in 0..20 {
        let token = relay.token(&format!("person {n}"));
        let (_dap, answer, elapsed) = relay.attach(&token).await;
        assert_eq!(answer["event"], "initialized", "{answer}");
        assert!(elapsed < ATTACH_TIMEOUT, "{elapsed:?}");
    }
    over.store(true, Ordering::Relaxed);
    for lane in lanes {
        lane.await.unwrap();
    }
    drop(crowd);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_token_gets_no_more_than_its_share() {
    let relay = Relay::start(head::start().await, true);
    let (greedy, other) = (relay.token("greedy"), relay.token("other"));
    let mut held = Vec::new();
    let refused = loop {
        let (dap, answer, _) = relay.attach(&greedy).await;
        if answer["event"] != "initialized" {
            break answer["message"].as_str().unwrap().to_owned();
        }
        held.push(dap);
        assert!(held.len() < 100);
    };
    assert_eq!(held.len(), 16, "{refused}");
    assert!(refused.contains("cluster sessions"), "{refused}");
    let (_dap, answer, _) = relay.attach(&other).await;
    assert_eq!(answer["event"], "initialized", "{answer}");
    let mut streams = Vec::new();
    let refused = loop {
        let (stream, head) = relay.get("/relay/v1/events", &greedy).await;
        if !head.starts_with("HTTP/1.1 200") {
            break head;
        }
        streams.push(stream);
        assert!(streams.len() < 100);
    };
    assert_eq!(streams.len(), 16);
    assert!(refused.starts_with("HTTP/1.1 429"), "{refused}");
    let (_stream, head) = relay.get("/relay/v1/events", &other).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    // Idle HTTP connections count too, and only for their owner.
    let mut idle = Vec::new();
    let refused = loop {
        let (stream, head) = relay.get("/relay/v1/sessions", &greedy).await;
        if !head.starts_with("HTTP/1.1 200") {
            break head;
        }
        idle.push(stream);
        assert!(idle.len() < 1000);
    };
    assert!(refused.starts_with("HTTP/1.1 429"), "{refused}");
    assert_eq!(held.len() + streams.len() + idle.len(), 256);
    let (_dap, answer, elapsed) = relay.attach(&other).await;
    assert_eq!(answer["event"], "initialized", "{answer}");
    assert!(elapsed < ATTACH_TIMEOUT, "{elapsed:?}");
}
