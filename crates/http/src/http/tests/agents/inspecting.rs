//! Inspections of running workers by the agents of their nodes.

use serde_json::json;

use super::*;
use ray_relay_base::wire::tunnel::messages::{Inspect, Inspection, Refusal};
use ray_relay_ray::ray::look::{Look, MAX_INSPECTION_BYTES, Source};
use ray_relay_session::agents::WorkerAt;
use ray_relay_session::agents::inspect::NotInspected;

const WORKER: WorkerAt<'static> = WorkerAt {
    cluster: "default",
    node_id: "a1",
    worker_id: "beef",
    pid: 41,
};

type InspectionTask = tokio::task::JoinHandle<Result<Look, NotInspected>>;

fn start_inspection(scene: &Scene, what: Inspection, timeout: Duration) -> InspectionTask {
    let agents = Arc::clone(&scene.context.peers.agents);
    tokio::spawn(async move { agents.look(&WORKER, what, timeout).await })
}

pub(super) async fn next_inspection(agent: &mut StandIn) -> Inspect {
    match agent.hear().await {
        Ok(FromRelay::Inspect(request)) => request,
        other => panic!("{other:?}"),
    }
}

/// Opens the stream for `request`, sends `text` as the agent and ends it.
pub(super) async fn answer_inspection(scene: &Scene, request: &Inspect, text: &str) {
    let mut stream = scene
        .stream_for("agent", &request.stream, &request.secret)
        .await
        .unwrap();
    dialled(&mut stream).await;
    for chunk in text.as_bytes().chunks(60_000) {
        let sent = stream
            .send(Message::Binary(Bytes::copy_from_slice(chunk)))
            .await;
        if sent.is_err() {
            return;
        }
    }
    _ = stream.send(Message::Binary(Bytes::new())).await;
    // Reads until the relay closes.
    while let Some(Ok(_)) = stream.next().await {}
}

fn stack(value: &str) -> String {
    json!({"pid": 41, "python": "3.11.9", "source": "hook", "threads": [{"id": 1, "name": "MainThread",
        "frames": [{"file": "/a.py", "line": 3, "function": "f", "locals": [{"name": "x", "type": "str", "value": value}]}]}]})
    .to_string()
}

#[tokio::test]
async fn inspection_is_answered_by_the_agent_of_the_node() {
    let scene = Scene::new().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    for what in [Inspection::Look, Inspection::Evaluate, Inspection::Native] {
        let inspection = start_inspection(&scene, what, TEST_TIMEOUT);
        let request = next_inspection(&mut agent).await;
        assert_eq!(
            (&*request.worker_id, &*request.node_id, request.pid),
            ("beef", "a1", 41)
        );
        assert_eq!(request.what, what);
        assert!(Duration::from_millis(request.patience_ms) < TEST_TIMEOUT);
        answer_inspection(&scene, &request, &stack("'\u{1b}[2J'")).await;
        let inspected = inspection.await.unwrap().unwrap();
        assert_eq!(inspected.source, Source::Hook);
        let locals = inspected.threads[0].frames[0].locals.as_ref().unwrap();
        assert_eq!(locals[0].value, "'\\x1b[2J'");
    }
}

