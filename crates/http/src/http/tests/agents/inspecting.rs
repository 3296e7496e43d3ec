//! Workers that wait at no breakpoint, told by the agents of their nodes.

use serde_json::json;

use super::*;
use ray_relay_base::wire::tunnel::messages::{Inspect, Inspection, Refusal};
use ray_relay_ray::ray::look::{Look, MAX_INSPECTION_BYTES, Source};
use ray_relay_session::agents::WorkerAt;
use ray_relay_session::agents::inspect::NotInspected;

const AT: WorkerAt<'static> = WorkerAt {
    cluster: "default",
    node_id: "a1",
    worker_id: "beef",
    pid: 41,
};

type Looking = tokio::task::JoinHandle<Result<Look, NotInspected>>;

fn looking(scene: &Scene, evaluate: bool, patience: Duration) -> Looking {
    let agents = Arc::clone(&scene.context.peers.agents);
    tokio::spawn(async move { agents.look(&AT, evaluate, patience).await })
}

pub(super) async fn asked(agent: &mut StandIn) -> Inspect {
    match agent.hear().await {
        Ok(FromRelay::Inspect(asked)) => asked,
        other => panic!("{other:?}"),
    }
}

/// The stream for `asked`, on which its agent says `text` and ends.
pub(super) async fn told(scene: &Scene, asked: &Inspect, text: &str) {
    let mut stream = scene
        .stream_for("agent", &asked.stream, &asked.secret)
        .await
        .unwrap();
    dialled(&mut stream).await;
    for piece in text.as_bytes().chunks(60_000) {
        let sent = stream
            .send(Message::Binary(Bytes::copy_from_slice(piece)))
            .await;
        if sent.is_err() {
            return;
        }
    }
    _ = stream.send(Message::Binary(Bytes::new())).await;
    // Until the relay has gone.
    while let Some(Ok(_)) = stream.next().await {}
}

fn look(value: &str) -> String {
    json!({"pid": 41, "python": "3.11.9", "source": "hook", "threads": [{"id": 1, "name": "MainThread",
        "frames": [{"file": "/a.py", "line": 3, "function": "f", "locals": [{"name": "x", "type": "str", "value": value}]}]}]})
    .to_string()
}

#[tokio::test]
async fn inspection_is_answered_by_the_agent_of_the_node() {
    let scene = Scene::new().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    for evaluate in [false, true] {
        let looking = looking(&scene, evaluate, TEST_TIMEOUT);
        let asked = asked(&mut agent).await;
        assert_eq!(
            (&*asked.worker_id, &*asked.node_id, asked.pid),
            ("beef", "a1", 41)
        );
        let wanted = match evaluate {
            true => Inspection::Evaluate,
            false => Inspection::Look,
        };
        assert_eq!(asked.what, wanted);
        assert!(Duration::from_millis(asked.patience_ms) < TEST_TIMEOUT);
        told(&scene, &asked, &look("'\u{1b}[2J'")).await;
        let look = looking.await.unwrap().unwrap();
        assert_eq!(look.source, Source::Hook);
        let locals = look.threads[0].frames[0].locals.as_ref().unwrap();
        assert_eq!(locals[0].value, "'\\x1b[2J'");
    }
}

#[tokio::test]
async fn failed_inspection_states_its_reason() {
    let scene = Scene::new().await;
    let why = looking(&scene, false, TEST_TIMEOUT)
        .await
        .unwrap()
        .unwrap_err();
    assert!(why.to_string().contains("ray-relay node"), "{why}");
    let mut agent = scene.linked("agent", "a1", 1).await;
    for kind in [Refusal::Other, Refusal::NotAWorker, Refusal::Forbidden] {
        let looking = looking(&scene, false, TEST_TIMEOUT);
        let stream = asked(&mut agent).await.stream;
        let detail = "the worker has no hook".into();
        let holder = None;
        agent
            .say(&FromAgent::Refused {
                stream,
                kind,
                detail,
                holder,
            })
            .await;
        let why = looking.await.unwrap().unwrap_err();
        assert_eq!(why.to_string(), "the worker has no hook");
    }
    for (said, held) in [
        ("[1]", false),
        (&*look(&"x".repeat(MAX_INSPECTION_BYTES)), true),
    ] {
        let looking = looking(&scene, false, TEST_TIMEOUT);
        let asked = asked(&mut agent).await;
        told(&scene, &asked, said).await;
        assert_eq!(
            looking.await.unwrap().unwrap_err(),
            NotInspected::Garbage,
            "{held}"
        );
    }
}

