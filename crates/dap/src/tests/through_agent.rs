//! Sessions through the agent of the worker's node.

mod parked;

use futures_util::{SinkExt, StreamExt};
use tokio::io::AsyncReadExt;
use tokio::task::JoinHandle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Bytes, Message};

use super::*;
use ray_relay_access::identity::testing::{principal, revoke, token_of, token_until};
use ray_relay_base::config::UpstreamPath;
use ray_relay_base::wire::dap::message::RefusalCode;
use ray_relay_base::wire::tunnel::messages::{
    Credential, FromAgent, FromRelay, HoldRow, Kind as TunnelKind, LetRun, Open, ParkTerms, Parked,
    Refusal, StreamGreeting, read, written,
};
use ray_relay_base::wire::tunnel::text::Hex;
use ray_relay_http::http::testing::{Scene, StandIn, dialled};
use ray_relay_ray::hold::LOOK_CLIENT;

/// A relay that reaches workers only through agents, the agent of `a1`, and a worker there.
async fn scene() -> (Scene, StandIn, Worker) {
    scene_with_park_time(Duration::ZERO).await
}

/// Creates a scene whose sessions are parked for `park_time`.
async fn scene_with_park_time(park_time: Duration) -> (Scene, StandIn, Worker) {
    let adapt = |config: &mut Config| {
        config.upstream.path = UpstreamPath::Agent;
        config.park.r#for = park_time;
    };
    let scene = Scene::with(adapt).await;
    let agent = scene.linked("agent", "a1", 1).await;
    let mut breakpoint = paused("square", 1);
    breakpoint.node_id = "a1".into();
    let worker = Worker::listening(breakpoint).await;
    scene.context.registry.insert(worker.breakpoint.clone());
    (scene, agent, worker)
}

fn attach(token: &str) -> Value {
    json!({"rayRelay": {"token": token}})
}

/// Connects the stream requested by `open` to the `worker`, until one of them ends or the task is aborted.
async fn connect_stream(scene: &Scene, open: &Open, worker: &Worker) -> JoinHandle<()> {
    let mut stream = scene.stream("agent", open).await.unwrap();
    let mut reached = TcpStream::connect(worker.listener.local_addr().unwrap())
        .await
        .unwrap();
    dialled(&mut stream).await;
    tokio::spawn(async move {
        copy_bytes(&mut stream, &mut reached).await;
    })
}

/// Passes bytes between a stream and the worker until one of them ends, as an agent does.
async fn copy_bytes(stream: &mut WebSocketStream<TcpStream>, worker: &mut TcpStream) {
    let mut buffer = vec![0; 4096];
    loop {
        tokio::select! {
            message = stream.next() => match message {
                Some(Ok(Message::Binary(bytes))) if !bytes.is_empty() => worker.write_all(&bytes).await.unwrap(),
                // The park terms of the relay come as text.
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Text(_))) => {}
                _ => return,
            },
            read = worker.read(&mut buffer) => match read {
                Ok(n @ 1..) => {
                    let bytes = Bytes::copy_from_slice(&buffer[..n]);
                    stream.send(Message::Binary(bytes)).await.unwrap();
                }
                _ => return,
            },
        }
    }
}

/// Plays debugpy up to the response to `attach`.
async fn accept_attach(worker: &Worker) -> Conversation<TcpStream> {
    let (accepted, _) = worker.listener.accept().await.unwrap();
    let mut debugpy = Conversation::new(accepted, 1 << 26);
    let greeting = json!({"seq": 1, "type": "event", "event": "output", "body": {"category": "telemetry", "output": "ptvsd"}});
    debugpy.send(&greeting).await.unwrap();
    let initialize = debugpy.read().await.unwrap();
    assert_eq!(initialize["command"], "initialize");
    let answer = json!({"seq": 2, "type": "response", "request_seq": initialize["seq"], "success": true, "command": "initialize", "body": {}});
    debugpy.send(&answer).await.unwrap();
    let request = debugpy.read().await.unwrap();
    assert_eq!(request["command"], "attach");
    assert!(!request.to_string().contains(&token_of("person")));
    let initialized = json!({"seq": 3, "type": "event", "event": "initialized"});
    debugpy.send(&initialized).await.unwrap();
    let answer = json!({"seq": 4, "type": "response", "request_seq": request["seq"], "success": true, "command": "attach"});
    debugpy.send(&answer).await.unwrap();
    debugpy
}

