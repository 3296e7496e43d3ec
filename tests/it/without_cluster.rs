//! A relay in front of a real debugger, with Ray's own helper where one waits in it, and no cluster.

mod parks;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use ray_relay::app::{self, Running};
use ray_relay_base::config::{Config, Gcs};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::dap::conversation::Conversation;
use ray_relay_ray::ray::registry::{Breakpoint, BreakpointId, Kind, Names, Reason, State};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::support::dap_client::TEST_TIMEOUT;
use crate::support::ray::{self, NEWEST, OLDEST};

const STEPS: usize = 12;

fn debuggee(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    folder.join("tests/debuggee").join(name)
}

/// A process that prints its progress.
struct Task {
    _process: Child,
    says: Lines<BufReader<ChildStdout>>,
}

impl Task {
    fn start(version: &str, script: &str, argument: &str) -> Option<Self> {
        let venv = ray::environment(version)?;
        let mut process = Command::new(venv.python())
            .arg(debuggee(script))
            .arg(argument)
            .env("PYDEVD_DISABLE_FILE_VALIDATION", "1")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let says = BufReader::new(process.stdout.take().unwrap()).lines();
        Some(Self {
            _process: process,
            says,
        })
    }

    async fn port(&mut self) -> u16 {
        let first = self.says().await;
        first.strip_prefix("PORT ").unwrap().parse().unwrap()
    }

    async fn says(&mut self) -> String {
        let line = timeout(TEST_TIMEOUT, self.says.next_line()).await;
        line.expect("the task comes to its next stop, or to its end")
            .unwrap()
            .unwrap_or_default()
    }
}

/// The task as Ray's list has it at its stop of this number.
fn waiting(port: u16, stop: u64) -> Breakpoint {
    let worker_id = "5f".repeat(28);
    Breakpoint {
        id: BreakpointId::derive("default", &worker_id),
        kind: Kind::Debugpy,
        cluster: "default".into(),
        node_id: "ab".repeat(28).into(),
        node_ip: [127, 0, 0, 1].into(),
        worker_id: worker_id.into(),
        pid: 4711,
        port,
        paused_threads: 1,
        names: Arc::new(Names::default()),
        reason: Reason::Breakpoint,
        location: None,
        exception: None,
        first_seen: Timestamp::now(),
        stop,
        state: State::Paused,
        task_ended: None,
        registered: None,
    }
}

async fn relay() -> Running {
    let mut config = Config::default();
    config.listen.address = ([127, 0, 0, 1], 0).into();
    config.clusters[0].ray_address = "http://127.0.0.1:1".to_owned();
    config.clusters[0].gcs_address = Gcs::Off;
    app::start(config).await.unwrap()
}

/// An editor at a task that has stopped.
struct Editor {
    dap: Conversation<TcpStream>,
    seq: u64,
    thread: Value,
}

impl Editor {
    async fn attach(relay: &Running, id: BreakpointId, mut arguments: Value) -> Self {
        let stream = TcpStream::connect(relay.local_addr()).await.unwrap();
        let mut editor = Self {
            dap: Conversation::new(stream, 1 << 24),
            seq: 0,
            thread: Value::Null,
        };
        editor
            .ask(
                "initialize",
                json!({"clientID": "vscode", "adapterID": "debugpy"}),
            )
            .await;
        arguments["rayRelay"]["breakpoint"] = json!(id);
        editor.send("attach", arguments).await;
        editor.until(|m| m["event"] == "initialized").await;
        editor.send("configurationDone", json!({})).await;
        let stopped = editor.until(|m| m["event"] == "stopped").await;
        editor.thread = stopped["body"]["threadId"].clone();
        editor
    }

    async fn send(&mut self, command: &str, arguments: Value) -> u64 {
        self.seq += 1;
        let request =
            json!({"seq": self.seq, "type": "request", "command": command, "arguments": arguments});
        self.dap.send(&request).await.unwrap();
        self.seq
    }

    async fn until(&mut self, is_expected: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = timeout(TEST_TIMEOUT, self.dap.read()).await;
            let message = message.expect("in time").unwrap();
            assert_ne!(message["success"], false, "{message}");
            if is_expected(&message) {
                return message;
            }
        }
    }

    async fn ask(&mut self, command: &str, arguments: Value) -> Value {
        let seq = self.send(command, arguments).await;
        let mut answer = self.until(|m| m["request_seq"] == seq).await;
        assert_eq!(answer["success"], true, "{answer}");
        answer["body"].take()
    }

    /// The file of the topmost frame.
    async fn source(&mut self) -> Value {
        let stack = json!({"threadId": self.thread});
        let mut stack = self.ask("stackTrace", stack).await;
        stack["stackFrames"][0]["source"].take()
    }

    /// Types this in the debug console, and is shown the stop anew.
    async fn says(&mut self, words: &str) {
        let typed = json!({"expression": words, "context": "repl"});
        self.ask("evaluate", typed).await;
        self.until(|m| m["event"] == "stopped").await;
    }

    async fn leave(mut self) {
        self.ask("disconnect", json!({})).await;
    }
}

