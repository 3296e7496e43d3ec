//! A debugger that dials and takes its time, and a person who does.

use std::io::ErrorKind;

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::time::sleep;

use super::support::*;

#[tokio::test]
async fn a_debugger_that_is_silent_at_first_gets_its_session_and_no_text_before_it() {
    let relay = start(|_| {}).await;
    let stream = dial(relay.local_addr()).await;
    // What is tested is the silence itself: a busy laptop between `connect` and `initialize`.
    sleep(std::time::Duration::from_secs(5)).await;
    let nothing = stream.try_read(&mut [0; 64]);
    assert_eq!(nothing.unwrap_err().kind(), ErrorKind::WouldBlock);
    // A `Conversation` takes nothing but frames, so the first byte it reads is the C of its header.
    let (_dap, answer) = attach(stream, &json!({"all": true})).await;
    assert_eq!(answer["event"], "initialized", "{answer}");
    relay.abort().await;
}

#[tokio::test]
async fn a_person_gets_the_list_on_enter_and_a_silent_one_a_sentence_at_the_end() {
    let relay = start(|config| config.listen.handshake_timeout = TEST_TIMEOUT / 20).await;
    for hello in [&b"\n"[..], b"\r\n", b"list\n", b"\xff\xfb\x1f\r\n"] {
        let mut person = dial(relay.local_addr()).await;
        person.write_all(hello).await.unwrap();
        person.write_all(b"q\n").await.unwrap();
        let said = rest(&mut person).await;
        assert!(
            said.contains("tasks that wait at a breakpoint"),
            "{hello:?}: {said}"
        );
    }
    let mut silent = dial(relay.local_addr()).await;
    let said = rest(&mut silent).await;
    assert!(
        said.contains("press Enter") && !said.contains("tasks that wait"),
        "{said}"
    );
    relay.abort().await;
}
