//! A worker whose debugger is hostile to its clients.

use super::identity::{relay, with_token, worker};
use super::*;
use ray_relay_access::identity::testing::token_of;

/// Sends `body` unchanged to the client.
async fn say(dap: &mut Conversation<TcpStream>, body: &str) {
    dap.send_body(body.as_bytes()).await.unwrap();
}

/// Sessions of a user with `debug`, and of one with `view`.
async fn both() -> Vec<(Debugger, Conversation<TcpStream>)> {
    let context = context(|_| {});
    let (_, debugger, dap) = session(&context, json!({"justMyCode": false})).await;
    let relay = relay(Audit::off(), |_| {});
    let listed = worker(&relay).await;
    let (viewer, _) = Debugger::attaching(&relay, with_token(token_of("vic"))).await;
    let (looked_at, _) = listed.attached().await;
    vec![(debugger, dap), (viewer, looked_at)]
}

/// The messages to the client until a marker.
async fn heard(debugger: &mut Debugger, dap: &mut Conversation<TcpStream>) -> Vec<Value> {
    say(
        dap,
        r#"{"seq": 99, "type": "event", "event": "continued", "body": {"threadId": 99}}"#,
    )
    .await;
    let mut all = Vec::new();
    loop {
        let message = debugger.read().await;
        if message["event"] == "continued" && message["body"]["threadId"] == 99 {
            return all;
        }
        all.push(message);
    }
}

fn asks_for_something(message: &Value) -> bool {
    message["type"] == "request" || message["event"] == "debugpyAttach"
}

#[tokio::test]
async fn editor_gets_no_run_request_and_the_worker_is_refused() {
    for (mut debugger, mut dap) in both().await {
        let launch = r#"{"request": "launch", "configuration": {"type": "debugpy", "program": "/bin/sh", "python": "/bin/sh", "preLaunchTask": "x", "subProcessId": 7}}"#;
        for (command, arguments) in [
            ("runInTerminal", r#"{"args": ["sh", "-c", "touch /tmp/x"]}"#),
            ("startDebugging", launch),
            (
                "startDebugging",
                r#"{"request": "attach", "configuration": {"program": "/bin/sh"}}"#,
            ),
            ("handshake", "{}"),
        ] {
            for body in [
                format!(
                    r#"{{"seq": 7, "type": "request", "command": "{command}", "arguments": {arguments}}}"#
                ),
                // As JavaScript and Python read it.
                format!(
                    r#"{{"seq": 7, "type": "event", "event": "continued", "type": "request", "command": "{command}", "arguments": {arguments}}}"#
                ),
                format!(
                    r#"{{"seq": 7, "type": "request", "command": "x", "comm\u0061nd": "{command}", "arguments": {arguments}}}"#
                ),
                format!(
                    r#"{{"arguments": {arguments}, "\u0074ype": "request", "command": "{command}", "seq": 7}}"#
                ),
            ] {
                say(&mut dap, &body).await;
                let answer = loop {
                    let told = timeout(TEST_TIMEOUT, dap.read()).await.unwrap().unwrap();
                    if told["type"] == "response" {
                        break told;
                    }
                };
                assert_eq!(answer["request_seq"], 7, "{body}");
                assert_eq!(answer["success"], false);
                assert_eq!(answer["command"], command);
            }
        }
        let told = heard(&mut debugger, &mut dap).await;
        assert!(!told.iter().any(asks_for_something), "{told:?}");
        let warned = told.iter().filter(|m| m["body"]["category"] == "important");
        let warned: Vec<_> = warned.collect();
        assert_eq!(warned.len(), 1);
        assert_output(warned[0], "asked your editor for `runInTerminal`");
    }
}

#[tokio::test]
async fn worker_events_cannot_start_a_process() {
    for (mut debugger, mut dap) in both().await {
        for body in [
            r#"{"seq": 1, "type": "event", "event": "debugpyAttach", "body": {"request": "launch", "type": "debugpy", "program": "/bin/sh", "subProcessId": 7}}"#,
            r#"{"seq": 1, "type": "event", "event": "continued", "event": "debugpyAttach", "body": {"request": "launch", "program": "/bin/sh"}}"#,
            r#"{"seq": 1, "type": "event", "event": "pythonRun", "body": {"program": "/bin/sh"}}"#,
            r#"{"seq": 1, "type": "event", "event": "progressStart", "body": {"progressId": "1", "title": "[x](command:y)"}}"#,
            r#"{"seq": 1, "type": "event", "event": "memory", "body": {}}"#,
            r#"{"seq": 1, "type": "event", "event": "capabilities", "body": {"capabilities": {"supportsTerminateRequest": true}}}"#,
            r#"{"seq": 1, "type": "Event", "event": "output", "body": {"output": "x"}}"#,
            r#"{"seq": 1, "type": "event", "event": "output", "body": {"output": NaN}}"#,
            r#"["type", "event"]"#,
            "",
        ] {
            say(&mut dap, body).await;
        }
        let told = heard(&mut debugger, &mut dap).await;
        for message in &told {
            let own = message["event"] == "output" || message["event"] == "capabilities";
            assert!(
                own && message["seq"] == 0,
                "only the relay's own: {message}"
            );
        }
    }
}

#[tokio::test]
async fn child_session_uses_only_the_pid_of_the_worker() {
    for (mut debugger, mut dap) in both().await {
        let configuration = r#"{"name": "evil", "type": "node", "request": "launch", "program": "/bin/sh", "env": {"A": "1"},
            "clientOS": "unix", "pathMappings": [], "subProcessId": 7, "connect": {"host": "10.88.0.1", "port": 41000}}"#;
        say(&mut dap, &format!(r#"{{"seq": 7, "type": "request", "command": "startDebugging", "arguments": {{"request": "attach", "configuration": {configuration}}}}}"#)).await;
        let opened = debugger.until(|m| m["type"] == "request").await;
        let arguments = &opened["arguments"];
        assert_eq!(arguments["request"], "attach");
        let configuration = arguments["configuration"].as_object().unwrap();
        assert_eq!(configuration["name"], "Subprocess 7");
        assert_eq!(configuration["subProcessId"], 7);
        for key in configuration.keys() {
            let expected = ["name", "justMyCode", "subProcessId", "connect", "rayRelay"];
            assert!(expected.contains(&key.as_str()), "{configuration:?}");
        }
    }
}

/// A process that requests one session after another, each with its own number.
#[tokio::test]
async fn session_flood_is_throttled_and_a_process_pool_is_not() {
    let context = context(|_| {});
    let (_worker, mut debugger, mut dap) = session(&context, json!({})).await;
    for process in 1..=150 {
        let body = json!({"request": "attach", "subProcessId": process, "connect": {}});
        dap.send(&message::event("debugpyAttach", body))
            .await
            .unwrap();
    }
    // No kernel has such a process.
    let body = json!({"request": "attach", "subProcessId": 1_u64 << 40, "connect": {}});
    dap.send(&message::event("debugpyAttach", body))
        .await
        .unwrap();
    let told = heard(&mut debugger, &mut dap).await;
    let opened = told.iter().filter(|m| asks_for_something(m));
    let opened: Vec<_> = opened
        .map(|m| m["body"]["subProcessId"].as_u64().unwrap())
        .collect();
    // On a busy machine a second is over before all have asked.
    let last = 128.max(opened.len() as u64);
    assert!(
        opened.iter().copied().eq(1..=last) && last < 145,
        "{opened:?}"
    );
    let said = |words: &str| {
        let text = |m: &&Value| {
            m["body"]["output"]
                .as_str()
                .is_some_and(|t| t.contains(words))
        };
        told.iter().filter(text).count()
    };
    assert_eq!(
        said("further ones are opened one each second"),
        1,
        "{told:?}"
    );
    assert_eq!(said("asked your editor for `debugpyAttach`"), 1, "{told:?}");
    // Those of a pool are held back, and come.
    tokio::time::pause();
    for process in last + 1..=150 {
        let opened = debugger.event("debugpyAttach").await;
        assert_eq!(opened["body"]["subProcessId"], process);
    }
}

#[tokio::test]
async fn stack_response_has_only_file_sources() {
    for (mut debugger, mut dap) in both().await {
        for command in ["stackTrace", "variables", "evaluate", "x"] {
            let seq = debugger.send("stackTrace", json!({"threadId": 1})).await;
            let asked = got(&mut dap, "stackTrace").await;
            say(&mut dap, &format!(
                r#"{{"seq": 3, "type": "response", "request_seq": {}, "success": true, "command": "{command}",
                    "body": {{"stackFrames": [{{"id": 1, "name": "f", "line": 1, "column": 1, "source": {{"path": "term://sh"}}}}]}}}}"#,
                asked.seq
            ))
            .await;
            let answer = debugger.answer(seq).await;
            // Where text is hidden, nothing is left of an answer with values.
            let source = &answer["body"]["stackFrames"][0]["source"];
            assert!(
                *source == json!({}) || answer["body"] == json!({}),
                "{command}: {answer}"
            );
        }
    }
}