#[tokio::test]
async fn session_through_an_agent_is_recorded_as_such() {
    let (scene, mut agent, worker) = scene().await;
    let (mut debugger, attach) =
        Debugger::attaching(&scene.context, attach(&token_of("person"))).await;
    let open = agent.asked().await;
    assert_eq!(open.kind, TunnelKind::Debugpy);
    assert_eq!(
        (&*open.worker_id, open.port),
        (&*worker.breakpoint.worker_id, worker.breakpoint.port)
    );
    assert_eq!(&*open.holder.as_ref().unwrap().name, "person");
    // The session is recorded before anything is dialled.
    let lines = scene.record.lines();
    let entry = lines
        .iter()
        .find(|line| line.action == ray_relay_access::audit::EntryKind::SessionBegan);
    assert_eq!(entry.unwrap().details["way"], "agent");
    let stream = connect_stream(&scene, &open, &worker).await;
    let mut debugpy = accept_attach(&worker).await;
    assert_eq!(debugger.answer(attach).await["success"], true);
    // The client is lost: the relay detaches from the worker cleanly, through the agent.
    drop(debugger.dap);
    let detach = async {
        loop {
            let request = debugpy.read().await.unwrap();
            let answer = json!({"seq": 9, "type": "response", "request_seq": request["seq"], "success": true, "command": request["command"]});
            debugpy.send(&answer).await.unwrap();
            if request["command"] == "disconnect" {
                return request;
            }
        }
    };
    let disconnect = timeout(TEST_TIMEOUT, detach).await.expect("a goodbye");
    assert_eq!(disconnect["arguments"]["terminateDebuggee"], false);
    drop(debugpy);
    timeout(TEST_TIMEOUT, stream)
        .await
        .expect("the stream ends")
        .unwrap();
}

#[tokio::test]
async fn unauthorised_attach_never_reaches_the_agent() {
    let (scene, mut agent, worker) = scene().await;
    for token in ["nobody", "local"] {
        let (mut debugger, seq) =
            Debugger::attaching(&scene.context, attach(&token_of(token))).await;
        assert_eq!(debugger.answer(seq).await["success"], false);
    }
    revoke(&scene.context.auth, "person").await;
    let (mut debugger, seq) =
        Debugger::attaching(&scene.context, attach(&token_of("person"))).await;
    assert_eq!(debugger.answer(seq).await["success"], false);
    assert_not_dialled(worker.listener);
    let opened = timeout(Duration::from_millis(300), agent.asked()).await;
    assert!(opened.is_err(), "{opened:?}");
}

