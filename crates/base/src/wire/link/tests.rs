//! Both ends of a link over a pipe.

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

/// The side that asks and the one that is asked, with so many bytes between them.
async fn ends(room: usize) -> (End, End) {
    let (near, far) = duplex(room);
    let config = Some(link_config());
    let asking = WebSocketStream::from_raw_socket(near, Role::Server, config).await;
    let answering = WebSocketStream::from_raw_socket(far, Role::Client, config).await;
    (
        ControlLink::asking(asking, BURST, PER_SECOND),
        ControlLink::answering(answering, BURST, PER_SECOND),
    )
}

/// Waits for the end of `link`; returns its reason and time.
async fn ended(link: &mut End) -> (LinkError, Instant) {
    loop {
        if let Err(why) = link.next().await {
            return (why, Instant::now());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn idle_link_stays_until_one_side_is_cut_off() {
    let (mut asking, mut answering) = ends(4096).await;
    let talk = async { tokio::join!(ended(&mut asking), ended(&mut answering)) };
    assert!(timeout(Duration::from_secs(3600), talk).await.is_err());
    assert!(asking.round_trip().is_some());
    // No answer comes.
    let cut = Instant::now();
    let (why, at) = ended(&mut asking).await;
    assert_eq!(why, LinkError::Silent);
    assert!((SILENCE_TIMEOUT - PING_INTERVAL..=SILENCE_TIMEOUT).contains(&(at - cut)));
    // No question comes.
    let (_far, mut alone) = ends(4096).await;
    let cut = Instant::now();
    let (why, at) = ended(&mut alone).await;
    assert_eq!((why, at - cut), (LinkError::Silent, SILENCE_TIMEOUT));
}

/// However often the wait for what comes is given up meanwhile.
#[tokio::test(start_paused = true)]
async fn peer_that_reads_nothing_is_dropped() {
    let (mut asking, mut answering) = ends(16).await;
    let began = Instant::now();
    let x = word("x");
    let pause = Duration::from_millis(300);
    let why = loop {
        let said = timeout(pause, answering.say(&x));
        let (heard, ..) = tokio::join!(timeout(pause, asking.next()), said, sleep(pause));
        if let Ok(Err(why)) = heard {
            break why;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{heard:?}");
    };
    assert_eq!(why, LinkError::NotTaken);
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
        let (mut asking, mut answering) = ends(4096).await;
        let closing = asking.close(Some(word("last")), reason, "a sentence");
        let heard = async {
            while answering.next().await.unwrap() != Some(word("last")) {}
            ended(&mut answering).await.0
        };
        let ((), heard) = tokio::join!(closing, heard);
        assert_eq!(heard, LinkError::Closed(reason, "a sentence".to_owned()));
    }
    assert_eq!(
        CloseReason::of(CloseCode::Library(4999)),
        CloseReason::Unknown
    );
}

#[tokio::test(start_paused = true)]
async fn message_flood_ends_the_link() {
    let (mut asking, mut answering) = ends(1 << 20).await;
    for _ in 0..=BURST {
        answering.say(&word("x")).await.unwrap();
    }
    let (why, _) = ended(&mut asking).await;
    assert_eq!(why, LinkError::Flood(PER_SECOND));
}
