//! Connecting to a worker: messages before `attach`, and workers that do not answer it.

use super::*;
use ray_relay_ray::ray::registry::Change;

#[tokio::test]
async fn requests_before_attach_are_answered_and_bounded() {
    let context = context(|config| {
        config.listen.handshake_timeout = Duration::from_millis(300);
    });
    let mut first = Debugger::connect(&context).await;
    let answer = first.ask("threads", Value::Null).await;
    assert_refused(&answer, "`initialize` has to come first");
    assert_output(&first.read().await, "no `attach` came");
    first.closed().await;

    let mut launcher = Debugger::connect(&context).await;
    launcher.ask("initialize", json!({})).await;
    assert!(
        refusal_message(&launcher.ask("launch", json!({})).await)
            .contains("\"request\": \"attach\"")
    );
    launcher.closed().await;

    let mut large = Debugger::connect(&context).await;
    let long = json!({"clientID": "x".repeat(70_000)});
    large.send("initialize", long).await;
    assert_output(&large.read().await, "more than the 65536 bytes");
    large.closed().await;
}

#[tokio::test]
async fn next_waits_for_a_new_stop_and_skips_paused_tasks() {
    let context = context(|_| {});
    let worker = Worker::listen().await;
    context.registry.insert(paused("old", 9));
    let next = json!({"rayRelay": {"next": true, "task": "sq*"}});
    let (mut debugger, _) = Debugger::attaching(&context, next).await;
    let expected = "waiting for the next breakpoint in \"sq*\"";
    assert_output(&debugger.read().await, expected);
    context.registry.insert(paused("other", 8));
    context.registry.insert(worker.breakpoint.clone());
    let met = format!("{} has stopped: ", worker.breakpoint.id);
    let (_dap, attach) = worker.attached().await;
    assert_eq!(attach["command"], "attach");
    assert!(attach["arguments"].get("rayRelay").is_none());
    assert_output(&debugger.read().await, &met);
}

#[tokio::test]
async fn unreachable_worker_is_reported_and_stays_listed() {
    let context = context(|_| {});
    let worker = Worker::listed(&context).await;
    let mut events = context.registry.events();
    let address = worker.listener.local_addr().unwrap();
    drop(worker);
    let (mut debugger, seq) = Debugger::attaching(&context, json!({})).await;
    let answer = debugger.answer(seq).await;
    assert_refused(&answer, "its debugger is gone");
    assert!(
        !answer.to_string().contains(&address.port().to_string()),
        "no address to dial"
    );
    debugger.closed().await;
    assert!(context.sessions.table.is_empty());
    let (snapshot, events) = (context.registry.snapshot(), &mut events);
    assert_eq!(snapshot.live[0].state.word(), "unreachable");
    assert_eq!(snapshot.live[0].stop, 1, "it waits as before");
    let mut changes = Vec::new();
    while let Ok(event) = events.try_recv() {
        changes.push(event.change);
    }
    assert_eq!(changes, [Change::Attached, Change::Unreachable]);
}

#[tokio::test]
async fn silent_or_foreign_worker_times_out() {
    for (after, expected) in [
        // Each of the three further attempts takes twice as long.
        ("", "did not answer within 2.4 s"),
        ("hello\r\n\r\n", "does not speak the debug adapter protocol"),
    ] {
        let context = context(|config| config.dap.connect_timeout = Duration::from_millis(300));
        let worker = Worker::listed(&context).await;
        let (mut debugger, seq) = Debugger::attaching(&context, json!({})).await;
        let (mut stream, _) = worker.accept().await.into_parts();
        stream.write_all(after.as_bytes()).await.unwrap();
        assert_refused(&debugger.answer(seq).await, expected);
        debugger.closed().await;
    }
}

#[tokio::test]
async fn client_lost_during_the_dial_does_not_cut_the_greeting() {
    let context = context(|_| {});
    let worker = Worker::listed(&context).await;
    let (debugger, _) = Debugger::attaching(&context, json!({})).await;
    let mut dap = worker.accept().await;
    debugger.ended.abort();
    drop(debugger);
    // The connection is still open: a byte written now gets no reset. Then it closes cleanly.
    greet(&mut dap).await;
    expect_close(&mut dap).await;
}

#[tokio::test]
async fn refused_initialize_can_be_repeated() {
    let context = context(|_| {});
    let worker = Worker::listed(&context).await;
    let mut debugger = Debugger::connect(&context).await;
    let invalid = json!({"clientID": "x", "pathFormat": "uri"});
    let answer = debugger.ask("initialize", invalid).await;
    assert_eq!(
        refusal_message(&answer),
        "Invalid message: \"pathFormat\" must be one of: ['path']"
    );
    debugger.attach(json!({})).await;
    worker.attached().await;
}