#[tokio::test]
async fn missing_agent_is_named_and_nothing_is_dialled() {
    let (scene, agent, worker) = scene().await;
    let assert_unreachable = async |words: &str| {
        let (mut debugger, seq) =
            Debugger::attaching(&scene.context, attach(&token_of("person"))).await;
        let answer = debugger.answer(seq).await;
        assert_eq!(answer["success"], false);
        assert!(answer.to_string().contains(words), "{answer}");
        assert_eq!(
            RefusalCode::of(&answer["body"]),
            RefusalCode::Unreachable,
            "{answer}"
        );
    };
    drop(agent);
    let unlinked = async {
        while !scene.recorded().iter().any(|line| line.starts_with("gone")) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(TEST_TIMEOUT, unlinked).await.expect("in time");
    assert_unreachable("the agent of its node has been gone for").await;
    let mut breakpoint = worker.breakpoint.clone();
    breakpoint.node_id = "zz".into();
    scene.context.registry.end(breakpoint.id, None);
    scene.context.registry.insert(breakpoint);
    assert_unreachable("no agent (`ray-relay node`) is linked for its node").await;
    assert_not_dialled(worker.listener);
    let snapshot = scene.context.registry.snapshot();
    assert!(snapshot.live[0].is_paused(), "it waits as before");
}

fn held(worker: &Worker, replica: u8) -> HoldRow {
    HoldRow {
        worker_id: (&*worker.breakpoint.worker_id).into(),
        kind: TunnelKind::Debugpy,
        port: worker.breakpoint.port,
        name: "bob".into(),
        session: "7".into(),
        client: "".into(),
        peer: None,
        replica: Hex([replica; 8]),
        since_unix_ms: 0,
        parked: None,
    }
}

/// Has `agent` report that another relay has `hold`, and waits until the relay knows.
async fn report_hold(scene: &Scene, agent: &mut StandIn, hold: HoldRow) {
    let workers = vec![hold];
    agent.say(&FromAgent::Held { workers }).await;
    let mut snapshots = scene.context.registry.watch();
    let reported = snapshots.wait_for(|list| list.held().next().is_some());
    timeout(TEST_TIMEOUT, reported)
        .await
        .expect("in time")
        .unwrap();
}

/// An inspection ends within seconds, so no client is refused because another user inspects the task.
#[tokio::test]
async fn attach_waits_for_the_snapshot_of_another_relay() {
    let (scene, mut agent, worker) = scene().await;
    let snapshot_hold = HoldRow {
        client: LOOK_CLIENT.into(),
        ..held(&worker, 9)
    };
    report_hold(&scene, &mut agent, snapshot_hold).await;
    let id = worker.breakpoint.id;
    let arguments = json!({"rayRelay": {"token": token_of("person"), "breakpoint": id}});
    let (_debugger, _) = Debugger::attaching(&scene.context, arguments).await;
    let workers = Vec::new();
    agent.say(&FromAgent::Held { workers }).await;
    let open = agent.asked().await;
    assert_eq!(open.port, worker.breakpoint.port);
}

/// Two relays ask the agent before either knows of the other: the agent tells the second who was first.
#[tokio::test]
async fn agent_refuses_the_second_relay_with_the_holder() {
    let (scene, mut agent, worker) = scene().await;
    let (mut debugger, seq) =
        Debugger::attaching(&scene.context, attach(&token_of("person"))).await;
    let open = agent.asked().await;
    let holder = open.holder.unwrap();
    assert_eq!((&*holder.name, holder.client.is_empty()), ("person", false));
    assert!(holder.peer.is_some());
    let refused = FromAgent::Refused {
        stream: open.stream,
        kind: Refusal::Held,
        detail: "bob holds it through another relay".into(),
        holder: Some(Box::new(held(&worker, 9))),
    };
    agent.say(&refused).await;
    let answer = debugger.answer(seq).await.to_string();
    assert!(
        answer.contains("is being debugged by bob through another relay, for"),
        "{answer}"
    );
    assert_not_dialled(worker.listener);
}

#[tokio::test]
async fn task_held_by_another_relay_is_refused_with_its_holder() {
    let (scene, mut agent, worker) = scene().await;
    report_hold(&scene, &mut agent, held(&worker, 9)).await;
    let id = worker.breakpoint.id;
    let arguments = json!({"rayRelay": {"token": token_of("person"), "breakpoint": id}});
    let (mut debugger, seq) = Debugger::attaching(&scene.context, arguments).await;
    let answer = debugger.answer(seq).await;
    assert_eq!(
        RefusalCode::of(&answer["body"]),
        RefusalCode::Refused,
        "{answer}"
    );
    let answer = answer.to_string();
    assert!(
        answer.contains("is being debugged by bob through another relay, for"),
        "{answer}"
    );
    assert!(
        answer.contains("it is free again when that session ends"),
        "{answer}"
    );
    assert_not_dialled(worker.listener);
}

#[tokio::test]
async fn port_closed_to_the_relay_is_reported_with_a_remedy() {
    let scene = Scene::with(|config| config.dap.connect_timeout = Duration::from_millis(300)).await;
    let mut breakpoint = paused("square", 1);
    // Nothing listens there.
    (breakpoint.node_id, breakpoint.port) = ("a1".into(), 9);
    scene.context.registry.insert(breakpoint);
    let (mut debugger, seq) =
        Debugger::attaching(&scene.context, attach(&token_of("person"))).await;
    let answer = debugger.answer(seq).await;
    assert_eq!(
        RefusalCode::of(&answer["body"]),
        RefusalCode::Unreachable,
        "{answer}"
    );
    let answer = answer.to_string();
    assert!(
        answer.contains("closed to this relay") && answer.contains("no agent"),
        "{answer}"
    );
}

/// A session with `worker`, and debugpy, whose agent has just been killed: its link and its stream have ended silently.
async fn session_of_killed_agent(
    scene: &Scene,
    mut agent: StandIn,
    worker: &Worker,
) -> (Debugger, Conversation<TcpStream>) {
    let (mut debugger, attach) =
        Debugger::attaching(&scene.context, attach(&token_of("person"))).await;
    let open = agent.asked().await;
    let stream = connect_stream(scene, &open, worker).await;
    let debugpy = accept_attach(worker).await;
    assert_eq!(debugger.answer(attach).await["success"], true);
    stream.abort();
    (debugger, debugpy)
}

/// The agent keeps the task parked, if only the network to it is cut.
#[tokio::test]
async fn task_state_is_unknown_while_its_agent_is_disconnected() {
    for (park_seconds, expected) in [
        (300, "the state of square"),
        (0, "the task was released and runs on"),
    ] {
        let (scene, agent, worker) = scene_with_park_time(Duration::from_secs(park_seconds)).await;
        let (mut debugger, _debugpy) = session_of_killed_agent(&scene, agent, &worker).await;
        debugger.event("terminated").await;
        drop(debugger);
        let id = worker.breakpoint.id;
        let mut snapshots = scene.context.registry.watch();
        let removed = snapshots.wait_for(|list| list.find(id).is_none_or(|b| b.is_free()));
        drop(timeout(TEST_TIMEOUT, removed).await.unwrap().unwrap());
        // The next poll reports the task like this.
        scene.context.registry.end(id, None);
        let arguments = json!({"rayRelay": {"token": token_of("person"), "breakpoint": id}});
        let error = refusal(&scene.context, arguments).await;
        assert!(error.contains(expected), "{error}");
    }
}

/// A relay that has just started does not know either: Ray lists no worker with an attached debugger.
#[tokio::test]
async fn task_state_is_unknown_before_its_agent_is_linked() {
    for (path, expected) in [
        (UpstreamPath::Agent, "the state of square"),
        (UpstreamPath::Direct, "the task was released and runs on"),
        (
            UpstreamPath::PreferAgent,
            "the task was released and runs on",
        ),
    ] {
        let adapt = |config: &mut Config| {
            config.upstream.path = path;
            config.park.r#for = Duration::from_secs(300);
        };
        let scene = Scene::with(adapt).await;
        let mut breakpoint = paused("square", 1);
        breakpoint.node_id = "a1".into();
        let id = breakpoint.id;
        scene.context.registry.insert(breakpoint);
        scene.context.registry.end(id, None);
        let arguments = json!({"rayRelay": {"token": token_of("person"), "breakpoint": id}});
        let error = refusal(&scene.context, arguments).await;
        assert!(error.contains(expected), "{path:?}: {error}");
    }
}

#[tokio::test]
async fn lost_agent_is_reported_and_the_worker_stays_listed() {
    let (scene, agent, worker) = scene().await;
    let (mut debugger, _debugpy) = session_of_killed_agent(&scene, agent, &worker).await;
    let output = timeout(TEST_TIMEOUT, async {
        loop {
            let event = debugger.event("output").await;
            if event["body"]["category"] == "important" {
                return event.to_string();
            }
        }
    });
    let output = output.await.expect("a word");
    assert!(
        output.contains("because the agent of its node is gone (its link to this relay broke)"),
        "{output}"
    );
    assert!(output.contains("the task runs on"), "{output}");
    debugger.event("terminated").await;
    drop(debugger);
    let recorded = async {
        loop {
            let lines = scene.record.lines();
            let mut entries = lines.iter();
            let ended = entries
                .find(|line| line.action == ray_relay_access::audit::EntryKind::SessionEnded);
            if let Some(line) = ended {
                return line.details["outcome"].clone();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let outcome = timeout(TEST_TIMEOUT, recorded).await.expect("a last line");
    assert_eq!(outcome, "upstream");
}
