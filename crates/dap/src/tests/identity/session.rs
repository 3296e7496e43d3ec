//! Permissions of an authenticated principal.

use super::*;

#[tokio::test]
async fn token_opens_the_session_and_is_not_forwarded() {
    let token = token_of("ann");
    for (arguments, certificate) in [
        (
            json!({"rayRelay": {"token": token}, "connect": {"host": "h", "port": 1, "rayRelayToken": token}}),
            false,
        ),
        (json!({"rayRelay": "square", "rayRelayToken": token}), false),
        (json!({}), true),
    ] {
        let relay = relay(Audit::off(), |_| {});
        let (context, worker) = (&relay, worker(&relay).await);
        let ann = principal(&context.auth, "ann").await;
        let certificate = certificate.then_some(ann);
        let mut debugger = Debugger::connect_with(context, certificate).await;
        debugger.attach(arguments).await;
        let (mut dap, attach) = worker.attached().await;
        for secret in [&*token, "rayRelay"] {
            assert!(!attach.to_string().contains(secret), "{attach}");
        }
        let snapshot = context.registry.snapshot();
        let holder = snapshot.live[0].holder().unwrap();
        assert_eq!(holder.subject.as_deref(), Some("ann"));
        let rows = context.sessions.table.rows();
        assert_eq!(rows[0].subject.as_deref(), Some("ann"));

        // The client opens the session of a subprocess with a ticket for this worker.
        let child = json!({"request": "attach", "configuration": {"subProcessId": 7, "connect": {"host": "x", "port": 1}}});
        let child =
            json!({"seq": 5, "type": "request", "command": "startDebugging", "arguments": child});
        dap.send(&child).await.unwrap();
        let child = debugger.until(|m| m["command"] == "startDebugging").await;
        let configuration = &child["arguments"]["configuration"];
        let breakpoint = &configuration["rayRelay"]["breakpoint"];
        assert_eq!(breakpoint, &json!(worker.breakpoint.id));
        assert!(!child.to_string().contains(&token));
        let _second = Debugger::attaching(context, configuration.clone()).await;
        let (_dap, attach) = worker.attached().await;
        assert_eq!(attach["arguments"]["subProcessId"], 7);
        assert!(!attach.to_string().contains("ticket"), "{attach}");
        // Another user may not open it.
        let arguments = json!({"subProcessId": 7, "rayRelay": {"breakpoint": worker.breakpoint.id, "token": token_of("all")}});
        let error = refusal(context, arguments).await;
        assert!(error.contains("another user's"), "{error}");
        worker.expect_not_dialled();
    }
}

#[tokio::test]
async fn cluster_session_shows_only_attachable_tasks() {
    let relay = relay(Audit::off(), |_| {});
    let context = &relay;
    let worker = worker(context).await;
    let mut not_known_yet = paused("late", 3);
    context.registry.insert(not_known_yet.clone());
    let token = token_of("ann");
    let arguments = json!({"rayRelay": {"all": true, "token": token}, "connect": {"port": 5678}});
    let (mut debugger, _) = Debugger::attaching(context, arguments).await;
    debugger.event("initialized").await;
    debugger.send("configurationDone", Value::Null).await;
    assert_output(&debugger.event("output").await, "1 task waits");
    let child = debugger.until(|m| m["command"] == "startDebugging").await;
    let configuration = &child["arguments"]["configuration"];
    let breakpoint = &configuration["rayRelay"]["breakpoint"];
    assert_eq!(breakpoint, &json!(worker.breakpoint.id));
    assert!(!child.to_string().contains(&token), "{child}");
    // The ticket opens only the breakpoint it was issued for.
    let ticket = configuration["rayRelay"]["ticket"].clone();
    let arguments = json!({"rayRelay": {"breakpoint": not_known_yet.id, "ticket": ticket}});
    let error = refusal(context, arguments).await;
    assert!(error.contains("for another breakpoint"), "{error}");
    let _session = Debugger::attaching(context, configuration.clone()).await;
    worker.attached().await;
    // Its job becomes known.
    not_known_yet.names_mut().job_id = Some("01000000".to_owned());
    context.registry.insert(not_known_yet.clone());
    let child = debugger.until(|m| m["command"] == "startDebugging").await;
    let configuration = &child["arguments"]["configuration"];
    let breakpoint = &configuration["rayRelay"]["breakpoint"];
    assert_eq!(breakpoint, &json!(not_known_yet.id));
}

#[tokio::test]
async fn ending_a_process_needs_terminate_or_the_config() {
    for (token, by_config, may) in [
        (token_of("vic"), true, false),
        (token_of("all"), false, false),
        (token_of("all"), true, true),
        (token_of("kim"), false, true),
    ] {
        let relay = relay(Audit::off(), |config| {
            config.dap.allow_terminate = by_config
        });
        let worker = worker(&relay).await;
        let (mut debugger, _) = Debugger::attaching(&relay, with_token(&token)).await;
        let (mut dap, _) = worker.attached().await;
        if may != by_config {
            let capabilities = debugger.event("capabilities").await;
            let capabilities = &capabilities["body"]["capabilities"];
            assert_eq!(capabilities["supportsTerminateDebuggee"], may);
        }
        let seq = debugger.send("terminate", Value::Null).await;
        if may {
            expect_request(&mut dap, "terminate").await;
        } else {
            assert_refused(&debugger.answer(seq).await, "permission `terminate`");
        }
        let kill = json!({"terminateDebuggee": true});
        debugger.send("disconnect", kill).await;
        let disconnect = expect_request(&mut dap, "disconnect").await;
        assert_eq!(disconnect.arguments["terminateDebuggee"], may, "{token}");
    }
}

#[tokio::test]
async fn opening_a_debugger_in_a_running_task_needs_attach() {
    for (user, by_config, may) in [
        ("all", false, false),
        ("kim", false, false),
        ("eve", true, false),
        ("ada", true, false),
        ("all", true, true),
        ("ron", false, true),
    ] {
        let relay = relay(Audit::off(), |config| config.dap.allow_attach = by_config);
        let block = json!({"task": "train", "running": true, "token": token_of(user)});
        let error = refusal(&relay, json!({ "rayRelay": block })).await;
        // No task runs here, and only a user with the permission learns that.
        let expected = match may {
            true => "nothing that runs is called \"train\"",
            false => "the permission `attach` besides `debug`",
        };
        assert!(error.contains(expected), "{user}: {error}");
    }
}

#[tokio::test]
async fn ticket_does_not_attach_to_a_running_task() {
    let relay = relay(Audit::off(), |_| {});
    let worker = worker(&relay).await;
    let (mut debugger, _) = Debugger::attaching(&relay, with_token(token_of("ron"))).await;
    let (mut dap, _) = worker.attached().await;
    let child = json!({"request": "attach", "configuration": {"subProcessId": 7, "connect": {"host": "x", "port": 1}}});
    let child =
        json!({"seq": 5, "type": "request", "command": "startDebugging", "arguments": child});
    dap.send(&child).await.unwrap();
    let child = debugger.until(|m| m["command"] == "startDebugging").await;
    let ticket = &child["arguments"]["configuration"]["rayRelay"]["ticket"];
    let block = json!({"task": "train", "running": true, "ticket": ticket});
    let error = refusal(&relay, json!({ "rayRelay": block })).await;
    assert!(error.contains("for another breakpoint"), "{error}");
}
