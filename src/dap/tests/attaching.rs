//! The way to a worker: what comes before `attach`, and workers that do not answer it.

use super::*;
use crate::registry::Change;

#[tokio::test]
async fn what_comes_before_attach_is_answered_and_bounded() {
    let context = context(|config| {
        config.listen.handshake_timeout = Duration::from_millis(300);
        config.dap.max_handshake_frame = 1000;
    });
    let mut early = Debugger::connect(&context).await;
    let answer = early.ask("threads", Value::Null).await;
    assert!(sentence(&answer).contains("`initialize` has to come first"));
    let late = early.read().await;
    assert!(
        late["body"]["output"]
            .as_str()
            .unwrap()
            .contains("no `attach` came"),
        "{late}"
    );
    early.closed().await;

    let mut launcher = Debugger::connect(&context).await;
    launcher.ask("initialize", json!({})).await;
    assert!(sentence(&launcher.ask("launch", json!({})).await).contains("\"request\": \"attach\""));
    launcher.closed().await;

    let mut large = Debugger::connect(&context).await;
    large
        .send("initialize", json!({"clientID": "x".repeat(2000)}))
        .await;
    let answer = large.read().await;
    assert!(
        answer["body"]["output"]
            .as_str()
            .unwrap()
            .contains("more than the 1000 bytes"),
        "{answer}"
    );
    large.closed().await;
}

#[tokio::test]
async fn the_next_stop_is_waited_for_and_those_that_wait_already_are_left_alone() {
    let context = context(|_| {});
    let worker = Worker::listen().await;
    context.registry.insert(paused("old", 9));
    let mut debugger = Debugger::connect(&context).await;
    debugger
        .attach(json!({"rayRelay": {"next": true, "task": "sq*"}}))
        .await;
    let told = debugger.read().await;
    assert!(
        told["body"]["output"]
            .as_str()
            .unwrap()
            .contains("waiting for the next breakpoint in \"sq*\""),
        "{told}"
    );
    context.registry.insert(paused("other", 8));
    context.registry.insert(worker.breakpoint.clone());
    let (_dap, attach) = worker.attached().await;
    assert_eq!(attach["command"], "attach");
    assert!(attach["arguments"].get("rayRelay").is_none());
}

#[tokio::test]
async fn a_worker_that_refuses_is_told_to_the_client_and_stays_in_the_list() {
    let context = context(|_| {});
    let worker = Worker::listen().await;
    context.registry.insert(worker.breakpoint.clone());
    let mut events = context.registry.events();
    let address = worker.listener.local_addr().unwrap();
    drop(worker);
    let mut debugger = Debugger::connect(&context).await;
    let seq = debugger.attach(json!({})).await;
    let answer = debugger.until(|m| m["request_seq"] == seq).await;
    assert!(
        sentence(&answer).contains("does not accept connections"),
        "{answer}"
    );
    assert!(
        !answer.to_string().contains(&address.port().to_string()),
        "no address to dial"
    );
    debugger.closed().await;
    assert!(context.sessions.is_empty());
    let (snapshot, events) = (context.registry.snapshot(), &mut events);
    assert!(snapshot.live[0].is_paused(), "it waits as before");
    assert_eq!(snapshot.live[0].stop, 1);
    let mut changes = Vec::new();
    while let Ok(event) = events.try_recv() {
        changes.push(event.change);
    }
    assert_eq!(changes, [Change::Attached, Change::Appeared]);
}

#[tokio::test]
async fn a_silent_or_strange_worker_is_given_up_in_time() {
    for (says, expected) in [
        ("", "did not answer within 0.3 s"),
        ("hello\r\n\r\n", "does not speak the debug adapter protocol"),
    ] {
        let context = context(|_| {});
        let worker = Worker::listen().await;
        context.registry.insert(worker.breakpoint.clone());
        let mut debugger = Debugger::connect(&context).await;
        let seq = debugger.attach(json!({})).await;
        let (mut stream, _) = worker.accept().await.into_parts();
        stream.write_all(says.as_bytes()).await.unwrap();
        let answer = debugger.until(|m| m["request_seq"] == seq).await;
        assert!(sentence(&answer).contains(expected), "{answer}");
        debugger.closed().await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_while_the_worker_is_dialled_does_not_cut_the_greeting() {
    let context = context(|config| config.dap.connect_timeout = PATIENCE);
    let worker = Worker::listen().await;
    context.registry.insert(worker.breakpoint.clone());
    let mut debugger = Debugger::connect(&context).await;
    debugger.attach(json!({})).await;
    let mut dap = worker.accept().await;
    debugger.ended.abort();
    drop(debugger);
    // The connection still stands: a byte written now is not answered with a reset.
    dap.send(&message::event("output", json!({"category": "telemetry"})))
        .await
        .unwrap();
    assert!(
        matches!(timeout(PATIENCE, dap.read()).await, Ok(Err(Over::Closed))),
        "then it is closed in order"
    );
}
