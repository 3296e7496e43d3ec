//! How a session ends: by its worker, its client, or the relay.

use super::*;

#[tokio::test]
async fn the_reason_of_a_death_comes_before_the_end() {
    let context = context(|_| {});
    let worker = Worker::listen().await;
    let id = worker.breakpoint.id;
    context.registry.insert(worker.breakpoint.clone());
    let mut debugger = Debugger::connect(&context).await;
    let seq = debugger.attach(json!({})).await;
    let (mut dap, attach) = worker.attached().await;
    dap.send(&json!({"seq": 9, "type": "response", "request_seq": attach["seq"], "success": true, "command": "attach"}))
        .await
        .unwrap();
    debugger.until(|m| m["request_seq"] == seq).await;
    context
        .registry
        .end(id, Some("it was killed because the node ran out of memory"));
    let output = debugger.read().await;
    assert!(
        output["body"]["output"]
            .as_str()
            .unwrap()
            .contains("ran out of memory"),
        "{output}"
    );
    assert_eq!(debugger.read().await["event"], "terminated");
    let goodbye = debugger.ask("disconnect", json!({})).await;
    assert_eq!(goodbye["success"], true);
    debugger.closed().await;
    assert!(context.registry.snapshot().find(id).is_none());
}

/// debugpy keeps function breakpoints when its client is gone, and the task would stop at the next call with nobody there.
#[tokio::test]
async fn a_client_that_leaves_takes_its_function_breakpoints_along() {
    for goodbye in [true, false] {
        let context = context(|_| {});
        let worker = Worker::listen().await;
        context.registry.insert(worker.breakpoint.clone());
        let mut debugger = Debugger::connect(&context).await;
        debugger.attach(json!({})).await;
        let (mut dap, _) = worker.attached().await;
        debugger.send("configurationDone", json!({})).await;
        assert_eq!(dap.read().await.unwrap()["command"], "configurationDone");
        if goodbye {
            debugger.send("disconnect", json!({})).await;
        } else {
            drop(debugger);
        }
        let forgets = dap.read().await.unwrap();
        assert_eq!(forgets["command"], "setFunctionBreakpoints");
        assert_eq!(forgets["arguments"], json!({"breakpoints": []}));
        match dap.read().await {
            Ok(message) => assert!(goodbye && message["command"] == "disconnect"),
            Err(_) => assert!(!goodbye),
        }
    }
}

#[tokio::test]
async fn the_relays_end_is_told_and_ends_the_session() {
    let context = context(|_| {});
    let worker = Worker::listen().await;
    context.registry.insert(worker.breakpoint.clone());
    let mut debugger = Debugger::connect(&context).await;
    debugger.attach(json!({})).await;
    let (mut dap, _) = worker.attached().await;
    context.shutdown.drain.cancel();
    let told = debugger.read().await;
    assert!(
        told["body"]["output"]
            .as_str()
            .unwrap()
            .contains("being shut down"),
        "{told}"
    );
    context.shutdown.abort.cancel();
    debugger.until(|m| m["event"] == "terminated").await;
    debugger.closed().await;
    assert!(
        matches!(timeout(PATIENCE, dap.read()).await, Ok(Err(_))),
        "the worker is let go"
    );
}

#[tokio::test]
async fn a_session_in_which_nothing_is_done_ends_soon_and_with_a_goodbye_when_the_relay_drains() {
    let context = context(|_| {});
    let worker = Worker::listen().await;
    context.registry.insert(worker.breakpoint.clone());
    let mut debugger = Debugger::connect(&context).await;
    debugger.attach(json!({})).await;
    let (mut dap, _) = worker.attached().await;
    context.shutdown.busy.close();
    assert!(!context.shutdown.busy.is_empty());
    let began = Instant::now();
    context.shutdown.drain.cancel();
    while dap.read().await.unwrap()["command"] != "disconnect" {}
    assert!(
        began.elapsed() < 2 * crate::shutdown::QUIET,
        "{:?}",
        began.elapsed()
    );
    drop(dap);
    debugger.until(|m| m["event"] == "terminated").await;
    debugger.closed().await;
    timeout(PATIENCE, context.shutdown.busy.wait())
        .await
        .unwrap();
}
