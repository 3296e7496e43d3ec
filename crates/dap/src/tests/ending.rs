//! How a session ends: by its worker, its client, or the relay.

use futures_util::future::join_all;

use super::*;
use ray_relay_base::wire::dap::mappings;

#[tokio::test]
async fn cause_of_death_precedes_terminated() {
    let context = context(|_| {});
    let worker = Worker::listed(&context).await;
    let id = worker.breakpoint.id;
    let (mut debugger, seq) = Debugger::attaching(&context, json!({})).await;
    let (mut dap, attach) = worker.attached().await;
    dap.send(&json!({"seq": 9, "type": "response", "request_seq": attach["seq"], "success": true, "command": "attach"}))
        .await
        .unwrap();
    debugger.answer(seq).await;
    context
        .registry
        .end(id, Some("it was killed because the node ran out of memory"));
    assert_output(&debugger.read().await, "ran out of memory");
    assert_eq!(debugger.read().await["event"], "terminated");
    assert_eq!(debugger.ask("disconnect", json!({})).await["success"], true);
    debugger.closed().await;
    assert!(context.registry.snapshot().find(id).is_none());
}

/// debugpy keeps function breakpoints when its client is gone, and the task would stop at the next call without a
/// client.
#[tokio::test]
async fn detach_removes_function_breakpoints() {
    for disconnects in [true, false] {
        let context = context(|_| {});
        let (mut debugger, mut dap) = configurable(&context, json!({})).await;
        debugger.send("configurationDone", json!({})).await;
        expect_request(&mut dap, "configurationDone").await;
        if disconnects {
            debugger.send("disconnect", json!({})).await;
        }
        let client = disconnects.then_some(debugger);
        let reset = answer_request(&mut dap, "setFunctionBreakpoints").await;
        assert_eq!(reset.arguments, json!({"breakpoints": []}));
        answer_request(&mut dap, "disconnect").await;
        drop(client);
        expect_close(&mut dap).await;
    }
}

/// A running task is neither parked nor detached, and a task cannot resume before its expression ends.
#[tokio::test]
async fn cancel_or_disconnect_interrupts_an_expression() {
    for disconnects in [true, false] {
        let context = context(|_| {});
        let (mut debugger, mut dap) = configurable(&context, json!({})).await;
        debugger.send("configurationDone", json!({})).await;
        answer_request(&mut dap, "configurationDone").await;
        let arguments = json!({"expression": "while True: pass", "context": "repl"});
        let seq = debugger.send("evaluate", arguments).await;
        let running = expect_request(&mut dap, "evaluate").await;
        if disconnects {
            debugger.send("disconnect", json!({})).await;
        } else {
            // The cancellation of another request interrupts nothing.
            for (cancelled, interrupts) in [(seq - 1, false), (seq, true)] {
                let cancelled = json!({"requestId": cancelled});
                let answer = debugger.ask("cancel", cancelled).await;
                assert_eq!(answer["success"], true, "{answer}");
                if !interrupts {
                    expect_silence(&mut dap, Duration::from_millis(100)).await;
                }
            }
        }
        let interrupt = answer_request(&mut dap, "evaluate").await;
        assert_eq!(interrupt.arguments, ray_relay_debugger::pdb::interrupt());
        let failure = running.failure("KeyboardInterrupt");
        dap.send(&failure).await.unwrap();
        if disconnects {
            answer_request(&mut dap, "setFunctionBreakpoints").await;
            answer_request(&mut dap, "disconnect").await;
        }
        let answer = debugger.answer(seq).await;
        assert_eq!(answer["success"], false, "{answer}");
        if !disconnects {
            // The expression has ended, so there is nothing to interrupt.
            let cancelled = json!({"requestId": seq});
            debugger.ask("cancel", cancelled).await;
            expect_silence(&mut dap, Duration::from_millis(100)).await;
        }
    }
}

