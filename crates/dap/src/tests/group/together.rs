//! Group stop: the tasks of a job stop and resume together, including those with a session.

use super::*;
use ray_relay_access::identity::testing::authenticator;

/// A policy with group stop.
const RULE: &str =
    "[[rule]]\nsubjects = [\"ann\"]\nscopes = [\"list\", \"debug\"]\ngroup = \"job\"\n";

/// Returns the next request that resumes or pauses a task, and its number among the requests to all debuggers.
async fn next_run_request(requests: &mut mpsc::UnboundedReceiver<Value>) -> (String, u64) {
    let run_commands = ["continue", "next", "stepIn", "pause"];
    let next = async {
        loop {
            let message = requests.recv().await.unwrap();
            let command = message["command"].as_str().unwrap_or_default();
            if run_commands.contains(&command) {
                return (command.to_owned(), message["order"].as_u64().unwrap());
            }
        }
    };
    timeout(TEST_TIMEOUT, next).await.expect("asked in time")
}

/// Resumes the first task, stops the second at a breakpoint, and expects that the first stops with it.
async fn stop_together(scene: &mut GroupScene) {
    let [first, second] = &mut scene.children[..] else {
        panic!("two sessions");
    };
    first.ask("continue", json!({"threadId": 7})).await;
    assert_eq!(next_run_request(&mut scene.requests[0]).await.0, "continue");
    second.send("stepIn", json!({"threadId": 7})).await;
    assert_eq!(next_run_request(&mut scene.requests[1]).await.0, "stepIn");
    assert_eq!(next_run_request(&mut scene.requests[0]).await.0, "pause");
    let stop = first.event("stopped").await;
    assert_eq!(stop["body"]["reason"], "pause", "{stop}");
    assert_eq!(
        second.event("stopped").await["body"]["reason"],
        "breakpoint"
    );
}

#[tokio::test]
async fn running_members_stop_and_resume_with_the_group() {
    let (audit, spy) = spied(true);
    let relay = context_with(Authenticator::open(), audit, |_| {});
    let arguments = json!({"name": "Ray", "rayRelay": {"group": "job"}});
    let mut scene = GroupScene::with_arguments(relay, arguments, ["0.5", "nan"]).await;
    stop_together(&mut scene).await;
    // Tasks resume in the order in which they stopped: the second one first.
    let answer = scene.parent.ask("continue", json!({"threadId": 1})).await;
    assert_eq!(answer["success"], true, "{answer}");
    // The relay's own pause triggers no further group stop.
    let (last, first) = (
        next_run_request(&mut scene.requests[0]).await,
        next_run_request(&mut scene.requests[1]).await,
    );
    assert_eq!((&*first.0, &*last.0), ("continue", "continue"));
    assert!(first.1 < last.1, "{first:?} {last:?}");
    let lines = spy.take();
    let group = lines
        .iter()
        .filter(|line| line.details["command"] == "group");
    let commands: Vec<_> = group.map(|line| &line.details["asks"]).collect();
    assert_eq!(commands, ["pause", "continue"]);
}

/// The task is in a collective, and the user resumes all tasks before it can pause.
#[tokio::test]
async fn pending_group_pause_is_cancelled_by_resume_all() {
    let arguments = json!({"name": "Ray", "rayRelay": {"group": "job"}});
    let mut scene = GroupScene::with_arguments(context(|_| {}), arguments, ["late", "nan"]).await;
    let first = &mut scene.children[0];
    first.ask("continue", json!({"threadId": 7})).await;
    assert_eq!(next_run_request(&mut scene.requests[0]).await.0, "continue");
    let second = &mut scene.children[1];
    second.send("stepIn", json!({"threadId": 7})).await;
    for _ in 0..2 {
        assert_eq!(next_run_request(&mut scene.requests[1]).await.0, "stepIn");
        assert_eq!(next_run_request(&mut scene.requests[0]).await.0, "pause");
        scene.children[1].event("stopped").await;
        let answer = scene.parent.ask("continue", json!({"threadId": 1})).await;
        assert_eq!(answer["success"], true, "{answer}");
        assert_eq!(next_run_request(&mut scene.requests[1]).await.0, "continue");
        scene.stage.proceed.notify_one();
        assert_eq!(next_run_request(&mut scene.requests[0]).await.0, "continue");
        let first = &mut scene.children[0];
        let seq = first.send("threads", json!({})).await;
        let next = first.read().await;
        assert_eq!(next["request_seq"], seq, "it hears nothing of it: {next}");
        // It is paused again with the next stop.
        let second = &mut scene.children[1];
        second.send("stepIn", json!({"threadId": 7})).await;
    }
}

/// With group stop, the cluster session has the focus from the first task on.
#[tokio::test]
async fn group_stop_gives_the_focus_to_the_cluster_session() {
    let relay = context(|_| {});
    let workers = [Worker::listening(rank(0)).await, Worker::listen().await];
    relay.registry.insert(workers[0].breakpoint.clone());
    let mut parent = Debugger::connect(&relay).await;
    let arguments = json!({"name": "Ray", "rayRelay": {"group": "job"}});
    start_cluster_session_with(&mut parent, arguments).await;
    let configuration = next_announcement(&mut parent).await;
    let (mut child, dap) = open_child(&relay, configuration, &workers).await;
    let (sender, _requests) = mpsc::unbounded_channel();
    let _debugger = tokio::spawn(play_debugger(dap, "0.5", sender, Arc::default()));
    let stop = child.event("stopped").await;
    assert_eq!(stop["body"]["preserveFocusHint"], true, "{stop}");
    let stop = parent.event("stopped").await;
    assert_eq!(stop["body"]["threadId"], 1, "{stop}");
}

#[tokio::test]
async fn policy_rule_stops_open_members_together() {
    let relay = context_with(authenticator(RULE), Audit::off(), |_| {});
    let ann = with_token(token_of("ann"));
    let mut scene = GroupScene::with_arguments(relay, ann, ["0.5", "nan"]).await;
    stop_together(&mut scene).await;
}

/// A relay with [`RULE`] and one paused task.
async fn relay_with_one_task() -> (Arc<Context>, Worker) {
    let relay = context_with(authenticator(RULE), Audit::off(), |_| {});
    let worker = Worker::listening(rank(0)).await;
    relay.registry.insert(worker.breakpoint.clone());
    (relay, worker)
}

/// Without group stop, an attach without a name would attach to the only paused task.
#[tokio::test]
async fn policy_rule_makes_a_single_attach_a_cluster_session() {
    let (relay, worker) = relay_with_one_task().await;
    let mut parent = Debugger::connect(&relay).await;
    start_cluster_session_with(&mut parent, with_token(token_of("ann"))).await;
    let configuration = next_announcement(&mut parent).await;
    let id = json!(worker.breakpoint.id);
    assert_eq!(configuration["rayRelay"]["breakpoint"], id);
    // A user who opts out, or names the breakpoint, attaches to that task.
    for mut block in [json!({"group": "none"}), json!({"breakpoint": id})] {
        let (relay, worker) = relay_with_one_task().await;
        block["token"] = token_of("ann").into();
        let arguments = json!({ "rayRelay": block });
        let (_debugger, _) = Debugger::attaching(&relay, arguments).await;
        worker.attached().await;
    }
}
