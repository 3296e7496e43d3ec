//! Tests links over a pipe, and the reasons for their end.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use tokio::io::{DuplexStream, duplex};
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::super::Agent;
use super::super::connect::{Dialler, Relay};
use super::super::link::{self, AgentLink, LinkOutcome};
use super::stand_ins::{hello, open, settings};
use ray_relay_base::dial::{DialRoute, Proxies};
use ray_relay_base::wire::tunnel::link_config;
use ray_relay_base::wire::tunnel::messages::{
    FromAgent, FromRelay, Hex, Revocations, read, written,
};

type Far = WebSocketStream<DuplexStream>;

fn agent() -> Arc<Agent> {
    let head = "127.0.0.1:9".parse().unwrap();
    Agent::new(&settings(head), Path::new("/nowhere")).unwrap()
}

async fn linked(agent: &Arc<Agent>) -> (Far, tokio::task::JoinHandle<(String, bool)>) {
    let (near, far) = duplex(1 << 20);
    let near = WebSocketStream::from_raw_socket(near, Role::Client, Some(link_config())).await;
    let far = WebSocketStream::from_raw_socket(far, Role::Server, None).await;
    let access = settings("127.0.0.1:9".parse().unwrap()).access;
    let relay = Relay {
        url: "http://127.0.0.1:9".parse().unwrap(),
        route: DialRoute::Direct("127.0.0.1:9".parse().unwrap()),
        proxies: Proxies::none(),
        access,
    };
    let dialler = Dialler::new(relay).await.unwrap();
    let agent = Arc::clone(agent);
    let running = tokio::spawn(async move {
        match link::serve(AgentLink::new(agent, near, dialler)).await {
            LinkOutcome::Ended(ended, link_and_read) => (ended.to_string(), link_and_read),
            LinkOutcome::Renewed(_) => panic!("nobody is there to link to"),
        }
    });
    (far, running)
}

fn welcome_message(good_for_ms: Option<u64>) -> FromRelay {
    FromRelay::Welcome {
        nodes: vec![],
        good_for_ms,
    }
}

async fn send(far: &mut Far, message: &FromRelay) {
    far.send(Message::text(written(message))).await.unwrap();
}

async fn next_message(far: &mut Far) -> FromAgent {
    read(far.next().await.unwrap().unwrap().to_text().unwrap()).unwrap()
}

async fn link_and_read(agent: &Arc<Agent>) -> (Far, tokio::task::JoinHandle<(String, bool)>) {
    link_relay_and_read(agent, 1).await
}

/// Links the relay `replica`, and reads none of the agent's first messages.
async fn link_relay(
    agent: &Arc<Agent>,
    replica: u8,
) -> (Far, tokio::task::JoinHandle<(String, bool)>) {
    let (mut far, running) = linked(agent).await;
    send(&mut far, &hello(Hex([replica; 8]))).await;
    assert!(matches!(
        next_message(&mut far).await,
        FromAgent::Announce(_)
    ));
    send(&mut far, &welcome_message(None)).await;
    (far, running)
}

/// Links the relay `replica`, and reads the agent's first messages: the other relays and the held workers.
async fn link_relay_and_read(
    agent: &Arc<Agent>,
    replica: u8,
) -> (Far, tokio::task::JoinHandle<(String, bool)>) {
    let (mut far, running) = link_relay(agent, replica).await;
    // The messages come in any order, and the list of relays again if another relay has just left.
    let (mut held, mut relays) = (false, false);
    while !(held && relays) {
        match next_message(&mut far).await {
            FromAgent::Held { .. } => held = true,
            FromAgent::Relays { .. } => relays = true,
            other => panic!("{other:?}"),
        }
    }
    (far, running)
}