/// debugpy keeps mappings for the process, and the next client may connect without the relay.
#[tokio::test]
async fn session_end_removes_its_path_mappings() {
    let mappings = json!({"pathMappings": [{"localRoot": "/home/ann", "remoteRoot": "."}]});
    // Each waits for a timeout, so they run concurrently.
    let cases = ["goodbye", "half-close", "reset", "drain"].map(|end| (end, mappings.clone()));
    let sessions = cases.map(|(end, mappings)| async move {
        let context = context(|_| {});
        let (mut debugger, mut dap) = configurable(&context, mappings).await;
        let (mut client, mut disconnect) = (None, None);
        match end {
            "goodbye" => {
                disconnect = Some(debugger.send("disconnect", json!({})).await);
                client = Some(debugger.dap);
            }
            "half-close" => {
                let (mut stream, buffered) = debugger.dap.into_parts();
                stream.shutdown().await.unwrap();
                client = Some(Conversation::resume(stream, &buffered, 1 << 20));
            }
            "drain" => {
                context.shutdown.drain.cancel();
                client = Some(debugger.dap);
            }
            _ => drop(debugger),
        }
        answer_request(&mut dap, "setFunctionBreakpoints").await;
        let reset = expect_request(&mut dap, "evaluate").await;
        assert_eq!(reset.arguments, mappings::forgetting());
        // The adapter exits when it has an answer for a client that is gone.
        expect_silence(&mut dap, Duration::from_millis(600)).await;
        let reset_done = reset.success(json!({"result": "None", "variablesReference": 0}));
        dap.send(&reset_done).await.unwrap();
        answer_request(&mut dap, "disconnect").await;
        let mut messages = Vec::new();
        while let Some(Ok(Ok(message))) = match &mut client {
            Some(client) => Some(timeout(TEST_TIMEOUT, client.read()).await),
            None => None,
        } {
            messages.push(message);
        }
        assert!(
            messages.iter().all(|m| m["command"] != "evaluate"),
            "{messages:?}"
        );
        assert!(
            disconnect.is_none_or(|seq| messages.iter().any(|m| m["request_seq"] == seq)),
            "{messages:?}"
        );
    });
    join_all(sessions).await;
}

/// Expects that the worker gets neither a message nor the end within `time`.
async fn expect_silence(dap: &mut Conversation<TcpStream>, time: Duration) {
    let received = timeout(time, dap.read()).await;
    assert!(received.is_err(), "{received:?}");
}

/// debugpy's adapter, and with it the task, dies if a client leaves during `attach`.
#[tokio::test]
async fn client_lost_during_attach_is_detached_in_order() {
    let context = context(|_| {});
    let (worker, debugger, mut dap) = session(&context, json!({})).await;
    let id = worker.breakpoint.id;
    drop(debugger);
    expect_silence(&mut dap, Duration::from_millis(900)).await;
    assert_eq!(context.sessions.table.len(), 0, "the session is over");
    let snapshot = context.registry.snapshot();
    let holder = snapshot.find(id).unwrap().holder();
    assert!(holder.is_some(), "nobody else attaches meanwhile");
    initialized(&mut dap).await;
    answer_request(&mut dap, "setFunctionBreakpoints").await;
    let disconnect = expect_only_disconnect(&mut dap, Duration::from_millis(300)).await;
    assert_eq!(disconnect.arguments["terminateDebuggee"], false);
    expect_close(&mut dap).await;
    drop(dap);
    context.shutdown.tasks.close();
    timeout(TEST_TIMEOUT, context.shutdown.tasks.wait())
        .await
        .unwrap();
    let row = context.registry.snapshot().find(id).unwrap().clone();
    assert!(
        row.is_paused() && row.stop == 1,
        "it was never let run, so it is the same stop"
    );
}

/// debugpy's adapter exits when it has the result of an evaluation for a client that is gone.
#[tokio::test]
async fn disconnect_waits_for_a_running_evaluation() {
    for disconnects in [true, false] {
        let context = context(|_| {});
        let (mut debugger, mut dap) = configurable(&context, json!({})).await;
        debugger
            .send("evaluate", json!({"expression": "long()"}))
            .await;
        let evaluate = expect_request(&mut dap, "evaluate").await;
        if disconnects {
            debugger.send("disconnect", json!({})).await;
        }
        drop(debugger);
        if disconnects {
            let interrupt = answer_request(&mut dap, "evaluate").await;
            assert_eq!(interrupt.arguments, ray_relay_debugger::pdb::interrupt());
        }
        // This request may come first: it clears what would stop the task.
        answer_request(&mut dap, "setFunctionBreakpoints").await;
        expect_silence(&mut dap, Duration::from_millis(900)).await;
        let result = evaluate.success(json!({"result": "1"}));
        dap.send(&result).await.unwrap();
        answer_request(&mut dap, "disconnect").await;
        expect_close(&mut dap).await;
    }
}

