//! Sessions of a user whose token is revoked.

use super::*;

#[tokio::test]
async fn revoked_token_ends_its_sessions_within_a_second() {
    let relay = relay(Audit::off(), |_| {});
    let context = &relay;
    let worker = worker(context).await;
    let (mut attached, _) = Debugger::attaching(context, with_token(token_of("ann"))).await;
    let (mut dap, _) = worker.attached().await;
    initialized(&mut dap).await;
    attached.send("configurationDone", Value::Null).await;
    answer_request(&mut dap, "configurationDone").await;
    let arguments = json!({"rayRelay": {"all": true, "token": token_of("ann")}});
    let (mut cluster, _) = Debugger::attaching(context, arguments).await;
    cluster.event("initialized").await;
    let next_as = |user| json!({"rayRelay": {"next": true, "token": token_of(user)}});
    let (mut waiting, seq) = Debugger::attaching(context, next_as("ann")).await;
    waiting.event("output").await;
    let (mut other, _) = Debugger::attaching(context, next_as("ben")).await;
    other.event("output").await;

    let revoked_at = Instant::now();
    revoke(&relay.auth, "ann").await;
    expect_detach(&mut dap).await;
    for debugger in [&mut attached, &mut cluster] {
        let output = debugger.event("output").await;
        assert_eq!(output["body"]["category"], "important");
        assert_output(&output, "your token was revoked");
        debugger.event("terminated").await;
    }
    assert_refused(&waiting.answer(seq).await, "was revoked");
    // Its messages no longer reach the worker.
    attached.send("evaluate", json!({"expression": "1"})).await;
    expect_close(&mut dap).await;
    drop(dap);
    for debugger in [attached, cluster, waiting] {
        debugger.closed().await;
    }
    assert!(revoked_at.elapsed() < Duration::from_secs(1));
    assert_eq!(context.sessions.table.len(), 1, "nobody else's");
    let mut list = context.registry.watch();
    let removed = list.wait_for(|list| list.find(worker.breakpoint.id).is_none());
    timeout(TEST_TIMEOUT, removed).await.unwrap().unwrap();
}

#[tokio::test]
async fn client_that_does_not_read_is_still_ended() {
    let relay = relay(Audit::off(), |_| {});
    let context = &relay;
    let worker = worker(context).await;
    let (mut debugger, _) = Debugger::attaching(context, with_token(token_of("ann"))).await;
    let (mut dap, _) = worker.attached().await;
    // More than the socket buffers hold for a client that does not read.
    let output = message::event("output", json!({"output": "x".repeat(32 << 20)}));
    let flood = tokio::spawn(async move {
        let _ = dap.send(&output).await;
        dap
    });
    while context.sessions.table.len() == 1 && context.sessions.table.rows()[0].bytes_down < 1 {
        // Each parsed client message updates the counters.
        let arguments = json!({"filters": []});
        debugger.send("setExceptionBreakpoints", arguments).await;
        tokio::task::yield_now().await;
    }
    let revoked_at = Instant::now();
    revoke(&relay.auth, "ann").await;
    timeout(TEST_TIMEOUT, &mut debugger.ended)
        .await
        .unwrap()
        .unwrap();
    assert!(revoked_at.elapsed() < Duration::from_secs(1));
    let _ = flood.await;
}
