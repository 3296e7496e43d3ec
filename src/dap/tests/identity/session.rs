//! What a principal may do, once it is known.

use super::*;

#[tokio::test]
async fn a_token_opens_the_session_and_goes_nowhere_else() {
    for (arguments, certificate) in [
        (
            json!({"rayRelay": {"token": "token-of-ann"}, "connect": {"host": "h", "port": 1, "rayRelayToken": "token-of-ann"}}),
            false,
        ),
        (
            json!({"rayRelay": "square", "rayRelayToken": "token-of-ann"}),
            false,
        ),
        (json!({}), true),
    ] {
        let relay = relay(Audit::off(), |_| {});
        let (context, worker) = (&relay.context, worker(&relay.context).await);
        let certificate = certificate.then(|| relay.ann.clone());
        let mut debugger = Debugger::connect_with(context, certificate).await;
        debugger.attach(arguments).await;
        let (mut dap, attach) = worker.attached().await;
        for secret in ["token-of-ann", "rayRelay"] {
            assert!(!attach.to_string().contains(secret), "{attach}");
        }
        let snapshot = context.registry.snapshot();
        let holder = snapshot.live[0].holder().unwrap();
        assert_eq!(holder.subject.as_deref(), Some("ann"));
        let rows = context.sessions.rows();
        assert_eq!(rows[0].subject.as_deref(), Some("ann"));

        // A subprocess: the client comes back with a ticket for this worker.
        let child = json!({"request": "attach", "configuration": {"subProcessId": 7, "connect": {"host": "x", "port": 1}}});
        let child =
            json!({"seq": 5, "type": "request", "command": "startDebugging", "arguments": child});
        dap.send(&child).await.unwrap();
        let child = debugger.until(|m| m["command"] == "startDebugging").await;
        let configuration = &child["arguments"]["configuration"];
        assert_eq!(
            configuration["rayRelay"]["breakpoint"],
            json!(worker.breakpoint.id)
        );
        assert!(!child.to_string().contains("token-of-ann"));
        let mut second = Debugger::connect(context).await;
        second.attach(configuration.clone()).await;
        let (_dap, attach) = worker.attached().await;
        assert_eq!(attach["arguments"]["subProcessId"], 7);
        assert!(!attach.to_string().contains("ticket"), "{attach}");
        // Nobody else does.
        let other = json!({"subProcessId": 7, "rayRelay": {"breakpoint": worker.breakpoint.id, "token": "token-of-all"}});
        let said = refusal(context, other).await;
        assert!(said.contains("somebody else's"), "{said}");
        worker.heard_nothing();
    }
}

#[tokio::test]
async fn the_cluster_session_shows_what_its_principal_may_attach_to() {
    let relay = relay(Audit::off(), |_| {});
    let context = &relay.context;
    let worker = worker(context).await;
    let mut not_known_yet = paused("late", 3);
    context.registry.insert(not_known_yet.clone());
    let mut debugger = Debugger::connect(context).await;
    debugger
        .attach(
            json!({"rayRelay": {"all": true, "token": "token-of-ann"}, "connect": {"port": 5678}}),
        )
        .await;
    debugger.until(|m| m["event"] == "initialized").await;
    debugger.send("configurationDone", Value::Null).await;
    let told = debugger.until(|m| m["event"] == "output").await;
    assert!(
        told["body"]["output"]
            .as_str()
            .unwrap()
            .contains("1 task waits"),
        "{told}"
    );
    let child = debugger.until(|m| m["command"] == "startDebugging").await;
    let configuration = &child["arguments"]["configuration"];
    assert_eq!(
        configuration["rayRelay"]["breakpoint"],
        json!(worker.breakpoint.id)
    );
    assert!(!child.to_string().contains("token-of-ann"), "{child}");
    // The ticket opens what it was issued for and nothing else.
    let ticket = configuration["rayRelay"]["ticket"].clone();
    let elsewhere = json!({"rayRelay": {"breakpoint": not_known_yet.id, "ticket": ticket}});
    assert!(
        refusal(context, elsewhere)
            .await
            .contains("for one other breakpoint")
    );
    let mut session = Debugger::connect(context).await;
    session.attach(configuration.clone()).await;
    worker.attached().await;
    // Its job becomes known.
    not_known_yet.names.job_id = Some("01000000".to_owned());
    context.registry.insert(not_known_yet.clone());
    let late = debugger.until(|m| m["command"] == "startDebugging").await;
    let configuration = &late["arguments"]["configuration"];
    assert_eq!(
        configuration["rayRelay"]["breakpoint"],
        json!(not_known_yet.id)
    );
}

#[tokio::test]
async fn ending_a_process_takes_its_permission_or_that_of_the_relays_owner() {
    for (token, by_config, may) in [
        ("token-of-vic", true, false),
        ("token-of-all", false, false),
        ("token-of-all", true, true),
        ("token-of-kim", false, true),
    ] {
        let relay = relay(Audit::off(), |config| {
            config.dap.allow_terminate = by_config
        });
        let worker = worker(&relay.context).await;
        let mut debugger = Debugger::connect(&relay.context).await;
        debugger.attach(with_token(token)).await;
        let (mut dap, _) = worker.attached().await;
        if may != by_config {
            let told = debugger.until(|m| m["event"] == "capabilities").await;
            let capabilities = &told["body"]["capabilities"];
            assert_eq!(capabilities["supportsTerminateDebuggee"], may);
        }
        let seq = debugger.send("terminate", Value::Null).await;
        if may {
            assert_eq!(dap.read().await.unwrap()["command"], "terminate");
        } else {
            let answer = debugger.until(|m| m["request_seq"] == seq).await;
            assert!(
                sentence(&answer).contains("permission `terminate`"),
                "{answer}"
            );
        }
        debugger
            .send("disconnect", json!({"terminateDebuggee": true}))
            .await;
        let seen = dap.read().await.unwrap();
        assert_eq!(seen["command"], "disconnect");
        assert_eq!(seen["arguments"]["terminateDebuggee"], may, "{token}");
    }
}
