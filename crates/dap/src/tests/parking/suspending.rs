//! Detaching without resuming: `disconnect` with `suspendDebuggee`, "Disconnect and Suspend" in VS Code.

use super::*;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_ray::hold::SLOTS_PER_USER;
use ray_relay_session::session::parks::ParkId;

fn suspend_arguments() -> Value {
    json!({"restart": false, "suspendDebuggee": true})
}

#[tokio::test]
async fn suspend_parks_the_task_for_its_user() {
    let (context, spy) = relay(minutes(15));
    let (worker, mut debugger, mut dap) = stopped_session(&context).await;
    let answer = debugger.ask("disconnect", suspend_arguments()).await;
    assert_eq!(answer["success"], true, "{answer}");
    until_parked(&context, worker.breakpoint.id).await;
    expect_silence(&mut dap, Duration::from_millis(50)).await;
    let parked = (EntryKind::SessionParked, "parked".to_owned());
    assert_eq!(outcomes(&spy).last(), Some(&parked));
    let (_next, messages) = reattach(&context, "ann").await;
    assert_eq!(messages.last().unwrap()["body"]["threadId"], 1);
}

/// Returns the remaining seconds of the park of the breakpoint `id`.
fn remaining_seconds(context: &Context, id: BreakpointId) -> u64 {
    let list = context.registry.snapshot();
    let deadline = list.find(id).unwrap().holder().unwrap().parked_until;
    Timestamp::now().until(deadline.unwrap()).as_secs()
}

fn park_for(user: &str, time: &str) -> Value {
    json!({"rayRelay": {"token": token_of(user), "parkFor": time}})
}

#[tokio::test]
async fn longer_park_is_granted_up_to_the_allowed_time() {
    let (context, _) = relay(minutes(15));
    let (worker, mut debugger, _dap) = stopped_session(&context).await;
    let id = worker.breakpoint.id;
    debugger.ask("disconnect", suspend_arguments()).await;
    until_parked(&context, id).await;
    assert!(remaining_seconds(&context, id) <= 900);
    // A park time above the limit is refused before the attach, and the park stays.
    for (time, expected) in [("17h", "16h 00m"), ("25h", "16h 00m")] {
        let error = refusal(&context, park_for("ann", time)).await;
        assert!(
            error.contains(expected) && error.contains("[park] max"),
            "{error}"
        );
    }
    let error = refusal(&context, park_for("ann", "soon")).await;
    assert!(
        error.contains("`rayRelay.parkFor` must be a time"),
        "{error}"
    );
    let (mut longer, _) = reattach_with(&context, park_for("ann", "10h")).await;
    longer.ask("disconnect", suspend_arguments()).await;
    until_parked(&context, id).await;
    let remaining = remaining_seconds(&context, id);
    assert!((35_900..=36_000).contains(&remaining), "{remaining}");
    // Resuming the park does not shorten it, however that session ends. Only a request for less does.
    let (mut next, _) = reattach(&context, "ann").await;
    next.ask("disconnect", suspend_arguments()).await;
    until_parked(&context, id).await;
    assert!(remaining_seconds(&context, id) > 35_800);
    let (lost, _) = reattach(&context, "ann").await;
    drop(lost.dap);
    until_parked(&context, id).await;
    assert!(remaining_seconds(&context, id) > 35_800);
    let (mut shorter, _) = reattach_with(&context, park_for("ann", "1h")).await;
    shorter.ask("disconnect", suspend_arguments()).await;
    until_parked(&context, id).await;
    assert!(remaining_seconds(&context, id) <= 3600);
    // A client that does not configure does not shorten it.
    let (mut brief, _) = Debugger::attaching(&context, with_token(token_of("ann"))).await;
    brief.event("initialized").await;
    drop(brief.dap);
    until_parked(&context, id).await;
    assert!(remaining_seconds(&context, id) > 3500);
}

#[tokio::test]
async fn park_beyond_a_rule_or_the_slots_is_refused() {
    let (context, _) = relay(minutes(15));
    let worker = Worker::listed(&context).await;
    for (user, time, expected) in [
        ("off", "1m", "neither the policy nor"),
        ("lim", "2h", "for 1h 00m at most"),
        ("one", "6m", "for 5m 00s at most"),
    ] {
        let error = refusal(&context, park_for(user, time)).await;
        assert!(error.contains(expected), "{user}: {error}");
    }
    let mut shares = Vec::new();
    for _ in 0..SLOTS_PER_USER {
        let lim = ray_relay_access::identity::testing::principal(&context.auth, "lim").await;
        shares.push(context.sessions.parks.share(&lim, None).unwrap());
    }
    let error = refusal(&context, park_for("lim", "1h")).await;
    assert!(error.contains("you have 8 parked sessions"), "{error}");
    assert!(
        context
            .registry
            .snapshot()
            .find(worker.breakpoint.id)
            .unwrap()
            .is_paused()
    );
}

