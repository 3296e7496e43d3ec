//! Posting to a webhook on a real socket.

use std::net::SocketAddr;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::ann;
use crate::notice::delivery::{Outcome, Post, run};
use crate::notice::message::Notice;
use crate::notice::queue::Queue;
use crate::notice::target::{ID, SIGNATURE, Target};
use ray_relay_access::telemetry::Metrics;
use ray_relay_access::telemetry::testing::Log;
use ray_relay_base::config::{self, Fault, NoticeEvent};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::text::hex;
use ray_relay_ray::ray::testing::paused;

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// The secret path of the webhook's address.
const PATH: &str = "/services/T0/SECRET?token=HIDDEN";

const KEY: &str = "0123456789abcdef0123456789abcdef-key\n";

/// Creates a `[notice]` configuration with these files.
fn notice_config(address: &str, key: &str) -> (TempDir, config::Notice) {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        Some(path)
    };
    let config = config::Notice {
        url_file: write("url", address),
        key_file: write("key", key),
        ..config::Notice::default()
    };
    (dir, config)
}

fn load(config: &config::Notice) -> Result<Target, Vec<Fault>> {
    Target::load(config, config.url_file.as_deref().unwrap())
}

fn notice(config: &config::Notice) -> Notice {
    let breakpoint = paused("square", 1);
    Notice::new(
        config,
        NoticeEvent::Parked,
        &breakpoint,
        Some(&ann()),
        Timestamp::now(),
    )
}

async fn webhook() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Accepts one request and answers it. Returns its head and body.
async fn answer(listener: &TcpListener, answer: &str) -> (String, Vec<u8>) {
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut received = Vec::new();
        let end = loop {
            assert_ne!(stream.read_buf(&mut received).await.unwrap(), 0);
            let head = received.windows(4).position(|window| window == b"\r\n\r\n");
            let Some(head) = head else { continue };
            let text = String::from_utf8_lossy(&received[..head]).to_ascii_lowercase();
            let (_, length) = text.split_once("content-length: ").unwrap();
            let length: usize = length.lines().next().unwrap().parse().unwrap();
            if received.len() >= head + 4 + length {
                break head;
            }
        };
        let body = "SECRET of the webhook";
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {answer}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        stream.write_all(answer.as_bytes()).await.unwrap();
        let head = String::from_utf8(received[..end].to_vec()).unwrap();
        (head, received[end + 4..].to_vec())
    };
    timeout(TEST_TIMEOUT, serve).await.unwrap()
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    let line = lines.find(|(key, _)| key.eq_ignore_ascii_case(name));
    line.map(|(_, value)| value)
}

/// HMAC-SHA-256 by RFC 2104, for a key of at most a block.
fn hmac(key: &[u8], text: &[u8]) -> String {
    let padded_key = |byte: u8| {
        let mut block = [byte; 64];
        block.iter_mut().zip(key).for_each(|(b, key)| *b ^= key);
        block
    };
    let inner = digest(&SHA256, &[&padded_key(0x36)[..], text].concat());
    hex(digest(&SHA256, &[&padded_key(0x5c)[..], inner.as_ref()].concat()).as_ref())
}

#[tokio::test]
async fn notice_is_posted_with_an_id_and_a_signature() {
    let (listener, address) = webhook().await;
    let (_dir, config) = notice_config(&format!("http://{address}{PATH}\n"), KEY);
    let (target, notice) = (load(&config).unwrap(), notice(&config));
    let (outcome, (head, body)) = tokio::join!(target.post(&notice), answer(&listener, "200 OK"));
    assert_eq!(outcome, Outcome::Delivered);
    assert!(
        head.starts_with(&format!("POST {PATH} HTTP/1.1\r\n")),
        "{head}"
    );
    assert_eq!(header(&head, "content-type"), Some("application/json"));
    assert_eq!(header(&head, ID), Some(&*notice.id));
    assert_eq!(body, notice.body);
    let signature = header(&head, SIGNATURE).unwrap();
    let (time, signature) = signature.split_once(",v1=").unwrap();
    let time = time.strip_prefix("t=").unwrap();
    let signed = [format!("{time}.").as_bytes(), &body].concat();
    assert_eq!(signature, hmac(KEY.trim_end().as_bytes(), &signed));
    let now = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap()
        .as_secs();
    assert!(now - time.parse::<u64>().unwrap() < 60, "{time}");
    // Without a key, notices are not signed.
    let config = config::Notice {
        key_file: None,
        ..config
    };
    let target = load(&config).unwrap();
    let (_, (head, _)) = tokio::join!(target.post(&notice), answer(&listener, "200 OK"));
    assert_eq!(header(&head, SIGNATURE), None);
}

