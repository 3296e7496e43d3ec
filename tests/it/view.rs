//! The permission `view` on a real debugpy: no request runs the client's code.
//!
//! The relay's filter is between the test and a separate process, which leaves a mark when code runs.

mod client;
mod unchanged;
mod watched;

use std::collections::BTreeSet;
use std::time::Duration;

use ray_relay_access::identity::Principal;
use ray_relay_access::policy::{Rights, Scope, Scopes, SessionObligations};
use ray_relay_dap::message_filter::MessageFilter;
use serde_json::{Value, json};
use tokio::process::Command;

use self::client::{Client, attach_arguments};
use self::watched::{Watched, line_here, script};
use crate::support::ray::{self, NEWEST};
use crate::support::{dap_client::TEST_TIMEOUT, say};

fn rights(scope: Scope) -> Rights {
    Rights {
        scopes: Scopes::NONE.with(scope),
        obligations: SessionObligations::default(),
    }
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
    let request = "
import debugpy._vendored
with debugpy._vendored.vendored('pydevd'):
    from _pydevd_bundle._debug_adapter import pydevd_schema
    from _pydevd_bundle._debug_adapter.pydevd_base_schema import _requests_to_types as known
from debugpy.adapter.clients import Client
names = set(known) | {n[:-8] for n in dir(Client) if n.endswith('_request')}
print(' '.join(sorted(names)))
";
    let output = Command::new(venv.python())
        .args(["-c", request])
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
async fn code_hidden_by_view_does_run_with_debug() {
    let Some(watched) = Watched::start().await else {
        return;
    };
    let filter = MessageFilter::new(&rights(Scope::Debug), &Principal::anonymous());
    let mut client = Client::attach(&watched, filter, attach_arguments()).await;
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
        let filter = MessageFilter::new(&rights(Scope::Debug), &Principal::anonymous());
        let mut client = Client::attach(&watched, filter, attach_arguments()).await;
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
async fn view_permits_only_harmless_debugpy_requests() {
    let Some(mut watched) = Watched::start().await else {
        return;
    };
    let filter = MessageFilter::new(&rights(Scope::View), &Principal::anonymous());
    let mut arguments = attach_arguments();
    arguments["guiEventLoop"] = "antigravity.fly".into();
    arguments["autoReload"] = json!({"enable": true});
    let mut client = Client::attach(&watched, filter, arguments).await;

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
    // On all lines, where conditions would be evaluated.
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
    let end = std::time::Instant::now() + TEST_TIMEOUT;
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
async fn view_shows_a_variable_by_its_name() {
    let Some(watched) = Watched::start().await else {
        return;
    };
    let filter = MessageFilter::new(&rights(Scope::View), &Principal::anonymous());
    let mut client = Client::attach(&watched, filter, attach_arguments()).await;
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
    assert!(names.contains(&&json!("password")), "{inside}");
    // A global, one that debugpy puts into a group, and none at all.
    assert_eq!(client.watch("MARKS").await["success"], true);
    let grouped = client.watch("_protected").await;
    assert_eq!(grouped["body"]["result"], "str, 19 characters", "{grouped}");
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

    // Breakpoints without conditions are set, and the others refused.
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
async fn view_hides_texts_and_runs_no_code() {
    let Some(watched) = Watched::start().await else {
        return;
    };
    let filter = MessageFilter::new(&rights(Scope::View), &Principal::anonymous());
    let mut arguments = attach_arguments();
    arguments["redirectOutput"] = true.into();
    let mut client = Client::attach(&watched, filter, arguments).await;
    let mut visited = Vec::new();
    for name in [
        "settings",
        "password",
        "total",
        "environment",
        "planted",
        "lazy",
        "plain",
        "mapping",
        "listing",
    ] {
        let shown = client.watch(name).await;
        assert_eq!(shown["success"], true, "{shown}");
        visited.push(shown);
    }
    assert_eq!(
        visited[1]["body"]["result"],
        "{'current': ‹str, 7 characters›}"
    );
    assert_eq!(visited[2]["body"]["result"], "0");
    let scopes = client
        .request("scopes", json!({"frameId": client.frame}))
        .await;
    let scopes = scopes["body"]["scopes"].as_array().unwrap();
    let mut open: Vec<_> = scopes
        .iter()
        .map(|scope| scope["variablesReference"].clone())
        .collect();
    let mut request = 0;
    // Everything that can be opened, four levels down, in each format that there is.
    for _ in 0..4 {
        let mut next = Vec::new();
        for reference in open {
            for format in [json!({}), json!({"rawString": true}), json!({"hex": true})] {
                let arguments = json!({"variablesReference": reference, "format": format});
                let list = client.request("variables", arguments).await;
                request += 1;
                for variable in list["body"]["variables"].as_array().into_iter().flatten() {
                    if variable["variablesReference"] != 0 && format == json!({}) {
                        next.push(variable["variablesReference"].clone());
                    }
                }
                visited.push(list);
            }
        }
        open = next;
    }
    assert!(request > 60, "{request}");
    let remaining: Vec<_> = watched
        .marks()
        .into_iter()
        .filter(|mark| mark != "own-turns")
        .collect();
    assert!(
        remaining.is_empty(),
        "the program's own code ran: {remaining:?}"
    );
    client.go_on().await;
    visited.push(client.event("output").await);
    visited.extend(client.inbox.drain(..));
    let observed = serde_json::to_string(&visited).unwrap();
    for shown in ["Keys.API_KEY", "characters", "session_cookie"] {
        assert!(observed.contains(shown), "{shown}");
    }
    for secret in [
        "hunter2",
        "AKIAIOSFODNN7EXAMPLE",
        "rays-own-7",
        "store-key-7",
        "plantd",
        "train.py --",
        "turn ",
    ] {
        assert!(!observed.contains(secret), "{secret} in {observed}");
    }
}
