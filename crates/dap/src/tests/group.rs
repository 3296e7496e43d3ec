//! Requests of a cluster session to the tasks of all its sessions.

mod members;
mod shown;
mod together;

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Notify, mpsc};

use super::family::{announced, configured_with, open};
use super::identity::{relay, with_token};
use super::*;
use ray_relay_access::audit::testing::spied;
use ray_relay_access::identity::testing::token_of;

/// Two paused ranks, each open in a session of its own, and the requests to their debuggers.
struct GroupScene {
    context: Arc<Context>,
    parent: Debugger,
    children: Vec<Debugger>,
    asked: Vec<mpsc::UnboundedReceiver<Value>>,
    played: Vec<JoinHandle<()>>,
    workers: [Worker; 2],
    stage: Arc<GroupStage>,
}

/// State shared by the debuggers of a scene.
#[derive(Default)]
struct GroupStage {
    /// Number of requests to any of them.
    asked: AtomicU64,
    /// Makes a late one answer.
    goes_on: Notify,
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
        // As debugpy has it.
        stop["preserveFocusHint"] = true.into();
    }
    message::event("stopped", stop)
}

/// The next request, without those by which the relay locates the task.
async fn next_request(asked: &mut mpsc::UnboundedReceiver<Value>) -> Value {
    let next = async {
        loop {
            let request = asked.recv().await.unwrap();
            if request["command"] != "stackTrace" {
                return request;
            }
        }
    };
    timeout(TEST_TIMEOUT, next).await.expect("asked in time")
}