#[tokio::test]
async fn refusal_of_initialize_by_the_worker_is_quoted() {
    let context = context(|_| {});
    let worker = Worker::listed(&context).await;
    let (mut debugger, seq) = Debugger::attaching(&context, json!({})).await;
    let mut dap = worker.accept().await;
    greet(&mut dap).await;
    let initialize = expect_request(&mut dap, "initialize").await;
    let refusal = initialize.failure("\"clientID\" must be\u{1b}[31m str");
    dap.send(&refusal).await.unwrap();
    let quoted = "refuses the client's `initialize`: \"clientID\" must be[31m str";
    assert_refused(&debugger.answer(seq).await, quoted);
    assert!(context.registry.snapshot().live[0].is_paused());
    expect_close(&mut dap).await;
    debugger.closed().await;
}

/// debugpy 1.8.0 and 1.8.5 do not know `terminateDebuggee`, and a newer one may know more than the relay.
#[tokio::test]
async fn differing_worker_capabilities_are_reported() {
    let context = context(|config| config.dap.allow_terminate = true);
    let worker = Worker::listed(&context).await;
    let mut debugger = Debugger::connect(&context).await;
    let announced = debugger.ask("initialize", json!({})).await;
    assert_eq!(announced["body"]["supportsTerminateDebuggee"], true);
    debugger.send("attach", json!({})).await;
    let mut capabilities_of_worker = capabilities::debugpy(true);
    let keys = capabilities_of_worker.as_object_mut().unwrap();
    keys.shift_remove("supportsTerminateDebuggee");
    keys.insert("supportsDataBreakpoints".into(), true.into());
    worker.attached_as(capabilities_of_worker).await;
    let event = debugger.read().await;
    assert_eq!(event["event"], "capabilities");
    assert_eq!(
        event["body"]["capabilities"],
        json!({"supportsDataBreakpoints": true, "supportsTerminateDebuggee": false})
    );
}

#[tokio::test]
async fn equal_worker_capabilities_are_not_reported() {
    let context = context(|_| {});
    let worker = Worker::listed(&context).await;
    let (mut debugger, _) = Debugger::attaching(&context, json!({})).await;
    let (mut dap, _) = worker.attached_as(capabilities::debugpy(true)).await;
    initialized(&mut dap).await;
    assert_eq!(debugger.read().await["event"], "initialized");
}

/// Helix 25.07 shows the debug form of a failure's body, cut at 150 columns, and selects each thread that starts.
#[tokio::test]
async fn helix_gets_messages_in_the_form_it_displays() {
    let context = context(|_| {});
    let initialize = json!({"clientID": "hx", "clientName": "helix", "adapterID": "debugpy"});
    let mut refused = Debugger::connect(&context).await;
    refused.ask("initialize", initialize.clone()).await;
    let arguments = json!({"rayRelay": {"breakpoint": "0000000z"}});
    let answer = refused.ask("attach", arguments).await;
    assert_eq!(answer["success"], false);
    assert_eq!(answer["body"], answer["message"], "{answer}");

    let worker = Worker::listed(&context).await;
    let mut debugger = Debugger::connect(&context).await;
    debugger.ask("initialize", initialize).await;
    debugger.send("attach", json!({})).await;
    let (mut dap, _) = worker.attached().await;
    for (reason, thread) in [("started", 1), ("exited", 1), ("started", 2)] {
        let body = json!({"reason": reason, "threadId": thread});
        dap.send(&message::event("thread", body)).await.unwrap();
    }
    let stopped = json!({"reason": "breakpoint", "threadId": 1, "allThreadsStopped": true});
    dap.send(&message::event("stopped", stopped)).await.unwrap();
    let event = debugger.until(|m| m["event"] == "thread").await;
    assert_eq!(event["body"]["reason"], "exited");
    assert_eq!(debugger.read().await["event"], "stopped");
    let answer = debugger.ask("initialize", json!({})).await;
    let shown = answer["body"].as_str().unwrap();
    assert!(shown.contains("attached already"), "{answer}");
}

/// Without authentication there are no tokens and no issuers.
#[tokio::test]
async fn refusal_names_allow_attach_where_authentication_is_off() {
    let running = json!({"rayRelay": {"task": "train", "running": true}});
    let error = refusal(&context(|_| {}), running).await;
    let key = "; this relay authenticates no client: `dap.allow_attach` in its configuration allows it to all";
    assert!(error.ends_with(key), "{error}");
}
