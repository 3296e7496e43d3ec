//! The other tasks of a job stop with one of them, including those with a session, and resume as they have stopped.

use super::*;
use ray_relay_access::identity::testing::authenticator;

/// A policy with group stop.
const RULE: &str =
    "[[rule]]\nsubjects = [\"ann\"]\nscopes = [\"list\", \"debug\"]\ngroup = \"job\"\n";

/// The next request that resumes or pauses a task, and its number among the requests to all debuggers.
async fn moved(asked: &mut mpsc::UnboundedReceiver<Value>) -> (String, u64) {
    let moves = ["continue", "next", "stepIn", "pause"];
    let next = async {
        loop {
            let message = asked.recv().await.unwrap();
            let command = message["command"].as_str().unwrap_or_default();
            if moves.contains(&command) {
                return (command.to_owned(), message["order"].as_u64().unwrap());
            }
        }
    };
    timeout(TEST_TIMEOUT, next).await.expect("asked in time")
}

/// The first runs, the second comes to a breakpoint of its own, and the first stops with it.
async fn stops_with_another(scene: &mut GroupScene) {
    let [first, second] = &mut scene.children[..] else {
        panic!("two sessions");
    };
    first.ask("continue", json!({"threadId": 7})).await;
    assert_eq!(moved(&mut scene.asked[0]).await.0, "continue");
    second.send("stepIn", json!({"threadId": 7})).await;
    assert_eq!(moved(&mut scene.asked[1]).await.0, "stepIn");
    assert_eq!(moved(&mut scene.asked[0]).await.0, "pause");
    let stop = first.event("stopped").await;
    assert_eq!(stop["body"]["reason"], "pause", "{stop}");
    assert_eq!(
        second.event("stopped").await["body"]["reason"],
        "breakpoint"
    );
}

#[tokio::test]
async fn running_members_stop_and_resume_with_the_group() {
    let (audit, kept) = spied(true);
    let relay = guarded(Authenticator::open(), audit, |_| {});
    let arguments = json!({"name": "Ray", "rayRelay": {"group": "job"}});
    let mut scene = GroupScene::of(relay, arguments, ["0.5", "nan"]).await;
    stops_with_another(&mut scene).await;
    // The second has stopped first.
    let answer = scene.parent.ask("continue", json!({"threadId": 1})).await;
    assert_eq!(answer["success"], true, "{answer}");
    // And what the relay has stopped has stopped no other.
    let (last, first) = (
        moved(&mut scene.asked[0]).await,
        moved(&mut scene.asked[1]).await,
    );
    assert_eq!((&*first.0, &*last.0), ("continue", "continue"));
    assert!(first.1 < last.1, "{first:?} {last:?}");
    let lines = kept.take();
    let group = lines
        .iter()
        .filter(|line| line.details["command"] == "group");
    let asks: Vec<_> = group.map(|line| &line.details["asks"]).collect();
    assert_eq!(asks, ["pause", "continue"]);
}

/// It is inside a collective, and the user resumes all before it comes out.
#[tokio::test]
async fn pending_group_pause_is_cancelled_by_resume_all() {
    let arguments = json!({"name": "Ray", "rayRelay": {"group": "job"}});
    let mut scene = GroupScene::of(context(|_| {}), arguments, ["late", "nan"]).await;
    let first = &mut scene.children[0];
    first.ask("continue", json!({"threadId": 7})).await;
    assert_eq!(moved(&mut scene.asked[0]).await.0, "continue");
    let second = &mut scene.children[1];
    second.send("stepIn", json!({"threadId": 7})).await;
    for _ in 0..2 {
        assert_eq!(moved(&mut scene.asked[1]).await.0, "stepIn");
        assert_eq!(moved(&mut scene.asked[0]).await.0, "pause");
        scene.children[1].event("stopped").await;
        let answer = scene.parent.ask("continue", json!({"threadId": 1})).await;
        assert_eq!(answer["success"], true, "{answer}");
        assert_eq!(moved(&mut scene.asked[1]).await.0, "continue");
        scene.stage.goes_on.notify_one();
        assert_eq!(moved(&mut scene.asked[0]).await.0, "continue");
        let first = &mut scene.children[0];
        let seq = first.send("threads", json!({})).await;
        let next = first.read().await;
        assert_eq!(next["request_seq"], seq, "it hears nothing of it: {next}");
        // It is asked again with the next stop.
        let second = &mut scene.children[1];
        second.send("stepIn", json!({"threadId": 7})).await;
    }
}

/// The session that shows all has the focus from the first task on, because the others come to it.
#[tokio::test]
async fn group_stop_gives_the_focus_to_the_cluster_session() {
    let relay = context(|_| {});
    let workers = [Worker::listening(rank(0)).await, Worker::listen().await];
    relay.registry.insert(workers[0].breakpoint.clone());
    let mut parent = Debugger::connect(&relay).await;
    let arguments = json!({"name": "Ray", "rayRelay": {"group": "job"}});
    configured_with(&mut parent, arguments).await;
    let configuration = announced(&mut parent).await;
    let (mut child, dap) = open(&relay, configuration, &workers).await;
    let (sender, _asked) = mpsc::unbounded_channel();
    let _played = tokio::spawn(plays(dap, "0.5", sender, Arc::default()));
    let stop = child.event("stopped").await;
    assert_eq!(stop["body"]["preserveFocusHint"], true, "{stop}");
    let stop = parent.event("stopped").await;
    assert_eq!(stop["body"]["threadId"], 1, "{stop}");
}

#[tokio::test]
async fn policy_rule_stops_open_members_together() {
    let relay = guarded(authenticator(RULE), Audit::off(), |_| {});
    let ann = with_token(token_of("ann"));
    let mut scene = GroupScene::of(relay, ann, ["0.5", "nan"]).await;
    stops_with_another(&mut scene).await;
}

/// A relay of [`RULE`] at which one task waits.
async fn with_one() -> (Arc<Context>, Worker) {
    let relay = guarded(authenticator(RULE), Audit::off(), |_| {});
    let worker = Worker::listening(rank(0)).await;
    relay.registry.insert(worker.breakpoint.clone());
    (relay, worker)
}

/// With one paused task, an attach without a name is a session with that task.
#[tokio::test]
async fn policy_rule_makes_a_single_attach_a_cluster_session() {
    let (relay, worker) = with_one().await;
    let mut parent = Debugger::connect(&relay).await;
    configured_with(&mut parent, with_token(token_of("ann"))).await;
    let configuration = announced(&mut parent).await;
    let id = json!(worker.breakpoint.id);
    assert_eq!(configuration["rayRelay"]["breakpoint"], id);
    // A user who opts out, or names the breakpoint, gets that one.
    for mut block in [json!({"group": "none"}), json!({"breakpoint": id})] {
        let (relay, worker) = with_one().await;
        block["token"] = token_of("ann").into();
        let arguments = json!({ "rayRelay": block });
        let (_debugger, _) = Debugger::attaching(&relay, arguments).await;
        worker.attached().await;
    }
}
