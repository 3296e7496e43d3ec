//! Requests of a cluster session to the tasks of all its sessions.

mod members;
mod shown;
mod together;

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Notify, mpsc};

use super::family::{next_announcement, open_child, start_cluster_session_with};
use super::identity::{relay, with_token};
use super::*;
use ray_relay_access::audit::testing::spied;
use ray_relay_access::identity::testing::token_of;

/// Two paused ranks, each open in a session of its own, and the requests to their debuggers.
struct GroupScene {
    context: Arc<Context>,
    parent: Debugger,
    children: Vec<Debugger>,
    requests: Vec<mpsc::UnboundedReceiver<Value>>,
    debuggers: Vec<JoinHandle<()>>,
    workers: [Worker; 2],
    stage: Arc<GroupStage>,
}

/// State shared by the debuggers of a scene.
#[derive(Default)]
struct GroupStage {
    /// The number of requests to all debuggers.
    requests: AtomicU64,
    /// Lets a debugger with the value `late` answer.
    proceed: Notify,
}

fn rank(rank: u8) -> Breakpoint {
    let mut breakpoint = paused("Trainer.step", rank + 1);
    let names = breakpoint.names_mut();
    names.job_id = Some("01000000".to_owned());
    (names.rank, names.group) = (Some(rank.into()), Some("Trainer".to_owned()));
    names.rank_is_certain = true;
    breakpoint
}

fn stopped(reason: &str) -> Value {
    let mut stop = json!({"reason": reason, "threadId": 7, "allThreadsStopped": true});
    if reason == "pause" {
        // debugpy sets this for a pause.
        stop["preserveFocusHint"] = true.into();
    }
    message::event("stopped", stop)
}

/// Returns the next request, except those by which the relay locates the task.
async fn next_group_request(requests: &mut mpsc::UnboundedReceiver<Value>) -> Value {
    let next = async {
        loop {
            let request = requests.recv().await.unwrap();
            if request["command"] != "stackTrace" {
                return request;
            }
        }
    };
    timeout(TEST_TIMEOUT, next).await.expect("asked in time")
}

