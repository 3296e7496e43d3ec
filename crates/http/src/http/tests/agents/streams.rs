//! Streams to debuggers through agents.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use ray_relay_access::identity::testing::revoke;
use ray_relay_base::wire::tunnel::messages::{self, HoldRow, Parked, Refusal};
use ray_relay_ray::ray::registry::Breakpoint;
use ray_relay_ray::ray::testing::paused;
use ray_relay_session::agents::end::AgentLinkEnd;
use ray_relay_session::agents::{NoStream, OpenRequest, Tunnel, WorkerRoute};

fn breakpoint() -> Breakpoint {
    let mut breakpoint = paused("square", 1);
    (breakpoint.node_id, breakpoint.node_ip) = ("a1".into(), [10, 0, 0, 1].into());
    breakpoint
}

/// Requests a stream as a session does.
fn request_stream(
    scene: &Scene,
    timeout: Duration,
) -> tokio::task::JoinHandle<Result<Tunnel, NoStream>> {
    request_stream_for(scene, None, timeout)
}

/// Requests a stream for the session `holder`.
fn request_stream_for(
    scene: &Scene,
    holder: Option<messages::WorkerTaker>,
    timeout: Duration,
) -> tokio::task::JoinHandle<Result<Tunnel, NoStream>> {
    let agents = Arc::clone(&scene.context.peers.agents);
    tokio::spawn(async move {
        let breakpoint = breakpoint();
        let Ok(WorkerRoute::Agent { link, node_id }) = agents.route(&breakpoint).await else {
            panic!("no agent");
        };
        let request = OpenRequest {
            breakpoint: &breakpoint,
            node_id: &node_id,
            holder,
            resume: None,
            process: None,
            keep: None,
        };
        agents.open(&link, request, timeout).await
    })
}

