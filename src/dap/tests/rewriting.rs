//! What passes between client and worker only changed, or not at all.

use super::*;
use crate::ray::registry::Reason;

#[tokio::test]
async fn no_address_of_the_cluster_reaches_the_client() {
    let context = context(|_| {});
    let worker = Worker::listed(&context).await;
    let id = worker.breakpoint.id;
    let dialled = json!({"host": "LocalHost", "port": "15678"});
    let (mut debugger, _) = Debugger::attaching(&context, json!({"connect": dialled})).await;
    let (mut dap, attach) = worker.attached().await;
    assert_eq!(attach["arguments"]["connect"], dialled);
    let address = json!({"host": "10.88.0.1", "port": 41000});
    let mut socket = address.clone();
    socket["internal"] = false.into();
    for (event, body) in [
        ("debugpySockets", json!({"sockets": [socket]})),
        ("debugpyWaitingForServer", address.clone()),
        (
            "debugpyAttach",
            json!({"name": "Subprocess 7", "connect": address, "subProcessId": 7}),
        ),
        ("continued", Value::Null),
    ] {
        dap.send(&message::event(event, body)).await.unwrap();
    }
    assert_eq!(debugger.read().await["body"], json!({"sockets": []}));
    let child = debugger.read().await;
    assert_eq!(child["body"]["connect"], dialled);
    assert_eq!(child["body"]["rayRelay"], json!({"breakpoint": id}));
    assert_eq!(debugger.read().await["event"], "continued");
}

#[tokio::test]
async fn a_post_mortem_stop_gets_its_filter_whatever_the_client_sends() {
    let context = context(|_| {});
    let worker = Worker::listen().await;
    context.registry.insert(Breakpoint {
        reason: Reason::PostMortem,
        ..worker.breakpoint.clone()
    });
    let (mut debugger, _) = Debugger::attaching(&context, json!({})).await;
    let (mut dap, _) = worker.attached().await;
    let done = debugger.send("configurationDone", json!({})).await;
    let own = got(&mut dap, "setExceptionBreakpoints").await;
    assert_eq!(own.arguments["filters"], json!(["uncaught"]));
    let answered = got(&mut dap, "configurationDone").await;
    for request in [own, answered] {
        dap.send(&request.success(Value::Null)).await.unwrap();
    }
    // The relay's own is not shown.
    let answer = debugger.read().await;
    assert_eq!(answer["command"], "configurationDone");
    assert_eq!(answer["request_seq"], done);
}

#[tokio::test]
async fn ending_the_worker_takes_a_permission() {
    for allowed in [false, true] {
        let context = context(|config| config.dap.allow_terminate = allowed);
        let (_worker, mut debugger, mut dap) = session(&context, json!({})).await;
        let seq = debugger.send("terminate", json!({})).await;
        if allowed {
            got(&mut dap, "terminate").await;
        } else {
            assert_refused(&debugger.answer(seq).await, "dap.allow_terminate");
        }
        // Python takes the last of two equal keys: so does the relay when it judges.
        let smuggled = br#"{"seq":90,"type":"request","command":"threads","command":"disconnect","arguments":{"terminateDebuggee":false,"terminateDebuggee":true}}"#;
        let mut wire = Vec::new();
        codec::put_frame(&mut wire, smuggled);
        let (mut stream, _) = debugger.dap.into_parts();
        stream.write_all(&wire).await.unwrap();
        let goodbye = got(&mut dap, "disconnect").await;
        assert_eq!(goodbye.arguments["terminateDebuggee"], allowed);
    }
}

#[tokio::test]
async fn whatever_looks_like_true_ends_no_worker_without_the_permission() {
    for value in [
        json!(1),
        json!(1.0),
        json!("true"),
        json!([true]),
        json!({"a": 1}),
    ] {
        for allowed in [false, true] {
            let context = context(|config| config.dap.allow_terminate = allowed);
            let (_worker, mut debugger, mut dap) = session(&context, json!({})).await;
            let goodbye = json!({"terminateDebuggee": value, "restart": 7});
            debugger.send("disconnect", goodbye).await;
            let seen = got(&mut dap, "disconnect").await;
            let narrowed = json!({"terminateDebuggee": allowed, "restart": true});
            assert_eq!(seen.arguments, narrowed, "{value}");
            if !allowed {
                assert_output(&debugger.event("output").await, "the task runs on");
            }
        }
    }
}

#[tokio::test]
async fn continuing_what_has_not_stopped_is_answered_and_not_asked_of_the_worker() {
    let context = context(|_| {});
    let (mut debugger, mut dap) = configurable(&context, json!({})).await;
    let stopped = message::event("stopped", json!({"threadId": 1, "allThreadsStopped": true}));
    // Before it has stopped, and again when it runs.
    for _ in 0..2 {
        let early = debugger.send("continue", json!({"threadId": 1})).await;
        let answer = debugger.read().await;
        assert_eq!(answer["request_seq"], early);
        assert_eq!(answer["success"], true);
        dap.send(&stopped).await.unwrap();
        assert_eq!(debugger.read().await["event"], "stopped");
        let asked = debugger.send("continue", json!({"threadId": 1})).await;
        let request = got(&mut dap, "continue").await;
        assert_eq!(request.seq, asked);
        dap.send(&request.success(Value::Null)).await.unwrap();
        assert_eq!(debugger.read().await["request_seq"], json!(asked));
    }
    // Where one thread alone steps, the others still stand.
    dap.send(&stopped).await.unwrap();
    debugger.read().await;
    let alone = json!({"threadId": 1, "singleThread": true});
    debugger.send("next", alone).await;
    debugger.send("continue", json!({"threadId": 2})).await;
    for command in ["next", "continue"] {
        got(&mut dap, command).await;
    }
}

#[tokio::test]
async fn a_worker_that_ray_does_not_list_may_stand_already_and_is_continued() {
    let context = context(|_| {});
    let worker = Worker::listen().await;
    context.registry.insert(Breakpoint {
        state: crate::ray::registry::State::Unlisted,
        ..worker.breakpoint.clone()
    });
    let named = json!({"rayRelay": {"breakpoint": worker.breakpoint.id}});
    let (mut debugger, _) = Debugger::attaching(&context, named).await;
    let (mut dap, _) = worker.attached().await;
    debugger.send("continue", json!({"threadId": 1})).await;
    got(&mut dap, "continue").await;
}