/// Neovim goes on sending its queued messages, and debugpy's adapter dies of `configurationDone` after `disconnect`.
#[tokio::test]
async fn messages_after_disconnect_do_not_reach_the_worker() {
    for mapped in [true, false] {
        let context = context(|_| {});
        let mapping = json!({"localRoot": "/home/ann", "remoteRoot": "."});
        let arguments = json!({"pathMappings": if mapped { vec![mapping] } else { vec![] }});
        let (mut debugger, mut dap) = configurable(&context, arguments).await;
        let seq = debugger.send("disconnect", json!({})).await;
        debugger.send("threads", json!({})).await;
        debugger.send("configurationDone", json!({})).await;
        answer_request(&mut dap, "setFunctionBreakpoints").await;
        if mapped {
            answer_request(&mut dap, "evaluate").await;
        }
        expect_only_disconnect(&mut dap, Duration::from_millis(200)).await;
        assert_eq!(debugger.answer(seq).await["success"], true);
        drop(debugger);
        expect_close(&mut dap).await;
    }
}

/// debugpy's adapter exits when the stream ends right after `disconnect`, and the worker's next breakpoint hangs.
#[tokio::test]
async fn disconnect_then_close_is_answered_before_the_worker_eof() {
    for half_close in [true, false] {
        let context = context(|_| {});
        let (mut debugger, mut dap) = configurable(&context, json!({})).await;
        let id = context.registry.snapshot().live[0].id;
        debugger.send("configurationDone", json!({})).await;
        answer_request(&mut dap, "configurationDone").await;
        let seq = debugger.send("disconnect", json!({})).await;
        let (mut stream, _) = debugger.dap.into_parts();
        stream.shutdown().await.unwrap();
        let client = half_close.then_some(stream);
        answer_request(&mut dap, "setFunctionBreakpoints").await;
        expect_only_disconnect(&mut dap, Duration::from_millis(200)).await;
        if let Some(stream) = client {
            let mut client = Conversation::new(stream, 1 << 20);
            let answered = async { while client.read().await.unwrap()["request_seq"] != seq {} };
            timeout(TEST_TIMEOUT, answered).await.unwrap();
        }
        expect_close(&mut dap).await;
        drop(dap);
        let mut list = context.registry.watch();
        let removed = list.wait_for(|list| list.find(id).is_none());
        timeout(TEST_TIMEOUT, removed).await.unwrap().unwrap();
    }
}

async fn expect_only_disconnect(dap: &mut Conversation<TcpStream>, time: Duration) -> Request {
    let disconnect = expect_request(dap, "disconnect").await;
    expect_silence(dap, time).await;
    dap.send(&disconnect.success(Value::Null)).await.unwrap();
    disconnect
}

#[tokio::test]
async fn relay_shutdown_is_reported_and_ends_the_session() {
    let context = context(|_| {});
    let (_worker, mut debugger, mut dap) = session(&context, json!({})).await;
    context.shutdown.drain.cancel();
    assert_output(&debugger.read().await, "being shut down");
    context.shutdown.abort.cancel();
    debugger.event("terminated").await;
    debugger.closed().await;
    initialized(&mut dap).await;
    expect_detach(&mut dap).await;
    assert!(
        matches!(timeout(TEST_TIMEOUT, dap.read()).await, Ok(Err(_))),
        "the worker is let go"
    );
}

#[tokio::test]
async fn idle_session_of_a_draining_relay_is_detached_soon() {
    let context = context(|_| {});
    let (mut debugger, mut dap) = configurable(&context, json!({})).await;
    context.shutdown.busy.close();
    assert!(!context.shutdown.busy.is_empty());
    let started = Instant::now();
    context.shutdown.drain.cancel();
    expect_detach(&mut dap).await;
    let elapsed = started.elapsed();
    assert!(elapsed < 2 * ray_relay_base::shutdown::QUIET, "{elapsed:?}");
    drop(dap);
    debugger.event("terminated").await;
    debugger.closed().await;
    let drained = timeout(TEST_TIMEOUT, context.shutdown.busy.wait()).await;
    drained.unwrap();
}

#[tokio::test]
async fn worker_still_greeting_is_not_disconnected() {
    let context = context(|config| config.dap.connect_timeout = Duration::from_millis(300));
    let worker = Worker::listed(&context).await;
    let (debugger, _) = Debugger::attaching(&context, json!({})).await;
    let mut dap = worker.accept().await;
    drop(debugger.dap);
    timeout(TEST_TIMEOUT, debugger.ended)
        .await
        .unwrap()
        .unwrap();
    greet(&mut dap).await;
    // A disconnect would end the thread of debugpy that accepts connections.
    expect_silence(&mut dap, Duration::from_millis(300)).await;
    let sockets = message::event("debugpySockets", json!({"sockets": []}));
    dap.send(&sockets).await.unwrap();
    expect_close(&mut dap).await;
}
