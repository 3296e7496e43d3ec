//! The permission `view` on a real debugpy: everything is tried, and nothing of the client's is run.
//!
//! The relay's rules stand between the test and a process of its own; the process leaves a mark when code is run.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use ray_relay::config;
use ray_relay::dap::conversation::Conversation;
use ray_relay::dap::policing::{Action, Policing};
use ray_relay::masking::Masking;
use ray_relay::policy::{Handling, Rights, Scope, Scopes};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::support::ray::{self, NEWEST};
use crate::support::{dap_client::PATIENCE, say};

/// A process that stops again and again, with the marks that were left in it.
struct Watched {
    process: Child,
    port: u16,
    marks: tempfile::TempDir,
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/debuggee/watched.py")
}

fn line_here() -> usize {
    let text = std::fs::read_to_string(script()).unwrap();
    1 + text
        .lines()
        .position(|line| line.ends_with("# HERE"))
        .unwrap()
}

impl Watched {
    async fn start() -> Option<Self> {
        let venv = ray::environment(NEWEST)?;
        let marks = tempfile::tempdir().unwrap();
        let mut process = Command::new(venv.python())
            .arg(script())
            .arg(marks.path())
            .env("PYDEVD_DISABLE_FILE_VALIDATION", "1")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let first = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap();
        // Whoever prints into a closed pipe fails.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Some(Self {
            process,
            port: first.unwrap().parse().unwrap(),
            marks,
        })
    }

    fn marks(&self) -> BTreeSet<String> {
        let files = std::fs::read_dir(self.marks.path()).unwrap();
        files
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    /// Marks of code that a client brought.
    fn foreign_marks(&self) -> BTreeSet<String> {
        let own = |mark: &String| mark.starts_with("own-");
        self.marks().into_iter().filter(|m| !own(m)).collect()
    }

    fn turns(&self) -> u64 {
        let turns = std::fs::read_to_string(self.marks.path().join("own-turns"));
        turns.ok().and_then(|t| t.parse().ok()).unwrap_or(0)
    }
}

fn rights(scope: Scope) -> Rights {
    Rights {
        scopes: Scopes::NONE.with(scope),
        handling: Handling::default(),
    }
}

/// A debugger client behind the rules.
struct Client {
    worker: Conversation<TcpStream>,
    policing: Policing,
    inbox: VecDeque<Value>,
    seq: u64,
    thread: u64,
    frame: u64,
}

impl Client {
    /// Attached with `arguments`, and stopped for the first time.
    async fn attach(to: &Watched, policing: Policing, arguments: Value) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", to.port)).await.unwrap();
        let mut worker = Conversation::new(stream, 64 << 20);
        worker
            .send(&json!({"seq": 1, "type": "request", "command": "initialize", "arguments": {"adapterID": "debugpy"}}))
            .await
            .unwrap();
        let arguments = policing.attach_arguments(arguments);
        worker
            .send(
                &json!({"seq": 2, "type": "request", "command": "attach", "arguments": arguments}),
            )
            .await
            .unwrap();
        let mut client = Self {
            worker,
            policing,
            inbox: VecDeque::new(),
            seq: 2,
            thread: 0,
            frame: 0,
        };
        client.event("initialized").await;
        client.request("configurationDone", Value::Null).await;
        client.stopped().await;
        client
    }

    /// Waits for the next stop, in `work`.
    async fn stopped(&mut self) {
        let stopped = self.event("stopped").await;
        self.thread = stopped["body"]["threadId"].as_u64().unwrap();
        let stack = self
            .request("stackTrace", json!({"threadId": self.thread}))
            .await;
        self.frame = stack["body"]["stackFrames"][0]["id"].as_u64().unwrap();
    }

    async fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::ToWorker(message) => self.worker.send(&message).await.unwrap(),
                Action::ToClient(message)
                | Action::Refuse {
                    answer: message, ..
                } => {
                    self.inbox.push_back(message);
                }
            }
        }
    }

    async fn say(&mut self, message: Value) {
        let actions = self.policing.on_client(message);
        self.act(actions).await;
    }

    async fn find(&mut self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        loop {
            if let Some(at) = self.inbox.iter().position(&is) {
                return self.inbox.remove(at).unwrap();
            }
            let read = timeout(PATIENCE, self.worker.read()).await;
            let message = read
                .unwrap_or_else(|_| panic!("{what}: nothing came; had {:?}", self.inbox))
                .unwrap();
            let actions = self.policing.on_worker(message);
            self.act(actions).await;
        }
    }

    async fn event(&mut self, name: &str) -> Value {
        self.find(name, |m| m["event"] == *name).await
    }

    async fn request(&mut self, command: &str, arguments: Value) -> Value {
        self.seq += 1;
        let seq = self.seq;
        self.say(
            json!({"seq": seq, "type": "request", "command": command, "arguments": arguments}),
        )
        .await;
        self.find(command, |m| {
            m["type"] == "response" && m["request_seq"] == seq
        })
        .await
    }

    /// Lets the program run to its next stop.
    async fn go_on(&mut self) {
        let answer = self
            .request("continue", json!({"threadId": self.thread}))
            .await;
        assert_eq!(answer["success"], true, "{answer}");
        self.stopped().await;
    }

    async fn watch(&mut self, name: &str) -> Value {
        let frame = self.frame;
        self.request(
            "evaluate",
            json!({"expression": name, "frameId": frame, "context": "watch"}),
        )
        .await
    }
}

