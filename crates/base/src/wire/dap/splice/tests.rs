#![allow(clippy::unwrap_used)]

mod sockets;

use std::time::Duration;

use futures_util::FutureExt;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::wire::dap::codec::{Frames, frame, parse};
use crate::wire::dap::peek::Depth;
use crate::wire::turn;

fn rules(depth: Depth) -> Rules {
    Rules {
        depth,
        captures: |_, name| name == b"take",
        examined: |_, _| None,
        max_captured: 1 << 20,
        max_passed: 1 << 26,
    }
}

/// Returns the client's end, the worker's end and the splice.
fn spliced(
    buffer: usize,
) -> (
    DuplexStream,
    DuplexStream,
    Splice<DuplexStream, DuplexStream>,
) {
    let (client, near) = duplex(buffer);
    let (far, worker) = duplex(buffer);
    let splice = Splice::new(
        Account::default(),
        near,
        Vec::new(),
        rules(Depth::Whole),
        far,
        Vec::new(),
        rules(Depth::Deciding),
    );
    (client, worker, splice)
}

fn message(name: &str, number: usize, filler: usize) -> Value {
    json!({"seq": number, "type": "event", "event": name, "body": "x".repeat(filler)})
}

async fn read_all(stream: &mut DuplexStream) -> Vec<Value> {
    let mut frames = Frames::new(1 << 26);
    let mut all = Vec::new();
    while stream.read_buf(frames.buffer()).await.unwrap() > 0 {
        while let Some(body) = frames.next_body().unwrap() {
            all.push(parse(&body).unwrap());
        }
    }
    assert!(frames.into_rest().is_empty(), "no half frame is delivered");
    all
}

