//! What passes between client and worker only changed, or not at all.

use super::*;
use crate::ray::registry::Reason;

#[tokio::test]
async fn no_address_of_the_cluster_reaches_the_client() {
    let context = context(|_| {});
    let worker = Worker::listen().await;
    let id = worker.breakpoint.id;
    context.registry.insert(worker.breakpoint.clone());
    let mut debugger = Debugger::connect(&context).await;
    debugger
        .attach(json!({"connect": {"host": "LocalHost", "port": "15678"}}))
        .await;
    let (mut dap, attach) = worker.attached().await;
    assert_eq!(
        attach["arguments"]["connect"],
        json!({"host": "LocalHost", "port": "15678"})
    );
    for event in [
        message::event(
            "debugpySockets",
            json!({"sockets": [{"host": "10.88.0.1", "port": 41000, "internal": false}]}),
        ),
        message::event(
            "debugpyWaitingForServer",
            json!({"host": "10.88.0.1", "port": 41000}),
        ),
        message::event(
            "debugpyAttach",
            json!({"name": "Subprocess 7", "connect": {"host": "10.88.0.1", "port": 41000}, "subProcessId": 7}),
        ),
        message::event("continued", Value::Null),
    ] {
        dap.send(&event).await.unwrap();
    }
    assert_eq!(debugger.read().await["body"], json!({"sockets": []}));
    let child = debugger.read().await;
    assert_eq!(
        child["body"]["connect"],
        json!({"host": "LocalHost", "port": "15678"})
    );
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
    let mut debugger = Debugger::connect(&context).await;
    debugger.attach(json!({})).await;
    let (mut dap, _) = worker.attached().await;
    let done = debugger.send("configurationDone", json!({})).await;
    let own = dap.read().await.unwrap();
    assert_eq!(
        (&own["command"], &own["arguments"]["filters"]),
        (&json!("setExceptionBreakpoints"), &json!(["uncaught"]))
    );
    let answered = dap.read().await.unwrap();
    assert_eq!(answered["command"], "configurationDone");
    for request in [own, answered] {
        let request = Request::read(&mut request.clone()).unwrap();
        dap.send(&request.success(Value::Null)).await.unwrap();
    }
    let answer = debugger.read().await;
    assert_eq!(
        (&answer["command"], &answer["request_seq"]),
        (&json!("configurationDone"), &json!(done)),
        "the relay's own is not shown"
    );
}

#[tokio::test]
async fn ending_the_worker_takes_a_permission() {
    for allowed in [false, true] {
        let context = context(|config| config.dap.allow_terminate = allowed);
        let worker = Worker::listen().await;
        context.registry.insert(worker.breakpoint.clone());
        let mut debugger = Debugger::connect(&context).await;
        debugger.attach(json!({})).await;
        let (mut dap, _) = worker.attached().await;
        let seq = debugger.send("terminate", json!({})).await;
        if allowed {
            assert_eq!(dap.read().await.unwrap()["command"], "terminate");
        } else {
            let answer = debugger.until(|m| m["request_seq"] == seq).await;
            assert!(
                sentence(&answer).contains("dap.allow_terminate"),
                "{answer}"
            );
        }
        // Python takes the last of two equal keys: so does the relay when it judges.
        let smuggled = br#"{"seq":90,"type":"request","command":"threads","command":"disconnect","arguments":{"terminateDebuggee":false,"terminateDebuggee":true}}"#;
        let mut wire = Vec::new();
        codec::put_frame(&mut wire, smuggled);
        let (mut stream, _) = debugger.dap.into_parts();
        stream.write_all(&wire).await.unwrap();
        let seen = dap.read().await.unwrap();
        assert_eq!(seen["command"], "disconnect");
        assert_eq!(seen["arguments"]["terminateDebuggee"], allowed);
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
            let worker = Worker::listen().await;
            context.registry.insert(worker.breakpoint.clone());
            let mut debugger = Debugger::connect(&context).await;
            debugger.attach(json!({})).await;
            let (mut dap, _) = worker.attached().await;
            debugger
                .send(
                    "disconnect",
                    json!({"terminateDebuggee": value, "restart": 7}),
                )
                .await;
            let seen = dap.read().await.unwrap();
            assert_eq!(seen["command"], "disconnect");
            assert_eq!(
                seen["arguments"],
                json!({"terminateDebuggee": allowed, "restart": true}),
                "{value}"
            );
            if !allowed {
                let told = debugger.until(|m| m["event"] == "output").await;
                let told = told["body"]["output"].as_str().unwrap();
                assert!(told.contains("the task runs on"), "{told}");
            }
        }
    }
}

#[tokio::test]
async fn continuing_what_has_not_stopped_is_answered_and_not_asked_of_the_worker() {
    let context = context(|_| {});
    let worker = Worker::listen().await;
    let (mut debugger, mut dap) = attached_with(&context, &worker, json!({})).await;
    let stopped = message::event("stopped", json!({"threadId": 1, "allThreadsStopped": true}));
    // Before it has stopped, and again when it runs.
    for _ in 0..2 {
        let early = debugger.send("continue", json!({"threadId": 1})).await;
        let answer = debugger.read().await;
        assert_eq!(
            (&answer["request_seq"], &answer["success"]),
            (&json!(early), &json!(true))
        );
        dap.send(&stopped).await.unwrap();
        assert_eq!(debugger.read().await["event"], "stopped");
        let asked = debugger.send("continue", json!({"threadId": 1})).await;
        let mut request = dap.read().await.unwrap();
        assert_eq!(
            (&request["command"], &request["seq"]),
            (&json!("continue"), &json!(asked))
        );
        let request = Request::read(&mut request).unwrap();
        dap.send(&request.success(Value::Null)).await.unwrap();
        assert_eq!(debugger.read().await["request_seq"], json!(asked));
    }
    // Where one thread alone steps, the others still stand.
    dap.send(&stopped).await.unwrap();
    debugger.read().await;
    debugger
        .send("next", json!({"threadId": 1, "singleThread": true}))
        .await;
    debugger.send("continue", json!({"threadId": 2})).await;
    for command in ["next", "continue"] {
        assert_eq!(dap.read().await.unwrap()["command"], command);
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
    let mut debugger = Debugger::connect(&context).await;
    debugger
        .attach(json!({"rayRelay": {"breakpoint": worker.breakpoint.id}}))
        .await;
    let (mut dap, _) = worker.attached().await;
    debugger.send("continue", json!({"threadId": 1})).await;
    assert_eq!(dap.read().await.unwrap()["command"], "continue");
}
