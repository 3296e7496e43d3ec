//! Sessions whose client is lost: messages to the worker, resuming, and other ends of a park.

mod closing;
mod ending;
mod inspecting;
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

/// The policy: all users debug, except `eve`, who administers.
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

/// A relay that parks the sessions of lost clients for `park_time`.
fn relay(park_time: Duration) -> (Arc<Context>, AuditSpy) {
    let (audit, spy) = spied(false);
    let context = context_with(authenticator(POLICY), audit, |config| {
        config.park.r#for = park_time;
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

/// Attaches `ann` to a worker that has stopped.
async fn stopped_session(context: &Arc<Context>) -> (Worker, Debugger, Conversation<TcpStream>) {
    stopped_session_of(context, "ann").await
}

async fn stopped_session_of(
    context: &Arc<Context>,
    user: &str,
) -> (Worker, Debugger, Conversation<TcpStream>) {
    stopped_session_with(context, with_token(token_of(user))).await
}

/// Attaches with these arguments to a worker that has stopped.
async fn stopped_session_with(
    context: &Arc<Context>,
    arguments: Value,
) -> (Worker, Debugger, Conversation<TcpStream>) {
    until_stopped(session(context, arguments).await).await
}

/// Configures an attached session and stops its task.
async fn until_stopped(
    (worker, mut debugger, mut dap): (Worker, Debugger, Conversation<TcpStream>),
) -> (Worker, Debugger, Conversation<TcpStream>) {
    initialized(&mut dap).await;
    debugger.event("initialized").await;
    let configuration_done = debugger.send("configurationDone", json!({})).await;
    answer_request(&mut dap, "configurationDone").await;
    debugger.answer(configuration_done).await;
    let attached = json!({"seq": 9, "type": "response", "request_seq": 2, "success": true, "command": "attach"});
    dap.send(&attached).await.unwrap();
    debugger.until(|m| m["command"] == "attach").await;
    dap.send(&stopped(1)).await.unwrap();
    debugger.event("stopped").await;
    (worker, debugger, dap)
}

async fn until_state(
    context: &Context,
    id: BreakpointId,
    matches: impl Fn(Option<&'static str>) -> bool,
) {
    let mut snapshots = context.registry.watch();
    let is_reached = |list: &Arc<Snapshot>| matches(list.find(id).map(|row| row.state.word()));
    timeout(TEST_TIMEOUT, snapshots.wait_for(is_reached))
        .await
        .expect("listed in time")
        .unwrap();
}

async fn until_parked(context: &Context, id: BreakpointId) {
    until_state(context, id, |word| word == Some("parked")).await;
}

/// Attaches again as `user` and configures. Returns the messages up to and including the reported stop.
async fn reattach(context: &Arc<Context>, user: &str) -> (Debugger, Vec<Value>) {
    reattach_with(context, with_token(token_of(user))).await
}

/// Attaches again with these arguments.
async fn reattach_with(context: &Arc<Context>, arguments: Value) -> (Debugger, Vec<Value>) {
    let (mut debugger, attach) = Debugger::attaching(context, arguments).await;
    let mut messages = Vec::new();
    loop {
        let message = debugger.read().await;
        let is_initialized = message["event"] == "initialized";
        messages.push(message);
        if is_initialized {
            break;
        }
    }
    let configuration_done = debugger.send("configurationDone", json!({})).await;
    loop {
        let message = debugger.read().await;
        if message["event"] == "stopped" {
            messages.push(message);
            break;
        }
        if message["type"] == "response" {
            assert_eq!(message["success"], true, "{message}");
        }
        messages.push(message);
    }
    let answers: Vec<_> = messages
        .iter()
        .filter(|m| m["type"] == "response")
        .map(|m| m["request_seq"].as_u64().unwrap())
        .collect();
    assert_eq!(answers, [configuration_done, attach]);
    (debugger, messages)
}

/// Returns the result of `resume`, during which the debugger applies the arguments of another client.
async fn while_arguments_apply<T>(
    dap: &mut Conversation<TcpStream>,
    resume: impl Future<Output = T>,
) -> T {
    let (resumed, request) = tokio::join!(resume, answer_request(dap, "evaluate"));
    let expression = request.arguments["expression"].as_str().unwrap();
    assert!(expression.contains("_set_debug_options"), "{expression}");
    resumed
}

fn output_texts(messages: &[Value]) -> Vec<&str> {
    let texts = messages.iter().map(|m| m["body"]["output"].as_str());
    texts.flatten().collect()
}

/// Expects that the worker gets neither a message nor the end of its connection within `time`.
async fn expect_silence(dap: &mut Conversation<TcpStream>, time: Duration) {
    let received = timeout(time, dap.read()).await;
    assert!(received.is_err(), "{received:?}");
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
        let (worker, debugger, mut dap) = stopped_session(&context).await;
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
        expect_silence(&mut dap, Duration::from_millis(300)).await;
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

        let (mut next, messages) = reattach(&context, "ann").await;
        let output = output_texts(&messages);
        assert!(
            output[0].contains("this resumes your session"),
            "{output:?}"
        );
        assert_eq!(output[1..], ["meanwhile"]);
        assert_eq!(messages.last().unwrap()["body"]["threadId"], 7);
        assert_eq!(
            context.registry.snapshot().find(id).unwrap().state.word(),
            "attached"
        );
        // Messages pass both ways now, and the configuration did not reach the worker.
        let seq = next.send("threads", json!({})).await;
        let threads = expect_request(&mut dap, "threads").await;
        dap.send(&threads.success(json!({"threads": []})))
            .await
            .unwrap();
        assert_eq!(next.answer(seq).await["success"], true);
        let disconnect = next.send("disconnect", json!({})).await;
        answer_request(&mut dap, "setFunctionBreakpoints").await;
        answer_request(&mut dap, "disconnect").await;
        assert_eq!(next.answer(disconnect).await["success"], true);
        drop(next.dap);
        expect_close(&mut dap).await;
        drop(dap);
        timeout(TEST_TIMEOUT, next.ended).await.unwrap().unwrap();
        let ended_by = |outcome: &str| (EntryKind::SessionEnded, outcome.to_owned());
        let parked = (EntryKind::SessionParked, "parked".to_owned());
        let session_began = (EntryKind::SessionBegan, "allowed".to_owned());
        let entries = outcomes(&spy);
        assert_eq!(entries[..2], [session_began.clone(), parked]);
        for line in [session_began, ended_by("taken_over"), ended_by("client")] {
            assert!(entries[2..].contains(&line), "{entries:?}");
        }
    }
}

#[tokio::test]
async fn disconnect_a_rule_or_no_park_time_resumes_the_task() {
    for (park_time, user, disconnects) in [
        (minutes(15), "ann", true),
        (minutes(15), "off", false),
        (Duration::ZERO, "ann", false),
    ] {
        let (context, spy) = relay(park_time);
        let (_, mut debugger, mut dap) = stopped_session_of(&context, user).await;
        if disconnects {
            let arguments = json!({"terminateDebuggee": false});
            debugger.send("disconnect", arguments).await;
        }
        drop(debugger.dap);
        expect_detach(&mut dap).await;
        expect_close(&mut dap).await;
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
    let (worker, mut debugger, mut dap) = stopped_session(&context).await;
    debugger.send("scopes", json!({"frameId": 1})).await;
    let request = expect_request(&mut dap, "scopes").await;
    drop(debugger.dap);
    until_parked(&context, worker.breakpoint.id).await;
    let reattaching = tokio::spawn({
        let context = context.clone();
        async move { reattach(&context, "ann").await }
    });
    expect_silence(&mut dap, Duration::from_millis(200)).await;
    assert!(
        !reattaching.is_finished(),
        "it waits until the debugger is done"
    );
    dap.send(&request.success(json!({"scopes": []})))
        .await
        .unwrap();
    let (_next, messages) = timeout(TEST_TIMEOUT, reattaching).await.unwrap().unwrap();
    assert!(
        messages.iter().all(|m| m["command"] != "scopes"),
        "{messages:?}"
    );
}

/// A partial message was not forwarded: the worker's debugger does not wait for its rest.
#[tokio::test]
async fn partial_message_of_the_lost_client_is_dropped() {
    let (context, _) = relay(minutes(15));
    let (worker, debugger, mut dap) = stopped_session(&context).await;
    let body = json!({"seq": 50, "type": "request", "command": "threads", "arguments": {"x": "y".repeat(100_000)}});
    let frame = codec::frame(&body);
    let (mut stream, _) = debugger.dap.into_parts();
    stream.write_all(&frame[..50_000]).await.unwrap();
    drop(stream);
    until_parked(&context, worker.breakpoint.id).await;
    let (mut next, _) = reattach(&context, "ann").await;
    next.send("scopes", json!({})).await;
    expect_request(&mut dap, "scopes").await;
}

/// The rest of a message to the lost client is dropped, and the next client gets the message after it.
#[tokio::test]
async fn rest_of_a_message_to_the_lost_client_is_dropped() {
    let (context, _) = relay(minutes(15));
    let (worker, debugger, mut dap) = stopped_session(&context).await;
    // Small enough for a busy machine to send while the park waits for its debugger.
    let module = message::event("module", json!({"x": "y".repeat(1 << 20)}));
    let frame = codec::frame(&module);
    let (sent, rest) = frame.split_at(1 << 18);
    let (mut stream, _) = dap.into_parts();
    stream.write_all(sent).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(debugger.dap);
    until_parked(&context, worker.breakpoint.id).await;
    let reattaching = tokio::spawn({
        let context = context.clone();
        async move { reattach(&context, "ann").await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!reattaching.is_finished(), "the message is not over");
    stream.write_all(rest).await.unwrap();
    dap = Conversation::resume(stream, &[], 1 << 20);
    let (mut next, messages) = timeout(TEST_TIMEOUT, reattaching).await.unwrap().unwrap();
    assert!(messages.iter().all(|m| m["event"] != "module"));
    let seq = next.send("scopes", json!({})).await;
    let scopes = expect_request(&mut dap, "scopes").await;
    dap.send(&scopes.success(json!({}))).await.unwrap();
    next.answer(seq).await;
}

#[tokio::test]
async fn stored_output_is_bounded_and_the_loss_reported() {
    let (context, _) = relay(minutes(15));
    let (worker, debugger, mut dap) = stopped_session(&context).await;
    drop(debugger.dap);
    until_parked(&context, worker.breakpoint.id).await;
    for n in 0..300 {
        let text = format!("{n} {}", "x".repeat(1000));
        dap.send(&output(&text)).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (_next, messages) = reattach(&context, "ann").await;
    let output = output_texts(&messages);
    assert!(
        output[1].contains("messages of output were dropped meanwhile"),
        "{}",
        output[1]
    );
    assert!(output.last().unwrap().starts_with("299 "));
    assert!(output[2..].iter().map(|text| text.len()).sum::<usize>() < MAX_STORED_BYTES);
}

#[tokio::test]
async fn park_can_be_resumed_repeatedly() {
    let (context, _) = relay(minutes(15));
    let (worker, debugger, mut dap) = stopped_session(&context).await;
    let mut client = debugger.dap;
    for round in 0..20 {
        drop(client);
        until_parked(&context, worker.breakpoint.id).await;
        let (mut next, messages) = reattach(&context, "ann").await;
        assert_eq!(messages.last().unwrap()["body"]["threadId"], 1, "{round}");
        let seq = next.send("threads", json!({})).await;
        let threads = expect_request(&mut dap, "threads").await;
        dap.send(&threads.success(json!({"threads": []})))
            .await
            .unwrap();
        next.answer(seq).await;
        client = next.dap;
    }
    // A client that leaves before its `configurationDone` does not consume the stop.
    drop(client);
    for disconnects in [false, true] {
        until_parked(&context, worker.breakpoint.id).await;
        let (mut brief, _) = Debugger::attaching(&context, with_token(token_of("ann"))).await;
        brief.event("initialized").await;
        if disconnects {
            let disconnect = brief.ask("disconnect", json!({"restart": false})).await;
            assert_eq!(disconnect["success"], true);
        }
        drop(brief.dap);
    }
    until_parked(&context, worker.breakpoint.id).await;
    let (_next, messages) = reattach(&context, "ann").await;
    assert_eq!(messages.last().unwrap()["body"]["threadId"], 1);
    expect_silence(&mut dap, Duration::from_millis(50)).await;
}

#[tokio::test]
async fn resuming_client_gets_its_own_arguments_applied() {
    let (context, _) = relay(minutes(15));
    let (worker, debugger, mut dap) = stopped_session(&context).await;
    let id = worker.breakpoint.id;
    let mut arguments = with_token(token_of("ann"));
    arguments["justMyCode"] = false.into();
    arguments["pathMappings"] = json!([{"localRoot": "/home/ann/job", "remoteRoot": "/srv/job"}]);
    drop(debugger.dap);
    until_parked(&context, id).await;
    let resume = reattach_with(&context, arguments.clone());
    let ((next, told), request) = tokio::join!(resume, answer_request(&mut dap, "evaluate"));
    let expression = request.arguments["expression"].as_str().unwrap();
    for expected in ["/home/ann/job", "justMyCode", r#"\"op\":\"attach\""#] {
        assert!(
            expression.contains(expected),
            "{expected} is not in {expression}"
        );
    }
    assert!(!expression.contains("rayRelay"), "{expression}");
    let output = output_texts(&told);
    assert!(
        output[0].contains("this resumes your session"),
        "{output:?}"
    );
    assert_eq!(output.len(), 1, "{output:?}");
    // The same arguments change nothing.
    drop(next.dap);
    until_parked(&context, id).await;
    let (mut next, _) = reattach_with(&context, arguments).await;
    let seq = next.send("threads", json!({})).await;
    answer_request(&mut dap, "threads").await;
    next.answer(seq).await;
    // If the debugger does not accept the configuration, the client is notified and its next request is answered.
    drop(next.dap);
    until_parked(&context, id).await;
    let (_, answer) = reattach_with(&context, with_token(token_of("ann"))).await;
    let output = output_texts(&answer);
    assert!(
        output[1].contains("its debugger did not answer"),
        "{output:?}"
    );
    expect_request(&mut dap, "evaluate").await;
}
