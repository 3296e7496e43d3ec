//! Attacks on the relay's memory by clients without credentials.

use tokio::io::AsyncReadExt;

use super::head;
use super::relay::*;

/// Somewhat more than `listen.max_connections`.
const CONNECTIONS: usize = 1030;

/// Unfinished messages of every kind, each as large as it may be or larger.
fn unfinished() -> Vec<(&'static str, Vec<u8>)> {
    let frame = |announced: usize, sent: usize| {
        let mut bytes = format!("Content-Length: {announced}\r\n\r\n{{\"a\": [").into_bytes();
        bytes.extend(b"0,".iter().cycle().take(sent));
        bytes
    };
    let mut initialize = format!(
        "{{\"seq\":1,\"type\":\"request\",\"command\":\"initialize\",\"arguments\":{{\"clientID\":[{}0]}}}}",
        "0,".repeat(8000)
    );
    initialize = format!("Content-Length: {}\r\n\r\n{initialize}", initialize.len());
    let head = format!(
        "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: {}",
        "a".repeat(60_000)
    );
    vec![
        ("a large frame", frame(256 * 1024, 256 * 1024 - 100)),
        (
            "a frame as large as may be",
            frame(16 * 1024, 16 * 1024 - 100),
        ),
        (
            "a frame for where nobody is authenticated",
            frame(64 * 1024, 64 * 1024 - 100),
        ),
        ("an initialize with many values", initialize.into_bytes()),
        ("a head of a request", head.into_bytes()),
        ("a line", vec![b'x'; 60_000]),
        (
            "a ClientHello",
            [b"\x16\x03\x01\x40\x00".to_vec(), vec![0; 16_000]].concat(),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_messages_stay_within_their_budget() {
    for with_tokens in [true, false] {
        let relay = Relay::start(head::start().await, with_tokens);
        let before = relay.memory("VmRSS");
        for (what, bytes) in unfinished() {
            let crowd = relay.crowd(CONNECTIONS, &[LOCALHOST], &bytes).await;
            let peak = relay.memory("VmHWM");
            eprintln!(
                "{what}, tokens {with_tokens}: {} MiB before, {} MiB at most",
                before >> 20,
                peak >> 20
            );
            assert!(peak < MAX_MEMORY_BYTES, "{what}: {} MiB", peak >> 20);
            drop(crowd);
        }
        eprintln!("{} MiB afterwards", relay.memory("VmRSS") >> 20);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_answers_stay_within_their_budget() {
    for with_tokens in [true, false] {
        let relay = Relay::start(head::start().await, with_tokens);
        let before = relay.memory("VmRSS");
        let request = b"GET /static/js/main.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
        // Again and again: what is kept for the next time does not grow.
        for _ in 0..3 {
            drop(relay.crowd(CONNECTIONS, &[LOCALHOST], request).await);
        }
        let crowd = relay.crowd(CONNECTIONS, &[LOCALHOST], request).await;
        if with_tokens {
            // A client with a token gets the whole response next to the crowd.
            let (stream, answer) = relay.get("/static/js/main.js", &relay.token("ann")).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            let begun = answer.len() - answer.find("\r\n\r\n").unwrap() - 4;
            let mut remaining = stream.take((head::SCRIPT_BYTES - begun) as u64);
            let mut sink = tokio::io::sink();
            let copied = tokio::io::copy(&mut remaining, &mut sink);
            let copied = tokio::time::timeout(TEST_TIMEOUT, copied).await.unwrap();
            assert_eq!(copied.unwrap() as usize + begun, head::SCRIPT_BYTES);
        }
        let peak = relay.memory("VmHWM");
        eprintln!(
            "tokens {with_tokens}: {} MiB before, {} MiB at most",
            before >> 20,
            peak >> 20
        );
        assert!(peak < MAX_MEMORY_BYTES, "{} MiB", peak >> 20);
        drop(crowd);
        eprintln!("{} MiB afterwards", relay.memory("VmRSS") >> 20);
    }
}