/// Plays the debugger of a paused task. Every expression has the value `loss`, with the rank of the process after an
/// `@`. `stepIn` leads to a breakpoint of its own. With the value `late`, it answers and pauses only after
/// [`GroupStage::proceed`].
async fn play_debugger(
    mut dap: Conversation<TcpStream>,
    loss: &'static str,
    requests: mpsc::UnboundedSender<Value>,
    stage: Arc<GroupStage>,
) {
    let (loss, rank) = loss.split_once('@').unwrap_or((loss, ""));
    dap.send(&stopped("breakpoint")).await.unwrap();
    while let Ok(mut message) = dap.read().await {
        // The test may have dropped the receiver.
        let mut recorded = message.clone();
        recorded["order"] = stage.requests.fetch_add(1, Ordering::SeqCst).into();
        let _ = requests.send(recorded);
        let Some(request) = Request::read(&mut message) else {
            continue;
        };
        let mut value = json!({"text": format!("{loss}\n"), "total": loss.len()});
        if let Ok(rank) = rank.parse::<u32>() {
            value["rank"] = rank.into();
        }
        let result = value.to_string();
        let body = match &*request.command {
            "stackTrace" => json!({"stackFrames": [
                {"id": 3, "name": "set_trace", "source": {"path": "/x/ray/util/debugpy.py"}},
                {"id": 4, "name": "step", "line": 9, "source": {"path": "/app/train.py"}},
            ]}),
            "evaluate" if loss == "silence" => continue,
            "evaluate" if loss == "late" => {
                stage.proceed.notified().await;
                json!({"result": result, "variablesReference": 0})
            }
            "evaluate"
                if request.arguments["expression"]
                    .as_str()
                    .is_some_and(|text| text.contains(r#"\"op\":\"open\""#)) =>
            {
                let value = json!({"name": "loss", "type": "dict", "value": "dict, 1 items", "step": "loss", "inside": 1, "indexed": false});
                let result = json!({"scope": 0, "variables": [value]}).to_string();
                json!({"result": result, "variablesReference": 0})
            }
            "evaluate" => json!({"result": result, "variablesReference": 0}),
            "threads" => json!({"threads": [{"id": 7, "name": "MainThread"}]}),
            "completions" => json!({"targets": [{"label": "loss"}]}),
            _ => json!({}),
        };
        dap.send(&request.success(body)).await.unwrap();
        if request.command == "setBreakpoints" {
            let log = request.arguments["breakpoints"][0]["logMessage"].as_str();
            let log = log.unwrap_or_default();
            let output = json!({"category": "stdout", "output": format!("{log}\n")});
            dap.send(&message::event("output", output)).await.unwrap();
        }
        let stops = match &*request.command {
            "next" => "step",
            "stepIn" => "breakpoint",
            "pause" => "pause",
            _ => continue,
        };
        if stops == "pause" && loss == "late" {
            stage.proceed.notified().await;
        }
        dap.send(&stopped(stops)).await.unwrap();
    }
}

impl GroupScene {
    async fn new(losses: [&'static str; 2]) -> Self {
        Self::with_arguments(context(|_| {}), json!({"name": "Ray"}), losses).await
    }

    /// Creates a scene at the relay in `context`, for a client that attaches with these arguments.
    async fn with_arguments(
        context: Arc<Context>,
        arguments: Value,
        losses: [&'static str; 2],
    ) -> Self {
        Self::with_tasks([rank(0), rank(1)], context, arguments, losses).await
    }

    /// Creates the scene with these tasks.
    async fn with_tasks(
        [first, second]: [Breakpoint; 2],
        context: Arc<Context>,
        arguments: Value,
        losses: [&'static str; 2],
    ) -> Self {
        let workers = [
            Worker::listening(first).await,
            Worker::listening(second).await,
        ];
        for worker in &workers {
            context.registry.insert(worker.breakpoint.clone());
        }
        let mut parent = Debugger::connect(&context).await;
        start_cluster_session_with(&mut parent, arguments).await;
        let (mut children, mut requests, mut debuggers) = (Vec::new(), Vec::new(), Vec::new());
        let stage = Arc::new(GroupStage::default());
        for _ in 0..2 {
            let configuration = next_announcement(&mut parent).await;
            let id = configuration["rayRelay"]["breakpoint"].clone();
            let index = usize::from(json!(workers[1].breakpoint.id) == id);
            let (mut child, dap) = open_child(&context, configuration, &workers).await;
            let (sender, receiver) = mpsc::unbounded_channel();
            let debugger = play_debugger(dap, losses[index], sender, Arc::clone(&stage));
            debuggers.push(tokio::spawn(debugger));
            // The focus goes to the thread that represents all tasks.
            let stop = child.event("stopped").await;
            assert_eq!(stop["body"]["preserveFocusHint"], true, "{stop}");
            children.push(child);
            requests.push(receiver);
        }
        Self {
            context,
            parent,
            children,
            requests,
            debuggers,
            workers,
            stage,
        }
    }

    /// Expects that the next message to each client answers that client's request.
    async fn expect_no_other_message(&mut self) {
        for child in &mut self.children {
            let seq = child.send("threads", json!({})).await;
            let next = child.read().await;
            assert_eq!(
                (&next["command"], &next["request_seq"]),
                (&"threads".into(), &seq.into()),
                "{next}"
            );
        }
    }
}

#[tokio::test]
async fn group_evaluate_runs_in_each_task_unseen_by_its_client() {
    let mut scene = GroupScene::new(["0.5", "nan"]).await;
    let arguments = json!({"expression": "loss", "context": "repl"});
    let answer = scene.parent.ask("evaluate", arguments).await;
    assert_eq!(answer["body"]["result"], "0: 0.5\n1: nan", "{answer}");
    assert_eq!(answer["body"]["variablesReference"], 0);
    scene.expect_no_other_message().await;
    // It runs in the program's own frame, by the probe that a group prompt uses.
    let evaluate = next_group_request(&mut scene.requests[0]).await;
    assert_eq!(evaluate["arguments"]["frameId"], 4);
    let expression = evaluate["arguments"]["expression"].as_str().unwrap();
    assert!(expression.starts_with("(lambda ask="), "{expression}");
}

/// Without the interrupt, a cancelled expression would run for ever in each rank.
#[tokio::test]
async fn cancelled_group_evaluate_stops_in_the_busy_task() {
    let mut scene = GroupScene::new(["0.5", "silence"]).await;
    let arguments = json!({"expression": "loop()", "context": "repl"});
    let seq = scene.parent.send("evaluate", arguments).await;
    for requests in &mut scene.requests {
        assert_eq!(next_group_request(requests).await["command"], "evaluate");
    }
    let cancelled = scene.parent.ask("cancel", json!({"requestId": seq})).await;
    assert_eq!(cancelled["success"], true, "{cancelled}");
    let interrupt = next_group_request(&mut scene.requests[1]).await;
    let expected = ray_relay_debugger::pdb::interrupt();
    assert_eq!(interrupt["arguments"], expected, "{interrupt}");
    let answer = scene.parent.answer(seq).await;
    let result = &answer["body"]["result"];
    assert_eq!(result, "0: 0.5\n! 1: cancelled", "{answer}");
    scene.expect_no_other_message().await;
    // The other task has answered and gets no interrupt.
    let request = next_group_request(&mut scene.requests[0]).await;
    assert_eq!(request["command"], "threads", "{request}");
}

/// VS Code shows watches only for a session that has a thread with a frame.
#[tokio::test]
async fn watch_on_the_group_thread_shows_each_rank() {
    let mut scene = GroupScene::new(["0.5", "nan"]).await;
    let parent = &mut scene.parent;
    assert_eq!(parent.event("thread").await["body"]["reason"], "started");
    let stop = parent.event("stopped").await["body"].clone();
    assert_eq!(
        (&stop["threadId"], &stop["preserveFocusHint"]),
        (&json!(1), &json!(false)),
        "{stop}"
    );
    let threads = parent.ask("threads", json!({})).await;
    assert_eq!(
        threads["body"]["threads"],
        json!([{"id": 1, "name": "all 2 tasks"}])
    );
    let stack = parent
        .ask(
            "stackTrace",
            json!({"threadId": 1, "startFrame": 0, "levels": 20}),
        )
        .await;
    let frame = &stack["body"]["stackFrames"][0];
    assert_eq!(
        (&frame["id"], &frame["name"]),
        (&json!(1), &json!("0,1: train.py:9")),
        "{stack}"
    );
    // An editor follows only a frame with a file. It also requests the frames after the first.
    let source = json!({"name": "train.py", "path": "/app/train.py"});
    assert_eq!((&frame["line"], &frame["source"]), (&json!(9), &source));
    let later_frames = json!({"threadId": 1, "startFrame": 1, "levels": 19});
    let stack = parent.ask("stackTrace", later_frames).await;
    assert_eq!(stack["body"]["stackFrames"], json!([]), "{stack}");
    let arguments = json!({"frameId": 1, "text": "lo", "column": 3});
    let completions = parent.ask("completions", arguments).await;
    let targets = json!([{"label": "loss"}]);
    assert_eq!(completions["body"]["targets"], targets, "{completions}");
    let scopes = parent.ask("scopes", json!({"frameId": 1})).await;
    let reference = &scopes["body"]["scopes"][0]["variablesReference"];
    let variables = parent
        .ask("variables", json!({"variablesReference": reference}))
        .await;
    assert_eq!(
        variables["body"]["variables"][1]["name"], "1",
        "{variables}"
    );
    let watch = json!({"expression": "loss", "frameId": 1, "context": "watch"});
    let answer = parent.ask("evaluate", watch).await;
    assert_eq!(answer["body"]["result"], "0: 0.5, 1: nan", "{answer}");
    let reference = answer["body"]["variablesReference"].clone();
    let variables = parent
        .ask("variables", json!({"variablesReference": reference}))
        .await;
    let variable =
        |rank: &str, value: &str| json!({"name": rank, "value": value, "variablesReference": 0});
    assert_eq!(
        variables["body"]["variables"],
        json!([variable("0", "0.5"), variable("1", "nan")])
    );
    // A hover is not evaluated in any task.
    let hover = json!({"expression": "loss", "frameId": 1, "context": "hover"});
    let answer = parent.ask("evaluate", hover).await;
    assert_eq!(
        (&answer["success"], &answer["body"]["error"]["showUser"]),
        (&json!(false), &json!(false))
    );
}

#[tokio::test]
async fn group_thread_buttons_act_on_each_task() {
    let mut scene = GroupScene::new(["0.5", "nan"]).await;
    scene.parent.event("stopped").await;
    let answer = scene.parent.ask("next", json!({"threadId": 1})).await;
    assert_eq!(answer["success"], true, "{answer}");
    for (requests, child) in scene.requests.iter_mut().zip(&mut scene.children) {
        let request = next_group_request(requests).await;
        assert_eq!(
            (&request["command"], &request["arguments"]["threadId"]),
            (&json!("next"), &json!(7))
        );
        // Its own client gets the stop, but no answer.
        let stop = child.read().await;
        assert_eq!(
            (&stop["event"], &stop["body"]["preserveFocusHint"]),
            (&json!("stopped"), &json!(true))
        );
    }
    // The parent gets one stop for all tasks.
    let stop = scene.parent.read().await;
    assert_eq!(
        (&stop["event"], &stop["body"]["preserveFocusHint"]),
        (&json!("stopped"), &json!(false))
    );
    let answer = scene.parent.ask("continue", json!({"threadId": 1})).await;
    assert_eq!(answer["body"]["allThreadsContinued"], true, "{answer}");
    for requests in &mut scene.requests {
        assert_eq!(next_group_request(requests).await["command"], "continue");
    }
    scene.expect_no_other_message().await;
    let arguments = json!({"expression": "loss", "context": "repl"});
    let answer = scene.parent.ask("evaluate", arguments).await;
    assert_eq!(answer["body"]["result"], "! 0,1: it runs", "{answer}");
    let answer = scene.parent.ask("next", json!({"threadId": 1})).await;
    assert_eq!(answer["success"], false, "{answer}");
    let answer = scene.parent.ask("pause", json!({"threadId": 1})).await;
    assert_eq!(answer["success"], true, "{answer}");
    for requests in &mut scene.requests {
        // The request of its own client comes first.
        assert_eq!(next_group_request(requests).await["command"], "threads");
        assert_eq!(next_group_request(requests).await["command"], "pause");
    }
}

/// VS Code follows the session in which the user steps.
#[tokio::test]
async fn stepped_task_keeps_the_focus() {
    let mut scene = GroupScene::new(["0.5", "nan"]).await;
    scene.parent.event("stopped").await;
    let mut keeps_focus = false;
    // A late first stop of the second task takes the focus too, so it may come with the first step.
    for _ in 0..2 {
        let child = &mut scene.children[1];
        child.send("next", json!({"threadId": 7})).await;
        let stop = child.event("stopped").await;
        assert_ne!(stop["body"]["preserveFocusHint"], true, "{stop}");
        let stop = scene.parent.event("stopped").await;
        keeps_focus |= stop["body"]["preserveFocusHint"] == true;
    }
    assert!(keeps_focus);
}

#[tokio::test]
async fn task_lost_during_a_group_evaluate_is_named() {
    let mut scene = GroupScene::new(["0.5", "silence"]).await;
    let arguments = json!({"expression": "loss", "context": "repl"});
    let seq = scene.parent.send("evaluate", arguments).await;
    let requests = &mut scene.requests[1];
    assert_eq!(next_group_request(requests).await["command"], "evaluate");
    scene.debuggers[1].abort();
    let answer = scene.parent.answer(seq).await;
    let expected = "0: 0.5\n! 1: its session has ended";
    assert_eq!(answer["body"]["result"], expected, "{answer}");
    // A single remaining task needs no group thread.
    scene
        .parent
        .until(|m| m["event"] == "thread" && m["body"]["reason"] == "exited")
        .await;
    drop(scene.context);
}

#[tokio::test]
async fn cluster_session_with_one_task_has_no_thread() {
    let context = context(|_| {});
    let worker = Worker::listed(&context).await;
    let mut parent = Debugger::connect(&context).await;
    start_cluster_session_with(
        &mut parent,
        json!({"name": "Ray", "rayRelay": {"all": true}}),
    )
    .await;
    let configuration = next_announcement(&mut parent).await;
    let workers = [worker, Worker::listen().await];
    let (mut child, dap) = open_child(&context, configuration, &workers).await;
    let (sender, _requests) = mpsc::unbounded_channel();
    let _debugger = tokio::spawn(play_debugger(dap, "0.5", sender, Arc::default()));
    let stop = child.event("stopped").await;
    assert_ne!(stop["body"]["preserveFocusHint"], true, "{stop}");
    let arguments = json!({"expression": "loss", "context": "repl"});
    let seq = parent.send("evaluate", arguments).await;
    let answer = parent.until(|m| {
        assert!(
            !matches!(m["event"].as_str(), Some("thread" | "stopped")),
            "{m}"
        );
        m["request_seq"] == seq
    });
    assert_eq!(answer.await["body"]["result"], "pid 101: 0.5");
    assert_eq!(
        parent.ask("threads", json!({})).await["body"]["threads"],
        json!([])
    );
}

#[tokio::test]
async fn logpoint_output_is_labelled_in_the_group_console() {
    let mut scene = GroupScene::new(["0.5", "nan"]).await;
    let parent = &mut scene.parent;
    let child = &mut scene.children[1];
    let log = json!({"line": 9, "logMessage": "loss is {loss}", "condition": "ray.rank == 1"});
    let breakpoints = json!({"source": {"path": "/app/train.py"}, "breakpoints": [log]});
    let seq = child.send("setBreakpoints", breakpoints).await;
    let output = parent.output("loss is").await;
    assert_eq!(output["body"]["output"], "1: loss is {loss}\n", "{output}");
    assert_eq!(child.answer(seq).await["success"], true);
    // The session's own client sees the output unchanged.
    let event = child.read().await;
    assert_eq!(
        event["body"],
        json!({"category": "stdout", "output": "loss is {loss}\n"})
    );
    let request = next_group_request(&mut scene.requests[1]).await;
    assert_eq!(
        request["arguments"]["breakpoints"][0]["condition"],
        "1 == 1"
    );
}

#[tokio::test]
async fn viewer_gets_masked_group_variables_and_runs_nothing() {
    let (audit, spy) = spied(true);
    let relay = relay(audit, |_| {});
    let secret = "{'password': 'hunter2'}";
    let vic = with_token(token_of("vic"));
    let mut scene = GroupScene::with_arguments(relay, vic, [secret, secret]).await;
    let arguments = json!({"expression": "loss", "context": "repl"});
    let answer = scene.parent.ask("evaluate", arguments).await;
    let expected = "0,1: dict, 1 items";
    assert_eq!(answer["body"]["result"], expected, "{answer}");
    let arguments = json!({"expression": "f()", "context": "repl"});
    let answer = scene.parent.ask("evaluate", arguments).await;
    let refused = answer["body"]["result"].as_str().unwrap();
    assert!(
        refused.starts_with("! 0,1: evaluating anything but the name"),
        "{answer}"
    );
    scene.expect_no_other_message().await;
    // Only the relay's own probe ran, with the same key in all tasks.
    let mut keys = Vec::new();
    for requests in &mut scene.requests {
        while let Ok(message) = requests.try_recv() {
            if message["command"] == "evaluate" {
                let expression = message["arguments"]["expression"].as_str().unwrap();
                let (probe, _) = expression.split_once(", j=__import__").unwrap();
                assert!(probe.contains(r#"\"op\":\"open\""#), "{probe}");
                assert!(probe.contains(r#"\"visible\":\"structure\""#), "{probe}");
                keys.push(probe.to_owned());
            }
        }
    }
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0], keys[1]);
    // The audit log has one line for each request, with its tasks and without the expression.
    let lines = spy.take();
    let group: Vec<_> = lines
        .iter()
        .filter(|line| line.details["command"] == "group")
        .collect();
    assert_eq!(group.len(), 2, "{lines:?}");
    assert_eq!(group[0].details["asks"], "evaluate");
    assert_eq!(
        group[0].details["members"].as_array().map(Vec::len),
        Some(2)
    );
}
