//! A debugger that dials and is silent, and a terminal user who is.

use std::io::ErrorKind;

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::time::sleep;

use super::support::*;

#[tokio::test]
async fn slow_debugger_gets_its_session_without_preceding_text() {
    let relay = start(|_| {}).await;
    let stream = dial(relay.local_addr()).await;
    // The test measures this silence itself: a busy laptop between `connect` and `initialize`.
    sleep(std::time::Duration::from_secs(5)).await;
    let nothing = stream.try_read(&mut [0; 64]);
    assert_eq!(nothing.unwrap_err().kind(), ErrorKind::WouldBlock);
    // A `Conversation` takes nothing but frames, so the first byte it reads is the C of its header.
    let (_dap, answer) = attach(stream, &json!({"all": true})).await;
    assert_eq!(answer["event"], "initialized", "{answer}");
    relay.abort().await;
}

#[tokio::test]
async fn nc_lists_on_enter_and_explains_a_timeout() {
    let relay = start(|config| config.listen.handshake_timeout = TEST_TIMEOUT / 20).await;
    for hello in [&b"\n"[..], b"\r\n", b"list\n", b"\xff\xfb\x1f\r\n"] {
        let mut user = dial(relay.local_addr()).await;
        user.write_all(hello).await.unwrap();
        user.write_all(b"q\n").await.unwrap();
        let reply = rest(&mut user).await;
        assert!(
            reply.contains("tasks that wait at a breakpoint"),
            "{hello:?}: {reply}"
        );
    }
    let mut silent = dial(relay.local_addr()).await;
    let reply = rest(&mut silent).await;
    assert!(
        reply.contains("press Enter") && !reply.contains("tasks that wait"),
        "{reply}"
    );
    relay.abort().await;
}
