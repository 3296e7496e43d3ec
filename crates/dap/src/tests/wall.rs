//! A worker with a hostile debugger.

use super::identity::{relay, with_token, worker};
use super::*;
use ray_relay_access::identity::testing::token_of;

/// Sends `body` unchanged to the client.
async fn send_raw(dap: &mut Conversation<TcpStream>, body: &str) {
    dap.send_body(body.as_bytes()).await.unwrap();
}

/// Creates a session of a user with `debug`, and one of a user with `view`.
async fn debug_and_view_sessions() -> Vec<(Debugger, Conversation<TcpStream>)> {
    let context = context(|_| {});
    let (_, debugger, dap) = session(&context, json!({"justMyCode": false})).await;
    let relay = relay(Audit::off(), |_| {});
    let worker = worker(&relay).await;
    let (viewer, _) = Debugger::attaching(&relay, with_token(token_of("vic"))).await;
    let (viewer_dap, _) = worker.attached().await;
    vec![(debugger, dap), (viewer, viewer_dap)]
}

/// Returns the messages to the client up to a marker.
async fn messages_until_marker(
    debugger: &mut Debugger,
    dap: &mut Conversation<TcpStream>,
) -> Vec<Value> {
    send_raw(
        dap,
        r#"{"seq": 99, "type": "event", "event": "continued", "body": {"threadId": 99}}"#,
    )
    .await;
    let mut messages = Vec::new();
    loop {
        let message = debugger.read().await;
        if message["event"] == "continued" && message["body"]["threadId"] == 99 {
            return messages;
        }
        messages.push(message);
    }
}

fn opens_something(message: &Value) -> bool {
    message["type"] == "request" || message["event"] == "debugpyAttach"
}

#[tokio::test]
async fn editor_gets_no_run_request_and_the_worker_is_refused() {
    for (mut debugger, mut dap) in debug_and_view_sessions().await {
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
                // JavaScript and Python take the last of two equal keys.
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
                send_raw(&mut dap, &body).await;
                let answer = loop {
                    let message = timeout(TEST_TIMEOUT, dap.read()).await.unwrap().unwrap();
                    if message["type"] == "response" {
                        break message;
                    }
                };
                assert_eq!(answer["request_seq"], 7, "{body}");
                assert_eq!(answer["success"], false);
                assert_eq!(answer["command"], command);
            }
        }
        let messages = messages_until_marker(&mut debugger, &mut dap).await;
        assert!(!messages.iter().any(opens_something), "{messages:?}");
        let warnings = messages
            .iter()
            .filter(|m| m["body"]["category"] == "important");
        let warnings: Vec<_> = warnings.collect();
        assert_eq!(warnings.len(), 1);
        assert_output(warnings[0], "asked your editor for `runInTerminal`");
    }
}

#[tokio::test]
async fn worker_events_cannot_start_a_process() {
    for (mut debugger, mut dap) in debug_and_view_sessions().await {
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
            send_raw(&mut dap, body).await;
        }
        let messages = messages_until_marker(&mut debugger, &mut dap).await;
        for message in &messages {
            let is_from_relay = message["event"] == "output" || message["event"] == "capabilities";
            assert!(
                is_from_relay && message["seq"] == 0,
                "only the relay's own: {message}"
            );
        }
    }
}

#[tokio::test]
async fn child_session_uses_only_the_pid_of_the_worker() {
    for (mut debugger, mut dap) in debug_and_view_sessions().await {
        let configuration = r#"{"name": "evil", "type": "node", "request": "launch", "program": "/bin/sh", "env": {"A": "1"},
            "clientOS": "unix", "pathMappings": [], "subProcessId": 7, "connect": {"host": "10.88.0.1", "port": 41000}}"#;
        send_raw(&mut dap, &format!(r#"{{"seq": 7, "type": "request", "command": "startDebugging", "arguments": {{"request": "attach", "configuration": {configuration}}}}}"#)).await;
        let request = debugger.until(|m| m["type"] == "request").await;
        let arguments = &request["arguments"];
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

/// A process that requests one session after another, each with its own pid.
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
    // No kernel assigns such a pid.
    let body = json!({"request": "attach", "subProcessId": 1_u64 << 40, "connect": {}});
    dap.send(&message::event("debugpyAttach", body))
        .await
        .unwrap();
    let messages = messages_until_marker(&mut debugger, &mut dap).await;
    let requests = messages.iter().filter(|m| opens_something(m));
    let pids: Vec<_> = requests
        .map(|m| m["body"]["subProcessId"].as_u64().unwrap())
        .collect();
    // On a busy machine, more than a second may pass before all requests are sent.
    let last = 128.max(pids.len() as u64);
    assert!(pids.iter().copied().eq(1..=last) && last < 145, "{pids:?}");
    let count = |words: &str| {
        let text = |m: &&Value| {
            m["body"]["output"]
                .as_str()
                .is_some_and(|t| t.contains(words))
        };
        messages.iter().filter(text).count()
    };
    assert_eq!(
        count("further ones are opened one each second"),
        1,
        "{messages:?}"
    );
    assert_eq!(
        count("asked your editor for `debugpyAttach`"),
        1,
        "{messages:?}"
    );
    // Delayed requests of a pool are opened later.
    tokio::time::pause();
    for process in last + 1..=150 {
        let event = debugger.event("debugpyAttach").await;
        assert_eq!(event["body"]["subProcessId"], process);
    }
}

#[tokio::test]
async fn stack_response_has_only_file_sources() {
    for (mut debugger, mut dap) in debug_and_view_sessions().await {
        for command in ["stackTrace", "variables", "evaluate", "x"] {
            let seq = debugger.send("stackTrace", json!({"threadId": 1})).await;
            let request = expect_request(&mut dap, "stackTrace").await;
            send_raw(&mut dap, &format!(
                r#"{{"seq": 3, "type": "response", "request_seq": {}, "success": true, "command": "{command}",
                    "body": {{"stackFrames": [{{"id": 1, "name": "f", "line": 1, "column": 1, "source": {{"path": "term://sh"}}}}]}}}}"#,
                request.seq
            ))
            .await;
            let answer = debugger.answer(seq).await;
            // If text is hidden, a response with values is empty.
            let source = &answer["body"]["stackFrames"][0]["source"];
            assert!(
                *source == json!({}) || answer["body"] == json!({}),
                "{command}: {answer}"
            );
        }
    }
}

