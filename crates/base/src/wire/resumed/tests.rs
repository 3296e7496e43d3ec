//! Whatever is cut, and whenever: the bytes arrive once, whole and in order.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::{sleep, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::offsets::{IncomingOffsets, Mismatch, Next, OutgoingOffsets};
use super::*;
use crate::wire::peer_stream::PeerStream as _;
use crate::wire::tunnel::stream_config;

#[derive(Debug, Clone)]
enum Step {
    Write(usize),
    /// Over the transport, at most so many bytes, and whether it arrives.
    Send(usize),
    Read(usize),
    Tell(bool),
    /// Everything in transit is lost.
    Cut,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0usize..900).prop_map(Step::Write),
        (1usize..400).prop_map(Step::Send),
        (1usize..400).prop_map(Step::Read),
        any::<bool>().prop_map(Step::Tell),
        Just(Step::Cut),
    ];
    proptest::collection::vec(step, 0..200)
}

proptest! {
    #[test]
    fn written_bytes_are_read_across_any_cuts(steps in steps(), lost in proptest::collection::vec(0u8..4, 1..50)) {
        const WINDOW: usize = 1000;
        let (mut near, mut far) = (OutgoingOffsets::new(WINDOW), IncomingOffsets::new(WINDOW));
        let (mut wrote, mut read) = (0u64, 0u64);
        let mut lost = lost.iter().cycle();
        // A transport that has lost something loses everything behind that.
        let mut broken = false;
        let write = |near: &mut OutgoingOffsets, wrote: &mut u64, count: usize| {
            let bytes: Vec<u8> = (0..count as u64).map(|at| byte(*wrote + at)).collect();
            let took = near.write(&bytes);
            *wrote += took as u64;
            took
        };
        let take = |far: &mut IncomingOffsets, read: &mut u64, count: usize| {
            far.read(|bytes| {
                let now = bytes.len().min(count);
                for seen in &bytes[..now] {
                    assert_eq!(*seen, byte(*read));
                    *read += 1;
                }
                now
            })
        };
        for step in steps {
            match step {
                Step::Write(count) => {
                    let took = write(&mut near, &mut wrote, count);
                    prop_assert!(took == count || near.room() == 0);
                }
                Step::Send(most) => if let Some(Next::Bytes(bytes)) = near.send(most) {
                    broken |= *lost.next().unwrap() == 0;
                    if !broken {
                        far.receive(&bytes).unwrap();
                    }
                },
                Step::Read(count) => {
                    take(&mut far, &mut read, count);
                }
                Step::Tell(all) => if let Some(taken) = far.acknowledge(all) {
                    broken |= *lost.next().unwrap() == 0;
                    if !broken {
                        near.acknowledged(taken).unwrap();
                    }
                },
                Step::Cut => {
                    broken = false;
                    near.resume(far.received()).unwrap();
                    far.resume();
                }
            }
            prop_assert!(near.stored() <= WINDOW);
        }
        near.finish();
        near.resume(far.received()).unwrap();
        far.resume();
        for _ in 0..10_000 {
            match near.send(100) {
                Some(Next::Bytes(bytes)) => far.receive(&bytes).unwrap(),
                Some(Next::End) => far.finish().unwrap(),
                None => {}
            }
            let ended = take(&mut far, &mut read, usize::MAX) == Some(0);
            if let Some(taken) = far.acknowledge(true) {
                near.acknowledged(taken).unwrap();
            }
            if ended && near.is_done() {
                break;
            }
        }
        prop_assert!(near.is_done() && far.is_done());
        prop_assert_eq!(read, wrote);
    }
}

fn byte(at: u64) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 7) as u8
}