fn attach_arguments() -> Value {
    json!({"justMyCode": false, "connect": {"host": "127.0.0.1", "port": 5678}})
}

/// Arguments that run code in every request that has a place for it.
fn harmful(client: &Client, command: &str) -> Value {
    let code = format!("mark('{command}')");
    let text = if command == "completions" {
        "completed.attribute.".to_owned()
    } else {
        code.clone()
    };
    json!({
        "frameId": client.frame, "threadId": client.thread, "variablesReference": client.frame,
        "expression": if command == "setExpression" { "total" } else { &code }, "value": code, "name": "total", "context": "repl",
        "text": text, "column": text.len() + 1,
        "line": if command == "completions" { 1 } else { line_here() }, "source": {"path": script(), "sourceReference": 0}, "sourceReference": 0,
        "breakpoints": [{"line": line_here() + 1, "name": "work", "condition": code},
                        {"line": line_here() + 1, "name": "main", "hitCondition": code},
                        {"line": line_here() + 1, "name": "mark", "logMessage": format!("{{{code}}}")}],
        "filters": ["uncaught"],
        "filterOptions": [{"filterId": "raised", "condition": code}],
        "exceptionOptions": [{"path": [{"names": ["Python Exceptions"]}, {"names": [code]}], "breakMode": "always"}],
        "skipSuspendOnBreakpointException": [code], "skipPrintBreakpointException": [code],
        "targetId": 1, "terminateDebuggee": true, "restart": true, "pydevdSourceMaps": [],
        "debugServerAccessToken": "guess", "memoryReference": "0", "offset": 0, "count": 1, "data": "",
        "instructionCount": 1, "args": ["touch", "x"], "cwd": "/", "request": "launch", "configuration": {},
    })
}

/// Every request that debugpy's adapter or pydevd knows, by asking them.
async fn requests_of_debugpy() -> BTreeSet<String> {
    let venv = ray::environment(NEWEST).unwrap();
    let asked = "
import debugpy._vendored
with debugpy._vendored.vendored('pydevd'):
    from _pydevd_bundle._debug_adapter import pydevd_schema
    from _pydevd_bundle._debug_adapter.pydevd_base_schema import _requests_to_types as known
from debugpy.adapter.clients import Client
names = set(known) | {n[:-8] for n in dir(Client) if n.endswith('_request')}
print(' '.join(sorted(names)))
";
    let output = Command::new(venv.python())
        .args(["-c", asked])
        .output()
        .await
        .unwrap();
    let names = String::from_utf8(output.stdout).unwrap();
    let names: BTreeSet<_> = names.split_whitespace().map(str::to_owned).collect();
    assert!(
        names.len() > 45,
        "{names:?} {}",
        String::from_utf8_lossy(&output.stderr)
    );
    names
}

