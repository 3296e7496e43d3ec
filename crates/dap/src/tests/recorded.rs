//! Sessions with mandatory recording.

use std::path::Path;

use super::identity::with_token;
use super::*;
use ray_relay_access::identity::testing::{authenticator, token_of};
use ray_relay_access::recording::Direction;
use ray_relay_access::recording::format::{RecordedLine, read_header, read_line};

const RECORDED_POLICY: &str =
    "[[rule]]\nsubjects = [\"ann\"]\nscopes = [\"debug\"]\nrecord = true\n";

/// A relay that records into `dir`, with a user whose sessions are recorded.
fn relay(dir: Option<&Path>, max_size: usize) -> Arc<Context> {
    relay_with_policy(RECORDED_POLICY, dir, max_size)
}

fn relay_with_policy(policy: &str, dir: Option<&Path>, max_size: usize) -> Arc<Context> {
    context_with(authenticator(policy), Audit::off(), |config| {
        config.recording.dir = dir.map(Path::to_owned);
        config.recording.max_size = max_size;
    })
}

/// Returns the messages of the only recording in `dir`, and its outcome.
fn read_recording(dir: &Path) -> (Vec<(Direction, String)>, String) {
    let files: Vec<_> = std::fs::read_dir(dir).unwrap().collect();
    assert_eq!(files.len(), 1);
    let text = std::fs::read(files[0].as_ref().unwrap().path()).unwrap();
    let mut lines = text.split(|byte| *byte == b'\n').filter(|l| !l.is_empty());
    let header = read_header(lines.next().unwrap()).unwrap();
    assert_eq!(header.members["subject"], "ann");
    assert_eq!(header.members["client"], "Visual Studio Code");
    let (mut messages, mut end) = (Vec::new(), String::new());
    for line in lines {
        match read_line(line).unwrap() {
            RecordedLine::Frame {
                direction, bytes, ..
            } => messages.push((direction, String::from_utf8(bytes).unwrap())),
            RecordedLine::End { how, .. } => end = how,
        }
    }
    (messages, end)
}

