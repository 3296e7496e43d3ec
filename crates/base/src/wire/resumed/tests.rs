//! Tests that bytes arrive once, complete and in order across any cuts.
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
    /// Sends at most so many bytes over the transport.
    Send(usize),
    Read(usize),
    Tell(bool),
    /// Cuts the transport: all bytes in transit are lost.
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
        // After a loss, a transport delivers nothing more.
        let mut broken = false;
        let write = |near: &mut OutgoingOffsets, wrote: &mut u64, count: usize| {
            let bytes: Vec<u8> = (0..count as u64).map(|offset| byte(*wrote + offset)).collect();
            let accepted = near.write(&bytes);
            *wrote += accepted as u64;
            accepted
        };
        let read_up_to = |far: &mut IncomingOffsets, read: &mut u64, count: usize| {
            far.read(|bytes| {
                let now = bytes.len().min(count);
                for value in &bytes[..now] {
                    assert_eq!(*value, byte(*read));
                    *read += 1;
                }
                now
            })
        };
        for step in steps {
            match step {
                Step::Write(count) => {
                    let accepted = write(&mut near, &mut wrote, count);
                    prop_assert!(accepted == count || near.room() == 0);
                }
                Step::Send(max) => if let Some(Next::Bytes(bytes)) = near.send(max) {
                    broken |= *lost.next().unwrap() == 0;
                    if !broken {
                        far.receive(&bytes).unwrap();
                    }
                },
                Step::Read(count) => {
                    read_up_to(&mut far, &mut read, count);
                }
                Step::Tell(all) => if let Some(offset) = far.acknowledge(all) {
                    broken |= *lost.next().unwrap() == 0;
                    if !broken {
                        near.acknowledged(offset).unwrap();
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
            let ended = read_up_to(&mut far, &mut read, usize::MAX) == Some(0);
            if let Some(offset) = far.acknowledge(true) {
                near.acknowledged(offset).unwrap();
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
    let wrong_position = |reported, from, to| Err(Mismatch::Position { reported, from, to });
    assert_eq!(near.acknowledged(5), wrong_position(5, 0, 4));
    near.acknowledged(3).unwrap();
    assert_eq!(near.room(), 3);
    assert_eq!(near.acknowledged(2), wrong_position(2, 3, 4));
    assert_eq!(near.resume(2), wrong_position(2, 3, 4));
    assert_eq!(near.resume(5), wrong_position(5, 3, 4));
    near.resume(4).unwrap();
    assert_eq!(
        near.send(9),
        Some(Next::Bytes(bytes::Bytes::from_static(b"456789")))
    );

    let mut far = IncomingOffsets::new(10);
    far.receive(b"0123456789").unwrap();
    assert_eq!(far.receive(b"a"), Err(Mismatch::TooMuch));
    far.read(|bytes| bytes.len());
    // The bytes are read, but not yet acknowledged.
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

/// Carries a link over successive transports with these lifetimes, and returns the end of the last one.
async fn carry_both(
    near: Arc<LinkHandle>,
    far: Arc<LinkHandle>,
    mut next_lifetime: impl FnMut() -> Option<Duration>,
) -> Cut {
    loop {
        let (one, other) = websockets().await;
        let (from_near, from_far) = (near.received(), far.received());
        let (near_link, far_link) = (
            near.attach(from_far).unwrap(),
            far.attach(from_near).unwrap(),
        );
        let carrying = async { tokio::join!(carry(near_link, one), carry(far_link, other)).0 };
        match next_lifetime() {
            None => return carrying.await,
            Some(lifetime) => match timeout(lifetime, carrying).await {
                Ok(end) => return end,
                Err(_) => sleep(Duration::from_secs(3)).await,
            },
        }
    }
}

#[tokio::test(start_paused = true)]
async fn megabytes_survive_many_cuts_in_both_directions() {
    let (near, mut near_link) = LinkHandle::new(UP_WINDOW_BYTES, DOWN_WINDOW_BYTES);
    let (far, mut far_link) = LinkHandle::new(DOWN_WINDOW_BYTES, UP_WINDOW_BYTES);
    let mut attempts = 0;
    let carrying = carry_both(near, far, move || {
        attempts += 1;
        // The paused clock moves only when no task is ready, so each transport gets some polls.
        (attempts < 40).then_some(Duration::from_millis(0))
    });
    let all: Vec<u8> = (0..3_000_000).map(byte).collect();
    let (up, down) = (all.clone(), all.clone());
    let near_side = async move {
        let (mut reader, mut writer) = tokio::io::split(&mut near_link);
        let writing = async {
            writer.write_all(&up).await.unwrap();
            writer.shutdown().await.unwrap();
        };
        let mut received = Vec::new();
        let (read, ()) = tokio::join!(reader.read_to_end(&mut received), writing);
        read.unwrap();
        received
    };
    let far_side = async move {
        let mut received = Vec::new();
        far_link.read_to_end(&mut received).await.unwrap();
        far_link.write_all(&down).await.unwrap();
        far_link.shutdown().await.unwrap();
        received
    };
    let (end, at_near, at_far) = tokio::join!(carrying, near_side, far_side);
    assert_eq!(end, Cut::Done);
    assert!(at_near == all && at_far == all);
}

#[tokio::test(start_paused = true)]
async fn writes_during_a_cut_block_and_storage_is_bounded() {
    let (near, mut near_link) = LinkHandle::new(UP_WINDOW_BYTES, DOWN_WINDOW_BYTES);
    let filling = timeout(
        Duration::from_secs(3600),
        near_link.write_all(&vec![1; 2 * UP_WINDOW_BYTES]),
    )
    .await;
    assert!(filling.is_err());
    assert!(matches!(*near.phase().borrow(), Phase::Detached(_)));
    near.break_off("nobody has come");
    let error = near_link.write_all(b"more").await.unwrap_err();
    assert_eq!(error.to_string(), "nobody has come");
    assert!(near_link.read(&mut [0; 4]).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn silent_side_times_out_after_15_s_and_an_idle_one_stays() {
    let (near, _left) = LinkHandle::new(UP_WINDOW_BYTES, DOWN_WINDOW_BYTES);
    let (far, _right) = LinkHandle::new(DOWN_WINDOW_BYTES, UP_WINDOW_BYTES);
    let (one, other) = websockets().await;
    let near_end = near.attach(0).unwrap();
    // Heartbeats keep the link alive and measure the round trip.
    let idle = carry_both(near.clone(), far.clone(), || Some(Duration::from_secs(600)));
    assert!(timeout(Duration::from_secs(500), idle).await.is_err());
    assert!(near.round_trip().is_some());
    drop(near_end);
    let started = tokio::time::Instant::now();
    let end = carry(near.attach(0).unwrap(), one).await;
    assert!(matches!(end, Cut::Lost(_)), "{end:?}");
    assert_eq!(started.elapsed(), SILENCE_TIMEOUT);
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn doubted_side_is_probed_with_a_short_timeout() {
    let (near, near_link) = LinkHandle::new(UP_WINDOW_BYTES, DOWN_WINDOW_BYTES);
    let (far, _right) = LinkHandle::new(DOWN_WINDOW_BYTES, UP_WINDOW_BYTES);
    let (one, other) = websockets().await;
    let near_end = near.attach(0).unwrap();
    let doubting = async {
        sleep(HEARTBEAT + Duration::from_millis(10)).await;
        near_link.doubt(true);
        assert_eq!(near_link.has_answered(), Some(false));
        sleep(3 * DOUBT_TIMEOUT).await;
        assert_eq!(near_link.has_answered(), Some(true));
        near_link.doubt(false);
        sleep(Duration::from_secs(60)).await;
    };
    tokio::select! {
        end = carry_both(near.clone(), far.clone(), || Some(Duration::from_secs(600))) => panic!("{end:?}"),
        () = doubting => {}
    }
    drop(near_end);
    // The other side sends nothing.
    let started = tokio::time::Instant::now();
    let doubting = async {
        sleep(Duration::from_secs(1)).await;
        near_link.doubt(true);
        std::future::pending().await
    };
    let end = tokio::select! {
        end = carry(near.attach(0).unwrap(), one) => end,
        end = doubting => end,
    };
    assert!(matches!(end, Cut::Lost(_)), "{end:?}");
    assert_eq!(started.elapsed(), DOUBT_TIMEOUT + Duration::from_secs(1));
    assert_eq!(near_link.has_answered(), Some(false));
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn new_transport_replaces_the_previous_one() {
    let (near, mut near_link) = LinkHandle::new(UP_WINDOW_BYTES, DOWN_WINDOW_BYTES);
    let (one, _other) = websockets().await;
    let first = near.attach(0).unwrap();
    let carrying = carry(first, one);
    let reattaching = async {
        sleep(Duration::from_secs(1)).await;
        near.attach(0).unwrap()
    };
    let (end, second) = tokio::join!(carrying, reattaching);
    assert_eq!(end, Cut::Over);
    assert_eq!(*near.phase().borrow(), Phase::Attached);
    drop(second);
    assert!(matches!(*near.phase().borrow(), Phase::Detached(_)));
    near_link.write_all(b"kept").await.unwrap();
    // The peer claims more bytes than were sent.
    assert!(near.attach(5).is_err());
    assert!(near_link.write_all(b"x").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn detach_notifies_the_peer_and_ends_both_sides() {
    let (near, near_link) = LinkHandle::new(UP_WINDOW_BYTES, DOWN_WINDOW_BYTES);
    let (far, mut far_link) = LinkHandle::new(DOWN_WINDOW_BYTES, UP_WINDOW_BYTES);
    near.take_up();
    let detaching = async {
        timeout(Duration::from_secs(60), far.used()).await.unwrap();
        far_link.write_all(b"for nobody").await.unwrap();
        drop(near_link);
        assert_eq!(far_link.read(&mut [0; 1]).await.unwrap(), 0);
        sleep(Duration::from_secs(1)).await;
        let error = far_link.write_all(b"more").await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
        drop(far_link);
    };
    let (end, ()) = tokio::join!(carry_both(near.clone(), far.clone(), || None), detaching);
    assert_eq!(end, Cut::Done);
    assert_eq!(*near.phase().borrow(), Phase::Done);
    assert_eq!(*far.phase().borrow(), Phase::Done);
}

mod vectors;
