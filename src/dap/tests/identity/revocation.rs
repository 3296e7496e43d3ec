//! Sessions of somebody whose token is revoked.

use super::*;

#[tokio::test]
async fn a_revoked_token_ends_its_sessions_within_a_second_and_says_so() {
    let relay = relay(Audit::off(), |_| {});
    let context = &relay;
    let worker = worker(context).await;
    let mut attached = Debugger::connect(context).await;
    attached.attach(with_token(token_of("ann"))).await;
    let (mut dap, _) = worker.attached().await;
    dap.send(&message::event("initialized", Value::Null))
        .await
        .unwrap();
    attached.send("configurationDone", Value::Null).await;
    asked(&mut dap, "configurationDone").await;
    let mut cluster = Debugger::connect(context).await;
    cluster
        .attach(json!({"rayRelay": {"all": true, "token": token_of("ann")}}))
        .await;
    cluster.until(|m| m["event"] == "initialized").await;
    let mut waiting = Debugger::connect(context).await;
    let next = waiting
        .attach(json!({"rayRelay": {"next": true, "token": token_of("ann")}}))
        .await;
    waiting.until(|m| m["event"] == "output").await;
    let mut others = Debugger::connect(context).await;
    others
        .attach(json!({"rayRelay": {"next": true, "token": token_of("ben")}}))
        .await;
    others.until(|m| m["event"] == "output").await;

    let revoked_at = Instant::now();
    revoke(&relay.auth, "ann").await;
    asked(&mut dap, "setFunctionBreakpoints").await;
    let goodbye = asked(&mut dap, "disconnect").await;
    assert_eq!(goodbye["arguments"]["terminateDebuggee"], false);
    for debugger in [&mut attached, &mut cluster] {
        let told = debugger.until(|m| m["event"] == "output").await;
        assert_eq!(told["body"]["category"], "important");
        let text = told["body"]["output"].as_str().unwrap();
        assert!(text.contains("your token was revoked"), "{text}");
        debugger.until(|m| m["event"] == "terminated").await;
    }
    let answer = waiting.until(|m| m["request_seq"] == next).await;
    assert!(sentence(&answer).contains("was revoked"), "{answer}");
    // What it says now reaches nobody.
    attached.send("evaluate", json!({"expression": "1"})).await;
    assert!(matches!(
        timeout(PATIENCE, dap.read()).await,
        Ok(Err(Closed::ByPeer))
    ));
    drop(dap);
    for debugger in [attached, cluster, waiting] {
        debugger.closed().await;
    }
    assert!(revoked_at.elapsed() < Duration::from_secs(1));
    assert_eq!(context.sessions.len(), 1, "nobody else's");
    let mut list = context.registry.watch();
    let gone = list.wait_for(|list| list.find(worker.breakpoint.id).is_none());
    timeout(PATIENCE, gone).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_client_that_does_not_read_is_ended_all_the_same() {
    let relay = relay(Audit::off(), |_| {});
    let context = &relay;
    let worker = worker(context).await;
    let mut debugger = Debugger::connect(context).await;
    debugger.attach(with_token(token_of("ann"))).await;
    let (mut dap, _) = worker.attached().await;
    // More than the sockets hold between the worker and a client that takes nothing.
    let output = message::event("output", json!({"output": "x".repeat(32 << 20)}));
    let flood = tokio::spawn(async move {
        let _ = dap.send(&output).await;
        dap
    });
    while context.sessions.len() == 1 && context.sessions.rows()[0].bytes_down < 1 {
        // The counters are brought up to date with each message of the client's that is looked at.
        debugger
            .send("setExceptionBreakpoints", json!({"filters": []}))
            .await;
        tokio::task::yield_now().await;
    }
    let revoked_at = Instant::now();
    revoke(&relay.auth, "ann").await;
    timeout(PATIENCE, &mut debugger.ended)
        .await
        .unwrap()
        .unwrap();
    assert!(revoked_at.elapsed() < Duration::from_secs(1));
    let _ = flood.await;
}