/// Two simultaneous requests would both be accepted, and one of their tasks would resume.
#[tokio::test]
async fn promised_park_slot_is_not_promised_twice() {
    let (context, _) = relay(minutes(15));
    let lim = ray_relay_access::identity::testing::principal(&context.auth, "lim").await;
    let shares: Vec<_> = (1..SLOTS_PER_USER)
        .map(|_| context.sessions.parks.share(&lim, None).unwrap())
        .collect();
    let first = Worker::listed(&context).await;
    let (waiting, _) = Debugger::attaching(&context, park_for("lim", "1h")).await;
    // The debugger has not answered yet.
    let (_accepted, _) = timeout(TEST_TIMEOUT, first.listener.accept())
        .await
        .unwrap()
        .unwrap();
    let second = Worker::listening(paused("cube", 2)).await;
    context.registry.insert(second.breakpoint.clone());
    let error = refusal(&context, park_for("lim", "1h")).await;
    assert!(error.contains("you have 8 parked sessions"), "{error}");
    assert_not_dialled(second.listener);
    drop((waiting, shares));
}

/// VS Code (1.139) always shows "Disconnect and Suspend", and sends `suspendDebuggee` only to an adapter that announces
/// both. dape (0.27) ends the process if it is announced.
#[tokio::test]
async fn vscode_gets_both_suspend_capabilities() {
    for (park_time, client, both) in [
        (minutes(15), "vscode", true),
        (minutes(0), "vscode", false),
        (minutes(15), "dape", false),
    ] {
        let (context, _) = relay(park_time);
        let mut debugger = Debugger::connect(&context).await;
        let arguments = json!({"adapterID": "debugpy", "clientID": client});
        let capabilities = debugger.ask("initialize", arguments).await;
        let supports = |key: &str| capabilities["body"][key] == true;
        assert_eq!(supports("supportSuspendDebuggee"), !park_time.is_zero());
        assert_eq!(supports("supportTerminateDebuggee"), both, "{client}");
    }
    let (context, _) = relay(minutes(15));
    let (_worker, mut debugger, _dap) = session(&context, with_token(token_of("off"))).await;
    let event = debugger.event("capabilities").await;
    let capabilities = &event["body"]["capabilities"];
    assert_eq!(capabilities["supportSuspendDebuggee"], false);
    assert_eq!(capabilities["supportTerminateDebuggee"], false);
}

/// The request was to park the task, so it must not resume instead.
#[tokio::test]
async fn refused_suspend_keeps_the_session_attached() {
    let (context, _) = relay(minutes(15));
    let (_, mut debugger, mut dap) = stopped_session_of(&context, "off").await;
    let refused = debugger.ask("disconnect", suspend_arguments()).await;
    assert_eq!(refused["success"], false, "{refused}");
    let error = refused["message"].as_str().unwrap();
    assert!(error.contains("neither the policy"), "{error}");
    debugger.send("threads", json!({})).await;
    expect_request(&mut dap, "threads").await;

    let (context, _) = relay(minutes(15));
    let mut parks = Vec::new();
    for n in 0..SLOTS_PER_USER {
        let id = paused("square", 100 + n as u8).id;
        let ann = ray_relay_access::identity::testing::principal(&context.auth, "ann").await;
        let share = context.sessions.parks.share(&ann, None).unwrap();
        parks.push(
            context
                .sessions
                .parks
                .park(
                    &ann,
                    ParkId {
                        breakpoint: id,
                        process: None,
                    },
                    share,
                )
                .unwrap(),
        );
    }
    let (_, mut debugger, mut dap) = stopped_session(&context).await;
    let refused = debugger.ask("disconnect", suspend_arguments()).await;
    let error = refused["message"].as_str().unwrap();
    assert!(error.contains("you have 8 parked sessions"), "{error}");
    expect_silence(&mut dap, Duration::from_millis(50)).await;
}
