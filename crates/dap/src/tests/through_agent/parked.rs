//! Workers that are parked at the agent of their node.

use std::time::SystemTime;

use super::*;
use ray_relay_base::timestamp::unix_ms;

/// The agent's report of a worker that it keeps for `owner`.
fn parked(worker: &Worker, owner: &str) -> FromAgent {
    let deadline = SystemTime::now() + Duration::from_secs(600);
    let credential = Credential {
        id: format!("jti-{owner}").as_str().into(),
        issued: None,
    };
    let parked = Parked {
        owner: owner.into(),
        credential: Some(credential),
        until_unix_ms: unix_ms(deadline),
        evaluates: false,
        entered: None,
    };
    FromAgent::Held {
        workers: vec![HoldRow {
            parked: Some(parked),
            ..held(worker, 9)
        }],
    }
}

async fn until_parked(scene: &Scene, worker: &Worker) {
    let mut snapshots = scene.context.registry.watch();
    let is_parked = snapshots.wait_for(|list| {
        let row = list.find(worker.breakpoint.id);
        row.is_some_and(|row| row.state.word() == "parked")
    });
    timeout(TEST_TIMEOUT, is_parked)
        .await
        .expect("in time")
        .unwrap();
}

#[tokio::test]
async fn park_at_an_agent_is_resumed_only_by_its_owner() {
    let (scene, mut agent, worker) = scene_with_park_time(Duration::from_secs(600)).await;
    agent.say(&parked(&worker, "person")).await;
    until_parked(&scene, &worker).await;
    let id = worker.breakpoint.id;
    let arguments = json!({"rayRelay": {"token": token_of("other"), "breakpoint": id}});
    let (mut other, seq) = Debugger::attaching(&scene.context, arguments).await;
    let answer = other.answer(seq).await.to_string();
    assert!(answer.contains("is parked by person"), "{answer}");

    // The agent does not hand it over yet: it stays parked.
    let (mut debugger, seq) =
        Debugger::attaching(&scene.context, attach(&token_of("person"))).await;
    let open: Open = agent.asked().await;
    assert_eq!(open.resume.as_deref(), Some("person"));
    assert_eq!(&*open.holder.as_ref().unwrap().name, "person");
    let refused = FromAgent::Refused {
        stream: open.stream,
        kind: Refusal::Kept,
        detail: "".into(),
        holder: None,
    };
    agent.say(&refused).await;
    let answer = debugger.answer(seq).await.to_string();
    assert!(answer.contains("still works"), "{answer}");
    until_parked(&scene, &worker).await;

    let (mut debugger, seq) =
        Debugger::attaching(&scene.context, attach(&token_of("person"))).await;
    let open: Open = agent.asked().await;
    let mut stream = scene.stream("agent", &open).await.unwrap();
    let terms = ParkTerms {
        owner: "person".into(),
        credential: None,
        keeps_ms: 600_000,
        at_least_ms: None,
        at_most_ms: None,
        lasted_ms: 1000,
        capabilities: r#"{"supportsStepBack":false}"#.into(),
        attach: 7,
        cluster_session: None,
        entered: None,
    };
    let greeting = written(&StreamGreeting::Resumed(Box::new(terms)));
    stream.send(Message::text(greeting)).await.unwrap();
    let terms_of_relay = loop {
        if let Some(Ok(Message::Text(text))) = stream.next().await {
            break read::<ParkTerms>(&text).unwrap();
        }
    };
    assert_eq!(
        (&*terms_of_relay.owner, terms_of_relay.attach),
        ("person", 7)
    );
    assert!(terms_of_relay.lasted_ms >= 1000);
    let stop = message::event("stopped", json!({"reason": "breakpoint", "threadId": 3}));
    let bytes = Bytes::from(codec::frame(&stop));
    stream.send(Message::Binary(bytes)).await.unwrap();
    debugger.event("initialized").await;
    let configuration_done = debugger.send("configurationDone", json!({})).await;
    let mut answers = 0;
    loop {
        let message = debugger.read().await;
        if message["event"] == "stopped" {
            assert_eq!(message["body"]["threadId"], 3);
            break;
        }
        if message["type"] == "response" {
            assert!(message["request_seq"] == configuration_done || message["request_seq"] == seq);
            answers += 1;
        }
    }
    assert_eq!(answers, 2);
    let list = scene.context.registry.snapshot();
    assert_eq!(list.find(id).unwrap().state.word(), "attached");

    // The relay shuts down without a message to the debugger.
    scene.context.shutdown.drain.cancel();
    scene.context.shutdown.abort.cancel();
    debugger.output("the task stays parked for").await;
    debugger.event("terminated").await;
    let received = timeout(TEST_TIMEOUT, stream.next()).await.expect("in time");
    assert!(
        !matches!(received, Some(Ok(Message::Binary(_) | Message::Close(_)))),
        "{received:?}"
    );
}

#[tokio::test]
async fn park_at_an_agent_is_released_by_its_owner() {
    let (scene, mut agent, worker) = scene().await;
    agent.say(&parked(&worker, "person")).await;
    until_parked(&scene, &worker).await;
    let row = || {
        let list = scene.context.registry.snapshot();
        list.find(worker.breakpoint.id).unwrap().clone()
    };
    for user in ["other", "person"] {
        let principal = principal(&scene.context.auth, user).await;
        let scope = ray_relay_access::policy::Scope::Debug;
        let authorized = ray_relay_session::session::authorise(&principal, &row(), scope).unwrap();
        let holder = row().holder().unwrap().clone();
        let released = ray_relay_session::release::release(&scene.context, authorized, holder);
        let answer_of_agent = async {
            if user == "person" {
                let message = agent.hear().await.unwrap();
                assert!(
                    matches!(message, FromRelay::LetRun(LetRun { port, .. }) if port == worker.breakpoint.port)
                );
                agent.say(&FromAgent::Held { workers: vec![] }).await;
            }
        };
        let (released, ()) = tokio::join!(released, answer_of_agent);
        assert_eq!(released.is_ok(), user == "person", "{released:?}");
    }
    let list = scene.context.registry.snapshot();
    assert!(list.find(worker.breakpoint.id).is_none());
}