#[test]
fn wrong_offset_is_refused() {
    let mut near = OutgoingOffsets::new(10);
    assert_eq!(near.write(b"0123456789abc"), 10);
    assert!(matches!(near.send(4), Some(Next::Bytes(_))));
    let wrong = |said, from, to| {
        Err(Mismatch::Position {
            reported: said,
            from,
            to,
        })
    };
    assert_eq!(near.acknowledged(5), wrong(5, 0, 4));
    near.acknowledged(3).unwrap();
    assert_eq!(near.room(), 3);
    assert_eq!(near.acknowledged(2), wrong(2, 3, 4));
    assert_eq!(near.resume(2), wrong(2, 3, 4));
    assert_eq!(near.resume(5), wrong(5, 3, 4));
    near.resume(4).unwrap();
    assert_eq!(
        near.send(9),
        Some(Next::Bytes(bytes::Bytes::from_static(b"456789")))
    );

    let mut far = IncomingOffsets::new(10);
    far.receive(b"0123456789").unwrap();
    assert_eq!(far.receive(b"a"), Err(Mismatch::TooMuch));
    far.read(|bytes| bytes.len());
    // Taken, and the other side was not told.
    assert_eq!(far.receive(b"a"), Err(Mismatch::TooMuch));
    assert_eq!(far.acknowledge(false), Some(10));
    far.receive(b"a").unwrap();
    far.finish().unwrap();
    assert_eq!(far.receive(b"a"), Err(Mismatch::AfterEnd));
    assert_eq!(far.finish(), Err(Mismatch::AfterEnd));
}

async fn websockets() -> (WebSocketStream<DuplexStream>, WebSocketStream<DuplexStream>) {
    let (near, far) = duplex(32 * 1024);
    let config = Some(stream_config());
    (
        WebSocketStream::from_raw_socket(near, Role::Client, config).await,
        WebSocketStream::from_raw_socket(far, Role::Server, config).await,
    )
}

/// Both ends of a link, whose transports last as long as `lasts` says, one after another, and how the last one ended.
async fn carried(
    near: Arc<LinkHandle>,
    far: Arc<LinkHandle>,
    mut lasts: impl FnMut() -> Option<Duration>,
) -> Cut {
    loop {
        let (one, other) = websockets().await;
        let (from_near, from_far) = (near.received(), far.received());
        let (left, right) = (
            near.attach(from_far).unwrap(),
            far.attach(from_near).unwrap(),
        );
        let both = async { tokio::join!(carry(left, one), carry(right, other)).0 };
        match lasts() {
            None => return both.await,
            Some(lasts) => match timeout(lasts, both).await {
                Ok(cut) => return cut,
                Err(_) => sleep(Duration::from_secs(3)).await,
            },
        }
    }
}

#[tokio::test(start_paused = true)]
async fn megabytes_survive_many_cuts_in_both_directions() {
    let (near, mut left) = LinkHandle::new(UP_WINDOW_BYTES, DOWN_WINDOW_BYTES);
    let (far, mut right) = LinkHandle::new(DOWN_WINDOW_BYTES, UP_WINDOW_BYTES);
    let mut cuts = 0;
    let carrying = carried(near, far, move || {
        cuts += 1;
        // After some polls: the clock stands still while there is something to do.
        (cuts < 40).then_some(Duration::from_millis(0))
    });
    let all: Vec<u8> = (0..3_000_000).map(byte).collect();
    let (up, down) = (all.clone(), all.clone());
    let person = async move {
        let (mut reads, mut writes) = tokio::io::split(&mut left);
        let writing = async {
            writes.write_all(&up).await.unwrap();
            writes.shutdown().await.unwrap();
        };
        let mut heard = Vec::new();
        let (read, ()) = tokio::join!(reads.read_to_end(&mut heard), writing);
        read.unwrap();
        heard
    };
    let relay = async move {
        let mut heard = Vec::new();
        right.read_to_end(&mut heard).await.unwrap();
        right.write_all(&down).await.unwrap();
        right.shutdown().await.unwrap();
        heard
    };
    let (cut, from_relay, from_person) = tokio::join!(carrying, person, relay);
    assert_eq!(cut, Cut::Done);
    assert!(from_relay == all && from_person == all);
}

