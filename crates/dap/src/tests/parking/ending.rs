//! Ends of parks that no session resumes: who may end them, and the limits of who resumes.

use tokio::sync::watch;

use super::*;
use ray_relay_access::identity::testing::{principal, revoke, somebody};
use ray_relay_access::policy::{Rule, Scope};
use ray_relay_ray::hold::SLOTS_PER_USER;
use ray_relay_session::release::release;
use ray_relay_session::session::authorise;
use ray_relay_session::session::parks::ParkId;

#[tokio::test]
async fn park_ends_by_time_drain_revocation_or_worker_exit() {
    for end in ["time", "drain", "revoked", "worker", "terminated"] {
        let keeps = match end {
            "time" => Duration::from_millis(400),
            _ => minutes(15),
        };
        let (context, spy) = relay(keeps);
        let (worker, debugger, mut dap) = standing(&context).await;
        let id = worker.breakpoint.id;
        drop(debugger.dap);
        until_parked(&context, id).await;
        match end {
            "drain" => context.shutdown.drain.cancel(),
            "revoked" => revoke(&context.auth, "ann").await,
            "worker" => context.registry.end(id, Some("it was killed")),
            "terminated" => {
                let terminated = message::event("terminated", Value::Null);
                dap.send(&terminated).await.unwrap();
            }
            _ => {}
        }
        let_go(&mut dap).await;
        left(&mut dap).await;
        drop(dap);
        timeout(TEST_TIMEOUT, debugger.ended)
            .await
            .unwrap()
            .unwrap();
        until_listed(&context, id, |word| word.is_none()).await;
        let outcome = match end {
            "time" => "expired",
            "drain" => "drained",
            "revoked" => "revoked",
            _ => "died",
        };
        let ended = (EntryKind::SessionEnded, outcome.to_owned());
        assert_eq!(outcomes(&spy).last(), Some(&ended), "{end}");
        assert!(context.sessions.table.is_empty());
        if end == "time" {
            assert_too_late(&context, id).await;
        }
    }
}

/// The owner of an expired park is notified, by its id and in the next cluster session, and no other user is.
async fn assert_too_late(context: &Arc<Context>, id: BreakpointId) {
    let by_id = |who| json!({"rayRelay": {"breakpoint": id, "token": token_of(who)}});
    let late = "your session with it was kept until ";
    let said = refusal(context, by_id("ann")).await;
    assert!(said.contains(late), "{said}");
    let said = refusal(context, by_id("ben")).await;
    assert!(!said.contains("was kept"), "{said}");
    let all = json!({"rayRelay": {"all": true, "token": token_of("ann")}});
    let (mut parent, _) = Debugger::attaching(context, all).await;
    parent.event("initialized").await;
    parent.send("configurationDone", json!({})).await;
    parent.output("and the task runs on since").await;
}