#[tokio::test]
async fn park_at_an_agent_ends_when_its_owner_is_revoked() {
    let (scene, mut agent, worker) = scene().await;
    agent.say(&parked(&worker, "person")).await;
    until_parked(&scene, &worker).await;
    revoke(&scene.context.auth, "other").await;
    let received = timeout(Duration::from_millis(200), agent.hear()).await;
    assert!(received.is_err(), "{received:?}");
    revoke(&scene.context.auth, "person").await;
    let message = agent.hear().await.unwrap();
    assert!(
        matches!(message, FromRelay::LetRun(LetRun { port, .. }) if port == worker.breakpoint.port)
    );
}

/// The relay's next park terms for the worker.
async fn next_park_terms(stream: &mut WebSocketStream<TcpStream>) -> ParkTerms {
    let terms = async {
        loop {
            if let Some(Ok(Message::Text(text))) = stream.next().await {
                return read::<ParkTerms>(&text).unwrap();
            }
        }
    };
    timeout(TEST_TIMEOUT, terms).await.expect("in time")
}

/// Sends `attach` of the owner with `arguments`, who resumes the park at the agent, and accepts its stream.
async fn resume_park(
    scene: &Scene,
    agent: &mut StandIn,
    arguments: Value,
) -> (Debugger, WebSocketStream<TcpStream>) {
    let (mut debugger, _) = Debugger::attaching(&scene.context, arguments).await;
    let open: Open = agent.asked().await;
    let mut stream = scene.stream("agent", &open).await.unwrap();
    let greeting = r#"{"type":"resumed","owner":"person","keeps_ms":600000,"lasted_ms":0,"capabilities":"{}","attach":7}"#;
    stream.send(Message::text(greeting)).await.unwrap();
    debugger.event("initialized").await;
    (debugger, stream)
}

#[tokio::test]
async fn resuming_a_park_at_an_agent_keeps_its_deadline() {
    // A lost session would be kept for one minute. This park keeps its deadline of ten.
    let (scene, mut agent, worker) = scene_with_park_time(Duration::from_secs(60)).await;
    agent.say(&parked(&worker, "person")).await;
    until_parked(&scene, &worker).await;
    let (debugger, mut stream) = resume_park(&scene, &mut agent, attach(&token_of("person"))).await;
    let minutes = |ms: Option<u64>| ms.map(|ms| ms.div_ceil(60_000));
    let terms = next_park_terms(&mut stream).await;
    assert_eq!(
        (terms.keeps_ms, minutes(terms.at_least_ms)),
        (60_000, Some(10))
    );
    // The relay parks the session, and may itself be lost.
    drop(debugger);
    let terms = next_park_terms(&mut stream).await;
    assert_eq!(minutes(Some(terms.keeps_ms)), Some(10));
    assert_eq!(
        (minutes(terms.at_most_ms), terms.at_least_ms),
        (Some(10), None)
    );
}

#[tokio::test]
async fn park_at_an_agent_ends_with_the_token_of_its_owner() {
    let (scene, mut agent, worker) = scene_with_park_time(Duration::from_secs(600)).await;
    agent.say(&parked(&worker, "person")).await;
    until_parked(&scene, &worker).await;
    let token = token_until("person", SystemTime::now() + Duration::from_secs(290));
    let (debugger, mut stream) = resume_park(&scene, &mut agent, attach(&token)).await;
    let minutes = |terms: &ParkTerms| terms.at_most_ms.map(|ms| ms.div_ceil(60_000));
    assert_eq!(minutes(&next_park_terms(&mut stream).await), Some(5));
    // The limit also applies once the relay has parked the session.
    drop(debugger);
    assert_eq!(minutes(&next_park_terms(&mut stream).await), Some(5));
}

#[tokio::test]
async fn agent_learns_the_cluster_session_of_a_session() {
    let initiator = |principal| ray_relay_session::session::Initiator {
        principal,
        peer: "127.0.0.1".parse().unwrap(),
        client: String::new(),
        arguments: Value::Null,
    };
    let mut reported = Vec::new();
    for in_cluster_session in [true, true, false] {
        let (scene, mut agent, worker) = scene_with_park_time(Duration::from_secs(60)).await;
        agent.say(&parked(&worker, "person")).await;
        until_parked(&scene, &worker).await;
        let person = principal(&scene.context.auth, "person").await;
        let parent = scene.context.sessions.families.lead(initiator(person));
        let mut arguments = attach(&token_of("person"));
        arguments["rayRelay"]["breakpoint"] = json!(worker.breakpoint.id);
        if in_cluster_session {
            arguments["rayRelay"]["family"] = parent.name().into();
        }
        let (_debugger, mut stream) = resume_park(&scene, &mut agent, arguments).await;
        let terms = next_park_terms(&mut stream).await;
        // The agent must not learn the name, because a client with the name could join the group.
        assert!(!written(&terms).contains(parent.name()));
        reported.push(terms.cluster_session);
    }
    assert!(
        reported[0].is_some() && reported[1].is_some(),
        "{reported:?}"
    );
    assert!(reported[0] != reported[1] && reported[2].is_none());
}