#[tokio::test(start_paused = true)]
async fn writes_during_a_cut_block_and_storage_is_bounded() {
    let (near, mut left) = LinkHandle::new(UP_WINDOW_BYTES, DOWN_WINDOW_BYTES);
    let filled = timeout(
        Duration::from_secs(3600),
        left.write_all(&vec![1; 2 * UP_WINDOW_BYTES]),
    )
    .await;
    assert!(filled.is_err());
    assert!(matches!(*near.phase().borrow(), Phase::Detached(_)));
    near.break_off("nobody has come");
    let why = left.write_all(b"more").await.unwrap_err();
    assert_eq!(why.to_string(), "nobody has come");
    assert!(left.read(&mut [0; 4]).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn silent_side_times_out_after_15_s_and_an_idle_one_stays() {
    let (near, _left) = LinkHandle::new(UP_WINDOW_BYTES, DOWN_WINDOW_BYTES);
    let (far, _right) = LinkHandle::new(DOWN_WINDOW_BYTES, UP_WINDOW_BYTES);
    let (one, other) = websockets().await;
    let near_end = near.attach(0).unwrap();
    // Heartbeats keep it, and measure.
    let quiet = carried(near.clone(), far.clone(), || Some(Duration::from_secs(600)));
    assert!(timeout(Duration::from_secs(500), quiet).await.is_err());
    assert!(near.round_trip().is_some());
    drop(near_end);
    let began = tokio::time::Instant::now();
    let cut = carry(near.attach(0).unwrap(), one).await;
    assert!(matches!(cut, Cut::Lost(_)), "{cut:?}");
    assert_eq!(began.elapsed(), SILENCE_TIMEOUT);
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn doubted_side_is_probed_with_a_short_timeout() {
    let (near, left) = LinkHandle::new(UP_WINDOW_BYTES, DOWN_WINDOW_BYTES);
    let (far, _right) = LinkHandle::new(DOWN_WINDOW_BYTES, UP_WINDOW_BYTES);
    let (one, other) = websockets().await;
    let near_end = near.attach(0).unwrap();
    let doubt = async {
        sleep(HEARTBEAT + Duration::from_millis(10)).await;
        left.doubt(true);
        assert_eq!(left.has_answered(), Some(false));
        sleep(3 * DOUBT_TIMEOUT).await;
        assert_eq!(left.has_answered(), Some(true));
        left.doubt(false);
        sleep(Duration::from_secs(60)).await;
    };
    tokio::select! {
        cut = carried(near.clone(), far.clone(), || Some(Duration::from_secs(600))) => panic!("{cut:?}"),
        () = doubt => {}
    }
    drop(near_end);
    // The other side says nothing.
    let began = tokio::time::Instant::now();
    let silent = async {
        sleep(Duration::from_secs(1)).await;
        left.doubt(true);
        std::future::pending().await
    };
    let cut = tokio::select! {
        cut = carry(near.attach(0).unwrap(), one) => cut,
        cut = silent => cut,
    };
    assert!(matches!(cut, Cut::Lost(_)), "{cut:?}");
    assert_eq!(began.elapsed(), DOUBT_TIMEOUT + Duration::from_secs(1));
    assert_eq!(left.has_answered(), Some(false));
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn new_transport_replaces_the_previous_one() {
    let (near, mut left) = LinkHandle::new(UP_WINDOW_BYTES, DOWN_WINDOW_BYTES);
    let (one, _other) = websockets().await;
    let first = near.attach(0).unwrap();
    let carrying = carry(first, one);
    let again = async {
        sleep(Duration::from_secs(1)).await;
        near.attach(0).unwrap()
    };
    let (cut, second) = tokio::join!(carrying, again);
    assert_eq!(cut, Cut::Over);
    assert_eq!(*near.phase().borrow(), Phase::Attached);
    drop(second);
    assert!(matches!(*near.phase().borrow(), Phase::Detached(_)));
    left.write_all(b"kept").await.unwrap();
    // More than was ever sent.
    assert!(near.attach(5).is_err());
    assert!(left.write_all(b"x").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn detach_notifies_the_peer_and_ends_both_sides() {
    let (near, left) = LinkHandle::new(UP_WINDOW_BYTES, DOWN_WINDOW_BYTES);
    let (far, mut right) = LinkHandle::new(DOWN_WINDOW_BYTES, UP_WINDOW_BYTES);
    near.take_up();
    let leaves = async {
        timeout(Duration::from_secs(60), far.used()).await.unwrap();
        right.write_all(b"for nobody").await.unwrap();
        drop(left);
        assert_eq!(right.read(&mut [0; 1]).await.unwrap(), 0);
        sleep(Duration::from_secs(1)).await;
        let wrote = right.write_all(b"more").await.unwrap_err();
        assert_eq!(wrote.kind(), std::io::ErrorKind::BrokenPipe);
        drop(right);
    };
    let (cut, ()) = tokio::join!(carried(near.clone(), far.clone(), || None), leaves);
    assert_eq!(cut, Cut::Done);
    assert_eq!(*near.phase().borrow(), Phase::Done);
    assert_eq!(*far.phase().borrow(), Phase::Done);
}
