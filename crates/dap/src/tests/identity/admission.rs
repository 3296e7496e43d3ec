//! Refused clients. A refusal reveals no breakpoint.

use super::*;

#[tokio::test]
async fn unauthorised_attach_never_reaches_the_worker() {
    let context = relay(Audit::off(), |_| {});
    let worker = worker(&context).await;
    let other = paused("other", 7);
    let id = worker.breakpoint.id;
    let auth = &context.auth;
    let ben = ray_relay_access::identity::Secret::new(token_of("ben"));
    let ben = auth.token(&ben, [127, 0, 0, 1].into()).await.unwrap();
    let ticket = |breakpoint| auth.issue_ticket(&ben, breakpoint).unwrap();
    let other_ticket = ticket(&other);
    let ticket_of_ben = ticket(&worker.breakpoint);
    for (arguments, expected) in [
        (json!({}), "wants a token"),
        (with_token(""), "wants a token"),
        (with_token("token-of-mallory"), "was refused"),
        (
            json!({"rayRelay": "x", "rayRelayToken": "wrong"}),
            "was refused",
        ),
        (
            json!({"rayRelay": {"breakpoint": id, "ticket": "ticket-99"}}),
            "was refused",
        ),
        (
            json!({"rayRelay": {"breakpoint": id, "ticket": other_ticket.expose()}}),
            "for another breakpoint",
        ),
        (
            json!({"rayRelay": {"next": true, "ticket": other_ticket.expose()}}),
            "for another breakpoint",
        ),
        // A ticket grants no more than its owner's permissions.
        (
            json!({"rayRelay": {"breakpoint": id, "ticket": ticket_of_ben.expose()}}),
            "no paused worker",
        ),
        (
            json!({"rayRelay": {"breakpoint": id, "token": token_of("ben")}}),
            "no paused worker",
        ),
        (
            json!({"rayRelay": {"breakpoint": id, "token": token_of("eve")}}),
            "needs the permission `view`",
        ),
        (
            json!({"rayRelay": {"breakpoint": id, "token": token_of("nil")}}),
            "needs the permission `view`",
        ),
        (
            json!({"rayRelay": {"breakpoint": id, "token": token_of("ann")}, "processId": 1}),
            "`processId`",
        ),
        (
            json!({"rayRelay": {"breakpoint": id, "token": token_of("ann")}, "listen": {"port": 1}}),
            "`listen`",
        ),
        (
            json!({"rayRelay": {"ticket": ticket_of_ben.expose(), "token": token_of("ann")}}),
            "not several",
        ),
        (
            json!({"subProcessId": 7, "rayRelay": {"breakpoint": id, "token": token_of("ann")}}),
            "has ended",
        ),
    ] {
        let error = refusal(&context, arguments.clone()).await;
        assert!(error.contains(expected), "{arguments}: {error}");
        assert!(!error.contains("square"), "{arguments}: {error}");
    }
    let list = refusal(
        &context,
        json!({"rayRelay": {"breakpoint": id, "token": token_of("lou")}}),
    )
    .await;
    assert!(
        list.contains("lou may not do that here: it needs the permission `view`"),
        "{list}"
    );
    revoke(&context.auth, "ann").await;
    let error = refusal(&context, with_token(token_of("ann"))).await;
    assert!(error.contains("was refused"), "{error}");
    assert!(context.registry.snapshot().live[0].is_paused());
    worker.expect_not_dialled();
}

#[tokio::test]
async fn hidden_breakpoint_is_refused_like_an_unknown_one() {
    let context = relay(Audit::off(), |_| {});
    let worker = worker(&context).await;
    let mut visible = paused("bens", 2);
    visible.names_mut().job_id = Some("02000000".to_owned());
    context.registry.insert(visible);
    let hidden = worker.breakpoint.id;
    let nothing = BreakpointId::derive("default", "nothing");
    let mut errors = Vec::new();
    for id in [hidden, nothing] {
        let arguments = json!({"rayRelay": {"breakpoint": id, "token": token_of("ben")}});
        let error = refusal(&context, arguments).await;
        errors.push(error.replace(&id.to_string(), "ID"));
    }
    assert_eq!(errors[0], errors[1]);
    assert!(
        errors[0].contains("bens") && !errors[0].contains("square"),
        "{}",
        errors[0]
    );
    let by_task = json!({"rayRelay": {"task": "square", "token": token_of("ben")}});
    assert!(!refusal(&context, by_task).await.contains("pid 101"));
    worker.expect_not_dialled();
}

#[tokio::test]
async fn unauthenticated_client_learns_nothing_of_breakpoints() {
    let relay = relay(Audit::off(), |_| {});
    let _worker = worker(&relay).await;
    let mut debugger = Debugger::connect(&relay).await;
    let before_attach = debugger.ask("threads", Value::Null).await;
    let initialized = debugger.ask("initialize", json!({"clientID": "x"})).await;
    let attach = debugger
        .ask(
            "attach",
            json!({"rayRelay": {"cluster": "no such", "token": "wrong"}}),
        )
        .await;
    for answer in [before_attach, initialized, attach] {
        for name in ["square", "default", "10.88"] {
            assert!(!answer["message"].to_string().contains(name), "{answer}");
        }
    }
}
