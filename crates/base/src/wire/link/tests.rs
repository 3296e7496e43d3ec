//! Tests both ends of a link over a pipe.

use serde::Deserialize;
use tokio::io::{DuplexStream, duplex};
use tokio::time::sleep;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::*;
use crate::wire::tunnel::link_config;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Word(String);

type End = ControlLink<DuplexStream, Word, Word>;

const BURST: u32 = 64;
const PER_SECOND: u32 = 8;

fn word(text: &str) -> Word {
    Word(text.to_owned())
}

/// Returns the asking and the answering side, with a pipe of `room` bytes between them.
async fn linked_pair(buffer_size: usize) -> (End, End) {
    let (near, far) = duplex(buffer_size);
    let config = Some(link_config());
    let asking = WebSocketStream::from_raw_socket(near, Role::Server, config).await;
    let answering = WebSocketStream::from_raw_socket(far, Role::Client, config).await;
    (
        ControlLink::asking(asking, BURST, PER_SECOND),
        ControlLink::answering(answering, BURST, PER_SECOND),
    )
}

/// Waits for the end of `link`, and returns its reason and time.
async fn ended(link: &mut End) -> (LinkError, Instant) {
    loop {
        if let Err(error) = link.next().await {
            return (error, Instant::now());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn idle_link_stays_until_one_side_is_cut_off() {
    let (mut asking, mut answering) = linked_pair(4096).await;
    let both_ended = async { tokio::join!(ended(&mut asking), ended(&mut answering)) };
    assert!(
        timeout(Duration::from_secs(3600), both_ended)
            .await
            .is_err()
    );
    assert!(asking.round_trip().is_some());
    // No pong arrives.
    let cut_at = Instant::now();
    let (error, ended_at) = ended(&mut asking).await;
    assert_eq!(error, LinkError::Silent);
    assert!((SILENCE_TIMEOUT - PING_INTERVAL..=SILENCE_TIMEOUT).contains(&(ended_at - cut_at)));
    // No ping arrives.
    let (_far, mut answering_side) = linked_pair(4096).await;
    let cut_at = Instant::now();
    let (error, ended_at) = ended(&mut answering_side).await;
    assert_eq!(
        (error, ended_at - cut_at),
        (LinkError::Silent, SILENCE_TIMEOUT)
    );
}

/// The timeout must survive cancelled calls of `next`.
#[tokio::test(start_paused = true)]
async fn peer_that_reads_nothing_is_dropped() {
    let (mut asking, mut answering) = linked_pair(16).await;
    let started = Instant::now();
    let x = word("x");
    let pause = Duration::from_millis(300);
    let error = loop {
        let sending = timeout(pause, answering.say(&x));
        let (received, ..) = tokio::join!(timeout(pause, asking.next()), sending, sleep(pause));
        if let Ok(Err(error)) = received {
            break error;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "{received:?}");
    };
    assert_eq!(error, LinkError::NotTaken);
}

#[tokio::test(start_paused = true)]
async fn close_codes_are_stable() {
    for (code, reason) in [
        (1000, CloseReason::Left),
        (1001, CloseReason::Ending),
        (1002, CloseReason::Invalid),
        (1008, CloseReason::Refused),
        (1013, CloseReason::Later),
        (4001, CloseReason::Replaced),
        (4002, CloseReason::Silent),
    ] {
        assert_eq!(u16::from(reason.code()), code);
        let (mut asking, mut answering) = linked_pair(4096).await;
        let closing = asking.close(Some(word("last")), reason, "a sentence");
        let received = async {
            while answering.next().await.unwrap() != Some(word("last")) {}
            ended(&mut answering).await.0
        };
        let ((), received) = tokio::join!(closing, received);
        assert_eq!(received, LinkError::Closed(reason, "a sentence".to_owned()));
    }
    assert_eq!(
        CloseReason::of(CloseCode::Library(4999)),
        CloseReason::Unknown
    );
}

#[tokio::test(start_paused = true)]
async fn message_flood_ends_the_link() {
    let (mut asking, mut answering) = linked_pair(1 << 20).await;
    for _ in 0..=BURST {
        answering.say(&word("x")).await.unwrap();
    }
    let (error, _) = ended(&mut asking).await;
    assert_eq!(error, LinkError::Flood(PER_SECOND));
}
