//! Tests the length of turns, and the tasks that run between them.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::*;

/// Longer than any step of these tests.
const TURN_TIMEOUT: Duration = Duration::from_secs(10);

/// Takes one turn of a busy direction.
async fn turn(pace: &mut Pace) {
    poll_fn(|cx| pace.poll_begin(cx)).await;
    pace.read(MAX_TURN_BYTES);
    let mut has_yielded = false;
    poll_fn(|cx| match std::mem::replace(&mut has_yielded, true) {
        true => Poll::Ready(()),
        false => pace.end(cx),
    })
    .await;
}

#[test]
fn turn_ends_by_bytes_or_time_and_adapts_its_step() {
    let mut pace = Pace::default();
    let mut cx = Context::from_waker(std::task::Waker::noop());
    pace.read(MIN_TURN_BYTES - 1);
    pace.rest();
    assert!(
        !pace.is_over(MAX_TURN_BYTES) && !pace.busy,
        "a small message"
    );
    pace.pause();
    assert!(pace.poll_begin(&mut cx).is_ready());
    pace.read(MAX_TURN_BYTES);
    assert!(pace.is_over(MAX_TURN_BYTES) && pace.busy);
    // Simulate steps of a millisecond each.
    pace.moved = MIN_TURN_BYTES;
    for _ in 0..40 {
        pace.began = Instant::now().checked_sub(Duration::from_millis(1));
        pace.is_over(MAX_TURN_BYTES);
    }
    assert!((MIN_TURN_BYTES..MIN_TURN_BYTES + 100).contains(&pace.step));
}

#[tokio::test]
async fn small_message_waits_for_one_busy_turn() {
    let mut tasks = JoinSet::new();
    tasks.spawn(serve());
    let turns = Arc::new(AtomicUsize::new(0));
    // The turn in which the last message was sent, by a busy peer.
    let sent = Arc::new(Mutex::new(None));
    let (sender, mut receiver) = UnixStream::pair().expect("a pair of sockets");
    let sender = Arc::new(sender);
    for _ in 0..8 {
        let (turns, sent, sender) = (turns.clone(), sent.clone(), sender.clone());
        tasks.spawn(async move {
            let mut pace = Pace::default();
            loop {
                turn(&mut pace).await;
                let now = turns.fetch_add(1, Ordering::Relaxed);
                let mut sent = sent.lock();
                if sent.is_none() {
                    sender.try_write(b"m").expect("room for a byte");
                    *sent = Some(now);
                }
            }
        });
    }
    let mut delays = Vec::new();
    for _ in 0..100 {
        let read = timeout(TURN_TIMEOUT, receiver.read_u8())
            .await
            .expect("in time");
        assert_eq!(read.ok(), Some(b'm'));
        let sent = sent.lock().take().expect("it was sent");
        delays.push(turns.load(Ordering::Relaxed) - sent);
    }
    delays.sort_unstable();
    assert!(
        delays[50] <= 2,
        "turns that messages waited for: {delays:?}"
    );
}

#[tokio::test]
async fn gone_or_unpolled_task_blocks_no_other() {
    let scheduler = tokio::spawn(serve());
    tokio::task::yield_now().await;
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let mut unpolled = Pace::default();
    unpolled.read(MAX_TURN_BYTES);
    assert!(unpolled.end::<()>(&mut cx).is_pending());
    let mut polled = Pace::default();
    for _ in 0..10 {
        timeout(TURN_TIMEOUT, turn(&mut polled))
            .await
            .expect("it has its turn");
    }
    // A waiting direction continues when no other is served any more.
    let waiting = tokio::spawn(async move {
        loop {
            turn(&mut polled).await;
        }
    });
    scheduler.abort();
    _ = scheduler.await;
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    waiting.abort();
    assert!(unpolled.poll_begin(&mut cx).is_ready());
}

#[tokio::test]
async fn peeking_within_a_turn_keeps_the_turn() {
    let mut tasks = JoinSet::new();
    tasks.spawn(serve());
    tokio::task::yield_now().await;
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let mut pace = Pace::default();
    pace.read(MAX_TURN_BYTES);
    assert!(pace.poll_begin(&mut cx).is_pending(), "it is busy");
    timeout(TURN_TIMEOUT, poll_fn(|cx| pace.poll_begin(cx)))
        .await
        .expect("its turn");
    assert!(pace.poll_begin(&mut cx).is_ready(), "the same turn");
    pace.pause();
    assert!(pace.poll_begin(&mut cx).is_pending(), "the next");
}