#[tokio::test]
async fn traffic_is_recorded_in_order_without_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let context = relay(Some(dir.path()), 1 << 20);
    let ann = with_token(token_of("ann"));
    let (_worker, mut debugger, mut dap) = session(&context, ann).await;
    debugger
        .send("variables", json!({"variablesReference": 5}))
        .await;
    expect_request(&mut dap, "variables").await;
    dap.send(&json!({"type": "response", "request_seq": 3, "success": true, "command": "variables", "body": {"variables": [{"name": "x", "value": "1"}]}}))
        .await
        .unwrap();
    dap.send(&json!({"type": "request", "seq": 9, "command": "startDebugging", "arguments": {"request": "attach",
        "configuration": {"subProcessId": 7, "connect": {"host": "10.0.0.7", "port": 4100}}}}))
        .await
        .unwrap();
    let child = debugger.until(|m| m["command"] == "startDebugging").await;
    debugger.send("disconnect", json!({})).await;
    expect_request(&mut dap, "disconnect").await;
    drop(dap);
    drop(debugger.dap);
    debugger.ended.await.unwrap();

    let (messages, end) = read_recording(dir.path());
    let commands: Vec<_> = messages
        .iter()
        .map(|(direction, text)| {
            let message: Value = serde_json::from_str(text).unwrap();
            (*direction, message["command"].clone())
        })
        .filter(|(_, command)| command.is_string())
        .collect();
    assert_eq!(
        commands,
        [
            (Direction::Up, "variables".into()),
            (Direction::Down, "variables".into()),
            (Direction::Down, "startDebugging".into()),
            (Direction::Up, "disconnect".into()),
        ]
    );
    assert_eq!(end, "client");
    let text: String = messages.iter().map(|(_, text)| text.as_str()).collect();
    assert!(text.contains(r#""value":"1""#), "{text}");
    assert!(!text.contains("eyJ"), "no token and no ticket: {text}");
    let ticket = child.pointer("/arguments/configuration/rayRelay/ticket");
    let ticket = ticket.and_then(Value::as_str).expect("a ticket");
    assert!(!text.contains(ticket), "{text}");
}

/// A recording shows no more than its session.
#[tokio::test]
async fn recording_of_a_viewer_has_no_program_text() {
    const SECRET: &str = "hunter2";
    let dir = tempfile::tempdir().unwrap();
    let policy = RECORDED_POLICY.replace("\"debug\"", "\"view\"");
    let context = relay_with_policy(&policy, Some(dir.path()), 1 << 20);
    let ann = with_token(token_of("ann"));
    let (_worker, mut debugger, mut dap) = session(&context, ann).await;
    let frame = json!({"name": "f", "variables": {"x": SECRET}});
    for category in ["stdout", "stderr", "console", "important", "telemetry"] {
        let body =
            json!({"category": category, "output": SECRET, "data": {"x": SECRET, "frame": frame}});
        dap.send(&message::event("output", body)).await.unwrap();
    }
    let stop =
        json!({"reason": "exception", "threadId": 1, "text": "ValueError", "description": SECRET});
    dap.send(&message::event("stopped", stop)).await.unwrap();
    debugger.event("stopped").await;
    let details = json!({"message": SECRET, "typeName": "ValueError", "stackTrace": SECRET, "innerException": [{"message": SECRET}]});
    let raised = json!({"exceptionId": "ValueError", "description": SECRET, "breakMode": "always", "details": details});
    let seq = debugger.send("exceptionInfo", json!({"threadId": 1})).await;
    let request = expect_request(&mut dap, "exceptionInfo").await;
    dap.send(&request.success(raised)).await.unwrap();
    let answer = debugger.answer(seq).await;
    assert!(answer.to_string().contains("ValueError"), "{answer}");
    assert!(!answer.to_string().contains(SECRET), "{answer}");
    debugger.send("disconnect", json!({})).await;
    expect_request(&mut dap, "disconnect").await;
    drop(dap);
    drop(debugger.dap);
    debugger.ended.await.unwrap();

    let (messages, _) = read_recording(dir.path());
    let text: String = messages.iter().map(|(_, text)| text.as_str()).collect();
    assert!(text.contains("str, 7 characters"), "{text}");
    assert!(!text.contains(SECRET), "{text}");
}

#[tokio::test]
async fn session_at_its_recording_limit_ends_and_task_resumes() {
    let dir = tempfile::tempdir().unwrap();
    let context = relay(Some(dir.path()), 2000);
    let ann = with_token(token_of("ann"));
    let (_worker, mut debugger, mut dap) = session(&context, ann).await;
    // The relay does not detach from a worker before it has sent `initialized`.
    initialized(&mut dap).await;
    let large = message::event("output", json!({"output": "x".repeat(3000)}));
    dap.send(&large).await.unwrap();
    let output = debugger.output("recording.max_size").await;
    assert_output(&output, "the task runs on");
    debugger.event("terminated").await;
    expect_detach(&mut dap).await;
    drop(dap);
    debugger.closed().await;
}

#[tokio::test]
async fn session_without_its_required_recording_is_refused() {
    let missing = tempfile::tempdir().unwrap().path().join("missing");
    for dir in [None, Some(missing.as_path())] {
        let context = relay(dir, 1 << 20);
        let worker = Worker::listed(&context).await;
        let ann = with_token(token_of("ann"));
        let (mut debugger, seq) = Debugger::attaching(&context, ann).await;
        assert_refused(&debugger.answer(seq).await, "has to be recorded");
        debugger.closed().await;
        assert!(context.registry.snapshot().live[0].is_paused());
        let accepted = timeout(Duration::from_millis(20), worker.listener.accept());
        assert!(accepted.await.is_err(), "the worker hears nothing");
    }
}