#[tokio::test]
async fn bytes_pass_both_ways_and_closing_ends_both() {
    let scene = Scene::new().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    let stream_request = request_stream(&scene, TEST_TIMEOUT);
    let open = agent.asked().await;
    assert_eq!((&*open.node_id, open.port), ("a1", breakpoint().port));
    let mut stream = scene.stream("agent", &open).await.unwrap();
    dialled(&mut stream).await;
    let mut tunnel = stream_request.await.unwrap().unwrap();
    tunnel.write_all(b"to the debugger").await.unwrap();
    assert_eq!(bytes(&mut stream).await.unwrap(), "to the debugger");
    let large = vec![7; 100_000];
    for chunk in large.chunks(50_000) {
        let message = Message::Binary(Bytes::copy_from_slice(chunk));
        stream.send(message).await.unwrap();
    }
    let mut read = vec![0; large.len()];
    tunnel.read_exact(&mut read).await.unwrap();
    assert!(read == large);
    let metrics = || scene.context.metrics.render(&Default::default());
    assert!(
        metrics().contains("ray_relay_agent_streams_open 1"),
        "{}",
        metrics()
    );
    drop(tunnel);
    assert!(
        bytes(&mut stream).await.is_none(),
        "the agent learns of the end"
    );
    let closed = async {
        while !metrics().contains("ray_relay_agent_streams_open 0") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(TEST_TIMEOUT, closed).await.expect("in time");
    // The link still works.
    drop(super::streams::request_stream(&scene, TEST_TIMEOUT));
    agent.asked().await;
}

/// An agent notices a lost stream first and reports it over a new link. The relay would notice only much later.
#[tokio::test]
async fn stream_is_broken_once_the_agent_parks_its_worker() {
    let scene = Scene::new().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    let holder = messages::WorkerTaker {
        name: "ada".into(),
        session: "7".into(),
        client: Default::default(),
        peer: None,
    };
    let stream_request = request_stream_for(&scene, Some(holder), TEST_TIMEOUT);
    let mut stream = scene.stream("agent", &agent.asked().await).await.unwrap();
    dialled(&mut stream).await;
    let mut tunnel = stream_request.await.unwrap().unwrap();
    let parked = |session: &str, replica| HoldRow {
        worker_id: (&*breakpoint().worker_id).into(),
        kind: messages::Kind::Debugpy,
        port: breakpoint().port,
        name: "ada".into(),
        session: session.into(),
        client: Default::default(),
        peer: None,
        replica,
        since_unix_ms: 0,
        parked: Some(Parked {
            owner: "ada".into(),
            until_unix_ms: u64::MAX,
            credential: None,
            evaluates: false,
            entered: None,
        }),
    };
    let this_relay = scene.context.peers.agents.replica();
    let attached = HoldRow {
        parked: None,
        ..parked("7", this_relay)
    };
    // None of these holds belongs to the stream.
    let other_holds = vec![parked("8", this_relay), parked("7", Hex([9; 8])), attached];
    agent
        .say(&FromAgent::Held {
            workers: other_holds,
        })
        .await;
    let received = timeout(Duration::from_millis(200), tunnel.read_u8()).await;
    assert!(received.is_err(), "{received:?}");
    let workers = vec![parked("7", this_relay)];
    agent.say(&FromAgent::Held { workers }).await;
    let broken = timeout(TEST_TIMEOUT, tunnel.read_u8())
        .await
        .expect("in time");
    assert!(broken.is_err());
}

#[tokio::test]
async fn stream_is_accepted_once_from_the_requested_agent() {
    let scene = Scene::new().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    let stream_request = request_stream(&scene, TEST_TIMEOUT);
    let open = agent.asked().await;
    let not_found = Some(StatusCode::NOT_FOUND);
    // A wrong secret that differs only in its last byte.
    let mut wrong_secret = open.clone();
    wrong_secret.secret.0[15] ^= 1;
    assert_eq!(scene.stream("agent", &wrong_secret).await.err(), not_found);
    // A wrong stream id.
    let mut wrong_stream = open.clone();
    wrong_stream.stream.0[0] ^= 1;
    assert_eq!(scene.stream("agent", &wrong_stream).await.err(), not_found);
    // The right secret, used by another agent and by a user without the permission.
    assert_eq!(scene.stream("local", &open).await.err(), not_found);
    let forbidden = Some(StatusCode::FORBIDDEN);
    assert_eq!(scene.stream("person", &open).await.err(), forbidden);
    assert!(!stream_request.is_finished(), "none of them has harmed it");
    let mut stream = scene.stream("agent", &open).await.unwrap();
    // The secret is used up, even before the debugger is dialled.
    assert_eq!(scene.stream("agent", &open).await.err(), not_found);
    dialled(&mut stream).await;
    stream_request.await.unwrap().unwrap();
}

#[tokio::test]
async fn late_stream_is_refused_and_the_agent_notified() {
    let scene = Scene::new().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    let stream_request = request_stream(&scene, Duration::from_millis(300));
    let open = agent.asked().await;
    let error = stream_request.await.unwrap().unwrap_err();
    assert!(matches!(error, NoStream::TimedOut(_)), "{error}");
    match agent.hear().await {
        Ok(FromRelay::Cancel { stream }) => assert_eq!(stream, open.stream),
        other => panic!("{other:?}"),
    }
    let not_found = Some(StatusCode::NOT_FOUND);
    assert_eq!(scene.stream("agent", &open).await.err(), not_found);
}

#[tokio::test]
async fn refusal_counts_only_from_the_requested_link() {
    let scene = Scene::new().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    let mut other = scene.linked("local", "c3", 2).await;
    let stream_request = request_stream(&scene, TEST_TIMEOUT);
    let open = agent.asked().await;
    let refused = |kind| FromAgent::Refused {
        stream: open.stream,
        kind,
        detail: "bob holds it".into(),
        holder: None,
    };
    other.say(&refused(Refusal::Busy)).await;
    agent.say(&refused(Refusal::Held)).await;
    let error = stream_request.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("another relay: bob holds it"), "{error}");
}

