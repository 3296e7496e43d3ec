//! Leaving a task paused on purpose: `disconnect` with `suspendDebuggee`, VS Code's "Disconnect and Suspend".

use super::*;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_ray::hold::SLOTS_PER_USER;
use ray_relay_session::session::parks::ParkId;

fn suspend() -> Value {
    json!({"restart": false, "suspendDebuggee": true})
}

#[tokio::test]
async fn suspend_parks_the_task_for_its_user() {
    let (context, spy) = relay(minutes(15));
    let (worker, mut debugger, mut dap) = standing(&context).await;
    let answer = debugger.ask("disconnect", suspend()).await;
    assert_eq!(answer["success"], true, "{answer}");
    until_parked(&context, worker.breakpoint.id).await;
    nothing_for(&mut dap, Duration::from_millis(50)).await;
    let parked = (EntryKind::SessionParked, "parked".to_owned());
    assert_eq!(outcomes(&spy).last(), Some(&parked));
    let (_next, told) = again(&context, "ann").await;
    assert_eq!(told.last().unwrap()["body"]["threadId"], 1);
}

/// Remaining seconds of the park of the breakpoint `id`.
fn seconds_left(context: &Context, id: BreakpointId) -> u64 {
    let list = context.registry.snapshot();
    let until = list.find(id).unwrap().holder().unwrap().parked_until;
    Timestamp::now().until(until.unwrap()).as_secs()
}

fn park_for(who: &str, time: &str) -> Value {
    json!({"rayRelay": {"token": token_of(who), "parkFor": time}})
}

#[tokio::test]
async fn longer_park_is_granted_up_to_the_allowed_time() {
    let (context, _) = relay(minutes(15));
    let (worker, mut debugger, _dap) = standing(&context).await;
    let id = worker.breakpoint.id;
    debugger.ask("disconnect", suspend()).await;
    until_parked(&context, id).await;
    assert!(seconds_left(&context, id) <= 900);
    // More than there is is refused before the task is attached to, and the park stays.
    for (time, most) in [("17h", "16h 00m"), ("25h", "16h 00m")] {
        let said = refusal(&context, park_for("ann", time)).await;
        assert!(said.contains(most) && said.contains("[park] max"), "{said}");
    }
    let said = refusal(&context, park_for("ann", "soon")).await;
    assert!(said.contains("`rayRelay.parkFor` must be a time"), "{said}");
    let (mut longer, _) = again_with(&context, park_for("ann", "10h")).await;
    longer.ask("disconnect", suspend()).await;
    until_parked(&context, id).await;
    let left = seconds_left(&context, id);
    assert!((35_900..=36_000).contains(&left), "{left}");
    // Who goes on with it for a while does not shorten it, however that ends; who asks for less has less.
    let (mut next, _) = again(&context, "ann").await;
    next.ask("disconnect", suspend()).await;
    until_parked(&context, id).await;
    assert!(seconds_left(&context, id) > 35_800);
    let (lost, _) = again(&context, "ann").await;
    drop(lost.dap);
    until_parked(&context, id).await;
    assert!(seconds_left(&context, id) > 35_800);
    let (mut less, _) = again_with(&context, park_for("ann", "1h")).await;
    less.ask("disconnect", suspend()).await;
    until_parked(&context, id).await;
    assert!(seconds_left(&context, id) <= 3600);
    // Who looks at it does not shorten it.
    let (mut short, _) = Debugger::attaching(&context, with_token(token_of("ann"))).await;
    short.event("initialized").await;
    drop(short.dap);
    until_parked(&context, id).await;
    assert!(seconds_left(&context, id) > 3500);
}

