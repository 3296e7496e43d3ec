//! Tests prompts on a debugger played by the test.
#![allow(clippy::unwrap_used)]

use serde_json::json;
use tokio::io::DuplexStream;

use super::*;
use crate::pdb::breakpoints::PromptBreakpoint;
use crate::pdb::error::PromptError;
use ray_relay_base::wire::dap::conversation::Conversation;
use ray_relay_base::wire::dap::message::{event, task_end_before_stop};

/// Plays a debugger that stops once in `file` and fails each `evaluate`.
async fn debugger(stream: DuplexStream, file: String) {
    let mut client = Conversation::new(stream, 1 << 20);
    while let Ok(request) = client.read().await {
        let command = request["command"].as_str().unwrap();
        let frame = json!({"id": 1, "name": "f", "line": 2, "source": {"path": file}});
        let body = match command {
            "stackTrace" => json!({"stackFrames": [frame]}),
            _ => json!({}),
        };
        if command == "attach" {
            client.send(&event("initialized", json!({}))).await.unwrap();
            continue;
        }
        let answer = json!({"type": "response", "seq": 1, "request_seq": request["seq"], "command": command, "success": command != "evaluate", "message": "no Python here", "body": body});
        if client.send(&answer).await.is_err() {
            return;
        }
        if command == "configurationDone" {
            let stop = json!({"reason": "breakpoint", "threadId": 1});
            client.send(&event("stopped", stop)).await.unwrap();
        }
    }
}

/// Plays a debugger whose task ends before it stops. It sends both events before the prompt reads the first.
async fn debugger_of_one_that_ends(stream: DuplexStream) {
    let mut client = Conversation::new(stream, 1 << 20);
    while let Ok(request) = client.read().await {
        let command = request["command"].as_str().unwrap();
        if command == "attach" {
            client.send(&event("initialized", json!({}))).await.unwrap();
            continue;
        }
        let answer = json!({"type": "response", "seq": 1, "request_seq": request["seq"], "command": command, "success": true});
        client.send(&answer).await.unwrap();
        if command == "configurationDone" {
            client.send(&task_end_before_stop("opens")).await.unwrap();
            let terminated = event("terminated", json!({}));
            client.send(&terminated).await.unwrap();
        }
    }
}

#[tokio::test]
async fn task_that_ends_before_its_stop_is_reported() {
    let (prompt_end, debugger_end) = tokio::io::duplex(1 << 16);
    tokio::spawn(debugger_of_one_that_ends(debugger_end));
    let (out, _pieces) = mpsc::channel(10);
    let opened = Prompt::open(prompt_end, &Options::default(), out).await;
    assert_eq!(opened.err(), Some(PromptError::TaskEnded));
}

/// Returns a prompt at a stop in `file`, and its output.
async fn stopped(file: &str, options: Options) -> (Prompt<DuplexStream>, mpsc::Receiver<Piece>) {
    let (prompt_end, debugger_end) = tokio::io::duplex(1 << 16);
    tokio::spawn(debugger(debugger_end, file.to_owned()));
    let (out, pieces) = mpsc::channel(10_000);
    let (prompt, _) = Prompt::open(prompt_end, &options, out).await.unwrap();
    (prompt, pieces)
}

/// Returns the text written so far.
fn written(pieces: &mut mpsc::Receiver<Piece>) -> String {
    let pieces = std::iter::from_fn(|| pieces.try_recv().ok());
    pieces.map(|piece| piece.text().to_owned()).collect()
}

#[tokio::test]
async fn local_source_is_shown_only_if_requested() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("key");
    std::fs::write(&file, "first\nthe key\n").unwrap();
    for local_sources in [false, true] {
        let options = Options {
            local_sources,
            ..Options::default()
        };
        let (mut prompt, mut pieces) = stopped(file.to_str().unwrap(), options).await;
        let prompt_end = std::fs::canonicalize(&file).unwrap();
        for line in [
            "list",
            "longlist",
            "where",
            &format!("b {}:2", prompt_end.display()),
        ] {
            prompt.line(line).await;
        }
        let text = written(&mut pieces);
        assert_eq!(text.contains("the key"), local_sources, "{text}");
    }
}

#[tokio::test]
async fn notebook_cell_shows_a_note_instead_of_source() {
    let (_prompt, mut pieces) = stopped("/tmp/ipykernel_81/55.py", Options::default()).await;
    assert_eq!(
        written(&mut pieces),
        "> /tmp/ipykernel_81/55.py(2)f()\n[a cell of a notebook: its source is in the notebook alone]\n"
    );
    let (_prompt, mut pieces) = stopped("/a.py", Options::default()).await;
    assert_eq!(written(&mut pieces), "> /a.py(2)f()\n");
}

#[tokio::test]
async fn recursive_alias_terminates() {
    let (mut prompt, mut pieces) = stopped("/a.py", Options::default()).await;
    written(&mut pieces);
    for line in ["alias a unalias b;; a", "a"] {
        assert_eq!(prompt.line(line).await, After::Prompt);
    }
    assert_eq!(written(&mut pieces), "*** too many commands at once\n");
    // Each word expands to a thousand.
    prompt
        .line(&format!("alias c c{}", " %*".repeat(1000)))
        .await;
    assert_eq!(prompt.line("c x").await, After::Prompt);
    assert_eq!(
        written(&mut pieces),
        "*** an alias makes this line too long\n"
    );
}

#[tokio::test]
async fn commands_list_on_one_line_may_be_long() {
    let (mut prompt, mut pieces) = stopped("/a.py", Options::default()).await;
    let breakpoint = PromptBreakpoint {
        file: "/a.py".to_owned(),
        ..PromptBreakpoint::default()
    };
    prompt.table.add(breakpoint).unwrap();
    prompt.line("commands 1").await;
    let line = format!("p 1{}p 2;; end;; p 3", ";;".repeat(100_000));
    assert_eq!(prompt.line(&line).await, After::Prompt);
    let list = prompt.table.named("1").unwrap().commands.clone();
    assert_eq!(list.unwrap(), ["p 1", "p 2"]);
    assert_eq!(prompt.text(), "(Pdb) ");
    written(&mut pieces);
}

/// Resumes the program, and returns the reaction to the end of its task.
async fn resume_and_settle(prompt: &mut Prompt<DuplexStream>) -> Option<After> {
    let handle = prompt.interrupter();
    // An interrupt while nothing runs has no effect.
    handle.task_ended();
    let mut running = std::pin::pin!(prompt.line("c"));
    let limit = std::time::Duration::from_secs(5);
    assert!(tokio::time::timeout(limit, &mut running).await.is_err());
    handle.task_ended();
    tokio::time::timeout(limit, running).await.ok()
}

#[tokio::test(start_paused = true)]
async fn ended_task_ends_the_session_unless_it_may_stop_again() {
    let (mut prompt, mut pieces) = stopped("/a.py", Options::default()).await;
    assert_eq!(
        resume_and_settle(&mut prompt).await,
        Some(After::Ended(PromptEnd::TaskEnded))
    );
    assert!(!written(&mut pieces).contains("the task has ended"));
    let (mut prompt, mut pieces) = stopped("/a.py", Options::default()).await;
    let breakpoint = PromptBreakpoint {
        file: "/a.py".to_owned(),
        ..PromptBreakpoint::default()
    };
    prompt.table.add(breakpoint).unwrap();
    assert_eq!(resume_and_settle(&mut prompt).await, None);
    assert!(written(&mut pieces).contains("[the task has ended; "));
}