#[tokio::test]
async fn failed_dial_differs_from_an_invalid_message() {
    let scene = Scene::new().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    for (text, is_failed_dial) in [
        (
            r#"{"type":"failed","kind":"refused","detail":"10.0.0.1"}"#,
            true,
        ),
        (r#"{"type":"dance"}"#, false),
    ] {
        let stream_request = request_stream(&scene, TEST_TIMEOUT);
        let open = agent.asked().await;
        let mut stream = scene.stream("agent", &open).await.unwrap();
        stream.send(Message::text(text)).await.unwrap();
        let error = stream_request.await.unwrap().unwrap_err();
        assert_eq!(
            matches!(error, NoStream::Failed(_)),
            is_failed_dial,
            "{error}"
        );
        assert!(!error.to_string().contains("10.0.0.1"), "{error}");
    }
}

#[tokio::test]
async fn revoked_agent_loses_its_streams_within_a_second() {
    let scene = Scene::new().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    let stream_request = request_stream(&scene, TEST_TIMEOUT);
    let open = agent.asked().await;
    let mut stream = scene.stream("agent", &open).await.unwrap();
    dialled(&mut stream).await;
    let mut tunnel = stream_request.await.unwrap().unwrap();
    // The stream survives the end of the link.
    drop(agent);
    tunnel.write_all(b"x").await.unwrap();
    assert_eq!(bytes(&mut stream).await.unwrap(), "x");
    let started = tokio::time::Instant::now();
    revoke(&scene.context.auth, "agent").await;
    let read = timeout(TEST_TIMEOUT, tunnel.read_u8())
        .await
        .expect("in time");
    assert!(read.is_err());
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
    assert!(tunnel.write_all(b"y").await.is_err());
    drop(tunnel);
    assert!(
        bytes(&mut stream).await.is_none(),
        "nothing more reaches the agent"
    );
}

#[tokio::test]
async fn contested_agent_loses_its_streams() {
    let scene = Scene::new().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    let stream_request = request_stream(&scene, TEST_TIMEOUT);
    let open = agent.asked().await;
    let mut stream = scene.stream("agent", &open).await.unwrap();
    dialled(&mut stream).await;
    let mut tunnel = stream_request.await.unwrap().unwrap();
    let refusal = tokio::spawn(async move { agent.refused().await });
    let mut second = scene.dial("double").await.unwrap();
    second.announce("a1", 2).await;
    second.refused().await;
    assert!(
        timeout(TEST_TIMEOUT, tunnel.read_u8())
            .await
            .expect("in time")
            .is_err()
    );
    assert!(refusal.await.unwrap().contains("two agents"));
}

#[tokio::test]
async fn streams_requested_of_an_agent_are_bounded() {
    let scene = Scene::new().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    let mut waiting = Vec::new();
    for _ in 0..ray_relay_session::agents::MAX_WAITING_STREAMS {
        waiting.push(request_stream(&scene, TEST_TIMEOUT));
        agent.asked().await;
    }
    let error = request_stream(&scene, TEST_TIMEOUT)
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(error, NoStream::Busy);
    // When the link is lost, pending requests fail at once.
    drop(agent);
    for request in waiting {
        assert_eq!(request.await.unwrap().unwrap_err(), NoStream::LinkLost);
    }
}

/// After a network cut, TCP would retransmit for long, and the session would not notice.
#[tokio::test]
async fn streams_of_a_silent_agent_break_and_after_close_stay() {
    for (end, is_broken) in [(AgentLinkEnd::Silent, true), (AgentLinkEnd::Left, false)] {
        let scene = Scene::new().await;
        let mut agent = scene.linked("agent", "a1", 1).await;
        let stream_request = request_stream(&scene, TEST_TIMEOUT);
        let open = agent.asked().await;
        let mut stream = scene.stream("agent", &open).await.unwrap();
        dialled(&mut stream).await;
        let mut tunnel = stream_request.await.unwrap().unwrap();
        let Ok(WorkerRoute::Agent { link, .. }) =
            scene.context.peers.agents.route(&breakpoint()).await
        else {
            panic!("no agent");
        };
        link.end(end);
        link.closed().await;
        let read = timeout(Duration::from_millis(300), tunnel.read(&mut [0; 8])).await;
        assert_eq!(read.is_ok(), is_broken, "{read:?}");
        if let Ok(read) = read {
            let kind = read.unwrap_err().kind();
            assert_eq!(kind, std::io::ErrorKind::ConnectionAborted);
        }
    }
}