#[tokio::test]
async fn status_code_decides_whether_to_retry() {
    let (listener, address) = webhook().await;
    let (_dir, config) = notice_config(&format!("http://{address}{PATH}"), KEY);
    let (target, notice) = (load(&config).unwrap(), notice(&config));
    for (status, is_retried) in [
        ("204 No Content", None),
        ("429 Too Many Requests\r\nRetry-After: 30", Some(Some(30))),
        ("503 Service Unavailable", Some(None)),
        (
            "500 Error\r\nRetry-After: Mon, 23 Nov 2026 02:00:00 GMT",
            Some(None),
        ),
    ] {
        let (outcome, _) = tokio::join!(target.post(&notice), answer(&listener, status));
        let retry_after = match &outcome {
            Outcome::Again { after, .. } => Some(after.map(|after| after.as_secs())),
            Outcome::Delivered | Outcome::Refused(_) => None,
        };
        assert_eq!(retry_after, is_retried, "{status}");
    }
    // Redirects are not followed.
    let redirect = format!("307 Temporary Redirect\r\nLocation: http://{address}/other");
    for status in ["404 Not Found", "403 Forbidden", &redirect] {
        let (outcome, _) = tokio::join!(target.post(&notice), answer(&listener, status));
        assert!(
            matches!(outcome, Outcome::Refused(_)),
            "{status}: {outcome:?}"
        );
    }
    drop(listener);
    let outcome = target.post(&notice).await;
    assert!(matches!(outcome, Outcome::Again { .. }), "{outcome:?}");
}

#[test]
fn unusable_files_are_reported_together_without_content() {
    let keys = |config: &config::Notice| -> Vec<(&'static str, String)> {
        let faults = load(config).err().unwrap_or_default();
        let keys_and_errors = faults.iter().map(|fault| (fault.key, fault.to_string()));
        keys_and_errors.collect()
    };
    let (_dir, mut config) = notice_config("http://hooks.example.com/SECRET", "SECRET-too-short\n");
    config.ca_file = Some("/nowhere/ca.crt".into());
    let key_errors = keys(&config);
    let keys_found: Vec<_> = key_errors.iter().map(|(key, _)| *key).collect();
    assert_eq!(
        keys_found,
        ["notice.url_file", "notice.key_file", "notice.ca_file"]
    );
    assert!(
        !format!("{key_errors:?}").contains("SECRET"),
        "{key_errors:?}"
    );
    assert_eq!(crate::notice::check(&config).len(), 3);
    config.url_file = Some("/nowhere/url".into());
    let key_errors = keys(&config);
    assert!(key_errors[0].1.contains("/nowhere/url"), "{key_errors:?}");
    let (_dir, config) = notice_config("http://localhost:1/SECRET", KEY);
    assert!(crate::notice::check(&config).is_empty());
    assert_eq!(load(&config).unwrap().host(), "localhost");
}

#[tokio::test]
async fn log_contains_no_webhook_address_key_or_answer() {
    let log = Log::start();
    let (listener, address) = webhook().await;
    let (_dir, config) = notice_config(&format!("http://{address}{PATH}"), KEY);
    let target = load(&config).unwrap();
    let metrics = Metrics::new().unwrap();
    let queue = Queue::new(metrics.clone());
    for _ in 0..3 {
        queue.push(notice(&config));
    }
    let answers = async {
        for status in ["500 SECRET", "200 OK", "404 SECRET"] {
            answer(&listener, status).await;
        }
        drop(listener);
        while !log.text().contains("refused (os") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        () = run(&target, target.host(), &queue, &metrics) => {}
        done = timeout(TEST_TIMEOUT, answers) => done.unwrap(),
    }
    let logged = log.text();
    for expected in ["500", "404", "tried again", "refuses", "127.0.0.1"] {
        assert!(logged.contains(expected), "{expected}: {logged}");
    }
    for secret in ["SECRET", "HIDDEN", "services", KEY.trim_end()] {
        assert!(!logged.contains(secret), "{secret}: {logged}");
    }
}
