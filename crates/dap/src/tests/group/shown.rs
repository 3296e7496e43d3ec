//! The group view ("Ray"): ranks reported by the processes, locations, and the relay's own commands.

use super::*;
use ray_relay_ray::ray::registry::Snapshot;

/// Two tasks whose ranks are not in the list.
fn tasks_of_unknown_rank() -> [Breakpoint; 2] {
    [1, 2].map(|n| {
        let mut breakpoint = paused("Trainer.step", n);
        breakpoint.names_mut().job_id = Some("01000000".to_owned());
        breakpoint
    })
}

async fn scene(losses: [&'static str; 2]) -> GroupScene {
    let arguments = json!({"name": "Ray", "workspaceFolder": "/home/ann"});
    GroupScene::with_tasks(tasks_of_unknown_rank(), context(|_| {}), arguments, losses).await
}

async fn group_frame_name(parent: &mut Debugger) -> Value {
    parent.event("stopped").await;
    let stack = json!({"threadId": 1, "startFrame": 0, "levels": 20});
    let answer = parent.ask("stackTrace", stack).await;
    answer["body"]["stackFrames"][0]["name"].clone()
}

/// Workers are not listed in rank order.
#[tokio::test]
async fn ranks_are_queried_before_the_first_group_frame() {
    let mut scene = scene(["0.5@5", "nan@2"]).await;
    assert_eq!(group_frame_name(&mut scene.parent).await, "2,5: train.py:9");
    let watch = json!({"expression": "loss", "frameId": 1, "context": "watch"});
    let answer = scene.parent.ask("evaluate", watch).await;
    assert_eq!(answer["body"]["result"], "2: nan, 5: 0.5", "{answer}");
    // The list has the ranks from now on.
    let list = scene.context.registry.snapshot();
    let ranks = scene.workers.each_ref().map(|worker| {
        let names = &list.find(worker.breakpoint.id).unwrap().names;
        (names.rank, names.rank_is_certain)
    });
    assert_eq!(ranks, [(Some(5), true), (Some(2), true)]);
}

#[tokio::test]
async fn task_of_unknown_rank_is_shown_by_its_pid() {
    let mut scene = scene(["0.5", "nan@3"]).await;
    let name = group_frame_name(&mut scene.parent).await;
    assert_eq!(name, "3, pid 101: train.py:9");
    let watch = json!({"expression": "loss", "frameId": 1, "context": "watch"});
    let answer = scene.parent.ask("evaluate", watch).await;
    let result = answer["body"]["result"].as_str().unwrap();
    assert!(result.contains("pid 101: 0.5"), "{answer}");
}

/// Clients keep the names under which they open sessions.
#[tokio::test]
async fn child_sessions_open_in_rank_order_with_rank_names() {
    let context = context(|_| {});
    let tasks = tasks_of_unknown_rank().map(|mut task| {
        task.names_mut().group = Some("Trainer".to_owned());
        task
    });
    let mut workers = Vec::new();
    for (task, rank) in tasks.into_iter().zip([5, 2]) {
        let worker = Worker::listening(task).await;
        context.registry.insert(worker.breakpoint.clone());
        workers.push(tokio::spawn(async move {
            let (mut dap, _) = worker.attached().await;
            initialized(&mut dap).await;
            let evaluate = expect_request(&mut dap, "evaluate").await;
            let result = json!({"text": "None\n", "total": 4, "rank": rank}).to_string();
            let body = json!({"result": result, "variablesReference": 0});
            dap.send(&evaluate.success(body)).await.unwrap();
            // The query leaves nothing behind and does not resume the task.
            loop {
                let mut message = timeout(TEST_TIMEOUT, dap.read()).await.unwrap().unwrap();
                let request = Request::read(&mut message).unwrap();
                assert_ne!(request.command, "configurationDone");
                dap.send(&request.success(json!({}))).await.unwrap();
                if request.command == "disconnect" {
                    return worker;
                }
            }
        }));
    }
    let mut parent = Debugger::connect(&context).await;
    start_cluster_session_with(&mut parent, json!({"name": "Ray"})).await;
    for rank in [2, 5] {
        let name = next_announcement(&mut parent).await["name"].clone();
        let expected = format!("rank {rank} · Trainer.step");
        assert!(name.as_str().unwrap().starts_with(&expected), "{name}");
    }
    for worker in workers {
        worker.await.unwrap();
    }
}

/// VS Code fetches only the stacks of "Ray" and of the visible session.
#[tokio::test]
async fn location_of_each_task_is_known_from_its_stop() {
    let mut scene = scene(["0.5@0", "nan@1"]).await;
    group_frame_name(&mut scene.parent).await;
    let ids = scene.workers.each_ref().map(|worker| worker.breakpoint.id);
    let has_locations = |list: &Arc<Snapshot>| {
        let has_location = |id| list.find(id).is_some_and(|row| row.location.is_some());
        ids.into_iter().all(has_location)
    };
    let mut snapshots = scene.context.registry.watch();
    let result = timeout(TEST_TIMEOUT, snapshots.wait_for(has_locations)).await;
    result.expect("known in time").unwrap();
    let answer = scene
        .parent
        .ask("variables", json!({"variablesReference": 1}));
    let variables = answer.await["body"]["variables"].clone();
    for variable in variables.as_array().unwrap() {
        assert_eq!(variable["value"], "train.py:9", "{variables}");
    }
}

#[tokio::test]
async fn relay_command_applies_to_all_tasks_and_is_not_python() {
    let mut scene = scene(["0.5@0", "nan@1"]).await;
    let repl = |expression: &str| json!({"expression": expression, "context": "repl"});
    let answer = scene
        .parent
        .ask("evaluate", repl("ray-relay localRoot \"\""));
    let answer = answer.await;
    let result = answer["body"]["result"].as_str().unwrap();
    assert!(
        result.contains("as the worker has them, read-only"),
        "{answer}"
    );
    let other = scene.parent.ask("evaluate", repl("ray-relay list")).await;
    assert!(
        other["message"]
            .as_str()
            .unwrap()
            .contains("ray-relay localRoot FOLDER")
    );
    for (requests, child) in scene.requests.iter_mut().zip(&mut scene.children) {
        let evaluate = next_group_request(requests).await;
        let expression = evaluate["arguments"]["expression"].as_str().unwrap();
        assert!(!expression.contains("localRoot"), "{expression}");
        // Each editor requests its files again.
        child.event("stopped").await;
        while let Ok(message) = requests.try_recv() {
            assert_ne!(message["command"], "evaluate", "{message}");
        }
    }
}

#[tokio::test]
async fn requested_pause_takes_the_focus() {
    let mut scene = scene(["0.5@0", "nan@1"]).await;
    scene.parent.event("stopped").await;
    let child = &mut scene.children[1];
    child.ask("continue", json!({"threadId": 7})).await;
    child.send("pause", json!({"threadId": 7})).await;
    let stop = child.event("stopped").await;
    assert_eq!(stop["body"]["reason"], "pause");
    assert_ne!(stop["body"]["preserveFocusHint"], true, "{stop}");
}

#[tokio::test]
async fn rank_breakpoint_warns_in_a_task_of_unknown_rank() {
    let mut scene = scene(["0.5", "nan@1"]).await;
    let breakpoint = json!({"line": 9, "condition": "ray.rank == 3"});
    let set = json!({"source": {"path": "/app/train.py"}, "breakpoints": [breakpoint]});
    let [first, second] = &mut scene.children[..] else {
        panic!("two sessions");
    };
    first.send("setBreakpoints", set.clone()).await;
    let output = first.output("the rank of").await;
    assert_output(&output, "`ray.rank == 3` does not hold there");
    second.ask("setBreakpoints", set).await;
    scene.expect_no_rank_warning().await;
}

/// The console of a rank and the console of "Ray" are separate.
#[tokio::test]
async fn group_console_warns_once_of_unknown_ranks() {
    let mut scene = scene(["0.5", "nan"]).await;
    let breakpoint = json!({"line": 9, "condition": "ray.rank == 3"});
    let set = json!({"source": {"path": "/app/train.py"}, "breakpoints": [breakpoint]});
    for child in &mut scene.children {
        child.send("setBreakpoints", set.clone()).await;
        child.output("the rank of").await;
    }
    let output = scene.parent.output("the rank of").await;
    assert_output(&output, "`ray.rank == 3` does not hold there");
    let seq = scene.parent.send("threads", json!({})).await;
    let is_next = |m: &Value| m["request_seq"] == seq || m.to_string().contains("the rank of");
    let next = scene.parent.until(is_next).await;
    assert_eq!(next["request_seq"], seq, "{next}");
}

impl GroupScene {
    /// Expects that the second client is not notified of a rank that its process knows.
    async fn expect_no_rank_warning(&mut self) {
        let child = &mut self.children[1];
        let seq = child.send("threads", json!({})).await;
        let message = child.until(|m| m["request_seq"] == seq || m["event"] == "output");
        let message = message.await;
        assert!(!message.to_string().contains("the rank of"), "{message}");
    }
}

/// Two users press F5 at the same moment.
#[tokio::test]
async fn lost_attach_race_is_a_console_line_not_a_dialog() {
    let context = context(|_| {});
    let worker = Worker::listed(&context).await;
    let mut parent = Debugger::connect(&context).await;
    let arguments = json!({"name": "Ray", "rayRelay": {"all": true}});
    start_cluster_session_with(&mut parent, arguments).await;
    let configuration = next_announcement(&mut parent).await;
    let arguments = json!({"rayRelay": {"breakpoint": worker.breakpoint.id}});
    let (_other, _) = Debugger::attaching(&context, arguments).await;
    let (_dap, _) = worker.attached().await;
    let (mut child, seq) = Debugger::attaching(&context, configuration).await;
    let answer = child.answer(seq).await;
    assert_eq!(answer["success"], false, "{answer}");
    assert_eq!(answer["body"]["error"]["showUser"], false, "{answer}");
    assert_output(&parent.output("square").await, "is being debugged by");
}

/// Covers a node under load.
#[tokio::test]
async fn slow_debugger_is_retried_and_the_console_reports_it() {
    let context = context(|config| config.dap.connect_timeout = Duration::from_millis(400));
    let worker = Worker::listed(&context).await;
    let mut parent = Debugger::connect(&context).await;
    let arguments = json!({"name": "Ray", "rayRelay": {"all": true}});
    start_cluster_session_with(&mut parent, arguments).await;
    let configuration = next_announcement(&mut parent).await;
    let (mut child, _) = Debugger::attaching(&context, configuration).await;
    // The debugger does not greet this connection in time.
    let slow = worker.accept().await;
    assert_output(&parent.output("is slow to attach").await, "tries again");
    drop(slow);
    let (mut dap, _) = worker.attached().await;
    initialized(&mut dap).await;
    child.event("initialized").await;
}
