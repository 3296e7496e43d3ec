//! Tests releases with workers played by the test.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use super::*;
use crate::session::authorise;
use ray_relay_access::audit::testing::{AuditSpy, spied};
use ray_relay_access::identity::{Authenticator, Principal};
use ray_relay_access::policy::Scope;
use ray_relay_base::config::Config;
use ray_relay_base::wire::dap::conversation::Conversation;
use ray_relay_base::wire::dap::message::event;
use ray_relay_ray::ray::registry::Breakpoint;
use ray_relay_ray::ray::testing::{assert_not_dialled, listed, paused, paused_in_pdb};

pub(super) fn relay(adapt: impl FnOnce(&mut Config)) -> (Arc<Context>, AuditSpy) {
    let mut config = Config::default();
    adapt(&mut config);
    let (audit, audit_log) = spied(false);
    (
        Context::offline(config, Authenticator::open(), audit),
        audit_log,
    )
}

fn holder() -> Holder {
    Holder::here(0, None, CLIENT, Some(([127, 0, 0, 1], 1).into()))
}

/// Returns a relay with a paused task, and the listener of its debugger.
async fn paused_task(breakpoint: Breakpoint) -> (Arc<Context>, TcpListener) {
    let (context, _) = relay(|_| {});
    let listener = listed(&context.registry, breakpoint).await;
    (context, listener)
}

async fn release_first(context: &Arc<Context>) -> Result<(), NotReleased> {
    let live = context.registry.snapshot().live[0].clone();
    let authorized = authorise(&Principal::anonymous(), &live, Scope::Debug).unwrap();
    release(context, authorized, holder()).await
}

/// Plays debugpy until the client disconnects, and returns the received commands. `attach` decides whether it accepts
/// the client.
pub(super) async fn debugpy(listener: TcpListener, attach: bool) -> Vec<String> {
    let (stream, _) = listener.accept().await.unwrap();
    let mut client = Conversation::new(stream, 1 << 20);
    let greeting = event("output", json!({"category": "telemetry"}));
    client.send(&greeting).await.unwrap();
    let mut commands = Vec::new();
    while let Ok(request) = client.read().await {
        let command = request["command"].as_str().unwrap().to_owned();
        let answer = |success| json!({"type": "response", "seq": 1, "request_seq": request["seq"], "command": command, "success": success, "message": "Server[pid=1] is already being debugged."});
        let answer = match &*command {
            "attach" if attach => event("initialized", Value::Null),
            "attach" => answer(false),
            _ => answer(true),
        };
        client.send(&answer).await.unwrap();
        if command == "configurationDone" {
            let stop = json!({"reason": "breakpoint", "threadId": 1, "allThreadsStopped": true});
            client.send(&event("stopped", stop)).await.unwrap();
        }
        if command == "disconnect" {
            assert_eq!(request["arguments"]["terminateDebuggee"], false);
        }
        commands.push(command);
    }
    commands
}

#[tokio::test]
async fn release_attaches_to_the_worker_and_detaches() {
    let (context, listener) = paused_task(paused("square", 1)).await;
    let worker = tokio::spawn(debugpy(listener, true));
    release_first(&context).await.unwrap();
    let commands = worker.await.unwrap();
    assert_eq!(
        commands,
        [
            "initialize",
            "attach",
            "setExceptionBreakpoints",
            "configurationDone",
            "disconnect"
        ]
    );
    let snapshot = context.registry.snapshot();
    assert!(snapshot.live.is_empty() && snapshot.ended[0].state.word() == "released");
}

async fn next(client: &mut Conversation<TcpStream>) -> Value {
    // Longer than the whole release.
    let next = timeout(Duration::from_secs(60), client.read()).await;
    next.expect("not for ever").unwrap()
}

#[tokio::test]
async fn release_detaches_only_once_all_paused_threads_stopped() {
    for threads in [1, 2] {
        for stops in 0..=threads {
            let (context, listener) = paused_task(Breakpoint {
                paused_threads: threads,
                ..paused("square", 1)
            })
            .await;
            let release_task = tokio::spawn(async move { release_first(&context).await });
            let (stream, _) = listener.accept().await.unwrap();
            let mut client = Conversation::new(stream, 1 << 20);
            let greeting = event("output", json!({"category": "telemetry"}));
            client.send(&greeting).await.unwrap();
            let mut configured = false;
            while !configured {
                let request = client.read().await.unwrap();
                let command = request["command"].as_str().unwrap();
                if command == "attach" {
                    // The thread is first paused in Ray's helper, which is not the user's code.
                    assert_eq!(request["arguments"]["justMyCode"], false);
                    let initialized = event("initialized", Value::Null);
                    client.send(&initialized).await.unwrap();
                    continue;
                }
                configured = command == "configurationDone";
                let answer = json!({"type": "response", "seq": 1, "request_seq": request["seq"], "command": command, "success": true});
                client.send(&answer).await.unwrap();
            }
            let premature = timeout(Duration::from_millis(500), client.read()).await;
            assert!(premature.is_err(), "{premature:?}");
            for thread in 1..=stops {
                let stop = json!({"reason": "breakpoint", "threadId": thread});
                client.send(&event("stopped", stop)).await.unwrap();
            }
            let mut request = next(&mut client).await;
            if stops == 0 {
                // The detach sequence checks for a running expression.
                assert_eq!(request["command"], "evaluate", "{stops} of {threads}");
                let answer = json!({"type": "response", "seq": 1, "request_seq": request["seq"], "command": "evaluate", "success": true, "body": {"result": "'{}'"}});
                client.send(&answer).await.unwrap();
                request = next(&mut client).await;
            }
            assert_eq!(request["command"], "disconnect", "{stops} of {threads}");
            let answer = json!({"type": "response", "seq": 1, "request_seq": request["seq"], "command": "disconnect", "success": true});
            client.send(&answer).await.unwrap();
            drop(client);
            release_task.await.unwrap().unwrap();
        }
    }
}

