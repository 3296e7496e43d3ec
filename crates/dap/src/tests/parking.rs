//! Sessions whose client is lost: messages to the worker, who may resume, and other ends of a park.

mod closing;
mod ending;
mod looking;
mod restarting;
mod silent;
mod starved;
mod subprocesses;
mod suspending;
mod unrecorded;

use super::identity::with_token;
use super::*;
use ray_relay_access::audit::EntryKind;
use ray_relay_access::audit::testing::{AuditSpy, spied};
use ray_relay_access::identity::testing::{authenticator, token_of};
use ray_relay_base::wire::dap::stored_messages::MAX_STORED_BYTES;
use ray_relay_ray::ray::registry::{BreakpointId, Snapshot};
use ray_relay_session::session::state::SessionState;

/// The policy: all but `eve` debug, who administers.
const POLICY: &str = r#"
[[rule]]
subjects = ["ann", "ben"]
scopes = ["list", "debug"]
[[rule]]
subjects = ["eve"]
scopes = ["list", "admin"]
[[rule]]
subjects = ["adm"]
scopes = ["list", "debug", "admin"]
[[rule]]
subjects = ["vic"]
scopes = ["list", "view"]
[[rule]]
subjects = ["off"]
scopes = ["list", "debug"]
park = "0s"
[[rule]]
subjects = ["lim"]
scopes = ["list", "debug"]
park_max = "1h"
[[rule]]
subjects = ["one"]
scopes = ["list", "debug"]
park = "5m"
"#;

/// A relay that keeps the sessions of lost clients for so long.
fn relay(keeps: Duration) -> (Arc<Context>, AuditSpy) {
    let (audit, spy) = spied(false);
    let context = guarded(authenticator(POLICY), audit, |config| {
        config.park.r#for = keeps;
    });
    (context, spy)
}

fn minutes(n: u64) -> Duration {
    Duration::from_secs(60 * n)
}

fn stopped(thread: u64) -> Value {
    let body = json!({"reason": "breakpoint", "threadId": thread, "allThreadsStopped": true});
    message::event("stopped", body)
}

fn output(text: &str) -> Value {
    message::event("output", json!({"category": "stdout", "output": text}))
}

/// `ann`, attached to a worker that has stopped, and its debugger.
async fn standing(context: &Arc<Context>) -> (Worker, Debugger, Conversation<TcpStream>) {
    standing_of(context, "ann").await
}

async fn standing_of(
    context: &Arc<Context>,
    who: &str,
) -> (Worker, Debugger, Conversation<TcpStream>) {
    standing_with(context, with_token(token_of(who))).await
}

/// The same by an `attach` with these arguments.
async fn standing_with(
    context: &Arc<Context>,
    arguments: Value,
) -> (Worker, Debugger, Conversation<TcpStream>) {
    stands(session(context, arguments).await).await
}

/// An attached session, whose task stops.
async fn stands(
    (worker, mut debugger, mut dap): (Worker, Debugger, Conversation<TcpStream>),
) -> (Worker, Debugger, Conversation<TcpStream>) {
    initialized(&mut dap).await;
    debugger.event("initialized").await;
    let done = debugger.send("configurationDone", json!({})).await;
    asked(&mut dap, "configurationDone").await;
    debugger.answer(done).await;
    let attached = json!({"seq": 9, "type": "response", "request_seq": 2, "success": true, "command": "attach"});
    dap.send(&attached).await.unwrap();
    debugger.until(|m| m["command"] == "attach").await;
    dap.send(&stopped(1)).await.unwrap();
    debugger.event("stopped").await;
    (worker, debugger, dap)
}

