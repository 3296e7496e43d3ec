//! Workers that the agent of their node keeps.

use std::time::SystemTime;

use super::*;
use ray_relay_base::timestamp::unix_ms;

/// The agent's report of a worker that it keeps for `owner`.
fn parked(worker: &Worker, owner: &str) -> FromAgent {
    let until = SystemTime::now() + Duration::from_secs(600);
    let credential = Credential {
        id: format!("jti-{owner}").as_str().into(),
        issued: None,
    };
    let parked = Parked {
        owner: owner.into(),
        credential: Some(credential),
        until_unix_ms: unix_ms(until),
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
    let mut lists = scene.context.registry.watch();
    let is_parked = lists.wait_for(|list| {
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
    let (scene, mut agent, worker) = keeping(Duration::from_secs(600)).await;
    agent.say(&parked(&worker, "person")).await;
    until_parked(&scene, &worker).await;
    let id = worker.breakpoint.id;
    let named = json!({"rayRelay": {"token": token_of("other"), "breakpoint": id}});
    let (mut stranger, seq) = Debugger::attaching(&scene.context, named).await;
    let answer = stranger.answer(seq).await.to_string();
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
    let keep = ParkTerms {
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
    let first = written(&StreamGreeting::Resumed(Box::new(keep)));
    stream.send(Message::text(first)).await.unwrap();
    let again = loop {
        if let Some(Ok(Message::Text(text))) = stream.next().await {
            break read::<ParkTerms>(&text).unwrap();
        }
    };
    assert_eq!((&*again.owner, again.attach), ("person", 7));
    assert!(again.lasted_ms >= 1000);
    let stop = message::event("stopped", json!({"reason": "breakpoint", "threadId": 3}));
    let bytes = Bytes::from(codec::frame(&stop));
    stream.send(Message::Binary(bytes)).await.unwrap();
    debugger.event("initialized").await;
    let done = debugger.send("configurationDone", json!({})).await;
    let mut answered = 0;
    loop {
        let message = debugger.read().await;
        if message["event"] == "stopped" {
            assert_eq!(message["body"]["threadId"], 3);
            break;
        }
        if message["type"] == "response" {
            assert!(message["request_seq"] == done || message["request_seq"] == seq);
            answered += 1;
        }
    }
    assert_eq!(answered, 2);
    let list = scene.context.registry.snapshot();
    assert_eq!(list.find(id).unwrap().state.word(), "attached");

    // The relay ends: nothing is said to the debugger.
    scene.context.shutdown.drain.cancel();
    scene.context.shutdown.abort.cancel();
    debugger.output("the task stays parked for").await;
    debugger.event("terminated").await;
    let rest = timeout(TEST_TIMEOUT, stream.next()).await.expect("in time");
    assert!(
        !matches!(rest, Some(Ok(Message::Binary(_) | Message::Close(_)))),
        "{rest:?}"
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
    for who in ["other", "person"] {
        let principal = principal(&scene.context.auth, who).await;
        let scope = ray_relay_access::policy::Scope::Debug;
        let authorized = ray_relay_session::session::authorise(&principal, &row(), scope).unwrap();
        let holder = row().holder().unwrap().clone();
        let released = ray_relay_session::release::release(&scene.context, authorized, holder);
        let agents = async {
            if who == "person" {
                let asked = agent.hear().await.unwrap();
                assert!(
                    matches!(asked, FromRelay::LetRun(LetRun { port, .. }) if port == worker.breakpoint.port)
                );
                agent.say(&FromAgent::Held { workers: vec![] }).await;
            }
        };
        let (released, ()) = tokio::join!(released, agents);
        assert_eq!(released.is_ok(), who == "person", "{released:?}");
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
    let silent = timeout(Duration::from_millis(200), agent.hear()).await;
    assert!(silent.is_err(), "{silent:?}");
    revoke(&scene.context.auth, "person").await;
    let asked = agent.hear().await.unwrap();
    assert!(
        matches!(asked, FromRelay::LetRun(LetRun { port, .. }) if port == worker.breakpoint.port)
    );
}

/// The relay's next park terms for the worker.
async fn told(stream: &mut WebSocketStream<TcpStream>) -> ParkTerms {
    let told = async {
        loop {
            if let Some(Ok(Message::Text(text))) = stream.next().await {
                return read::<ParkTerms>(&text).unwrap();
            }
        }
    };
    timeout(TEST_TIMEOUT, told).await.expect("in time")
}

/// Sends `attach` of the owner with `arguments`, who resumes the park at the agent, and accepts its stream.
async fn gone_on(
    scene: &Scene,
    agent: &mut StandIn,
    arguments: Value,
) -> (Debugger, WebSocketStream<TcpStream>) {
    let (mut debugger, _) = Debugger::attaching(&scene.context, arguments).await;
    let open: Open = agent.asked().await;
    let mut stream = scene.stream("agent", &open).await.unwrap();
    let first = r#"{"type":"resumed","owner":"person","keeps_ms":600000,"lasted_ms":0,"capabilities":"{}","attach":7}"#;
    stream.send(Message::text(first)).await.unwrap();
    debugger.event("initialized").await;
    (debugger, stream)
}

#[tokio::test]
async fn resuming_a_park_at_an_agent_keeps_its_deadline() {
    // A session that is lost is kept for a minute, and this one is until ten are over.
    let (scene, mut agent, worker) = keeping(Duration::from_secs(60)).await;
    agent.say(&parked(&worker, "person")).await;
    until_parked(&scene, &worker).await;
    let (debugger, mut stream) = gone_on(&scene, &mut agent, attach(&token_of("person"))).await;
    let minutes = |ms: Option<u64>| ms.map(|ms| ms.div_ceil(60_000));
    let live = told(&mut stream).await;
    assert_eq!(
        (live.keeps_ms, minutes(live.at_least_ms)),
        (60_000, Some(10))
    );
    // It is parked at the relay, which may be lost in turn.
    drop(debugger);
    let parked = told(&mut stream).await;
    assert_eq!(minutes(Some(parked.keeps_ms)), Some(10));
    assert_eq!(
        (minutes(parked.at_most_ms), parked.at_least_ms),
        (Some(10), None)
    );
}

#[tokio::test]
async fn park_at_an_agent_ends_with_the_token_of_its_owner() {
    let (scene, mut agent, worker) = keeping(Duration::from_secs(600)).await;
    agent.say(&parked(&worker, "person")).await;
    until_parked(&scene, &worker).await;
    let token = token_until("person", SystemTime::now() + Duration::from_secs(290));
    let (debugger, mut stream) = gone_on(&scene, &mut agent, attach(&token)).await;
    let minutes = |told: &ParkTerms| told.at_most_ms.map(|ms| ms.div_ceil(60_000));
    assert_eq!(minutes(&told(&mut stream).await), Some(5));
    // The same where the relay is lost that has parked it.
    drop(debugger);
    assert_eq!(minutes(&told(&mut stream).await), Some(5));
}

#[tokio::test]
async fn agent_learns_the_cluster_session_of_a_session() {
    let founder = |principal| ray_relay_session::session::Initiator {
        principal,
        peer: "127.0.0.1".parse().unwrap(),
        client: String::new(),
        arguments: Value::Null,
    };
    let mut told_of = Vec::new();
    for in_family in [true, true, false] {
        let (scene, mut agent, worker) = keeping(Duration::from_secs(60)).await;
        agent.say(&parked(&worker, "person")).await;
        until_parked(&scene, &worker).await;
        let person = principal(&scene.context.auth, "person").await;
        let parent = scene.context.sessions.families.lead(founder(person));
        let mut arguments = attach(&token_of("person"));
        arguments["rayRelay"]["breakpoint"] = json!(worker.breakpoint.id);
        if in_family {
            arguments["rayRelay"]["family"] = parent.name().into();
        }
        let (_debugger, mut stream) = gone_on(&scene, &mut agent, arguments).await;
        let told = told(&mut stream).await;
        // Who knows the name itself could have others counted with it.
        assert!(!written(&told).contains(parent.name()));
        told_of.push(told.cluster_session);
    }
    assert!(told_of[0].is_some() && told_of[1].is_some(), "{told_of:?}");
    assert!(told_of[0] != told_of[1] && told_of[2].is_none());
}