#[tokio::test]
async fn long_response_that_becomes_a_request_stays_a_response() {
    let context = context(|_| {});
    let (_worker, mut debugger, mut dap) = session(&context, json!({})).await;
    let long = "y".repeat(1 << 20);
    let response = format!(
        r#"{{"seq": 1, "type": "response", "request_seq": 9, "success": true, "command": "variables",
            "body": {{"x": "{long}", "source": {{"path": "term://sh"}}}}, "type": "request", "command": "runInTerminal"}}"#
    );
    let write = async { dap.send_body(response.as_bytes()).await.unwrap() };
    let (message, ()) = tokio::join!(timeout(TEST_TIMEOUT, debugger.dap.read()), write);
    assert_eq!(
        message.unwrap().unwrap(),
        json!({"seq": 1, "type": "response", "request_seq": 9, "success": true, "command": "variables", "body": {"x": long}})
    );
    // The session goes on.
    debugger.send("threads", json!({})).await;
    expect_request(&mut dap, "threads").await;
}

#[tokio::test]
async fn long_message_that_is_no_json_is_cut_off() {
    let context = context(|_| {});
    let (_worker, mut debugger, mut dap) = session(&context, json!({})).await;
    let long = "y".repeat(1 << 20);
    let output = format!(
        r#"{{"seq": 1, "type": "event", "event": "output", "body": {{"output": "{long}", type: "request"}}}}"#
    );
    let write = async {
        // The session may end before everything is written.
        let _ = dap.send_body(output.as_bytes()).await;
    };
    let read = async {
        loop {
            match timeout(TEST_TIMEOUT, debugger.dap.read()).await.unwrap() {
                Ok(message) => assert_ne!(message["event"], "output"),
                Err(end) => return end,
            }
        }
    };
    let (end, ()) = tokio::join!(read, write);
    assert!(matches!(end, Closed::ByPeer | Closed::Broken(_)), "{end:?}");
}

#[tokio::test]
async fn long_output_arrives_without_what_drives_a_terminal() {
    let context = context(|_| {});
    let (_worker, mut debugger, mut dap) = session(&context, json!({})).await;
    let long = "loss=0.1\\n".repeat(100_000);
    let output = format!(
        r#"{{"seq": 1, "type": "event", "event": "output", "body": {{"output": "\u001b[1m{long}\u001b]8;;x", "category": "important", "data": {{"rayRelay": 1}}}}}}"#
    );
    let write = async { dap.send_body(output.as_bytes()).await.unwrap() };
    let (message, ()) = tokio::join!(timeout(TEST_TIMEOUT, debugger.dap.read()), write);
    let text = format!("\u{1b}[1m{}\u{241b}]8;;x", "loss=0.1\n".repeat(100_000));
    assert_eq!(
        message.unwrap().unwrap(),
        json!({"seq": 1, "type": "event", "event": "output", "body": {"output": text}})
    );
}

#[tokio::test]
async fn refusals_to_a_flooding_worker_are_bounded() {
    let context = context(|_| {});
    let (_worker, mut debugger, mut dap) = session(&context, json!({})).await;
    for seq in 0..100 {
        send_raw(
            &mut dap,
            &format!(r#"{{"seq": {seq}, "type": "request", "command": "runInTerminal"}}"#),
        )
        .await;
    }
    messages_until_marker(&mut debugger, &mut dap).await;
    debugger.send("threads", json!({})).await;
    let mut refused = 0;
    loop {
        let message = timeout(TEST_TIMEOUT, dap.read()).await.unwrap().unwrap();
        if message["command"] == "threads" {
            break;
        }
        refused += 1;
    }
    assert_eq!(refused, 16);
}