/// Returns the next revocations.
async fn revocations(far: &mut Far) -> Revocations {
    loop {
        match next_message(far).await {
            FromAgent::Revocations(revoked) => return revoked,
            FromAgent::Relays { .. } | FromAgent::Held { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// The agent forwards revocations unchanged, also to relays that link later, and never back to their sender.
#[tokio::test(start_paused = true)]
async fn revocations_are_forwarded_unchanged_to_other_relays() {
    let agent = agent();
    let (mut one, _first) = link_and_read(&agent).await;
    let (mut other, _second) = link_relay_and_read(&agent, 2).await;
    let revoked = |mac: u8| Revocations {
        entries: vec![r#"{"jti":"a"}"#.into()],
        mac: Hex([mac; 32]),
    };
    send(&mut one, &FromRelay::Revocations(revoked(1))).await;
    assert_eq!(revocations(&mut other).await, revoked(1));
    send(&mut other, &FromRelay::Revocations(revoked(2))).await;
    assert_eq!(revocations(&mut one).await, revoked(2));
    drop(one);
    let (mut late_relay, _third) = link_relay(&agent, 3).await;
    assert_eq!(revocations(&mut late_relay).await, revoked(1));
    assert_eq!(revocations(&mut late_relay).await, revoked(2));
}

/// After a cable is cut, nothing arrives, not even the end of the connection.
#[tokio::test(start_paused = true)]
async fn silent_relay_is_dropped_after_15_s() {
    let agent = agent();
    let (mut far, running) = link_and_read(&agent).await;
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        far.send(Message::Ping("1".into())).await.unwrap();
        assert!(matches!(far.next().await, Some(Ok(Message::Pong(_)))));
    }
    let cut_at = Instant::now();
    let (reason, link_and_read) = running.await.unwrap();
    assert_eq!(reason, "the relay was silent for 15 s");
    assert!(link_and_read && cut_at.elapsed() >= Duration::from_secs(15));
    assert!(cut_at.elapsed() < Duration::from_secs(17));
}

#[tokio::test(start_paused = true)]
async fn relay_that_does_not_introduce_itself_is_dropped() {
    let agent = agent();
    let (_far, running) = linked(&agent).await;
    let (reason, link_and_read) = running.await.unwrap();
    assert_eq!(reason, "the relay was silent for 15 s");
    assert!(!link_and_read);
    let (mut far, running) = linked(&agent).await;
    send(&mut far, &welcome_message(None)).await;
    let reason = running.await.unwrap().0;
    assert_eq!(reason, "the relay did not introduce itself first");
}

#[tokio::test(start_paused = true)]
async fn invalid_message_or_flood_ends_the_link() {
    let agent = agent();
    let valid = written(&FromRelay::Open(open("w", 4000)));
    for (message, expected) in [
        (Message::text("{"), "invalid tunnel message"),
        (
            Message::text(valid.replace("4000", "70000")),
            "invalid tunnel message",
        ),
        (
            Message::text(valid.replace("default", &"x".repeat(500))),
            "invalid tunnel message",
        ),
        (Message::Binary("x".into()), "bytes where messages are due"),
        (Message::text("x".repeat(300 << 10)), "the link broke"),
        (
            Message::text(written(&hello(Hex([1; 8])))),
            "introduced itself twice",
        ),
    ] {
        let (mut far, running) = link_and_read(&agent).await;
        far.send(message).await.unwrap();
        let (reason, _) = running.await.unwrap();
        assert!(reason.contains(expected), "{reason}");
    }
    let (mut far, running) = link_and_read(&agent).await;
    for _ in 0..600 {
        let cancel = FromRelay::Cancel {
            stream: Hex([3; 8]),
        };
        let _ = far.feed(Message::text(written(&cancel))).await;
    }
    let _ = far.flush().await;
    let (reason, _) = running.await.unwrap();
    assert!(
        reason.contains("more than 512 messages a second"),
        "{reason}"
    );
}

/// The maximum number of queries is running, and the next is refused at once.
#[tokio::test]
async fn streams_beyond_the_limit_are_refused() {
    let agent = agent();
    let (mut far, running) = link_and_read(&agent).await;
    let reserved = Arc::clone(&agent.stream_slots)
        .try_acquire_many_owned(256)
        .unwrap();
    send(&mut far, &FromRelay::Open(open("w", 4000))).await;
    let FromAgent::Refused { detail, .. } = next_message(&mut far).await else {
        panic!("not refused");
    };
    assert_eq!(&*detail, "the agent is at its limit of streams");
    drop(reserved);
    agent.ending.cancel();
    assert_eq!(running.await.unwrap().0, "the agent ends");
}

#[tokio::test(start_paused = true)]
async fn relay_behind_two_addresses_has_one_link() {
    let agent = agent();
    let (far, first) = link_and_read(&agent).await;
    let (mut second, running) = linked(&agent).await;
    send(&mut second, &hello(Hex([1; 8]))).await;
    let (reason, _) = running.await.unwrap();
    assert_eq!(reason, "another address leads to the same relay");
    let (mut other, running) = linked(&agent).await;
    send(&mut other, &hello(Hex([2; 8]))).await;
    assert!(matches!(
        next_message(&mut other).await,
        FromAgent::Announce(_)
    ));
    let reason = "two claim it".into();
    send(&mut other, &FromRelay::Refused { reason }).await;
    let (reason, was_welcomed) = running.await.unwrap();
    assert_eq!(reason, "the relay refuses this agent: two claim it");
    assert!(!was_welcomed);
    drop(far);
    let (reason, _) = first.await.unwrap();
    assert_eq!(reason, "the connection to the relay is gone");
    let (far, _running) = link_and_read(&agent).await;
    drop(far);
}

#[tokio::test(start_paused = true)]
async fn other_protocol_version_is_named() {
    let agent = agent();
    let (mut far, running) = linked(&agent).await;
    let text = written(&hello(Hex([1; 8]))).replace(r#""protocol":1"#, r#""protocol":2"#);
    far.send(Message::text(text)).await.unwrap();
    let reason = running.await.unwrap().0;
    assert!(
        reason.contains("version 2") && reason.contains("update the older"),
        "{reason}"
    );
}
