#![allow(clippy::unwrap_used)]

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::debugger::Direct;

#[test]
fn prompt_is_pending_until_answered() {
    let mut transcript = LegacyTranscript::default();
    assert_eq!(
        (transcript.question(), transcript.stored_question()),
        (&b""[..], &b"(Pdb) "[..])
    );
    transcript.record_output(b"> job.py(8)f()\r\n-> x = 1\r\n(Pd");
    assert!(!transcript.asks());
    assert_eq!(transcript.stored_question(), b"(Pd");
    transcript.record_output(b"b) ");
    assert!(transcript.asks());
    transcript.answered();
    assert!(!transcript.asks() && transcript.stored_question().is_empty());
    transcript.record_output(b"1\r\n");
    transcript.record_output(b"(Pdb) ");
    assert!(transcript.asks());
    transcript.record_output(&b"x".repeat(1 << 20));
    assert!(!transcript.asks() && transcript.question().is_empty());
}

#[test]
fn last_missed_output_is_stored_up_to_the_bound() {
    let mut transcript = LegacyTranscript::default();
    transcript.store_missed(b"\r\n(Pdb) ");
    for n in 0..100u8 {
        transcript.store_missed(&[n; 1000]);
    }
    let (dropped_bytes, missed) = transcript.take_missed();
    assert_eq!(
        (dropped_bytes, missed.len()),
        (100_008 - MAX_STORED_BYTES, MAX_STORED_BYTES)
    );
    assert_eq!(missed.last(), Some(&99));
    assert_eq!(transcript.take_missed(), (0, Vec::new()));
}

async fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap());
    let (near, far) = tokio::join!(near, listener.accept());
    (near.unwrap(), far.unwrap().0)
}

async fn read(stream: &mut TcpStream, expected: &str) {
    let mut transcript = vec![0; expected.len()];
    stream.read_exact(&mut transcript).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&transcript), expected);
}

/// A lost relay's partial line is no command, and its next relay gets the missed output.
#[tokio::test]
async fn agent_sends_whole_lines_and_stores_missed_output() {
    let (near, mut far) = connection().await;
    let tasks = TaskTracker::new();
    let mut session = LegacySession::new(Stream::Direct(Direct::new(near)), &tasks);
    for bytes in [&b"x = "[..], b"1\np", b" x\nde"] {
        let accepted = poll_fn(|cx| session.poll_forward(cx, bytes)).await;
        assert_eq!(accepted.unwrap(), bytes.len());
    }
    read(&mut far, "x = 1\np x\n").await;
    session.complete(b"l y");
    far.write_all(b"1\r\n(Pdb) ").await.unwrap();
    while !session.asks() {
        assert!(session.receive_unattended().await.unwrap() > 0);
    }
    assert!(session.is_paused());
    assert_eq!(session.missed_output(), b"1\r\n(Pdb) ");
    assert_eq!(session.missed_output(), b"(Pdb) ");
    drop(session);
    read(&mut far, "c\n").await;
    drop(far);
    tasks.close();
    tasks.wait().await;
}
