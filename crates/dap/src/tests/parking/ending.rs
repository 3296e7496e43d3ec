//! Ends of parks without a resuming session, and the limits of a resuming user.

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
    for cause in ["time", "drain", "revoked", "worker", "terminated"] {
        let park_time = match cause {
            "time" => Duration::from_millis(400),
            _ => minutes(15),
        };
        let (context, spy) = relay(park_time);
        let (worker, debugger, mut dap) = stopped_session(&context).await;
        let id = worker.breakpoint.id;
        drop(debugger.dap);
        until_parked(&context, id).await;
        match cause {
            "drain" => context.shutdown.drain.cancel(),
            "revoked" => revoke(&context.auth, "ann").await,
            "worker" => context.registry.end(id, Some("it was killed")),
            "terminated" => {
                let terminated = message::event("terminated", Value::Null);
                dap.send(&terminated).await.unwrap();
            }
            _ => {}
        }
        expect_detach(&mut dap).await;
        expect_close(&mut dap).await;
        drop(dap);
        timeout(TEST_TIMEOUT, debugger.ended)
            .await
            .unwrap()
            .unwrap();
        until_state(&context, id, |word| word.is_none()).await;
        let outcome = match cause {
            "time" => "expired",
            "drain" => "drained",
            "revoked" => "revoked",
            _ => "died",
        };
        let ended = (EntryKind::SessionEnded, outcome.to_owned());
        assert_eq!(outcomes(&spy).last(), Some(&ended), "{cause}");
        assert!(context.sessions.table.is_empty());
        if cause == "time" {
            assert_expiry_reported(&context, id).await;
        }
    }
}

/// The owner of an expired park is notified, by its id and in the next cluster session, and no other user is.
async fn assert_expiry_reported(context: &Arc<Context>, id: BreakpointId) {
    let attach_as = |user| json!({"rayRelay": {"breakpoint": id, "token": token_of(user)}});
    let expected = "your session with it was kept until ";
    let error = refusal(context, attach_as("ann")).await;
    assert!(error.contains(expected), "{error}");
    let error = refusal(context, attach_as("ben")).await;
    assert!(!error.contains("was kept"), "{error}");
    let arguments = json!({"rayRelay": {"all": true, "token": token_of("ann")}});
    let (mut parent, _) = Debugger::attaching(context, arguments).await;
    parent.event("initialized").await;
    parent.send("configurationDone", json!({})).await;
    parent.output("and the task runs on since").await;
}

