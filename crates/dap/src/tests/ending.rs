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
    for goodbye in [true, false] {
        let context = context(|_| {});
        let (mut debugger, mut dap) = configurable(&context, json!({})).await;
        debugger.send("configurationDone", json!({})).await;
        got(&mut dap, "configurationDone").await;
        if goodbye {
            debugger.send("disconnect", json!({})).await;
        }
        let client = goodbye.then_some(debugger);
        let forgets = asked(&mut dap, "setFunctionBreakpoints").await;
        assert_eq!(forgets.arguments, json!({"breakpoints": []}));
        asked(&mut dap, "disconnect").await;
        drop(client);
        left(&mut dap).await;
    }
}

/// A running task is neither parked nor detached, and a task cannot resume before its expression ends.
#[tokio::test]
async fn cancel_or_disconnect_interrupts_an_expression() {
    for leaves in [true, false] {
        let context = context(|_| {});
        let (mut debugger, mut dap) = configurable(&context, json!({})).await;
        debugger.send("configurationDone", json!({})).await;
        asked(&mut dap, "configurationDone").await;
        let endless = json!({"expression": "while True: pass", "context": "repl"});
        let seq = debugger.send("evaluate", endless).await;
        let endless = got(&mut dap, "evaluate").await;
        if leaves {
            debugger.send("disconnect", json!({})).await;
        } else {
            // Another request is none of it.
            for (cancelled, interrupts) in [(seq - 1, false), (seq, true)] {
                let cancelled = json!({"requestId": cancelled});
                let answer = debugger.ask("cancel", cancelled).await;
                assert_eq!(answer["success"], true, "{answer}");
                if !interrupts {
                    nothing_for(&mut dap, Duration::from_millis(100)).await;
                }
            }
        }
        let interrupt = asked(&mut dap, "evaluate").await;
        assert_eq!(interrupt.arguments, ray_relay_debugger::pdb::interrupt());
        let failure = endless.failure("KeyboardInterrupt");
        dap.send(&failure).await.unwrap();
        if leaves {
            asked(&mut dap, "setFunctionBreakpoints").await;
            asked(&mut dap, "disconnect").await;
        }
        let answer = debugger.answer(seq).await;
        assert_eq!(answer["success"], false, "{answer}");
        if !leaves {
            // It has ended, and there is nothing to interrupt.
            let cancelled = json!({"requestId": seq});
            debugger.ask("cancel", cancelled).await;
            nothing_for(&mut dap, Duration::from_millis(100)).await;
        }
    }
}

/// debugpy keeps them for the process, and the next client need not come through the relay.
#[tokio::test]
async fn session_end_removes_its_path_mappings() {
    let mappings = json!({"pathMappings": [{"localRoot": "/home/ann", "remoteRoot": "."}]});
    // Each waits for a timeout, so they run concurrently.
    let all = ["goodbye", "half-close", "reset", "drain"].map(|end| (end, mappings.clone()));
    let all = all.map(|(end, mappings)| async move {
        let context = context(|_| {});
        let (mut debugger, mut dap) = configurable(&context, mappings).await;
        let (mut client, mut goodbye) = (None, None);
        match end {
            "goodbye" => {
                goodbye = Some(debugger.send("disconnect", json!({})).await);
                client = Some(debugger.dap);
            }
            "half-close" => {
                let (mut stream, rest) = debugger.dap.into_parts();
                stream.shutdown().await.unwrap();
                client = Some(Conversation::resume(stream, &rest, 1 << 20));
            }
            "drain" => {
                context.shutdown.drain.cancel();
                client = Some(debugger.dap);
            }
            _ => drop(debugger),
        }
        asked(&mut dap, "setFunctionBreakpoints").await;
        let forgets = got(&mut dap, "evaluate").await;
        assert_eq!(forgets.arguments, mappings::forgetting());
        // The adapter would end of an answer that finds its client gone.
        nothing_for(&mut dap, Duration::from_millis(600)).await;
        let done = forgets.success(json!({"result": "None", "variablesReference": 0}));
        dap.send(&done).await.unwrap();
        asked(&mut dap, "disconnect").await;
        let mut seen = Vec::new();
        while let Some(Ok(Ok(message))) = match &mut client {
            Some(client) => Some(timeout(TEST_TIMEOUT, client.read()).await),
            None => None,
        } {
            seen.push(message);
        }
        assert!(seen.iter().all(|m| m["command"] != "evaluate"), "{seen:?}");
        assert!(
            goodbye.is_none_or(|seq| seen.iter().any(|m| m["request_seq"] == seq)),
            "{seen:?}"
        );
    });
    join_all(all).await;
}

/// Expects that the worker gets neither a message nor the end within `time`.
async fn nothing_for(dap: &mut Conversation<TcpStream>, time: Duration) {
    let seen = timeout(time, dap.read()).await;
    assert!(seen.is_err(), "{seen:?}");
}

