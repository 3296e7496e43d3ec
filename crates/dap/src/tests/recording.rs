//! The audit of sessions: an action that cannot be recorded does not happen.

use super::identity::{relay, with_token, worker};
use super::*;
use ray_relay_access::audit::EntryKind;
use ray_relay_access::audit::testing::{AuditLine, AuditSpy, spied};
use ray_relay_access::identity::testing::token_of;

fn actions(entries: &[AuditLine]) -> Vec<EntryKind> {
    entries.iter().map(|entry| entry.action).collect()
}

/// Returns the entries once the relay has written `n`.
async fn entries(spy: &AuditSpy, n: usize) -> Vec<AuditLine> {
    let mut entries = Vec::new();
    let collected = async {
        while entries.len() < n {
            entries.extend(spy.take());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(TEST_TIMEOUT, collected)
        .await
        .expect("entries in time");
    entries
}

#[tokio::test]
async fn session_and_its_code_are_recorded_without_data() {
    let (audit, spy) = spied(true);
    let relay = relay(audit, |_| {});
    let worker = worker(&relay).await;
    let mut arguments = with_token(token_of("ann"));
    arguments["guiEventLoop"] = "os.system".into();
    let (mut debugger, _) = Debugger::attaching(&relay, arguments).await;
    let (mut dap, _) = worker.attached().await;
    let by_name = json!({"filters": [], "exceptionOptions": [{"path": [{"names": ["f()"]}]}]});
    for (command, arguments) in [
        ("setExceptionBreakpoints", by_name),
        (
            "setBreakpoints",
            json!({"source": {"path": "/a.py"}, "breakpoints": [{"line": 3, "condition": "x"}]}),
        ),
        (
            "evaluate",
            json!({"expression": "os.getpid()", "context": "repl"}),
        ),
        (
            "setVariable",
            json!({"name": "password", "value": "'hunter2'", "variablesReference": 1}),
        ),
        (
            "setVariable",
            json!({"name": "x", "value": "os.getpid()", "variablesReference": 1}),
        ),
        ("variables", json!({"variablesReference": 1})),
        ("disconnect", json!({})),
    ] {
        debugger.send(command, arguments).await;
        let request = expect_request(&mut dap, command).await;
        if command == "evaluate" {
            // The disconnect waits for the answer.
            dap.send(&request.success(json!({}))).await.unwrap();
        }
    }
    drop(dap);
    drop(debugger.dap);
    debugger.ended.await.unwrap();
    let entries = entries(&spy, 8).await;
    let mut expected = vec![EntryKind::SessionBegan];
    expected.extend([EntryKind::Command; 6]);
    expected.push(EntryKind::SessionEnded);
    assert_eq!(actions(&entries), expected);
    for entry in &entries {
        assert_eq!(entry.subject.as_deref(), Some("ann"));
        assert_eq!(entry.breakpoint, Some(worker.breakpoint.id.to_string()));
        assert_eq!(entry.session, Some(1));
        let details = entry.details.to_string();
        assert!(
            !details.contains("hunter2") && !details.contains("token-of"),
            "{details}"
        );
    }
    for (entry, key, value) in [
        (0, "scope", json!("debug")),
        (0, "attach", json!({"guiEventLoop": "os.system"})),
        (
            1,
            "exceptionOptions",
            json!([{"path": [{"names": ["f()"]}]}]),
        ),
        (2, "breakpoints", json!([{"line": 3, "condition": "x"}])),
        (3, "expression", json!("os.getpid()")),
        (4, "name", json!("password")),
        (5, "value", json!("os.getpid()")),
    ] {
        assert_eq!(entries[entry].details[key], value);
    }
    let end = &entries[7].details;
    assert_eq!(end["outcome"], "client");
    assert!(
        end["bytes_up"].as_u64().unwrap() > 100 && end["seconds"].as_f64().is_some(),
        "{end:?}"
    );
}

#[tokio::test]
async fn unrecorded_command_is_refused() {
    let (audit, spy) = spied(true);
    let relay = relay(audit, |_| {});
    let context = &relay;
    let worker = worker(context).await;
    spy.refuse(EntryKind::Command);
    let (mut debugger, _) = Debugger::attaching(context, with_token(token_of("ann"))).await;
    let (mut dap, _) = worker.attached().await;
    let answer = debugger.ask("evaluate", json!({"expression": "1"})).await;
    assert_refused(&answer, "cannot write its audit log");
    // A detach needs no audit line.
    debugger.send("disconnect", json!({})).await;
    expect_request(&mut dap, "disconnect").await;
    drop(dap);
    drop(debugger.dap);
    debugger.ended.await.unwrap();

    spy.refuse(EntryKind::SessionBegan);
    context.registry.insert(worker.breakpoint.clone());
    for arguments in [
        with_token(token_of("ann")),
        json!({"rayRelay": {"all": true, "token": token_of("ann")}}),
    ] {
        let error = refusal(context, arguments).await;
        assert!(error.contains("cannot write its audit log"), "{error}");
    }
    assert!(context.registry.snapshot().live[0].is_paused());
    worker.expect_not_dialled();
}

#[tokio::test]
async fn refusals_are_recorded_with_their_request() {
    let (audit, spy) = spied(false);
    let relay = relay(audit, |_| {});
    let worker = worker(&relay).await;
    let id = worker.breakpoint.id;
    let unknown_id = ray_relay_ray::ray::registry::BreakpointId::derive("default", "nothing");
    for arguments in [
        with_token("wrong"),
        json!({"rayRelay": {"breakpoint": id, "token": token_of("ben")}}),
        json!({"rayRelay": {"breakpoint": unknown_id, "token": token_of("ben")}}),
    ] {
        refusal(&relay, arguments).await;
    }
    let entries = spy.take();
    assert_eq!(
        actions(&entries),
        [
            EntryKind::Authentication,
            EntryKind::Decision,
            EntryKind::Decision
        ]
    );
    assert_eq!(entries[0].details["outcome"], "refused");
    assert!(entries[0].subject.is_none());
    assert_eq!(entries[1].breakpoint, Some(id.to_string()));
    assert_eq!(entries[2].details["asked"], json!(unknown_id));
    for entry in &entries[1..] {
        assert_eq!(entry.details["outcome"], "denied");
        assert_eq!(entry.subject.as_deref(), Some("ben"));
    }
    worker.expect_not_dialled();
}