#[tokio::test]
async fn task_with_a_debugger_outside_the_relay_is_not_released() {
    let (context, listener) = paused_task(paused("square", 1)).await;
    tokio::spawn(debugpy(listener, false));
    let error = release_first(&context).await.unwrap_err().to_string();
    assert!(error.contains("bypasses this relay"), "{error}");
    assert!(context.registry.snapshot().live[0].is_paused());
}

#[tokio::test]
async fn lost_debugger_is_listed_as_unreachable_with_next_step() {
    let (context, listener) = paused_task(paused("square", 1)).await;
    let id = context.registry.snapshot().live[0].id;
    drop(listener);
    for _ in 0..2 {
        let error = release_first(&context).await.unwrap_err().to_string();
        let step = format!("`ray-relay release --force {id}`");
        assert!(
            error.contains("its debugger is gone") && error.contains(&step),
            "{error}"
        );
        let list = context.registry.snapshot();
        assert_eq!(list.live[0].state.word(), "unreachable");
    }
}

#[tokio::test]
async fn legacy_prompt_is_released_by_continue() {
    let (context, listener) = paused_task(paused_in_pdb("square", 1)).await;
    let prompt = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"(Pdb) ").await.unwrap();
        let mut received = [0; 2];
        stream.read_exact(&mut received).await.unwrap();
        received
    });
    release_first(&context).await.unwrap();
    assert_eq!(&prompt.await.unwrap(), b"c\n");
}

#[tokio::test]
async fn busy_legacy_prompt_outlasts_the_release_request() {
    for resumes in [true, false] {
        let (context, listener) = paused_task(paused_in_pdb("square", 1)).await;
        let caller = tokio::spawn({
            let context = context.clone();
            async move { release_first(&context).await }
        });
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"(Pdb) ").await.unwrap();
        let mut received = [0; 2];
        stream.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"c\n");
        // Pause the clock only now: a paused clock would run ahead of the sockets.
        tokio::time::pause();
        let sent_at = Instant::now();
        let error = caller.await.unwrap().unwrap_err().to_string();
        let answered = sent_at.elapsed();
        assert!((14..=15).contains(&answered.as_secs()), "{answered:?}");
        assert!(
            error.contains("has not confirmed `continue` within 15 s")
                && error.contains("`ray-relay list`"),
            "{error}"
        );
        let snapshot = context.registry.snapshot();
        assert_eq!(snapshot.live[0].holder().unwrap().client, CLIENT);
        assert!(snapshot.ended.is_empty());
        // Closing the connection would make the task fail.
        context.shutdown.tasks.close();
        assert_eq!(context.shutdown.tasks.len(), 1);
        let closed = timeout(Duration::from_secs(500), stream.read(&mut received)).await;
        assert!(closed.is_err() && context.shutdown.tasks.len() == 1);
        if resumes {
            drop(stream);
            context.shutdown.tasks.wait().await;
            assert!(sent_at.elapsed() < Duration::from_secs(550));
        } else {
            context.shutdown.tasks.wait().await;
            let ended_after = sent_at.elapsed();
            assert!(
                (590..=600).contains(&ended_after.as_secs()),
                "{ended_after:?}"
            );
            assert_eq!(stream.read(&mut received).await.unwrap(), 0);
        }
        let snapshot = context.registry.snapshot();
        assert!(snapshot.live.is_empty() && snapshot.ended[0].state.word() == "released");
        tokio::time::resume();
    }
}

#[tokio::test]
async fn held_task_is_not_released() {
    let (context, _listener) = paused_task(paused("square", 1)).await;
    let id = context.registry.snapshot().live[0].id;
    let _claim = context.registry.claim(id, holder()).unwrap();
    let error = release_first(&context).await.unwrap_err().to_string();
    assert!(error.contains("is being debugged by"), "{error}");
}

#[tokio::test]
async fn unreachable_debugger_is_not_dialled() {
    let (context, _) =
        relay(|config| config.clusters[0].ray_address = "http://10.0.0.1:8265".to_owned());
    let listener = listed(&context.registry, paused_in_pdb("square", 1)).await;
    let error = release_first(&context).await.unwrap_err().to_string();
    assert!(error.contains("--ray-debugger-external"), "{error}");
    assert_not_dialled(listener);
    assert!(context.registry.snapshot().live[0].is_paused());
}