#[tokio::test]
async fn admin_takes_over_a_park_only_on_request() {
    let (context, spy) = relay(minutes(15));
    let (worker, debugger, mut dap) = standing(&context).await;
    let id = worker.breakpoint.id;
    drop(debugger.dap);
    until_parked(&context, id).await;
    let by_id = |who, take_over: bool| json!({"rayRelay": {"breakpoint": id, "takeOver": take_over, "token": token_of(who)}});
    for (who, take_over) in [("ben", true), ("adm", false)] {
        let said = refusal(&context, by_id(who, take_over)).await;
        // Who, and neither by which client nor from where.
        assert!(said.contains("is parked by ann for "), "{who}: {said}");
    }
    // The permission to administer is not that to debug.
    let said = refusal(&context, by_id("eve", true)).await;
    assert!(said.contains("eve may not attach"), "{said}");
    nothing_for(&mut dap, Duration::from_millis(50)).await;

    let resumes = again_with(&context, by_id("adm", true));
    let ((mut next, told), request) = tokio::join!(resumes, asked(&mut dap, "evaluate"));
    assert!(texts(&told)[0].contains("this resumes ann's session with "));
    // Breakpoints and path mappings of ann's reach no one else.
    let expression = request.arguments["expression"].as_str().unwrap();
    assert!(expression.contains(r#"\"op\":\"forget\""#), "{expression}");
    let list = context.registry.snapshot();
    let holder = list.find(id).unwrap().holder().unwrap().clone();
    assert_eq!(holder.subject.as_deref(), Some("adm"));
    let lines = spy.lines();
    let began = lines.iter().rfind(|l| l.action == EntryKind::SessionBegan);
    let began = began.unwrap();
    assert_eq!(began.details["taken_from"], "ann");
    assert_eq!(began.subject.as_deref(), Some("adm"));
    let seq = next.send("threads", json!({})).await;
    let threads = got(&mut dap, "threads").await;
    dap.send(&threads.success(json!({}))).await.unwrap();
    next.answer(seq).await;
    // It is that person's from now on.
    drop(next.dap);
    until_parked(&context, id).await;
    let said = refusal(&context, by_id("ann", false)).await;
    assert!(said.contains("is parked by adm for "), "{said}");
}

#[tokio::test]
async fn others_cannot_resume_a_park_but_owner_and_admin_release() {
    for who in ["ann", "eve"] {
        let (context, spy) = relay(minutes(15));
        let (worker, debugger, mut dap) = standing(&context).await;
        let id = worker.breakpoint.id;
        drop(debugger.dap);
        until_parked(&context, id).await;
        let by_id = json!({"rayRelay": {"breakpoint": id, "token": token_of("ben")}});
        let until = || {
            let list = context.registry.snapshot();
            list.find(id).unwrap().holder().unwrap().parked_until
        };
        let before = until();
        let said = refusal(&context, by_id).await;
        assert!(said.contains("is parked by ann for "), "{said}");
        assert!(
            said.contains("for 14m 5") || said.contains("for 15m 00s"),
            "{said}"
        );
        let let_run = async |who: &str, scope| {
            let principal = principal(&context.auth, who).await;
            let row = context.registry.snapshot().find(id).unwrap().clone();
            let authorized = authorise(&principal, &row, scope).unwrap();
            let holder = row.holder().unwrap().clone();
            release(&context, authorized, holder).await
        };
        let not_released = let_run("ben", Scope::Debug).await.unwrap_err();
        assert!(not_released.to_string().contains("is parked by ann"));
        nothing_for(&mut dap, Duration::from_millis(50)).await;
        assert_eq!(until(), before, "nor does it last any longer");
        let scope = if who == "eve" {
            Scope::PlaceAdmin
        } else {
            Scope::Debug
        };
        let (released, ()) = tokio::join!(let_run(who, scope), async {
            let_go(&mut dap).await;
            left(&mut dap).await;
        });
        released.unwrap();
        let row = context
            .registry
            .snapshot()
            .find(id)
            .map(|row| row.state.word());
        assert_eq!(row, None, "who asked finds the list right");
        let ended = (EntryKind::SessionEnded, "released".to_owned());
        timeout(TEST_TIMEOUT, debugger.ended)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(outcomes(&spy).last(), Some(&ended));
    }
}

#[tokio::test]
async fn release_returns_after_the_debugger_has_answered_disconnect() {
    let (context, _spy) = relay(minutes(15));
    let (worker, debugger, mut dap) = standing(&context).await;
    let id = worker.breakpoint.id;
    drop(debugger.dap);
    until_parked(&context, id).await;
    let ann = principal(&context.auth, "ann").await;
    let relay = Arc::clone(&context);
    let released = tokio::spawn(async move {
        let row = relay.registry.snapshot().find(id).unwrap().clone();
        let authorized = authorise(&ann, &row, Scope::Debug).unwrap();
        let holder = row.holder().unwrap().clone();
        release(&relay, authorized, holder).await
    });
    asked(&mut dap, "setFunctionBreakpoints").await;
    let goodbye = timeout(TEST_TIMEOUT, dap.read()).await.unwrap().unwrap();
    assert_eq!(goodbye["command"], "disconnect");
    assert!(!released.is_finished(), "it has not answered");
    let answer = json!({"seq": 10, "type": "response", "request_seq": goodbye["seq"], "success": true,
        "command": "disconnect"});
    dap.send(&answer).await.unwrap();
    left(&mut dap).await;
    released.await.unwrap().unwrap();
}

#[tokio::test]
async fn user_at_the_park_limit_gets_no_further_park() {
    let (context, spy) = relay(minutes(15));
    let mut kept = Vec::new();
    for n in 1..=SLOTS_PER_USER + 1 {
        let worker = Worker::listening(paused("square", n as u8)).await;
        context.registry.insert(worker.breakpoint.clone());
        let id = worker.breakpoint.id;
        let by_id = json!({"rayRelay": {"breakpoint": id, "token": token_of("ann")}});
        let (mut debugger, _) = Debugger::attaching(&context, by_id).await;
        let (mut dap, _) = worker.attached().await;
        if n > SLOTS_PER_USER {
            let told = "its task runs on: you have 8 parked sessions";
            debugger.output(told).await;
        }
        initialized(&mut dap).await;
        debugger.event("initialized").await;
        debugger.send("configurationDone", json!({})).await;
        asked(&mut dap, "configurationDone").await;
        debugger
            .until(|m| m["command"] == "configurationDone")
            .await;
        drop(debugger.dap);
        if n <= SLOTS_PER_USER {
            until_parked(&context, id).await;
            kept.push(dap);
        } else {
            let_go(&mut dap).await;
        }
    }
    let refused = (EntryKind::SessionParked, "refused".to_owned());
    assert!(outcomes(&spy).contains(&refused));
}

#[tokio::test]
async fn resumed_session_has_the_current_rights_and_limits() {
    let policy = "[[rule]]\nsubjects = [\"ann\"]\nscopes = [\"debug\"]\nsession_limit = \"2s\"\npark = \"10m\"\n";
    let context = guarded(authenticator(policy), Audit::off(), |_| {});
    let (worker, debugger, mut dap) = standing(&context).await;
    let began = Instant::now();
    tokio::time::sleep(Duration::from_millis(700)).await;
    drop(debugger.dap);
    until_parked(&context, worker.breakpoint.id).await;
    let (mut next, _) = again(&context, "ann").await;
    let_go(&mut dap).await;
    assert!(
        began.elapsed() < Duration::from_millis(2500),
        "{:?}",
        began.elapsed()
    );
    next.output("it has lasted").await;
}

#[tokio::test]
async fn resuming_with_fewer_permissions_narrows_the_session() {
    let (context, _) = relay(minutes(15));
    let (worker, debugger, mut dap) = standing(&context).await;
    drop(debugger.dap);
    until_parked(&context, worker.breakpoint.id).await;
    let rule = Rule {
        scopes: "list,view".parse().unwrap(),
        ..Rule::default()
    };
    let looks = somebody("ann", [rule], &watch::Sender::default());
    let mut next = Debugger::connect_with(&context, Some(looks)).await;
    next.attach(json!({})).await;
    next.event("initialized").await;
    let done = next.send("configurationDone", json!({})).await;
    next.answer(done).await;
    next.event("stopped").await;
    let call = json!({"expression": "f()", "context": "repl", "frameId": 1});
    assert_eq!(next.ask("evaluate", call).await["success"], false);
    nothing_for(&mut dap, Duration::from_millis(50)).await;
}

/// A user with as many ranks as an editor opens, and a limit.
#[tokio::test]
async fn cluster_session_uses_one_park_slot() {
    let (context, _) = relay(minutes(15));
    let ann = principal(&context.auth, "ann").await;
    let mut held = Vec::new();
    for n in 0..32 {
        let share = context.sessions.parks.share(&ann, Some("ranks")).unwrap();
        let id = ParkId {
            breakpoint: paused("rank", n).id,
            process: None,
        };
        held.push(context.sessions.parks.park(&ann, id, share).unwrap());
    }
    // The other seven are left, and no more.
    let others: Vec<_> = (1..SLOTS_PER_USER)
        .map(|_| context.sessions.parks.share(&ann, None).unwrap())
        .collect();
    context.sessions.parks.share(&ann, None).unwrap_err();
    context
        .sessions
        .parks
        .share(&ann, Some("other ranks"))
        .unwrap_err();
    drop(held);
    context
        .sessions
        .parks
        .share(&ann, Some("other ranks"))
        .unwrap();
    drop(others);
}