#[tokio::test]
async fn older_agent_gets_no_inspection_request() {
    let scene = Scene::new().await;
    let mut agent = scene.dial("agent").await.unwrap();
    let older = Announce {
        nonce: agent.nonce,
        inspects: false,
        ..announcement(Some("a1"), &[])
    };
    agent.say(&FromAgent::Announce(older)).await;
    assert!(matches!(agent.hear().await, Ok(FromRelay::Welcome { .. })));
    let why = looking(&scene, false, TEST_TIMEOUT)
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(why, NotInspected::Older);
}

#[tokio::test]
async fn silent_agent_times_out_and_is_cancelled() {
    let scene = Scene::new().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    let looking = looking(&scene, false, Duration::from_millis(200));
    let stream = asked(&mut agent).await.stream;
    assert_eq!(looking.await.unwrap().unwrap_err(), NotInspected::Late);
    match agent.hear().await {
        Ok(FromRelay::Cancel { stream: called_off }) => assert_eq!(called_off, stream),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn concurrent_inspections_leave_room_for_sessions() {
    let scene = Scene::new().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    let all: Vec<Looking> = (0..64)
        .map(|_| looking(&scene, false, TEST_TIMEOUT))
        .collect();
    let mut waiting = Vec::new();
    for _ in 0..ray_relay_session::agents::MAX_INSPECTIONS {
        waiting.push(asked(&mut agent).await);
    }
    let early = timeout(Duration::from_millis(200), agent.hear()).await;
    assert!(early.is_err(), "{early:?}");
    for _ in 0..all.len() {
        told(&scene, &waiting.remove(0), &look("1")).await;
        if let Ok(Ok(FromRelay::Inspect(next))) =
            timeout(Duration::from_millis(200), agent.hear()).await
        {
            waiting.push(next);
        }
    }
    for one in all {
        assert!(one.await.unwrap().is_ok());
    }
}

#[tokio::test]
async fn hooked_workers_are_one_request_per_node() {
    let scene = Scene::new().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    let ask = |agents: Arc<ray_relay_session::agents::Agents>| {
        tokio::spawn(async move { agents.hooked("default", "a1", TEST_TIMEOUT).await })
    };
    for (said, known) in [("{\"pids\":[41,7]}", true), ("[41]", false)] {
        let asking = ask(Arc::clone(&scene.context.peers.agents));
        let question = asked(&mut agent).await;
        assert_eq!(
            (question.what, &*question.node_id),
            (Inspection::Hooked, "a1")
        );
        told(&scene, &question, said).await;
        let pids = asking.await.unwrap();
        match known {
            true => assert_eq!(pids.unwrap(), [7, 41].into()),
            false => assert_eq!(pids.unwrap_err(), NotInspected::Garbage),
        }
    }
}

#[tokio::test]
async fn debugger_is_opened_by_the_agent_of_the_node() {
    let scene = Scene::new().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    let opening = |agents: Arc<ray_relay_session::agents::Agents>| {
        tokio::spawn(async move { agents.open_debugger(&AT, TEST_TIMEOUT).await })
    };
    let open = opening(Arc::clone(&scene.context.peers.agents));
    let question = asked(&mut agent).await;
    assert_eq!(question.what, Inspection::Open);
    told(&scene, &question, r#"{"host":"127.0.0.1","port":4711}"#).await;
    let listening = open.await.unwrap().unwrap();
    assert_eq!((&*listening.host, listening.port), ("127.0.0.1", 4711));

    let open = opening(Arc::clone(&scene.context.peers.agents));
    let question = asked(&mut agent).await;
    agent
        .say(&FromAgent::Refused {
            stream: question.stream,
            kind: Refusal::Forbidden,
            detail: "the job allows none".into(),
            holder: None,
        })
        .await;
    let why = open.await.unwrap().unwrap_err();
    assert_eq!(why, NotInspected::Forbidden("the job allows none".into()));
}