#[tokio::test]
async fn long_response_that_becomes_a_request_is_cut_off() {
    let context = context(|_| {});
    let (_worker, mut debugger, mut dap) = session(&context, json!({})).await;
    let long = "y".repeat(1 << 20);
    let hidden = format!(
        r#"{{"seq": 1, "type": "response", "request_seq": 9, "success": true, "command": "variables", "body": {{"x": "{long}"}}, "type": "request", "command": "runInTerminal"}}"#
    );
    let write = async {
        // The session may be over before all of it is written.
        let _ = dap.send_body(hidden.as_bytes()).await;
    };
    let read = async {
        loop {
            match timeout(TEST_TIMEOUT, debugger.dap.read()).await.unwrap() {
                Ok(message) => assert_ne!(message["type"], "request"),
                Err(end) => return end,
            }
        }
    };
    let (end, ()) = tokio::join!(read, write);
    assert!(matches!(end, Closed::ByPeer | Closed::Broken(_)), "{end:?}");
}

#[tokio::test]
async fn refusals_to_a_flooding_worker_are_bounded() {
    let context = context(|_| {});
    let (_worker, mut debugger, mut dap) = session(&context, json!({})).await;
    for seq in 0..100 {
        say(
            &mut dap,
            &format!(r#"{{"seq": {seq}, "type": "request", "command": "runInTerminal"}}"#),
        )
        .await;
    }
    heard(&mut debugger, &mut dap).await;
    debugger.send("threads", json!({})).await;
    let mut refused = 0;
    loop {
        let told = timeout(TEST_TIMEOUT, dap.read()).await.unwrap().unwrap();
        if told["command"] == "threads" {
            break;
        }
        refused += 1;
    }
    assert_eq!(refused, 16);
}
