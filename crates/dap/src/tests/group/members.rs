//! A group request reaches only tasks that the user may see and holds, and it is audited.

use tokio_util::task::AbortOnDropHandle;

use super::*;
use ray_relay_access::identity::testing::authenticator;
use ray_relay_ray::ray::registry::Snapshot;

/// The policy. `ann` and `vic` may see only the trainers.
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
    context_with(authenticator(POLICY), Audit::off(), adapt)
}

fn repl(expression: &str) -> Value {
    json!({"expression": expression, "context": "repl"})
}

async fn until_parked(context: &Context, worker: &Worker) {
    let id = worker.breakpoint.id;
    let mut snapshots = context.registry.watch();
    let parked = |list: &Arc<Snapshot>| {
        let row = list.find(id);
        let holder = row.and_then(|row| row.holder());
        holder.is_some_and(|holder| holder.parked_until.is_some())
    };
    let result = timeout(TEST_TIMEOUT, snapshots.wait_for(parked)).await;
    result.expect("parked in time").unwrap();
}

/// The client of a rank is lost during a group request, and an administrator takes over its task. The takeover waits for
/// the end of the request.
#[tokio::test]
async fn task_taken_over_during_a_group_evaluate_is_named() {
    let relay = relay(|config| config.park.r#for = Duration::from_secs(900));
    let ann = with_token(token_of("ann"));
    let mut scene = GroupScene::with_arguments(relay, ann, ["0.5", "late"]).await;
    let seq = scene.parent.send("evaluate", repl("loss")).await;
    while scene.requests[1].recv().await.unwrap()["command"] != "evaluate" {}
    drop(scene.children.pop().map(|lost| lost.dap));
    let answer = scene.parent.answer(seq).await;
    let expected = "0: 0.5\n! 1: its session has ended";
    assert_eq!(answer["body"]["result"], expected, "{answer}");
    let worker = &scene.workers[1];
    until_parked(&scene.context, worker).await;
    let block =
        json!({"breakpoint": worker.breakpoint.id, "takeOver": true, "token": token_of("adm")});
    let (mut admin, _) = Debugger::attaching(&scene.context, json!({ "rayRelay": block })).await;
    // From now on its debugger answers, so that it applies the arguments of the new owner.
    let stage = Arc::clone(&scene.stage);
    let _answers = AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            stage.proceed.notify_one();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }));
    admin.event("initialized").await;
    let configuration_done = admin.send("configurationDone", json!({})).await;
    admin.answer(configuration_done).await;
    admin.event("stopped").await;
    // The task belongs to another user now, so it is not asked.
    let answer = scene.parent.ask("evaluate", repl("loss")).await;
    assert_eq!(answer["body"]["result"], "0: 0.5", "{answer}");
    let seq = admin.send("threads", json!({})).await;
    let next = admin.read().await;
    assert_eq!(next["request_seq"], seq, "{next}");
    // The other expressions are the relay's own, for interrupt and detach.
    while let Ok(message) = scene.requests[1].try_recv() {
        let expression = message["arguments"]["expression"].as_str();
        let is_user_expression = expression.is_some_and(|text| text.contains("loss"));
        assert!(
            message["command"] != "evaluate" || !is_user_expression,
            "{message}"
        );
    }
}

#[tokio::test]
async fn group_evaluate_neither_reaches_nor_names_hidden_tasks() {
    let relay = relay(|_| {});
    let mut breakpoint = rank(2);
    breakpoint.names_mut().name = Some("Secret.step".to_owned());
    let breakpoint = Worker::listening(breakpoint).await;
    relay.registry.insert(breakpoint.breakpoint.clone());
    let ann = json!({"name": "Ray", "rayRelay": {"group": "job", "token": token_of("ann")}});
    let mut scene = GroupScene::with_arguments(relay, ann, ["0.5", "nan"]).await;
    let parent = &mut scene.parent;
    let mut messages = Vec::new();
    while messages
        .last()
        .is_none_or(|last: &Value| last["event"] != "stopped")
    {
        messages.push(parent.read().await);
    }
    let seq = parent.send("evaluate", repl("loss")).await;
    while messages
        .last()
        .is_none_or(|last| last["request_seq"] != seq)
    {
        messages.push(parent.read().await);
    }
    let answer = &messages[messages.len() - 1];
    assert_eq!(answer["body"]["result"], "0: 0.5\n1: nan", "{answer}");
    let threads = parent.ask("threads", json!({})).await;
    assert_eq!(threads["body"]["threads"][0]["name"], "all 2 tasks");
    let id = breakpoint.breakpoint.id.to_string();
    for message in messages {
        let message = message.to_string();
        let reveals = message.contains("startDebugging") || message.contains("Secret");
        assert!(!reveals && !message.contains(&id), "{message}");
    }
    assert_not_dialled(breakpoint.listener);
}

/// Group requests and their answers are recorded as in a single session, without secrets.
#[tokio::test]
async fn group_requests_are_recorded_per_member_without_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let relay = relay(|config| {
        config.recording.dir = Some(dir.path().to_owned());
    });
    let secret = "{'password': 'hunter2'}";
    let vic = with_token(token_of("vic"));
    let mut scene = GroupScene::with_arguments(relay, vic, [secret, secret]).await;
    let answer = scene.parent.ask("evaluate", repl("loss")).await;
    let expected = "0,1: dict, 1 items";
    assert_eq!(answer["body"]["result"], expected, "{answer}");
    let answer = scene.parent.ask("evaluate", repl("run_it()")).await;
    let result = answer["body"]["result"].as_str().unwrap();
    assert!(
        result.starts_with("! 0,1: evaluating anything but"),
        "{result}"
    );
    for child in scene.children {
        drop(child.dap);
        child.ended.await.unwrap();
    }
    let files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(files.len(), 2);
    for file in files {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        assert!(!text.contains("hunter2"), "{text}");
        for expected in [
            "\\\"expression\\\":\\\"loss\\\"",
            "run_it()",
            "dict, 1 items",
        ] {
            assert!(text.contains(expected), "{expected} is not in {text}");
        }
    }
}