/// Plays the debugger of a paused task. Every expression has the value `loss`, with the rank of the process after an
/// `@`. `stepIn` leads to a breakpoint of its own. One that is `late` has no value before it resumes, and pauses no
/// earlier.
async fn plays(
    mut dap: Conversation<TcpStream>,
    loss: &'static str,
    asked: mpsc::UnboundedSender<Value>,
    stage: Arc<GroupStage>,
) {
    let (loss, rank) = loss.split_once('@').unwrap_or((loss, ""));
    dap.send(&stopped("breakpoint")).await.unwrap();
    while let Ok(mut message) = dap.read().await {
        // A test may have seen enough.
        let mut told = message.clone();
        told["order"] = stage.asked.fetch_add(1, Ordering::SeqCst).into();
        let _ = asked.send(told);
        let Some(request) = Request::read(&mut message) else {
            continue;
        };
        let mut told = json!({"text": format!("{loss}\n"), "total": loss.len()});
        if let Ok(rank) = rank.parse::<u32>() {
            told["rank"] = rank.into();
        }
        let told = told.to_string();
        let body = match &*request.command {
            "stackTrace" => json!({"stackFrames": [
                {"id": 3, "name": "set_trace", "source": {"path": "/x/ray/util/debugpy.py"}},
                {"id": 4, "name": "step", "line": 9, "source": {"path": "/app/train.py"}},
            ]}),
            "evaluate" if loss == "silence" => continue,
            "evaluate" if loss == "late" => {
                stage.goes_on.notified().await;
                json!({"result": told, "variablesReference": 0})
            }
            "evaluate"
                if request.arguments["expression"]
                    .as_str()
                    .is_some_and(|asked| asked.contains(r#"\"op\":\"open\""#)) =>
            {
                let value = json!({"name": "loss", "type": "dict", "value": "dict, 1 items", "step": "loss", "inside": 1, "indexed": false});
                let told = json!({"scope": 0, "variables": [value]}).to_string();
                json!({"result": told, "variablesReference": 0})
            }
            "evaluate" => json!({"result": told, "variablesReference": 0}),
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
            stage.goes_on.notified().await;
        }
        dap.send(&stopped(stops)).await.unwrap();
    }
}

impl GroupScene {
    async fn standing(losses: [&'static str; 2]) -> Self {
        Self::of(context(|_| {}), json!({"name": "Ray"}), losses).await
    }

    /// A scene at the relay in `context`, for a client that attaches with these arguments.
    async fn of(context: Arc<Context>, arguments: Value, losses: [&'static str; 2]) -> Self {
        Self::with([rank(0), rank(1)], context, arguments, losses).await
    }

    /// The same of these tasks.
    async fn with(
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
        configured_with(&mut parent, arguments).await;
        let (mut children, mut asked, mut played) = (Vec::new(), Vec::new(), Vec::new());
        let stage = Arc::new(GroupStage::default());
        for _ in 0..2 {
            let configuration = announced(&mut parent).await;
            let id = configuration["rayRelay"]["breakpoint"].clone();
            let at = usize::from(json!(workers[1].breakpoint.id) == id);
            let (mut child, dap) = open(&context, configuration, &workers).await;
            let (sender, receiver) = mpsc::unbounded_channel();
            let play = plays(dap, losses[at], sender, Arc::clone(&stage));
            played.push(tokio::spawn(play));
            // The focus goes to the thread that represents all tasks.
            let stop = child.event("stopped").await;
            assert_eq!(stop["body"]["preserveFocusHint"], true, "{stop}");
            children.push(child);
            asked.push(receiver);
        }
        Self {
            context,
            parent,
            children,
            asked,
            played,
            workers,
            stage,
        }
    }

    /// Expects that the next message to each client answers its own request.
    async fn nobody_else_heard(&mut self) {
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
    let mut scene = GroupScene::standing(["0.5", "nan"]).await;
    let typed = json!({"expression": "loss", "context": "repl"});
    let answer = scene.parent.ask("evaluate", typed).await;
    assert_eq!(answer["body"]["result"], "0: 0.5\n1: nan", "{answer}");
    assert_eq!(answer["body"]["variablesReference"], 0);
    scene.nobody_else_heard().await;
    // In the frame of the program's own, by the probe that a prompt for many uses.
    let evaluate = next_request(&mut scene.asked[0]).await;
    assert_eq!(evaluate["arguments"]["frameId"], 4);
    let expression = evaluate["arguments"]["expression"].as_str().unwrap();
    assert!(expression.starts_with("(lambda ask="), "{expression}");
}

/// An expression that continues after its answer was given up would run for ever, in each rank.
#[tokio::test]
async fn cancelled_group_evaluate_stops_in_the_busy_task() {
    let mut scene = GroupScene::standing(["0.5", "silence"]).await;
    let typed = json!({"expression": "loop()", "context": "repl"});
    let seq = scene.parent.send("evaluate", typed).await;
    for asked in &mut scene.asked {
        assert_eq!(next_request(asked).await["command"], "evaluate");
    }
    let cancelled = scene.parent.ask("cancel", json!({"requestId": seq})).await;
    assert_eq!(cancelled["success"], true, "{cancelled}");
    let interrupt = next_request(&mut scene.asked[1]).await;
    let expected = ray_relay_debugger::pdb::interrupt();
    assert_eq!(interrupt["arguments"], expected, "{interrupt}");
    let answer = scene.parent.answer(seq).await;
    let result = &answer["body"]["result"];
    assert_eq!(result, "0: 0.5\n! 1: cancelled", "{answer}");
    scene.nobody_else_heard().await;
    // The other one has had its answer, and is asked nothing more.
    let next = next_request(&mut scene.asked[0]).await;
    assert_eq!(next["command"], "threads", "{next}");
}

/// VS Code shows watches of a session that has a thread with a frame, and asks for both.
#[tokio::test]
async fn watch_on_the_group_thread_shows_each_rank() {
    let mut scene = GroupScene::standing(["0.5", "nan"]).await;
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
    // Without a file an editor does not go to it by itself. It asks for the frames behind the first as well.
    let source = json!({"name": "train.py", "path": "/app/train.py"});
    assert_eq!((&frame["line"], &frame["source"]), (&json!(9), &source));
    let behind = json!({"threadId": 1, "startFrame": 1, "levels": 19});
    let stack = parent.ask("stackTrace", behind).await;
    assert_eq!(stack["body"]["stackFrames"], json!([]), "{stack}");
    let typing = json!({"frameId": 1, "text": "lo", "column": 3});
    let completions = parent.ask("completions", typing).await;
    let targets = json!([{"label": "loss"}]);
    assert_eq!(completions["body"]["targets"], targets, "{completions}");
    let scopes = parent.ask("scopes", json!({"frameId": 1})).await;
    let reference = &scopes["body"]["scopes"][0]["variablesReference"];
    let each = parent
        .ask("variables", json!({"variablesReference": reference}))
        .await;
    assert_eq!(each["body"]["variables"][1]["name"], "1", "{each}");
    let watch = json!({"expression": "loss", "frameId": 1, "context": "watch"});
    let answer = parent.ask("evaluate", watch).await;
    assert_eq!(answer["body"]["result"], "0: 0.5, 1: nan", "{answer}");
    let reference = answer["body"]["variablesReference"].clone();
    let each = parent
        .ask("variables", json!({"variablesReference": reference}))
        .await;
    let of =
        |rank: &str, value: &str| json!({"name": rank, "value": value, "variablesReference": 0});
    assert_eq!(
        each["body"]["variables"],
        json!([of("0", "0.5"), of("1", "nan")])
    );
    // A hover is evaluated in no task.
    let hover = json!({"expression": "loss", "frameId": 1, "context": "hover"});
    let answer = parent.ask("evaluate", hover).await;
    assert_eq!(
        (&answer["success"], &answer["body"]["error"]["showUser"]),
        (&json!(false), &json!(false))
    );
}

#[tokio::test]
async fn group_thread_buttons_act_on_each_task() {
    let mut scene = GroupScene::standing(["0.5", "nan"]).await;
    scene.parent.event("stopped").await;
    let answer = scene.parent.ask("next", json!({"threadId": 1})).await;
    assert_eq!(answer["success"], true, "{answer}");
    for (asked, child) in scene.asked.iter_mut().zip(&mut scene.children) {
        let next = next_request(asked).await;
        assert_eq!(
            (&next["command"], &next["arguments"]["threadId"]),
            (&json!("next"), &json!(7))
        );
        // Of the stop its own client hears, and of no answer.
        let stop = child.read().await;
        assert_eq!(
            (&stop["event"], &stop["body"]["preserveFocusHint"]),
            (&json!("stopped"), &json!(true))
        );
    }
    // One stop for all.
    let stop = scene.parent.read().await;
    assert_eq!(
        (&stop["event"], &stop["body"]["preserveFocusHint"]),
        (&json!("stopped"), &json!(false))
    );
    let answer = scene.parent.ask("continue", json!({"threadId": 1})).await;
    assert_eq!(answer["body"]["allThreadsContinued"], true, "{answer}");
    for asked in &mut scene.asked {
        assert_eq!(next_request(asked).await["command"], "continue");
    }
    scene.nobody_else_heard().await;
    let typed = json!({"expression": "loss", "context": "repl"});
    let answer = scene.parent.ask("evaluate", typed).await;
    assert_eq!(answer["body"]["result"], "! 0,1: it runs", "{answer}");
    let answer = scene.parent.ask("next", json!({"threadId": 1})).await;
    assert_eq!(answer["success"], false, "{answer}");
    let answer = scene.parent.ask("pause", json!({"threadId": 1})).await;
    assert_eq!(answer["success"], true, "{answer}");
    for asked in &mut scene.asked {
        // Behind what its own client has asked.
        assert_eq!(next_request(asked).await["command"], "threads");
        assert_eq!(next_request(asked).await["command"], "pause");
    }
}

/// VS Code goes to the new line of the session in which one steps, and stays there.
#[tokio::test]
async fn stepped_task_keeps_the_focus() {
    let mut scene = GroupScene::standing(["0.5", "nan"]).await;
    scene.parent.event("stopped").await;
    let mut keeps = false;
    // That of the second task, where it came late, has the focus, and may be told with the first step.
    for _ in 0..2 {
        let child = &mut scene.children[1];
        child.send("next", json!({"threadId": 7})).await;
        let stop = child.event("stopped").await;
        assert_ne!(stop["body"]["preserveFocusHint"], true, "{stop}");
        let stop = scene.parent.event("stopped").await;
        keeps |= stop["body"]["preserveFocusHint"] == true;
    }
    assert!(keeps);
}

#[tokio::test]
async fn task_lost_during_a_group_evaluate_is_named() {
    let mut scene = GroupScene::standing(["0.5", "silence"]).await;
    let typed = json!({"expression": "loss", "context": "repl"});
    let seq = scene.parent.send("evaluate", typed).await;
    let silent = &mut scene.asked[1];
    assert_eq!(next_request(silent).await["command"], "evaluate");
    scene.played[1].abort();
    let answer = scene.parent.answer(seq).await;
    let said = "0: 0.5\n! 1: its session has ended";
    assert_eq!(answer["body"]["result"], said, "{answer}");
    // One that is alone has its own session.
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
    configured_with(
        &mut parent,
        json!({"name": "Ray", "rayRelay": {"all": true}}),
    )
    .await;
    let configuration = announced(&mut parent).await;
    let workers = [worker, Worker::listen().await];
    let (mut child, dap) = open(&context, configuration, &workers).await;
    let (sender, _asked) = mpsc::unbounded_channel();
    let _played = tokio::spawn(plays(dap, "0.5", sender, Arc::default()));
    let stop = child.event("stopped").await;
    assert_ne!(stop["body"]["preserveFocusHint"], true, "{stop}");
    let typed = json!({"expression": "loss", "context": "repl"});
    let seq = parent.send("evaluate", typed).await;
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
    let mut scene = GroupScene::standing(["0.5", "nan"]).await;
    let parent = &mut scene.parent;
    let child = &mut scene.children[1];
    let log = json!({"line": 9, "logMessage": "loss is {loss}", "condition": "ray.rank == 1"});
    let breakpoints = json!({"source": {"path": "/app/train.py"}, "breakpoints": [log]});
    let seq = child.send("setBreakpoints", breakpoints).await;
    let told = parent.output("loss is").await;
    assert_eq!(told["body"]["output"], "1: loss is {loss}\n", "{told}");
    assert_eq!(child.answer(seq).await["success"], true);
    // The session's own client sees it as it would without.
    let own = child.read().await;
    assert_eq!(
        own["body"],
        json!({"category": "stdout", "output": "loss is {loss}\n"})
    );
    let asked = next_request(&mut scene.asked[1]).await;
    assert_eq!(asked["arguments"]["breakpoints"][0]["condition"], "1 == 1");
}

#[tokio::test]
async fn viewer_gets_masked_group_variables_and_runs_nothing() {
    let (audit, kept) = spied(true);
    let relay = relay(audit, |_| {});
    let secret = "{'password': 'hunter2'}";
    let vic = with_token(token_of("vic"));
    let mut scene = GroupScene::of(relay, vic, [secret, secret]).await;
    let typed = json!({"expression": "loss", "context": "repl"});
    let answer = scene.parent.ask("evaluate", typed).await;
    let shown = "0,1: dict, 1 items";
    assert_eq!(answer["body"]["result"], shown, "{answer}");
    let typed = json!({"expression": "f()", "context": "repl"});
    let answer = scene.parent.ask("evaluate", typed).await;
    let refused = answer["body"]["result"].as_str().unwrap();
    assert!(
        refused.starts_with("! 0,1: evaluating anything but the name"),
        "{answer}"
    );
    scene.nobody_else_heard().await;
    // By the relay's own probe alone, with one key for all.
    let mut keys = Vec::new();
    for asked in &mut scene.asked {
        while let Ok(message) = asked.try_recv() {
            if message["command"] == "evaluate" {
                let expression = message["arguments"]["expression"].as_str().unwrap();
                let (ask, _) = expression.split_once(", j=__import__").unwrap();
                assert!(ask.contains(r#"\"op\":\"open\""#), "{ask}");
                assert!(ask.contains(r#"\"visible\":\"structure\""#), "{ask}");
                keys.push(ask.to_owned());
            }
        }
    }
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0], keys[1]);
    // One line for each question, with its tasks, and none of what was asked.
    let lines = kept.take();
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
