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
    asked(&mut dap, "configurationDone").await;
    let all = json!({"rayRelay": {"all": true, "token": token_of("ann")}});
    let (mut cluster, _) = Debugger::attaching(context, all).await;
    cluster.event("initialized").await;
    let next = |who| json!({"rayRelay": {"next": true, "token": token_of(who)}});
    let (mut waiting, seq) = Debugger::attaching(context, next("ann")).await;
    waiting.event("output").await;
    let (mut others, _) = Debugger::attaching(context, next("ben")).await;
    others.event("output").await;

    let revoked_at = Instant::now();
    revoke(&relay.auth, "ann").await;
    let_go(&mut dap).await;
    for debugger in [&mut attached, &mut cluster] {
        let told = debugger.event("output").await;
        assert_eq!(told["body"]["category"], "important");
        assert_output(&told, "your token was revoked");
        debugger.event("terminated").await;
    }
    assert_refused(&waiting.answer(seq).await, "was revoked");
    // Its messages reach no worker any more.
    attached.send("evaluate", json!({"expression": "1"})).await;
    left(&mut dap).await;
    drop(dap);
    for debugger in [attached, cluster, waiting] {
        debugger.closed().await;
    }
    assert!(revoked_at.elapsed() < Duration::from_secs(1));
    assert_eq!(context.sessions.table.len(), 1, "nobody else's");
    let mut list = context.registry.watch();
    let gone = list.wait_for(|list| list.find(worker.breakpoint.id).is_none());
    timeout(TEST_TIMEOUT, gone).await.unwrap().unwrap();
}

#[tokio::test]
async fn client_that_does_not_read_is_still_ended() {
    let relay = relay(Audit::off(), |_| {});
    let context = &relay;
    let worker = worker(context).await;
    let (mut debugger, _) = Debugger::attaching(context, with_token(token_of("ann"))).await;
    let (mut dap, _) = worker.attached().await;
    // More than the sockets hold between the worker and a client that takes nothing.
    let output = message::event("output", json!({"output": "x".repeat(32 << 20)}));
    let flood = tokio::spawn(async move {
        let _ = dap.send(&output).await;
        dap
    });
    while context.sessions.table.len() == 1 && context.sessions.table.rows()[0].bytes_down < 1 {
        // The counters are brought up to date with each message of the client's that is looked at.
        let looked_at = json!({"filters": []});
        debugger.send("setExceptionBreakpoints", looked_at).await;
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