#[tokio::test]
async fn admin_takes_over_a_park_only_on_request() {
    let (context, spy) = relay(minutes(15));
    let (worker, debugger, mut dap) = stopped_session(&context).await;
    let id = worker.breakpoint.id;
    drop(debugger.dap);
    until_parked(&context, id).await;
    let attach_as = |user, take_over: bool| json!({"rayRelay": {"breakpoint": id, "takeOver": take_over, "token": token_of(user)}});
    for (user, take_over) in [("ben", true), ("adm", false)] {
        let error = refusal(&context, attach_as(user, take_over)).await;
        // The refusal names the owner, but neither the client nor its address.
        assert!(error.contains("is parked by ann for "), "{user}: {error}");
    }
    // `admin` alone does not permit debugging.
    let error = refusal(&context, attach_as("eve", true)).await;
    assert!(error.contains("eve may not attach"), "{error}");
    expect_silence(&mut dap, Duration::from_millis(50)).await;

    let resume = reattach_with(&context, attach_as("adm", true));
    let ((mut next, told), request) = tokio::join!(resume, answer_request(&mut dap, "evaluate"));
    assert!(output_texts(&told)[0].contains("this resumes ann's session with "));
    // Ann's breakpoints and path mappings do not pass to another user.
    let expression = request.arguments["expression"].as_str().unwrap();
    assert!(expression.contains(r#"\"op\":\"forget\""#), "{expression}");
    let list = context.registry.snapshot();
    let holder = list.find(id).unwrap().holder().unwrap().clone();
    assert_eq!(holder.subject.as_deref(), Some("adm"));
    let lines = spy.lines();
    let entry = lines.iter().rfind(|l| l.action == EntryKind::SessionBegan);
    let entry = entry.unwrap();
    assert_eq!(entry.details["taken_from"], "ann");
    assert_eq!(entry.subject.as_deref(), Some("adm"));
    let seq = next.send("threads", json!({})).await;
    let threads = expect_request(&mut dap, "threads").await;
    dap.send(&threads.success(json!({}))).await.unwrap();
    next.answer(seq).await;
    // The park belongs to `adm` from now on.
    drop(next.dap);
    until_parked(&context, id).await;
    let error = refusal(&context, attach_as("ann", false)).await;
    assert!(error.contains("is parked by adm for "), "{error}");
}

#[tokio::test]
async fn others_cannot_resume_a_park_but_owner_and_admin_release() {
    for user in ["ann", "eve"] {
        let (context, spy) = relay(minutes(15));
        let (worker, debugger, mut dap) = stopped_session(&context).await;
        let id = worker.breakpoint.id;
        drop(debugger.dap);
        until_parked(&context, id).await;
        let by_id = json!({"rayRelay": {"breakpoint": id, "token": token_of("ben")}});
        let deadline = || {
            let list = context.registry.snapshot();
            list.find(id).unwrap().holder().unwrap().parked_until
        };
        let expected = deadline();
        let error = refusal(&context, by_id).await;
        assert!(error.contains("is parked by ann for "), "{error}");
        assert!(
            error.contains("for 14m 5") || error.contains("for 15m 00s"),
            "{error}"
        );
        let release_as = async |user: &str, scope| {
            let principal = principal(&context.auth, user).await;
            let row = context.registry.snapshot().find(id).unwrap().clone();
            let authorized = authorise(&principal, &row, scope).unwrap();
            let holder = row.holder().unwrap().clone();
            release(&context, authorized, holder).await
        };
        let not_released = release_as("ben", Scope::Debug).await.unwrap_err();
        assert!(not_released.to_string().contains("is parked by ann"));
        expect_silence(&mut dap, Duration::from_millis(50)).await;
        assert_eq!(deadline(), expected, "nor does it last any longer");
        let scope = if user == "eve" {
            Scope::PlaceAdmin
        } else {
            Scope::Debug
        };
        let (released, ()) = tokio::join!(release_as(user, scope), async {
            expect_detach(&mut dap).await;
            expect_close(&mut dap).await;
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
    let (worker, debugger, mut dap) = stopped_session(&context).await;
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
    answer_request(&mut dap, "setFunctionBreakpoints").await;
    let disconnect = timeout(TEST_TIMEOUT, dap.read()).await.unwrap().unwrap();
    assert_eq!(disconnect["command"], "disconnect");
    assert!(!released.is_finished(), "it has not answered");
    let answer = json!({"seq": 10, "type": "response", "request_seq": disconnect["seq"], "success": true,
        "command": "disconnect"});
    dap.send(&answer).await.unwrap();
    expect_close(&mut dap).await;
    released.await.unwrap().unwrap();
}

#[tokio::test]
async fn user_at_the_park_limit_gets_no_further_park() {
    let (context, spy) = relay(minutes(15));
    let mut parked = Vec::new();
    for n in 1..=SLOTS_PER_USER + 1 {
        let worker = Worker::listening(paused("square", n as u8)).await;
        context.registry.insert(worker.breakpoint.clone());
        let id = worker.breakpoint.id;
        let by_id = json!({"rayRelay": {"breakpoint": id, "token": token_of("ann")}});
        let (mut debugger, _) = Debugger::attaching(&context, by_id).await;
        let (mut dap, _) = worker.attached().await;
        if n > SLOTS_PER_USER {
            let warning = "its task runs on: you have 8 parked sessions";
            debugger.output(warning).await;
        }
        initialized(&mut dap).await;
        debugger.event("initialized").await;
        debugger.send("configurationDone", json!({})).await;
        answer_request(&mut dap, "configurationDone").await;
        debugger
            .until(|m| m["command"] == "configurationDone")
            .await;
        drop(debugger.dap);
        if n <= SLOTS_PER_USER {
            until_parked(&context, id).await;
            parked.push(dap);
        } else {
            expect_detach(&mut dap).await;
        }
    }
    let refused = (EntryKind::SessionParked, "refused".to_owned());
    assert!(outcomes(&spy).contains(&refused));
}

#[tokio::test]
async fn resumed_session_has_the_current_rights_and_limits() {
    let policy = "[[rule]]\nsubjects = [\"ann\"]\nscopes = [\"debug\"]\nsession_limit = \"2s\"\npark = \"10m\"\n";
    let context = context_with(authenticator(policy), Audit::off(), |_| {});
    let (worker, debugger, mut dap) = stopped_session(&context).await;
    let started = Instant::now();
    tokio::time::sleep(Duration::from_millis(700)).await;
    drop(debugger.dap);
    until_parked(&context, worker.breakpoint.id).await;
    let (mut next, _) = reattach(&context, "ann").await;
    expect_detach(&mut dap).await;
    assert!(
        started.elapsed() < Duration::from_millis(2500),
        "{:?}",
        started.elapsed()
    );
    next.output("it has lasted").await;
}

#[tokio::test]
async fn resuming_with_fewer_permissions_narrows_the_session() {
    let (context, _) = relay(minutes(15));
    let (worker, debugger, mut dap) = stopped_session(&context).await;
    drop(debugger.dap);
    until_parked(&context, worker.breakpoint.id).await;
    let rule = Rule {
        scopes: "list,view".parse().unwrap(),
        ..Rule::default()
    };
    let viewer = somebody("ann", [rule], &watch::Sender::default());
    let mut next = Debugger::connect_with(&context, Some(viewer)).await;
    next.attach(json!({})).await;
    next.event("initialized").await;
    let configuration_done = next.send("configurationDone", json!({})).await;
    next.answer(configuration_done).await;
    next.event("stopped").await;
    let call = json!({"expression": "f()", "context": "repl", "frameId": 1});
    assert_eq!(next.ask("evaluate", call).await["success"], false);
    expect_silence(&mut dap, Duration::from_millis(50)).await;
}

/// A user with a slot limit parks as many ranks as an editor opens.
#[tokio::test]
async fn cluster_session_uses_one_park_slot() {
    let (context, _) = relay(minutes(15));
    let ann = principal(&context.auth, "ann").await;
    let mut parks = Vec::new();
    for n in 0..32 {
        let share = context.sessions.parks.share(&ann, Some("ranks")).unwrap();
        let id = ParkId {
            breakpoint: paused("rank", n).id,
            process: None,
        };
        parks.push(context.sessions.parks.park(&ann, id, share).unwrap());
    }
    // The other seven slots remain free.
    let shares: Vec<_> = (1..SLOTS_PER_USER)
        .map(|_| context.sessions.parks.share(&ann, None).unwrap())
        .collect();
    context.sessions.parks.share(&ann, None).unwrap_err();
    context
        .sessions
        .parks
        .share(&ann, Some("other ranks"))
        .unwrap_err();
    drop(parks);
    context
        .sessions
        .parks
        .share(&ann, Some("other ranks"))
        .unwrap();
    drop(shares);
}