/// As the command and the page's button ask for it.
async fn release(relay: &Running, id: BreakpointId) -> Value {
    let body = json!({"ids": [id]}).to_string();
    let mut stream = TcpStream::connect(relay.local_addr()).await.unwrap();
    let request = format!(
        "POST /relay/v1/release HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let read = timeout(TEST_TIMEOUT, stream.read_to_string(&mut answer)).await;
    read.expect("the relay answers").unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"))
}

async fn every_stop_is_reached(version: &str) {
    let Some(mut task) = Task::start(version, "steps.py", &STEPS.to_string()) else {
        return;
    };
    let relay = relay().await;
    let port = task.port().await;
    for stop in 1..=STEPS {
        // After a missed stop the task is already further.
        assert_eq!(task.says().await, format!("WAITS {stop}"));
        let waiting = waiting(port, stop.try_into().unwrap());
        let id = waiting.id;
        relay.registry().insert(waiting);
        let answer = release(&relay, id).await;
        assert_eq!(answer["results"][0]["released"], true, "{answer}");
    }
    assert_eq!(task.says().await, "DONE");
    relay.abort().await;
}

#[tokio::test]
async fn released_task_stops_at_its_next_breakpoint_on_the_newest_ray() {
    every_stop_is_reached(NEWEST).await;
}

#[tokio::test]
async fn released_task_stops_at_its_next_breakpoint_on_the_oldest_ray() {
    every_stop_is_reached(OLDEST).await;
}

/// An expression that does not end by itself is interrupted when its editor cancels it, or leaves.
async fn endless_expressions_are_interrupted(version: &str) {
    let Some(mut task) = Task::start(version, "steps.py", "2") else {
        return;
    };
    let relay = relay().await;
    let port = task.port().await;
    for (stop, last) in [(1, "disconnect"), (2, "gone")] {
        assert_eq!(task.says().await, format!("WAITS {stop}"));
        let waiting = waiting(port, stop);
        let id = waiting.id;
        relay.registry().insert(waiting);
        let mut editor = Editor::attach(&relay, id, json!({})).await;
        let stack = json!({"threadId": editor.thread});
        let stack = editor.ask("stackTrace", stack).await;
        let frame = &stack["stackFrames"][0]["id"];
        let endless = |expression: &str| json!({"expression": expression, "frameId": frame, "context": "repl"});
        for expression in [
            "while True: pass",
            "__import__('time').sleep(100000)",
            "type('X', (), {'__repr__': lambda self: [0 for _ in iter(int, 1)]})()",
        ] {
            let seq = editor.send("evaluate", endless(expression)).await;
            tokio::time::sleep(Duration::from_millis(300)).await;
            editor.send("cancel", json!({"requestId": seq})).await;
            let ended = async {
                loop {
                    let message = editor.dap.read().await.unwrap();
                    if message["request_seq"] == seq {
                        return message;
                    }
                }
            };
            let ended = timeout(TEST_TIMEOUT, ended).await.expect(expression);
            assert_eq!(ended["command"], "evaluate", "{ended}");
        }
        let still = json!({"expression": "number", "frameId": frame, "context": "repl"});
        let still = editor.ask("evaluate", still).await;
        assert_eq!(still["result"], (stop - 1).to_string(), "{still}");
        editor.send("evaluate", endless("while True: pass")).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        match last {
            "disconnect" => _ = editor.send("disconnect", json!({})).await,
            // The window was closed.
            _ => {
                drop(editor);
                let mut lists = relay.registry().watch();
                let is_parked = lists.wait_for(|list| {
                    let holder = list.find(id).and_then(|row| row.holder());
                    holder.is_some_and(|holder| holder.parked_until.is_some() && !holder.evaluates)
                });
                timeout(TEST_TIMEOUT, is_parked)
                    .await
                    .expect("parked")
                    .unwrap();
                Editor::attach(&relay, id, json!({})).await.leave().await;
            }
        }
    }
    assert_eq!(task.says().await, "DONE");
    relay.abort().await;
}

#[tokio::test]
async fn endless_expressions_are_interrupted_on_the_newest_ray() {
    endless_expressions_are_interrupted(NEWEST).await;
}

#[tokio::test]
async fn endless_expressions_are_interrupted_on_the_oldest_ray() {
    endless_expressions_are_interrupted(OLDEST).await;
}

#[tokio::test]
async fn file_outside_the_open_folder_is_read_from_the_worker() {
    let Some(mut task) = Task::start(NEWEST, "steps.py", "3") else {
        return;
    };
    let relay = relay().await;
    let port = task.port().await;
    let mine = env!("CARGO_MANIFEST_DIR");
    let others = json!({"workspaceFolder": "/home/ada/other"});
    let none = json!({"workspaceFolder": mine, "rayRelay": {"localRoot": ""}});
    let open = json!({"workspaceFolder": mine});
    for (stop, arguments, here) in [(1, others, false), (2, none, false), (3, open, true)] {
        assert_eq!(task.says().await, format!("WAITS {stop}"));
        let waiting = waiting(port, stop);
        let id = waiting.id;
        relay.registry().insert(waiting);
        let mut editor = Editor::attach(&relay, id, arguments).await;
        let stack = json!({"threadId": editor.thread});
        let stack = editor.ask("stackTrace", stack).await;
        let source = &stack["stackFrames"][0]["source"];
        let script = debuggee("steps.py");
        assert_eq!(source["path"], json!(script), "{stack}");
        let reference = &source["sourceReference"];
        assert_eq!(reference == 0, here, "{stack}");
        if !here {
            let expected = json!({"source": source, "sourceReference": reference});
            let shown = editor.ask("source", expected).await;
            let text = std::fs::read_to_string(script).unwrap();
            assert_eq!(shown["content"], text);
        }
        editor.leave().await;
    }
    assert_eq!(task.says().await, "DONE");
    relay.abort().await;
}

#[tokio::test]
async fn editor_with_another_folder_gets_worker_files_while_paused() {
    let Some(mut task) = Task::start(NEWEST, "steps.py", "2") else {
        return;
    };
    let relay = relay().await;
    let port = task.port().await;
    let breakpoint = waiting(port, 1);
    let id = breakpoint.id;
    relay.registry().insert(breakpoint);
    assert_eq!(task.says().await, "WAITS 1");
    let other = json!({"rayRelay": {"localRoot": "/home/ada/other"}});
    let mut editor = Editor::attach(&relay, id, other).await;
    let script = debuggee("steps.py");
    let text = std::fs::read_to_string(&script).unwrap();
    let lost = editor.source().await;
    assert_eq!(lost["path"], "/home/ada/other/tests/debuggee/steps.py");
    assert_eq!(lost["sourceReference"], 0);

    editor.says("ray-relay localRoot \"\"").await;
    let source = editor.source().await;
    assert_eq!(source["path"], json!(script));
    let reference = &source["sourceReference"];
    assert_ne!(*reference, 0);
    let expected = json!({"source": source, "sourceReference": reference});
    let shown = editor.ask("source", expected).await;
    assert_eq!(shown["content"], text);
    // As VS Code names a document that it was given so.
    let line = 1 + text
        .lines()
        .position(|line| line.contains("return number"))
        .unwrap();
    let expected = json!({"source": source, "breakpoints": [{"line": line}]});
    let set = editor.ask("setBreakpoints", expected).await;
    assert_eq!(set["breakpoints"][0]["verified"], true, "{set}");
    let thread = json!({"threadId": editor.thread});
    editor.ask("continue", thread).await;
    let stopped = editor.until(|m| m["event"] == "stopped").await;
    assert_eq!(stopped["body"]["reason"], "breakpoint", "{stopped}");

    let folder = env!("CARGO_MANIFEST_DIR");
    editor.says(&format!("ray-relay localRoot {folder}")).await;
    let here = editor.source().await;
    assert_eq!(
        (&here["path"], &here["sourceReference"]),
        (&json!(script), &json!(0))
    );
    editor.leave().await;
    relay.abort().await;
}

#[tokio::test]
async fn continue_resumes_the_threads_that_a_step_held() {
    let Some(mut task) = Task::start(NEWEST, "threads.py", "") else {
        return;
    };
    let relay = relay().await;
    let waiting = waiting(task.port().await, 1);
    let id = waiting.id;
    relay.registry().insert(waiting);
    let alone = json!({"steppingResumesAllThreads": false, "justMyCode": false});
    let mut editor = Editor::attach(&relay, id, alone).await;
    let one = json!({"threadId": editor.thread});
    // This thread's line completes once the other thread resumes.
    editor.ask("next", one.clone()).await;
    editor.ask("continue", one).await;
    assert_eq!(task.says().await, "DONE");
    // debugpy still listens.
    editor.ask("threads", json!({})).await;
    editor.leave().await;
    relay.abort().await;
}