#[tokio::test]
async fn park_beyond_a_rule_or_the_slots_is_refused() {
    let (context, _) = relay(minutes(15));
    let worker = Worker::listed(&context).await;
    for (who, time, why) in [
        ("off", "1m", "neither the policy nor"),
        ("lim", "2h", "for 1h 00m at most"),
        ("one", "6m", "for 5m 00s at most"),
    ] {
        let said = refusal(&context, park_for(who, time)).await;
        assert!(said.contains(why), "{who}: {said}");
    }
    let mut taken = Vec::new();
    for _ in 0..SLOTS_PER_USER {
        let lim = ray_relay_access::identity::testing::principal(&context.auth, "lim").await;
        taken.push(context.sessions.parks.share(&lim, None).unwrap());
    }
    let said = refusal(&context, park_for("lim", "1h")).await;
    assert!(said.contains("you have 8 parked sessions"), "{said}");
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
    let taken: Vec<_> = (1..SLOTS_PER_USER)
        .map(|_| context.sessions.parks.share(&lim, None).unwrap())
        .collect();
    let one = Worker::listed(&context).await;
    let (asking, _) = Debugger::attaching(&context, park_for("lim", "1h")).await;
    // Its debugger has not said a word yet.
    let (_unheard, _) = timeout(TEST_TIMEOUT, one.listener.accept())
        .await
        .unwrap()
        .unwrap();
    let other = Worker::listening(paused("cube", 2)).await;
    context.registry.insert(other.breakpoint.clone());
    let said = refusal(&context, park_for("lim", "1h")).await;
    assert!(said.contains("you have 8 parked sessions"), "{said}");
    assert_not_dialled(other.listener);
    drop((asking, taken));
}

/// VS Code (1.139) always shows "Disconnect and Suspend", and sends `suspendDebuggee` only to an adapter that announces
/// both. dape (0.27) ends the process if it is announced.
#[tokio::test]
async fn vscode_gets_both_suspend_capabilities() {
    for (window, client, both) in [
        (minutes(15), "vscode", true),
        (minutes(0), "vscode", false),
        (minutes(15), "dape", false),
    ] {
        let (context, _) = relay(window);
        let mut debugger = Debugger::connect(&context).await;
        let said = json!({"adapterID": "debugpy", "clientID": client});
        let capabilities = debugger.ask("initialize", said).await;
        let is = |key: &str| capabilities["body"][key] == true;
        assert_eq!(is("supportSuspendDebuggee"), !window.is_zero());
        assert_eq!(is("supportTerminateDebuggee"), both, "{client}");
    }
    let (context, _) = relay(minutes(15));
    let (_worker, mut debugger, _dap) = session(&context, with_token(token_of("off"))).await;
    let told = debugger.event("capabilities").await;
    let capabilities = &told["body"]["capabilities"];
    assert_eq!(capabilities["supportSuspendDebuggee"], false);
    assert_eq!(capabilities["supportTerminateDebuggee"], false);
}

/// The request was to park the task, so it must not resume instead.
#[tokio::test]
async fn refused_suspend_keeps_the_session_attached() {
    let (context, _) = relay(minutes(15));
    let (_, mut debugger, mut dap) = standing_of(&context, "off").await;
    let capabilities = debugger.ask("disconnect", suspend()).await;
    assert_eq!(capabilities["success"], false, "{capabilities}");
    let said = capabilities["message"].as_str().unwrap();
    assert!(said.contains("neither the policy"), "{said}");
    debugger.send("threads", json!({})).await;
    got(&mut dap, "threads").await;

    let (context, _) = relay(minutes(15));
    let mut taken = Vec::new();
    for n in 0..SLOTS_PER_USER {
        let id = paused("square", 100 + n as u8).id;
        let ann = ray_relay_access::identity::testing::principal(&context.auth, "ann").await;
        let share = context.sessions.parks.share(&ann, None).unwrap();
        taken.push(
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
    let (_, mut debugger, mut dap) = standing(&context).await;
    let refused = debugger.ask("disconnect", suspend()).await;
    let said = refused["message"].as_str().unwrap();
    assert!(said.contains("you have 8 parked sessions"), "{said}");
    nothing_for(&mut dap, Duration::from_millis(50)).await;
}
