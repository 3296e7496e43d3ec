//! Members of the group that are asked: those that a user may see, and holds. And the audit of that.

use tokio_util::task::AbortOnDropHandle;

use super::*;
use ray_relay_access::identity::testing::authenticator;
use ray_relay_ray::ray::registry::Snapshot;

/// The policy. `ann` and `vic` may see the trainers alone.
const POLICY: &str = r#"
[[rule]]
subjects = ["ann"]
scopes = ["list", "debug"]
tasks = ["Trainer.*"]
[[rule]]
subjects = ["vic"]
scopes = ["list", "view"]
tasks = ["Trainer.*"]
record = true
[[rule]]
subjects = ["adm"]
scopes = ["list", "debug", "admin"]
"#;

fn relay(adapt: impl FnOnce(&mut Config)) -> Arc<Context> {
    guarded(authenticator(POLICY), Audit::off(), adapt)
}

fn typed(expression: &str) -> Value {
    json!({"expression": expression, "context": "repl"})
}

async fn until_parked(context: &Context, worker: &Worker) {
    let id = worker.breakpoint.id;
    let mut lists = context.registry.watch();
    let parked = |list: &Arc<Snapshot>| {
        let row = list.find(id);
        let holder = row.and_then(|row| row.holder());
        holder.is_some_and(|holder| holder.parked_until.is_some())
    };
    let listed = timeout(TEST_TIMEOUT, lists.wait_for(parked)).await;
    listed.expect("parked in time").unwrap();
}

/// The client of a rank is lost while all are asked, and an administrator takes over its task: not in the middle of the
/// request.
#[tokio::test]
async fn task_taken_over_during_a_group_evaluate_is_named() {
    let relay = relay(|config| config.park.r#for = Duration::from_secs(900));
    let ann = with_token(token_of("ann"));
    let mut scene = GroupScene::of(relay, ann, ["0.5", "late"]).await;
    let seq = scene.parent.send("evaluate", typed("loss")).await;
    while scene.asked[1].recv().await.unwrap()["command"] != "evaluate" {}
    drop(scene.children.pop().map(|lost| lost.dap));
    let answer = scene.parent.answer(seq).await;
    let said = "0: 0.5\n! 1: its session has ended";
    assert_eq!(answer["body"]["result"], said, "{answer}");
    let worker = &scene.workers[1];
    until_parked(&scene.context, worker).await;
    let block =
        json!({"breakpoint": worker.breakpoint.id, "takeOver": true, "token": token_of("adm")});
    let (mut taker, _) = Debugger::attaching(&scene.context, json!({ "rayRelay": block })).await;
    // From now on its debugger answers soon: it takes the arguments of the taker.
    let stage = Arc::clone(&scene.stage);
    let _answers = AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            stage.goes_on.notify_one();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }));
    taker.event("initialized").await;
    let done = taker.send("configurationDone", json!({})).await;
    taker.answer(done).await;
    taker.event("stopped").await;
    // From now on it is another person's, and not asked.
    let answer = scene.parent.ask("evaluate", typed("loss")).await;
    assert_eq!(answer["body"]["result"], "0: 0.5", "{answer}");
    let seq = taker.send("threads", json!({})).await;
    let next = taker.read().await;
    assert_eq!(next["request_seq"], seq, "{next}");
    // The relay's own expressions, which interrupt or detach, are none of the user's.
    while let Ok(message) = scene.asked[1].try_recv() {
        let expression = message["arguments"]["expression"].as_str();
        let asks = expression.is_some_and(|text| text.contains("loss"));
        assert!(message["command"] != "evaluate" || !asks, "{message}");
    }
}

#[tokio::test]
async fn group_evaluate_neither_reaches_nor_names_hidden_tasks() {
    let relay = relay(|_| {});
    let mut hidden = rank(2);
    hidden.names_mut().name = Some("Secret.step".to_owned());
    let hidden = Worker::listening(hidden).await;
    relay.registry.insert(hidden.breakpoint.clone());
    let ann = json!({"name": "Ray", "rayRelay": {"group": "job", "token": token_of("ann")}});
    let mut scene = GroupScene::of(relay, ann, ["0.5", "nan"]).await;
    let parent = &mut scene.parent;
    let mut heard = Vec::new();
    while heard
        .last()
        .is_none_or(|last: &Value| last["event"] != "stopped")
    {
        heard.push(parent.read().await);
    }
    let seq = parent.send("evaluate", typed("loss")).await;
    while heard.last().is_none_or(|last| last["request_seq"] != seq) {
        heard.push(parent.read().await);
    }
    let answer = &heard[heard.len() - 1];
    assert_eq!(answer["body"]["result"], "0: 0.5\n1: nan", "{answer}");
    let threads = parent.ask("threads", json!({})).await;
    assert_eq!(threads["body"]["threads"][0]["name"], "all 2 tasks");
    let id = hidden.breakpoint.id.to_string();
    for message in heard {
        let message = message.to_string();
        let tells = message.contains("startDebugging") || message.contains("Secret");
        assert!(!tells && !message.contains(&id), "{message}");
    }
    assert_not_dialled(hidden.listener);
}

/// As in a session of its own: requests through the group and their answers are recorded, without secrets.
#[tokio::test]
async fn group_requests_are_recorded_per_member_without_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let relay = relay(|config| {
        config.recording.dir = Some(dir.path().to_owned());
    });
    let secret = "{'password': 'hunter2'}";
    let vic = with_token(token_of("vic"));
    let mut scene = GroupScene::of(relay, vic, [secret, secret]).await;
    let answer = scene.parent.ask("evaluate", typed("loss")).await;
    let shown = "0,1: dict, 1 items";
    assert_eq!(answer["body"]["result"], shown, "{answer}");
    let answer = scene.parent.ask("evaluate", typed("run_it()")).await;
    let said = answer["body"]["result"].as_str().unwrap();
    assert!(said.starts_with("! 0,1: evaluating anything but"), "{said}");
    for child in scene.children {
        drop(child.dap);
        child.ended.await.unwrap();
    }
    let files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(files.len(), 2);
    for file in files {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        assert!(!text.contains("hunter2"), "{text}");
        for kept in [
            "\\\"expression\\\":\\\"loss\\\"",
            "run_it()",
            "dict, 1 items",
        ] {
            assert!(text.contains(kept), "{kept} is not in {text}");
        }
    }
}