#[tokio::test]
async fn what_is_tried_against_view_does_run_code_with_debug() {
    let Some(watched) = Watched::start().await else {
        return;
    };
    let policing = Policing::new(&rights(Scope::Debug), None);
    let mut client = Client::attach(&watched, policing, attach_arguments()).await;
    for command in [
        "evaluate",
        "setVariable",
        "setExpression",
        "completions",
        "setDebuggerProperty",
        "setExceptionBreakpoints",
    ] {
        let arguments = harmful(&client, command);
        client.request(command, arguments).await;
        assert!(
            watched.foreign_marks().contains(command),
            "{command}: {:?}",
            watched.marks()
        );
    }
    drop(client);
    for command in ["setBreakpoints", "setFunctionBreakpoints"] {
        let Some(watched) = Watched::start().await else {
            return;
        };
        let policing = Policing::new(&rights(Scope::Debug), None);
        let mut client = Client::attach(&watched, policing, attach_arguments()).await;
        let arguments = harmful(&client, command);
        client.request(command, arguments).await;
        client.go_on().await;
        assert!(
            watched.foreign_marks().contains(command),
            "{command}: {:?}",
            watched.marks()
        );
    }
}

#[tokio::test]
async fn with_view_every_request_of_debugpy_is_harmless_or_refused() {
    let Some(mut watched) = Watched::start().await else {
        return;
    };
    let policing = Policing::new(&rights(Scope::View), None);
    let mut arguments = attach_arguments();
    arguments["guiEventLoop"] = "antigravity.fly".into();
    arguments["autoReload"] = json!({"enable": true});
    let mut client = Client::attach(&watched, policing, arguments).await;

    let resuming = ["continue", "next", "stepIn", "stepOut"];
    let last = ["disconnect"];
    let (mut passed, mut refused) = (Vec::new(), Vec::new());
    for command in requests_of_debugpy().await {
        if resuming.contains(&&*command) || last.contains(&&*command) {
            continue;
        }
        let arguments = harmful(&client, &command);
        let answer = client.request(&command, arguments).await;
        assert_eq!(watched.foreign_marks(), BTreeSet::new(), "{command}");
        match answer["success"] == true {
            true => passed.push(command),
            false => {
                let why = answer["message"].as_str().unwrap();
                refused.push((command, why.to_owned()));
            }
        }
    }
    for command in [
        "notYetInvented",
        "Evaluate",
        "evaluate ",
        "pydevdAuthorize\0",
    ] {
        let arguments = harmful(&client, command);
        let answer = client.request(command, arguments).await;
        assert_eq!(answer["success"], false, "{command}");
    }
    // Over all lines, where conditions would be looked at.
    for command in resuming {
        let mut arguments = harmful(&client, command);
        arguments["targetId"] = Value::Null;
        let answer = client.request(command, arguments).await;
        assert_eq!(answer["success"], true, "{answer}");
        client.stopped().await;
    }
    client.go_on().await;
    assert_eq!(watched.foreign_marks(), BTreeSet::new());
    say(format_args!("view: passed {passed:?}"));
    for (command, why) in &refused {
        say(format_args!("view: refused {command}: {why}"));
    }
    for command in [
        "evaluate",
        "setVariable",
        "setExpression",
        "goto",
        "terminate",
        "setExceptionBreakpoints",
    ] {
        let why = &refused.iter().find(|(name, _)| name == command).unwrap().1;
        let missing = if command == "terminate" {
            "`terminate`"
        } else {
            "`debug`"
        };
        assert!(why.contains(missing), "{command}: {why}");
    }
    say(format_args!("view: left by looking {:?}", watched.marks()));

    let before = watched.turns();
    let arguments = harmful(&client, "disconnect");
    client.request("disconnect", arguments).await;
    let end = std::time::Instant::now() + PATIENCE;
    while watched.turns() < before + 3 {
        assert!(
            std::time::Instant::now() < end,
            "the program does not run on: {:?}, {before}, {:?}",
            watched.process.try_wait(),
            watched.marks()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(watched.process.try_wait().unwrap().is_none());
    assert_eq!(watched.foreign_marks(), BTreeSet::new());
}

#[tokio::test]
async fn with_view_a_variable_is_shown_by_its_name() {
    let Some(watched) = Watched::start().await else {
        return;
    };
    let policing = Policing::new(&rights(Scope::View), None);
    let mut client = Client::attach(&watched, policing, attach_arguments()).await;
    let total = client.watch("total").await;
    assert_eq!(total["body"]["result"], "0", "{total}");
    assert_eq!(total["body"]["type"], "int");
    let settings = client.watch("settings").await;
    let reference = settings["body"]["variablesReference"].as_u64().unwrap();
    let inside = client
        .request("variables", json!({"variablesReference": reference}))
        .await;
    let names: Vec<_> = inside["body"]["variables"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| &v["name"])
        .collect();
    assert!(names.contains(&&json!("'password'")), "{inside}");
    // A global, one that debugpy puts into a group, and none at all.
    assert_eq!(client.watch("MARKS").await["success"], true);
    let grouped = client.watch("_protected").await;
    assert_eq!(
        grouped["body"]["result"], "'a global in a group'",
        "{grouped}"
    );
    let none = client.watch("nowhere").await;
    assert_eq!(none["success"], false);
    for expression in [
        "total + 1",
        "lazy.computed",
        "settings['user']",
        "(total)",
        "print",
        "total\nmark('x')",
    ] {
        let answer = client.watch(expression).await;
        assert_eq!(answer["success"], false, "{expression}");
    }
    assert_eq!(watched.foreign_marks(), BTreeSet::new());

    // Breakpoints without conditions are set, and the others told apart.
    let (path, line) = (script(), line_here());
    let answer = client
        .request("setBreakpoints", json!({"source": {"path": path}, "breakpoints": [
            {"line": line, "condition": "mark('condition')"}, {"line": line + 1}, {"line": line, "logMessage": "x"}]}))
        .await;
    let verified: Vec<_> = answer["body"]["breakpoints"]
        .as_array()
        .unwrap()
        .iter()
        .map(|b| b["verified"] == true)
        .collect();
    assert_eq!(verified, [false, true, false], "{answer}");
    client
        .request("continue", json!({"threadId": client.thread}))
        .await;
    let stopped = client.event("stopped").await;
    assert_eq!(stopped["body"]["reason"], "breakpoint");
    let completions = client
        .request(
            "completions",
            json!({"frameId": client.frame, "text": "tot", "column": 4}),
        )
        .await;
    assert_eq!(completions["success"], true);
}

#[tokio::test]
async fn what_is_masked_is_seen_nowhere() {
    let rules = config::Masking {
        enabled: true,
        ..config::Masking::default()
    };
    let rules = Arc::new(Masking::new(&rules).unwrap());
    for scope in [Scope::View, Scope::Debug] {
        let Some(watched) = Watched::start().await else {
            return;
        };
        let policing = Policing::new(&rights(scope), Some(&rules));
        let mut arguments = attach_arguments();
        arguments["redirectOutput"] = true.into();
        let mut client = Client::attach(&watched, policing, arguments).await;
        let mut seen = Vec::new();
        for name in ["settings", "password", "total"] {
            seen.push(client.watch(name).await);
        }
        assert_eq!(seen[1]["body"]["result"], "‹masked›");
        assert_eq!(seen[1]["body"]["variablesReference"], 0);
        assert_eq!(seen[2]["body"]["result"], "0");
        // Everything that can be opened, three levels down.
        let scopes = client
            .request("scopes", json!({"frameId": client.frame}))
            .await;
        let mut open = vec![scopes["body"]["scopes"][0]["variablesReference"].clone()];
        for _ in 0..3 {
            let mut next = Vec::new();
            for reference in open {
                let list = client
                    .request("variables", json!({"variablesReference": reference}))
                    .await;
                for variable in list["body"]["variables"].as_array().into_iter().flatten() {
                    if variable["variablesReference"] != 0 {
                        next.push(variable["variablesReference"].clone());
                    }
                }
                seen.push(list);
            }
            open = next;
        }
        if scope == Scope::View {
            // References are counted up, so the hidden one can be guessed.
            for reference in 1..200 {
                seen.push(
                    client
                        .request("variables", json!({"variablesReference": reference}))
                        .await,
                );
            }
        }
        client.go_on().await;
        seen.push(client.event("output").await);
        seen.extend(client.inbox.drain(..));
        let seen = serde_json::to_string(&seen).unwrap();
        assert!(seen.contains("ada") && seen.contains("turn "), "{seen}");
        for secret in ["hunter2", "AKIAIOSFODNN7EXAMPLE"] {
            assert!(!seen.contains(secret), "{scope}: {secret} in {seen}");
        }
    }
}
