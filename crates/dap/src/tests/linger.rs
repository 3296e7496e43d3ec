//! Clients whose worker is gone, and clients with their own way to disconnect.

use super::*;
use ray_relay_ray::ray::registry::Holder;

/// Attaches to a worker that is listed in `context`.
async fn attached(
    context: &Arc<Context>,
    initialize: Value,
) -> (Debugger, Conversation<TcpStream>) {
    let worker = Worker::listed(context).await;
    let mut debugger = Debugger::connect(context).await;
    debugger.ask("initialize", initialize).await;
    debugger.send("attach", json!({})).await;
    let (mut dap, _) = worker.attached().await;
    // The relay does not detach from a worker before it has sent `initialized`.
    initialized(&mut dap).await;
    debugger.event("initialized").await;
    debugger.send("configurationDone", Value::Null).await;
    expect_request(&mut dap, "configurationDone").await;
    (debugger, dap)
}

fn holder(context: &Context) -> Option<Holder> {
    let snapshot = context.registry.snapshot();
    snapshot.live.iter().find_map(|b| b.holder().cloned())
}

async fn until_free(context: &Context) {
    while holder(context).is_some() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn terminated() -> Value {
    message::event("terminated", Value::Null)
}

/// debugpy's adapter answers a `disconnect` at any time.
#[tokio::test]
async fn late_disconnect_is_answered_after_the_release() {
    for adapter_stays in [true, false] {
        let context = context(|_| {});
        let (mut debugger, mut dap) = attached(&context, json!({})).await;
        dap.send(&terminated()).await.unwrap();
        let dap = adapter_stays.then_some(dap);
        debugger.event("terminated").await;
        tokio::time::pause();
        tokio::time::sleep(Duration::from_secs(12)).await;
        tokio::time::resume();
        if let Some(mut dap) = dap {
            // The adapter gets a clean detach.
            while let Ok(mut message) = dap.read().await {
                let request = Request::read(&mut message).unwrap();
                dap.send(&request.success(Value::Null)).await.unwrap();
            }
        }
        timeout(TEST_TIMEOUT, until_free(&context)).await.unwrap();
        let refused = debugger.ask("threads", Value::Null).await;
        assert_eq!(refused["success"], false, "{refused}");
        assert_eq!(refused["body"]["error"]["showUser"], false, "{refused}");
        let answer = debugger.ask("disconnect", json!({"restart": false})).await;
        assert_eq!(answer["success"], true, "{answer}");
        debugger.closed().await;
        assert!(context.sessions.table.is_empty());
    }
}

/// debugpy's adapter accepts no further client if one connects before its previous session has ended.
#[tokio::test]
async fn redial_waits_for_the_debugger_to_end_its_session() {
    let context = context(|_| {});
    let (worker, mut debugger, mut dap) = session(&context, json!({})).await;
    initialized(&mut dap).await;
    debugger.event("initialized").await;
    drop(debugger);
    expect_detach(&mut dap).await;
    let closed_at = Instant::now();
    drop(dap);
    timeout(TEST_TIMEOUT, until_free(&context)).await.unwrap();
    let by_id = json!({"rayRelay": {"breakpoint": worker.breakpoint.id}});
    let _next = Debugger::attaching(&context, by_id).await;
    let _dialled = worker.accept().await;
    assert!(closed_at.elapsed() >= Duration::from_millis(300));
}

/// A script that runs `ray-relay exec` twice does this.
#[tokio::test]
async fn immediate_successor_gets_the_detached_worker() {
    let context = context(|_| {});
    let worker = Worker::listed(&context).await;
    let id = worker.breakpoint.id;
    let (mut first, seq) = Debugger::attaching(&context, json!({})).await;
    let (mut dap, attach) = worker.attached().await;
    dap.send(&json!({"seq": 9, "type": "response", "request_seq": attach["seq"], "success": false, "command": "attach"}))
        .await
        .unwrap();
    first.answer(seq).await;
    drop(first);
    let ended = async {
        while !context.sessions.table.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(TEST_TIMEOUT, ended).await.unwrap();
    assert!(holder(&context).is_some(), "its debugger is being left");
    let arguments = json!({"rayRelay": {"breakpoint": id}});
    let attaching = Debugger::attaching(&context, arguments);
    let detaching = async {
        answer_request(&mut dap, "disconnect").await;
        drop(dap);
        worker.accept().await
    };
    timeout(TEST_TIMEOUT, async { tokio::join!(attaching, detaching) })
        .await
        .expect("the worker is dialled again");
}

#[tokio::test]
async fn client_that_never_disconnects_is_closed_in_time() {
    let context = context(|_| {});
    let (mut debugger, dap) = attached(&context, json!({})).await;
    drop(dap);
    debugger.event("terminated").await;
    tokio::time::pause();
    let terminated_at = Instant::now();
    while debugger.dap.read().await.is_ok() {}
    let elapsed = terminated_at.elapsed().as_secs();
    assert!((29..=36).contains(&elapsed), "{elapsed} s");
}

#[tokio::test]
async fn ending_relay_does_not_wait_for_disconnect() {
    let context = context(|_| {});
    let (mut debugger, dap) = attached(&context, json!({})).await;
    drop(dap);
    debugger.event("terminated").await;
    context.shutdown.drain.cancel();
    while debugger.read_some().await {}
    timeout(TEST_TIMEOUT, debugger.ended)
        .await
        .unwrap()
        .unwrap();
}

/// Ray notices an isolated node only much later, and an editor would look frozen until then.
#[tokio::test]
async fn termination_is_reported_at_once_and_its_cause_later() {
    for adapter_stays in [true, false] {
        let context = context(|_| {});
        let (mut debugger, mut dap) = attached(&context, json!({})).await;
        let id = context.registry.snapshot().live[0].id;
        if adapter_stays {
            dap.send(&terminated()).await.unwrap();
        }
        let _dap = adapter_stays.then_some(dap);
        // Many clients disconnect as soon as the session terminates.
        let output = debugger.event("output").await;
        assert_output(
            &output,
            "Ray does not say why yet: `ray-relay list --ended`",
        );
        assert_output(&output, " on node 127.0.0.1 ");
        assert_eq!(
            output["body"]["category"], "console",
            "it may be no accident"
        );
        assert_eq!(debugger.read().await["event"], "terminated");
        // The cause comes only once Ray knows it.
        context.registry.end(id, Some("its node ran out of memory"));
        let output = debugger.event("output").await;
        assert_output(&output, "is gone: its node ran out of memory");
    }
}

#[tokio::test]
async fn disconnect_is_answered_when_the_worker_dies_first() {
    let context = context(|_| {});
    let (mut debugger, mut dap) = attached(&context, json!({})).await;
    let seq = debugger.send("disconnect", json!({})).await;
    while dap.read().await.unwrap()["command"] != "disconnect" {}
    drop(dap);
    assert_eq!(debugger.answer(seq).await["success"], true);
    debugger.closed().await;
}

/// Helix ends a session by `terminate`, if that is announced. Its `disconnect` follows `terminated`.
#[tokio::test]
async fn helix_detaches_by_terminate_and_the_task_resumes() {
    for allow_terminate in [false, true] {
        let context = context(|config| config.dap.allow_terminate = allow_terminate);
        let helix =
            json!({"clientID": "hx", "clientName": "helix", "supportsRunInTerminalRequest": true});
        let mut probe = Debugger::connect(&context).await;
        let announced = probe.ask("initialize", helix.clone()).await;
        let capabilities = &announced["body"];
        assert_eq!(capabilities["supportsTerminateRequest"], true);
        assert_eq!(capabilities["supportsTerminateDebuggee"], allow_terminate);
        let (mut debugger, mut dap) = attached(&context, helix).await;
        let seq = debugger.send("terminate", json!({"restart": false})).await;
        let message = loop {
            let message = dap.read().await.unwrap();
            assert_ne!(message["command"], "terminate");
            if message["command"] == "disconnect" {
                break message;
            }
        };
        assert_eq!(message["arguments"]["terminateDebuggee"], false);
        // debugpy sends `terminated` before its answer.
        dap.send(&terminated()).await.unwrap();
        let request = Request::read(&mut message.clone()).unwrap();
        dap.send(&request.success(Value::Null)).await.unwrap();
        drop(dap);
        debugger.event("terminated").await;
        let answer = debugger.answer(seq).await;
        assert_eq!(answer["command"], "terminate");
        assert_eq!(answer["success"], true);
        let answer = debugger.ask("disconnect", json!({"restart": false})).await;
        assert_eq!(answer["success"], true, "{answer}");
        debugger.closed().await;
    }
}

/// The relay's own requests to the worker use sequence numbers too.
#[tokio::test]
async fn high_client_sequence_numbers_get_their_answers() {
    let context = context(|_| {});
    let (mut debugger, mut dap) = attached(&context, json!({})).await;
    for seq in [0x7fff_5678_u64, (1 << 31) - 1, 1 << 31, (1 << 53) - 1] {
        for command in ["setFunctionBreakpoints", "setExceptionBreakpoints"] {
            debugger.seq = seq - 1;
            debugger.send(command, json!({})).await;
            answer_request(&mut dap, command).await;
            let answer = debugger.read().await;
            assert_eq!(answer["command"], command);
            assert_eq!(answer["request_seq"], seq);
        }
    }
}