#[tokio::test]
async fn captured_messages_are_replaced_in_order() {
    for buffer in [7, 100, 1 << 16] {
        let (mut client, mut worker, mut splice) = spliced(buffer);
        let sender = tokio::spawn(async move {
            for number in 0..60 {
                let name = if number % 3 == 0 { "take" } else { "pass" };
                worker
                    .write_all(&frame(&message(name, number, number * 37)))
                    .await
                    .unwrap();
            }
            worker.shutdown().await.unwrap();
            worker
        });
        let receiver = tokio::spawn(async move { read_all(&mut client).await });
        loop {
            match splice.next().await {
                SpliceEvent::Captured(Side::Worker, body) => {
                    let mut captured = parse(&body).unwrap();
                    captured["event"] = "given".into();
                    splice.insert(Side::Client, &frame(&captured));
                }
                SpliceEvent::Eof(Side::Worker) => {
                    splice.close(Side::Client);
                    splice.flush(Side::Client).await;
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        // Polling on flushes the closed half; the client sends nothing.
        let _ = timeout(Duration::from_millis(50), splice.next()).await;
        let got = receiver.await.unwrap();
        let numbers: Vec<_> = got.iter().map(|m| m["seq"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (0..60).collect::<Vec<_>>(), "buffer {buffer}");
        assert!(got.iter().all(|m| m["event"]
            == if m["seq"].as_u64().unwrap() % 3 == 0 {
                "given"
            } else {
                "pass"
            }));
        drop(sender.await.unwrap());
    }
}

#[tokio::test]
async fn relay_message_never_splits_another_frame() {
    let (mut client, mut worker, mut splice) = spliced(1 << 16);
    let big = frame(&message("pass", 1, 5000));
    worker.write_all(&big[..3000]).await.unwrap();
    assert!(
        timeout(Duration::from_millis(20), splice.next())
            .await
            .is_err()
    );
    splice.insert(Side::Client, &frame(&message("own", 2, 0)));
    assert!(
        timeout(Duration::from_millis(20), splice.next())
            .await
            .is_err()
    );
    worker.write_all(&big[3000..]).await.unwrap();
    worker
        .write_all(&frame(&message("pass", 3, 10)))
        .await
        .unwrap();
    drop(worker);
    assert!(matches!(
        splice.next().await,
        SpliceEvent::Eof(Side::Worker)
    ));
    splice.close(Side::Client);
    let _ = timeout(Duration::from_millis(20), splice.next()).await;
    let seqs: Vec<_> = read_all(&mut client)
        .await
        .iter()
        .map(|m| m["seq"].as_u64().unwrap())
        .collect();
    assert_eq!(seqs, [1, 2, 3]);
}

#[tokio::test]
async fn half_closed_client_still_gets_answers() {
    let (mut client, mut worker, mut splice) = spliced(1 << 16);
    client
        .write_all(&frame(&message("pass", 1, 10)))
        .await
        .unwrap();
    client.shutdown().await.unwrap();
    assert!(matches!(
        splice.next().await,
        SpliceEvent::Eof(Side::Client)
    ));
    splice.close(Side::Worker);
    worker
        .write_all(&frame(&message("pass", 2, 10)))
        .await
        .unwrap();
    worker.shutdown().await.unwrap();
    assert!(matches!(
        splice.next().await,
        SpliceEvent::Eof(Side::Worker)
    ));
    splice.close(Side::Client);
    let _ = timeout(Duration::from_millis(20), splice.next()).await;
    assert!(splice.finished());
    assert_eq!(read_all(&mut worker).await[0]["seq"], 1);
    assert_eq!(read_all(&mut client).await[0]["seq"], 2);
}

#[tokio::test]
async fn malformed_input_is_reported_with_its_side() {
    let (mut client, _worker, mut splice) = spliced(1 << 16);
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(matches!(
        splice.next().await,
        SpliceEvent::Malformed(Side::Client, FrameError::BadHeader)
    ));
}

#[tokio::test]
async fn an_idle_direction_holds_no_buffer() {
    let (mut client, mut worker, mut splice) = spliced(64);
    let sender = tokio::spawn(async move {
        for number in 0..50 {
            worker
                .write_all(&frame(&message(
                    if number == 25 { "take" } else { "pass" },
                    number,
                    3000,
                )))
                .await
                .unwrap();
        }
        worker
    });
    let length = |number| frame(&message("pass", number, 3000)).len();
    let all: usize = (0..50).filter(|n| *n != 25).map(length).sum();
    let mut sink = vec![0; 200_000];
    let mut received_bytes = 0;
    let passing = async {
        while received_bytes < all {
            tokio::select! {
                event = splice.next() => assert!(matches!(event, SpliceEvent::Captured(..))),
                n = client.read(&mut sink) => received_bytes += n.unwrap(),
            }
        }
    };
    let passed = timeout(Duration::from_secs(10), passing).await;
    passed.expect("all but what is captured is passed on");
    assert_eq!(received_bytes, all);
    // All held bytes are passed on, and it polls for more.
    assert!(splice.next().now_or_never().is_none());
    drop(sender.await.unwrap());
    assert_eq!(
        splice.down.buffer.held() + splice.down.inserts.capacity(),
        0
    );
}

#[tokio::test]
async fn write_failure_is_reported_once() {
    let (mut client, worker, mut splice) = spliced(1 << 16);
    drop(worker);
    let sent = frame(&message("pass", 1, 10));
    client.write_all(&sent).await.unwrap();
    assert!(matches!(
        splice.next().await,
        SpliceEvent::Failed(Side::Worker, _)
    ));
    assert!(matches!(
        splice.next().await,
        SpliceEvent::Eof(Side::Worker)
    ));
    splice.insert(Side::Worker, &sent);
    client.write_all(&sent).await.unwrap();
    assert!(
        timeout(Duration::from_millis(20), splice.next())
            .await
            .is_err()
    );
}

#[tokio::test(start_paused = true)]
async fn client_is_extracted_only_between_messages() {
    let (mut client, worker, mut splice) = spliced(1 << 16);
    drop(worker);
    let half = frame(&message("take", 2, 100));
    let sent = [frame(&message("pass", 1, 10)), half[..60].to_vec()].concat();
    client.write_all(&sent).await.unwrap();
    while !matches!(splice.next().await, SpliceEvent::Failed(Side::Worker, _)) {}
    let (mut near, rest) = splice.into_client().unwrap();
    let mut frames = Frames::new(1 << 20);
    frames.buffer().extend_from_slice(&rest);
    client.write_all(&half[60..]).await.unwrap();
    let body = loop {
        match frames.next_body().unwrap() {
            Some(body) if parse(&body).unwrap()["event"] == "take" => break body,
            Some(_) => {}
            None => assert!(near.read_buf(frames.buffer()).await.unwrap() > 0),
        }
    };
    assert_eq!(parse(&body).unwrap()["seq"], 2);

    let (mut client, near) = duplex(1 << 16);
    let (far, _worker) = duplex(1 << 16);
    let (up, down) = (rules(Depth::Deciding), rules(Depth::Deciding));
    let mut splice = Splice::new(
        Account::default(),
        near,
        Vec::new(),
        up,
        far,
        Vec::new(),
        down,
    );
    let passing = frame(&message("pass", 1, 1000));
    client.write_all(&passing[..900]).await.unwrap();
    // Incomplete messages pass in pieces.
    assert!(
        timeout(Duration::from_secs(1), splice.next())
            .await
            .is_err()
    );
    assert!(splice.into_client().is_none());
}

/// A worker that accepts ten bytes; `rest` collects the bytes handed over at the end.
#[derive(Debug)]
struct Slow {
    inner: DuplexStream,
    accepted: usize,
    rest: std::sync::Arc<std::sync::Mutex<Vec<u8>>>,
}

impl tokio::io::AsyncRead for Slow {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

crate::wire::write_through!([] Slow { Self { inner, .. } => inner });

impl PeerStream for Slow {
    fn poll_pass(&mut self, _: &mut Context<'_>, messages: &[u8]) -> Poll<io::Result<usize>> {
        match 10 - self.accepted {
            0 => Poll::Pending,
            room => {
                self.accepted += room.min(messages.len());
                Poll::Ready(Ok(room.min(messages.len())))
            }
        }
    }

    fn complete(&mut self, rest: &[u8]) {
        self.rest.lock().unwrap().extend_from_slice(rest);
    }
}

#[tokio::test(start_paused = true)]
async fn unwritten_rest_is_handed_over_at_the_end() {
    for is_own in [false, true] {
        let (mut client, near) = duplex(1 << 16);
        let (inner, _worker) = duplex(1 << 16);
        let rest = std::sync::Arc::default();
        let slow = Slow {
            inner,
            accepted: 0,
            rest: std::sync::Arc::clone(&rest),
        };
        let (up, down) = (rules(Depth::Whole), rules(Depth::Deciding));
        let mut splice = Splice::new(
            Account::default(),
            near,
            Vec::new(),
            up,
            slow,
            Vec::new(),
            down,
        );
        let sent = frame(&message("pass", 1, 100));
        match is_own {
            true => splice.insert(Side::Worker, &sent),
            false => client.write_all(&sent).await.unwrap(),
        }
        let idle = timeout(Duration::from_secs(1), splice.next()).await;
        assert!(idle.is_err());
        drop(splice);
        assert_eq!(*rest.lock().unwrap(), sent[10..], "own: {is_own}");
    }
}

#[tokio::test]
async fn passed_capture_keeps_its_order_and_bytes() {
    for buffer in [7, 100, 1 << 16] {
        let (mut client, mut worker, mut splice) = spliced(buffer);
        let names = ["take", "pass", "take", "take", "pass"];
        let sender = tokio::spawn(async move {
            for (number, name) in names.iter().cycle().take(60).enumerate() {
                let sent = frame(&message(name, number, number * 37));
                worker.write_all(&sent).await.unwrap();
            }
            worker.shutdown().await.unwrap();
            worker
        });
        let receiver = tokio::spawn(async move { read_all(&mut client).await });
        let number = |body: &[u8]| parse(body).unwrap()["seq"].as_u64().unwrap();
        let mut reported = Vec::new();
        loop {
            match splice.next_but(|_, body| number(body) % 2 == 0).await {
                SpliceEvent::Captured(Side::Worker, body) => {
                    reported.push(number(&body));
                    splice.insert_body(Side::Client, &body);
                }
                SpliceEvent::Eof(Side::Worker) => break splice.close(Side::Client),
                other => panic!("{other:?}"),
            }
        }
        splice.flush(Side::Client).await;
        let _ = timeout(Duration::from_millis(50), splice.next()).await;
        let received = receiver.await.unwrap();
        let numbers: Vec<_> = received
            .iter()
            .map(|m| m["seq"].as_u64().unwrap())
            .collect();
        assert_eq!(numbers, (0..60).collect::<Vec<_>>(), "buffer {buffer}");
        assert!(!reported.is_empty() && reported.iter().all(|number| number % 2 == 1));
        drop(sender.await.unwrap());
    }
}

#[tokio::test]
async fn capture_with_another_header_is_always_reported() {
    let (_client, mut worker, mut splice) = spliced(1 << 16);
    let body = message("take", 1, 10).to_string();
    let sent = format!("content-length: {}\r\n\r\n{body}", body.len());
    worker.write_all(sent.as_bytes()).await.unwrap();
    let reported = splice.next_but(|_, _| true).await;
    assert!(matches!(reported, SpliceEvent::Captured(Side::Worker, _)));
}

#[tokio::test]
async fn costly_directions_share_turns_by_time() {
    let costly = |_, _: &mut [u8]| {
        let started = std::time::Instant::now();
        while started.elapsed() < Duration::from_millis(1) {}
        true
    };
    let mut splices = Vec::new();
    for _ in 0..2 {
        let (client, mut worker, splice) = spliced(1 << 20);
        for number in 0..30 {
            let sent = frame(&message("take", number, 20_000));
            worker.write_all(&sent).await.unwrap();
        }
        splices.push((client, worker, splice));
    }
    let _serving = AbortOnDropHandle::new(tokio::spawn(turn::serve()));
    let mut sink = vec![0; 1 << 20];
    let mut turns = [0; 2];
    while turns.iter().any(|turns| *turns < 4) {
        for ((client, _, splice), turns) in splices.iter_mut().zip(&mut turns) {
            assert!(splice.next_but(costly).now_or_never().is_none());
            let moved = client.read(&mut sink).now_or_never();
            let moved = moved.map_or(0, Result::unwrap);
            // The first direction has its first turn alone, without a limit.
            assert!(*turns == 0 || moved < 3 * 20_000, "{turns}: {moved}");
            *turns += usize::from(moved > 0);
        }
        // Let the scheduler choose the next turn.
        tokio::task::yield_now().await;
    }
}