/// debugpy's adapter dies of a client that leaves while `attach` is at work, and with it the task.
#[tokio::test]
async fn client_lost_during_attach_is_detached_in_order() {
    let context = context(|_| {});
    let (worker, debugger, mut dap) = session(&context, json!({})).await;
    let id = worker.breakpoint.id;
    drop(debugger);
    nothing_for(&mut dap, Duration::from_millis(900)).await;
    assert_eq!(context.sessions.table.len(), 0, "the session is over");
    let snapshot = context.registry.snapshot();
    let holder = snapshot.find(id).unwrap().holder();
    assert!(holder.is_some(), "nobody else attaches meanwhile");
    initialized(&mut dap).await;
    asked(&mut dap, "setFunctionBreakpoints").await;
    let goodbye = nothing_after_disconnect(&mut dap, Duration::from_millis(300)).await;
    assert_eq!(goodbye.arguments["terminateDebuggee"], false);
    left(&mut dap).await;
    drop(dap);
    context.shutdown.tasks.close();
    timeout(TEST_TIMEOUT, context.shutdown.tasks.wait())
        .await
        .unwrap();
    let waits = context.registry.snapshot().find(id).unwrap().clone();
    assert!(
        waits.is_paused() && waits.stop == 1,
        "it was never let run, so it is the same stop"
    );
}

/// debugpy's adapter ends where it has the answer to an evaluation for a client that is gone.
#[tokio::test]
async fn disconnect_waits_for_a_running_evaluation() {
    for goodbye in [true, false] {
        let context = context(|_| {});
        let (mut debugger, mut dap) = configurable(&context, json!({})).await;
        debugger
            .send("evaluate", json!({"expression": "long()"}))
            .await;
        let evaluate = got(&mut dap, "evaluate").await;
        if goodbye {
            debugger.send("disconnect", json!({})).await;
        }
        drop(debugger);
        if goodbye {
            let interrupt = asked(&mut dap, "evaluate").await;
            assert_eq!(interrupt.arguments, ray_relay_debugger::pdb::interrupt());
        }
        // Which may be said already: it clears what would stop the task.
        asked(&mut dap, "setFunctionBreakpoints").await;
        nothing_for(&mut dap, Duration::from_millis(900)).await;
        let done = evaluate.success(json!({"result": "1"}));
        dap.send(&done).await.unwrap();
        asked(&mut dap, "disconnect").await;
        left(&mut dap).await;
    }
}

/// Neovim continues with its queued messages, and debugpy's adapter dies of a `configurationDone` after `disconnect`.
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
        asked(&mut dap, "setFunctionBreakpoints").await;
        if mapped {
            asked(&mut dap, "evaluate").await;
        }
        nothing_after_disconnect(&mut dap, Duration::from_millis(200)).await;
        assert_eq!(debugger.answer(seq).await["success"], true);
        drop(debugger);
        left(&mut dap).await;
    }
}

/// debugpy's adapter exits when the stream ends right behind `disconnect`, and the worker's next breakpoint hangs.
#[tokio::test]
async fn disconnect_then_close_is_answered_before_the_worker_eof() {
    for half in [true, false] {
        let context = context(|_| {});
        let (mut debugger, mut dap) = configurable(&context, json!({})).await;
        let id = context.registry.snapshot().live[0].id;
        debugger.send("configurationDone", json!({})).await;
        asked(&mut dap, "configurationDone").await;
        let seq = debugger.send("disconnect", json!({})).await;
        let (mut stream, _) = debugger.dap.into_parts();
        stream.shutdown().await.unwrap();
        let client = half.then_some(stream);
        asked(&mut dap, "setFunctionBreakpoints").await;
        nothing_after_disconnect(&mut dap, Duration::from_millis(200)).await;
        if let Some(stream) = client {
            let mut client = Conversation::new(stream, 1 << 20);
            let answered = async { while client.read().await.unwrap()["request_seq"] != seq {} };
            timeout(TEST_TIMEOUT, answered).await.unwrap();
        }
        left(&mut dap).await;
        drop(dap);
        let mut list = context.registry.watch();
        let gone = list.wait_for(|list| list.find(id).is_none());
        timeout(TEST_TIMEOUT, gone).await.unwrap().unwrap();
    }
}

async fn nothing_after_disconnect(dap: &mut Conversation<TcpStream>, time: Duration) -> Request {
    let goodbye = got(dap, "disconnect").await;
    nothing_for(dap, time).await;
    dap.send(&goodbye.success(Value::Null)).await.unwrap();
    goodbye
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
    let_go(&mut dap).await;
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
    let began = Instant::now();
    context.shutdown.drain.cancel();
    let_go(&mut dap).await;
    let took = began.elapsed();
    assert!(took < 2 * ray_relay_base::shutdown::QUIET, "{took:?}");
    drop(dap);
    debugger.event("terminated").await;
    debugger.closed().await;
    let over = timeout(TEST_TIMEOUT, context.shutdown.busy.wait()).await;
    over.unwrap();
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
    // Its thread that accepts connections would end of that.
    nothing_for(&mut dap, Duration::from_millis(300)).await;
    let sockets = message::event("debugpySockets", json!({"sockets": []}));
    dap.send(&sockets).await.unwrap();
    left(&mut dap).await;
}