async fn until_listed(
    context: &Context,
    id: BreakpointId,
    wanted: impl Fn(Option<&'static str>) -> bool,
) {
    let mut lists = context.registry.watch();
    let fits = |list: &Arc<Snapshot>| wanted(list.find(id).map(|row| row.state.word()));
    timeout(TEST_TIMEOUT, lists.wait_for(fits))
        .await
        .expect("listed in time")
        .unwrap();
}

async fn until_parked(context: &Context, id: BreakpointId) {
    until_listed(context, id, |word| word == Some("parked")).await;
}

/// Attaches again as `who`, and configures. Returns the messages up to and including the reported stop.
async fn again(context: &Arc<Context>, who: &str) -> (Debugger, Vec<Value>) {
    again_with(context, with_token(token_of(who))).await
}

/// The same with these arguments.
async fn again_with(context: &Arc<Context>, arguments: Value) -> (Debugger, Vec<Value>) {
    let (mut debugger, attach) = Debugger::attaching(context, arguments).await;
    let mut before = Vec::new();
    loop {
        let message = debugger.read().await;
        let is_told = message["event"] == "initialized";
        before.push(message);
        if is_told {
            break;
        }
    }
    let done = debugger.send("configurationDone", json!({})).await;
    loop {
        let message = debugger.read().await;
        if message["event"] == "stopped" {
            before.push(message);
            break;
        }
        if message["type"] == "response" {
            assert_eq!(message["success"], true, "{message}");
        }
        before.push(message);
    }
    let answers: Vec<_> = before
        .iter()
        .filter(|m| m["type"] == "response")
        .map(|m| m["request_seq"].as_u64().unwrap())
        .collect();
    assert_eq!(answers, [done, attach]);
    (debugger, before)
}

/// Result of `resumes`, whose debugger applies the arguments of another client meanwhile.
async fn reattached<T>(dap: &mut Conversation<TcpStream>, resumes: impl Future<Output = T>) -> T {
    let (resumed, request) = tokio::join!(resumes, asked(dap, "evaluate"));
    let expression = request.arguments["expression"].as_str().unwrap();
    assert!(expression.contains("_set_debug_options"), "{expression}");
    resumed
}

fn texts(messages: &[Value]) -> Vec<&str> {
    let texts = messages.iter().map(|m| m["body"]["output"].as_str());
    texts.flatten().collect()
}

/// The next thing that the worker sees is neither a word nor the end.
async fn nothing_for(dap: &mut Conversation<TcpStream>, time: Duration) {
    let seen = timeout(time, dap.read()).await;
    assert!(seen.is_err(), "{seen:?}");
}

fn outcomes(spy: &AuditSpy) -> Vec<(EntryKind, String)> {
    let outcome = |details: &Value| details["outcome"].as_str().unwrap_or_default().to_owned();
    let lines = spy.lines().into_iter();
    lines
        .filter(|line| line.action != EntryKind::Audit)
        .map(|line| (line.action, outcome(&line.details)))
        .collect()
}

#[tokio::test]
async fn reconnect_resumes_the_parked_task_with_stored_output() {
    for reset in [false, true] {
        let (context, spy) = relay(minutes(15));
        let (worker, debugger, mut dap) = standing(&context).await;
        let id = worker.breakpoint.id;
        let (stream, _) = debugger.dap.into_parts();
        if reset {
            stream.set_zero_linger().unwrap();
        }
        drop(stream);
        until_parked(&context, id).await;
        let list = context.registry.snapshot();
        let holder = list.find(id).unwrap().holder().unwrap().clone();
        assert_eq!(holder.subject.as_deref(), Some("ann"));
        assert_eq!(context.sessions.table.rows()[0].state, SessionState::Parked);
        nothing_for(&mut dap, Duration::from_millis(300)).await;
        dap.send(&output("meanwhile")).await.unwrap();
        dap.send(&message::event("thread", json!({})))
            .await
            .unwrap();
        dap.send(&message::event(
            "continued",
            json!({"allThreadsContinued": true}),
        ))
        .await
        .unwrap();
        dap.send(&stopped(7)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;

        let (mut next, told) = again(&context, "ann").await;
        let said = texts(&told);
        assert!(said[0].contains("this resumes your session"), "{said:?}");
        assert_eq!(said[1..], ["meanwhile"]);
        assert_eq!(told.last().unwrap()["body"]["threadId"], 7);
        assert_eq!(
            context.registry.snapshot().find(id).unwrap().state.word(),
            "attached"
        );
        // Requests pass in both directions now, and the worker received nothing of the configuration.
        let seq = next.send("threads", json!({})).await;
        let threads = got(&mut dap, "threads").await;
        dap.send(&threads.success(json!({"threads": []})))
            .await
            .unwrap();
        assert_eq!(next.answer(seq).await["success"], true);
        let goodbye = next.send("disconnect", json!({})).await;
        asked(&mut dap, "setFunctionBreakpoints").await;
        asked(&mut dap, "disconnect").await;
        assert_eq!(next.answer(goodbye).await["success"], true);
        drop(next.dap);
        left(&mut dap).await;
        drop(dap);
        timeout(TEST_TIMEOUT, next.ended).await.unwrap().unwrap();
        let ended = |outcome: &str| (EntryKind::SessionEnded, outcome.to_owned());
        let parked = (EntryKind::SessionParked, "parked".to_owned());
        let began = (EntryKind::SessionBegan, "allowed".to_owned());
        let on_record = outcomes(&spy);
        assert_eq!(on_record[..2], [began.clone(), parked]);
        for line in [began, ended("taken_over"), ended("client")] {
            assert!(on_record[2..].contains(&line), "{on_record:?}");
        }
    }
}

#[tokio::test]
async fn disconnect_a_rule_or_no_park_time_resumes_the_task() {
    for (keeps, who, goodbye) in [
        (minutes(15), "ann", true),
        (minutes(15), "off", false),
        (Duration::ZERO, "ann", false),
    ] {
        let (context, spy) = relay(keeps);
        let (_, mut debugger, mut dap) = standing_of(&context, who).await;
        if goodbye {
            let stays = json!({"terminateDebuggee": false});
            debugger.send("disconnect", stays).await;
        }
        drop(debugger.dap);
        let_go(&mut dap).await;
        left(&mut dap).await;
        debugger.ended.await.unwrap();
        let parked = outcomes(&spy)
            .iter()
            .any(|(action, _)| *action == EntryKind::SessionParked);
        assert!(!parked);
    }
}

/// The next client counts its requests from 1 as the lost one did.
#[tokio::test]
async fn answer_to_the_lost_client_is_dropped() {
    let (context, _) = relay(minutes(15));
    let (worker, mut debugger, mut dap) = standing(&context).await;
    debugger.send("scopes", json!({"frameId": 1})).await;
    let late = got(&mut dap, "scopes").await;
    drop(debugger.dap);
    until_parked(&context, worker.breakpoint.id).await;
    let comes = tokio::spawn({
        let context = context.clone();
        async move { again(&context, "ann").await }
    });
    nothing_for(&mut dap, Duration::from_millis(200)).await;
    assert!(!comes.is_finished(), "it waits until the debugger is done");
    dap.send(&late.success(json!({"scopes": []})))
        .await
        .unwrap();
    let (_next, told) = timeout(TEST_TIMEOUT, comes).await.unwrap().unwrap();
    assert!(told.iter().all(|m| m["command"] != "scopes"), "{told:?}");
}

/// A partial message was not forwarded: the worker's debugger does not wait for its rest.
#[tokio::test]
async fn partial_message_of_the_lost_client_is_dropped() {
    let (context, _) = relay(minutes(15));
    let (worker, debugger, mut dap) = standing(&context).await;
    let body = json!({"seq": 50, "type": "request", "command": "threads", "arguments": {"x": "y".repeat(100_000)}});
    let whole = codec::frame(&body);
    let (mut stream, _) = debugger.dap.into_parts();
    stream.write_all(&whole[..50_000]).await.unwrap();
    drop(stream);
    until_parked(&context, worker.breakpoint.id).await;
    let (mut next, _) = again(&context, "ann").await;
    next.send("scopes", json!({})).await;
    got(&mut dap, "scopes").await;
}

/// A message that was on its way to the lost client ends there, and the next client has the one behind it.
#[tokio::test]
async fn rest_of_a_message_to_the_lost_client_is_dropped() {
    let (context, _) = relay(minutes(15));
    let (worker, debugger, mut dap) = standing(&context).await;
    // No more than a busy machine moves while the park waits for its debugger.
    let module = message::event("module", json!({"x": "y".repeat(1 << 20)}));
    let whole = codec::frame(&module);
    let (begun, rest) = whole.split_at(1 << 18);
    let (mut stream, _) = dap.into_parts();
    stream.write_all(begun).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(debugger.dap);
    until_parked(&context, worker.breakpoint.id).await;
    let comes = tokio::spawn({
        let context = context.clone();
        async move { again(&context, "ann").await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!comes.is_finished(), "the message is not over");
    stream.write_all(rest).await.unwrap();
    dap = Conversation::resume(stream, &[], 1 << 20);
    let (mut next, told) = timeout(TEST_TIMEOUT, comes).await.unwrap().unwrap();
    assert!(told.iter().all(|m| m["event"] != "module"));
    let seq = next.send("scopes", json!({})).await;
    let scopes = got(&mut dap, "scopes").await;
    dap.send(&scopes.success(json!({}))).await.unwrap();
    next.answer(seq).await;
}

#[tokio::test]
async fn stored_output_is_bounded_and_the_loss_reported() {
    let (context, _) = relay(minutes(15));
    let (worker, debugger, mut dap) = standing(&context).await;
    drop(debugger.dap);
    until_parked(&context, worker.breakpoint.id).await;
    for n in 0..300 {
        let text = format!("{n} {}", "x".repeat(1000));
        dap.send(&output(&text)).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (_next, told) = again(&context, "ann").await;
    let said = texts(&told);
    assert!(
        said[1].contains("messages of output were dropped meanwhile"),
        "{}",
        said[1]
    );
    assert!(said.last().unwrap().starts_with("299 "));
    assert!(said[2..].iter().map(|text| text.len()).sum::<usize>() < MAX_STORED_BYTES);
}

#[tokio::test]
async fn park_can_be_resumed_repeatedly() {
    let (context, _) = relay(minutes(15));
    let (worker, debugger, mut dap) = standing(&context).await;
    let mut client = debugger.dap;
    for round in 0..20 {
        drop(client);
        until_parked(&context, worker.breakpoint.id).await;
        let (mut next, told) = again(&context, "ann").await;
        assert_eq!(told.last().unwrap()["body"]["threadId"], 1, "{round}");
        let seq = next.send("threads", json!({})).await;
        let threads = got(&mut dap, "threads").await;
        dap.send(&threads.success(json!({"threads": []})))
            .await
            .unwrap();
        next.answer(seq).await;
        client = next.dap;
    }
    // One that is lost or leaves before it has configured leaves the stop to the next.
    drop(client);
    for leaves in [false, true] {
        until_parked(&context, worker.breakpoint.id).await;
        let (mut short, _) = Debugger::attaching(&context, with_token(token_of("ann"))).await;
        short.event("initialized").await;
        if leaves {
            let goodbye = short.ask("disconnect", json!({"restart": false})).await;
            assert_eq!(goodbye["success"], true);
        }
        drop(short.dap);
    }
    until_parked(&context, worker.breakpoint.id).await;
    let (_next, told) = again(&context, "ann").await;
    assert_eq!(told.last().unwrap()["body"]["threadId"], 1);
    nothing_for(&mut dap, Duration::from_millis(50)).await;
}

#[tokio::test]
async fn resuming_client_gets_its_own_arguments_applied() {
    let (context, _) = relay(minutes(15));
    let (worker, debugger, mut dap) = standing(&context).await;
    let id = worker.breakpoint.id;
    let mut other = with_token(token_of("ann"));
    other["justMyCode"] = false.into();
    other["pathMappings"] = json!([{"localRoot": "/home/ann/job", "remoteRoot": "/srv/job"}]);
    drop(debugger.dap);
    until_parked(&context, id).await;
    let resumes = again_with(&context, other.clone());
    let ((next, told), request) = tokio::join!(resumes, asked(&mut dap, "evaluate"));
    let expression = request.arguments["expression"].as_str().unwrap();
    for says in ["/home/ann/job", "justMyCode", r#"\"op\":\"attach\""#] {
        assert!(expression.contains(says), "{says} is not in {expression}");
    }
    assert!(!expression.contains("rayRelay"), "{expression}");
    let said = texts(&told);
    assert!(said[0].contains("this resumes your session"), "{said:?}");
    assert_eq!(said.len(), 1, "{said:?}");
    // The same client once more changes nothing.
    drop(next.dap);
    until_parked(&context, id).await;
    let (mut next, _) = again_with(&context, other).await;
    let seq = next.send("threads", json!({})).await;
    asked(&mut dap, "threads").await;
    next.answer(seq).await;
    // A client whose configuration its debugger does not accept is notified, and its next request is answered.
    drop(next.dap);
    until_parked(&context, id).await;
    let (_, told) = again_with(&context, with_token(token_of("ann"))).await;
    let said = texts(&told);
    assert!(said[1].contains("its debugger did not answer"), "{said:?}");
    got(&mut dap, "evaluate").await;
}
