//! A failed audit grants nothing, and resumes no task.

use super::*;
use ray_relay_access::audit::testing::AuditSpy;
use ray_relay_access::policy::Scope;
use ray_relay_session::release::release;
use ray_relay_session::session::authorise;

/// Waits until the audit log has exactly these lines about sessions.
async fn until_recorded(spy: &AuditSpy, expected: &[(EntryKind, &str)]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|(a, o)| (*a, (*o).to_owned()))
        .collect();
    let recorded = async {
        while outcomes(spy) != expected {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let recorded = timeout(TEST_TIMEOUT, recorded).await;
    assert!(recorded.is_ok(), "{:?}", outcomes(spy));
}

#[tokio::test]
async fn unrecorded_park_stays_until_disk_and_client_return() {
    let (context, spy) = relay(minutes(15));
    let (worker, debugger, mut dap) = stopped_session(&context).await;
    let id = worker.breakpoint.id;
    spy.refuse_all(true);
    drop(debugger.dap);
    until_parked(&context, id).await;
    // A reconnect is refused, and so is a release.
    let by_id = json!({"rayRelay": {"breakpoint": id, "token": token_of("ann")}});
    for _ in 0..2 {
        let error = refusal(&context, by_id.clone()).await;
        assert!(error.contains("cannot write its audit log"), "{error}");
    }
    let ann = ray_relay_access::identity::testing::principal(&context.auth, "ann").await;
    let row = context.registry.snapshot().find(id).unwrap().clone();
    let authorized = authorise(&ann, &row, Scope::Debug).unwrap();
    let released = release(&context, authorized, row.holder().unwrap().clone()).await;
    let error = released.unwrap_err().to_string();
    assert!(error.contains("cannot write its audit log"), "{error}");
    expect_silence(&mut dap, Duration::from_millis(100)).await;

    spy.refuse_all(false);
    let (_next, messages) = reattach(&context, "ann").await;
    assert_eq!(messages.last().unwrap()["body"]["threadId"], 1);
    let began = (EntryKind::SessionBegan, "allowed");
    let (parked, taken_over) = (
        (EntryKind::SessionParked, "parked"),
        (EntryKind::SessionEnded, "taken_over"),
    );
    until_recorded(&spy, &[began, parked, began, taken_over]).await;
    let lines = spy.lines();
    let entry = lines.iter().find(|l| l.action == EntryKind::SessionParked);
    assert!(entry.unwrap().details["happened_at"].is_string());
}

#[tokio::test]
async fn park_with_an_unrecorded_end_does_not_end() {
    let (context, spy) = relay(Duration::from_millis(200));
    let (worker, debugger, mut dap) = stopped_session(&context).await;
    spy.refuse_all(true);
    drop(debugger.dap);
    until_parked(&context, worker.breakpoint.id).await;
    expect_silence(&mut dap, Duration::from_millis(800)).await;
    spy.refuse_all(false);
    expect_detach(&mut dap).await;
    expect_close(&mut dap).await;
    drop(dap);
    timeout(TEST_TIMEOUT, debugger.ended)
        .await
        .unwrap()
        .unwrap();
    let parked = (EntryKind::SessionParked, "parked");
    let ended = (EntryKind::SessionEnded, "expired");
    until_recorded(&spy, &[(EntryKind::SessionBegan, "allowed"), parked, ended]).await;
}

/// The disk can become full between two audit lines.
#[tokio::test]
async fn resume_needs_a_recorded_session_begin() {
    let (context, spy) = relay(minutes(15));
    let (worker, debugger, mut dap) = stopped_session(&context).await;
    let id = worker.breakpoint.id;
    drop(debugger.dap);
    until_parked(&context, id).await;
    spy.refuse(EntryKind::SessionBegan);
    let by_id = json!({"rayRelay": {"breakpoint": id, "token": token_of("ann")}});
    let error = refusal(&context, by_id).await;
    assert!(error.contains("cannot write its audit log"), "{error}");
    until_parked(&context, id).await;
    expect_silence(&mut dap, Duration::from_millis(100)).await;
}

#[tokio::test]
async fn session_at_its_recording_limit_is_parked() {
    let dir = tempfile::tempdir().unwrap();
    let policy = "[[rule]]\nsubjects = [\"ann\"]\nscopes = [\"debug\"]\nrecord = true\n";
    let context = context_with(authenticator(policy), Audit::off(), |config| {
        config.recording.dir = Some(dir.path().to_owned());
        config.recording.max_size = 3000;
        config.park.r#for = minutes(15);
    });
    let (worker, mut debugger, mut dap) = stopped_session(&context).await;
    dap.send(&output(&"x".repeat(4000))).await.unwrap();
    let output = debugger.output("recording.max_size").await;
    assert_output(&output, "the task stays parked for 15m");
    debugger.event("terminated").await;
    until_parked(&context, worker.breakpoint.id).await;
    expect_silence(&mut dap, Duration::from_millis(100)).await;
    reattach(&context, "ann").await;
}