#[tokio::test]
async fn failed_inspection_states_its_reason() {
    let scene = Scene::new().await;
    let error = start_inspection(&scene, Inspection::Look, TEST_TIMEOUT)
        .await
        .unwrap()
        .unwrap_err();
    assert!(error.to_string().contains("ray-relay node"), "{error}");
    let mut agent = scene.linked("agent", "a1", 1).await;
    for kind in [Refusal::Other, Refusal::NotAWorker, Refusal::Forbidden] {
        let inspection = start_inspection(&scene, Inspection::Look, TEST_TIMEOUT);
        let stream = next_inspection(&mut agent).await.stream;
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
        let error = inspection.await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "the worker has no hook");
    }
    for (text, case) in [
        ("[1]", false),
        (&*stack(&"x".repeat(MAX_INSPECTION_BYTES)), true),
    ] {
        let inspection = start_inspection(&scene, Inspection::Look, TEST_TIMEOUT);
        let request = next_inspection(&mut agent).await;
        answer_inspection(&scene, &request, text).await;
        assert_eq!(
            inspection.await.unwrap().unwrap_err(),
            NotInspected::Garbage,
            "{case}"
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
    let error = start_inspection(&scene, Inspection::Look, TEST_TIMEOUT)
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(error, NotInspected::Older);
}

#[tokio::test]
async fn silent_agent_times_out_and_is_cancelled() {
    let scene = Scene::new().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    let inspection = start_inspection(&scene, Inspection::Look, Duration::from_millis(200));
    let stream = next_inspection(&mut agent).await.stream;
    assert_eq!(inspection.await.unwrap().unwrap_err(), NotInspected::Late);
    match agent.hear().await {
        Ok(FromRelay::Cancel { stream: called_off }) => assert_eq!(called_off, stream),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn concurrent_inspections_leave_room_for_sessions() {
    let scene = Scene::new().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    let inspections: Vec<InspectionTask> = (0..64)
        .map(|_| start_inspection(&scene, Inspection::Look, TEST_TIMEOUT))
        .collect();
    let mut waiting = Vec::new();
    for _ in 0..ray_relay_session::agents::MAX_INSPECTIONS {
        waiting.push(next_inspection(&mut agent).await);
    }
    let message = timeout(Duration::from_millis(200), agent.hear()).await;
    assert!(message.is_err(), "{message:?}");
    for _ in 0..inspections.len() {
        answer_inspection(&scene, &waiting.remove(0), &stack("1")).await;
        if let Ok(Ok(FromRelay::Inspect(next))) =
            timeout(Duration::from_millis(200), agent.hear()).await
        {
            waiting.push(next);
        }
    }
    for inspection in inspections {
        assert!(inspection.await.unwrap().is_ok());
    }
}

#[tokio::test]
async fn hooked_workers_are_one_request_per_node() {
    let scene = Scene::new().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    let query = |agents: Arc<ray_relay_session::agents::Agents>| {
        tokio::spawn(async move { agents.hooked("default", "a1", TEST_TIMEOUT).await })
    };
    let both = r#"{"pids":[7],"pytorch_debug":[7]}"#;
    for (text, expected) in [
        (r#"{"pids":[41,7]}"#, Some((vec![41, 7], vec![]))),
        (both, Some((vec![7], vec![7]))),
        ("[41]", None),
    ] {
        let queried = query(Arc::clone(&scene.context.peers.agents));
        let question = next_inspection(&mut agent).await;
        assert_eq!(
            (question.what, &*question.node_id),
            (Inspection::Hooked, "a1")
        );
        answer_inspection(&scene, &question, text).await;
        let hooked = queried.await.unwrap();
        let hooked = hooked.map(|hooked| (hooked.pids, hooked.pytorch_debug));
        assert_eq!(hooked, expected.ok_or(NotInspected::Garbage));
    }
}

#[tokio::test]
async fn debugger_is_opened_by_the_agent_of_the_node() {
    let scene = Scene::new().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    let open = |agents: Arc<ray_relay_session::agents::Agents>| {
        tokio::spawn(async move { agents.open_debugger(&WORKER, TEST_TIMEOUT).await })
    };
    let opened = open(Arc::clone(&scene.context.peers.agents));
    let question = next_inspection(&mut agent).await;
    assert_eq!(question.what, Inspection::Open);
    answer_inspection(&scene, &question, r#"{"host":"127.0.0.1","port":4711}"#).await;
    let endpoint = opened.await.unwrap().unwrap();
    assert_eq!((&*endpoint.host, endpoint.port), ("127.0.0.1", 4711));

    let opened = open(Arc::clone(&scene.context.peers.agents));
    let question = next_inspection(&mut agent).await;
    agent
        .say(&FromAgent::Refused {
            stream: question.stream,
            kind: Refusal::Forbidden,
            detail: "the job allows none".into(),
            holder: None,
        })
        .await;
    let error = opened.await.unwrap().unwrap_err();
    assert_eq!(error, NotInspected::Forbidden("the job allows none".into()));
}
