//! Attacks on the default memory limit by clients with a credential. During each attack another client's attach must be
//! answered.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::head;
use super::relay::*;
use super::shipped::Shipped;

/// Opens a WebSocket, of which bytes are read and written as they are; `None`: the relay refused it.
async fn websocket(relay: &Relay, path: &str, protocol: &str, token: &str) -> Option<TcpStream> {
    let mut stream = relay.dial(LOCALHOST).await.ok()?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    let head = async {
        while !answer.windows(4).any(|window| window == b"\r\n\r\n") {
            if stream.read_buf(&mut answer).await.unwrap_or(0) == 0 {
                return;
            }
        }
    };
    timeout(TEST_TIMEOUT, head).await.ok()?;
    answer.starts_with(b"HTTP/1.1 101").then_some(stream)
}

/// A frame of a client's with `bytes`, of which it says that there are `announced`.
fn frame(opcode: u8, announced: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | opcode, 0xff];
    frame.extend((announced as u64).to_be_bytes());
    // The mask that changes nothing.
    frame.extend([0; 4]);
    frame.extend(bytes);
    frame
}

/// Whether the stream accepts `bytes` in time.
async fn say(stream: &mut TcpStream, bytes: &[u8]) -> bool {
    let written = timeout(Duration::from_secs(5), stream.write_all(bytes)).await;
    matches!(written, Ok(Ok(())))
}

/// `count` of what `one` makes, all at a time; those that the relay refused are left out.
async fn crowd<F>(count: usize, one: impl Fn() -> F) -> Vec<TcpStream>
where
    F: Future<Output = Option<TcpStream>> + Send + 'static,
{
    let mut crowd = JoinSet::new();
    for _ in 0..count {
        crowd.spawn(one());
    }
    crowd.join_all().await.into_iter().flatten().collect()
}

/// A link of `ray-relay connect` with a message of a debugger's client that is 1 MB and never whole.
async fn link(relay: Arc<Relay>, token: String) -> Option<TcpStream> {
    let (path, protocol) = ("/relay/v1/connect", "ray-relay-connect.v1");
    let mut stream = websocket(&relay, path, protocol, &token).await?;
    let mut bytes = b"Content-Length: 1048000\r\n\r\n{\"a\": \"".to_vec();
    bytes.resize(960 * 1024, b'x');
    let mut received = [0; 4096];
    for piece in bytes.chunks(64 * 1024) {
        if !say(&mut stream, &frame(2, piece.len(), piece)).await {
            break;
        }
        // Reads the window updates and pings of the relay.
        let _ = timeout(Duration::from_millis(100), stream.read(&mut received)).await;
    }
    Some(stream)
}

/// A link of an agent that never announces itself, with a message as large as may be that is never whole.
async fn agent(relay: Arc<Relay>, token: String) -> Option<TcpStream> {
    let (path, protocol) = ("/relay/v1/nodes/link", "ray-relay-node.v1");
    let mut stream = websocket(&relay, path, protocol, &token).await?;
    say(&mut stream, &frame(1, 256 * 1024, &[b'x'; 255 * 1024])).await;
    Some(stream)
}

/// Requests long lists of which the client may see nothing.
async fn lists(relay: Arc<Relay>, token: String, count: usize) -> Vec<TcpStream> {
    let mut requests = JoinSet::new();
    for _ in 0..count {
        let (relay, token) = (Arc::clone(&relay), token.clone());
        requests.spawn(async move {
            let mut stream = relay.dial(LOCALHOST).await.unwrap();
            let request = format!(
                "GET {} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n",
                head::LIST_PATH
            );
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            let read = stream.read_to_end(&mut answer);
            timeout(4 * TEST_TIMEOUT, read).await.unwrap().unwrap();
            let answer = String::from_utf8_lossy(&answer).into_owned();
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer:.300}");
            assert!(answer.contains("\"total\":0"), "{answer:.300}");
            assert!(!answer.contains("task_id"), "{answer:.300}");
            stream
        });
    }
    requests.join_all().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_credential_exhausts_the_default_memory_limit() {
    let shipped = Shipped::start(&[("default", head::start().await)]).await;
    let relay = Arc::clone(&shipped.relay);
    let asking = tokio::spawn(lists(
        Arc::clone(&relay),
        relay.token_with(&json!({"sub": "reader", "scope": "list"})),
        12,
    ));
    shipped.somebody("lists").await;
    asking.await.unwrap();
    shipped.somebody("after the lists").await;
    let mut held = Vec::new();
    for n in 0..3 {
        let token = relay.token_with(&json!({"sub": format!("person {n}"), "scope": ""}));
        held.push(crowd(100, || link(Arc::clone(&relay), token.clone())).await);
        shipped.somebody("links of people").await;
    }
    let token = relay.token_with(&json!({"sub": "nodes", "scope": "node"}));
    held.push(crowd(1500, || agent(Arc::clone(&relay), token.clone())).await);
    shipped.somebody("links of agents, beside those").await;
    // Memory for four requests remains available while others exhaust their share.
    let token = relay.token_with(&json!({"sub": "reader", "scope": "list"}));
    let asking = lists(Arc::clone(&relay), token, 4);
    let (_, ()) = tokio::join!(asking, shipped.somebody("all of it"));
    drop(held);
    shipped.somebody("afterwards").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scarce_descriptors_lock_nobody_out_and_revocations_are_read() {
    let revoked = tempfile::NamedTempFile::new().unwrap();
    let path = revoked.path().to_str().unwrap().to_owned();
    let setting = ("RAY_RELAY_AUTH_REVOCATIONS_FILE", &*path);
    let heads = [("default", head::start().await)];
    let relay = Relay::start_after("ulimit -n 256; ", &heads, true, Some(setting));
    let crowd = relay.crowd(400, &[LOCALHOST], b"").await;
    for n in 0..3 {
        let (_dap, answer, elapsed) = relay.attach(&relay.token(&format!("person {n}"))).await;
        assert_eq!(answer["event"], "initialized", "{answer}");
        eprintln!("with 256 descriptors: an attach took {elapsed:?}");
        assert!(elapsed < ATTACH_TIMEOUT, "{elapsed:?}");
    }
    let token = relay.token("gone");
    let (_stream, answer) = relay.get("/relay/v1/sessions", &token).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let line = format!("{{\"sub\": \"gone\", \"at\": {}}}\n", now.as_secs() + 1);
    std::fs::write(revoked.path(), line).unwrap();
    let refused = async {
        loop {
            let (_stream, answer) = relay.get("/relay/v1/sessions", &token).await;
            if answer.starts_with("HTTP/1.1 401") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(TEST_TIMEOUT, refused).await.unwrap();
    drop(crowd);
}
