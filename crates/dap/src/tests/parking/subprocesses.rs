//! Subprocesses of a task: each has a session of its own, which is parked like that of the task.

use super::*;
use ray_relay_access::audit::testing::AuditLine;
use ray_relay_session::session::authorise;

/// A session with the paused subprocess 7 of a task, and its debugger.
pub(super) type Subprocess = (Debugger, Conversation<TcpStream>);

/// Announces a subprocess from the worker's debugger.
async fn announce_subprocess(dap: &mut Conversation<TcpStream>, seq: u64, pid: u64) {
    let configuration = json!({"subProcessId": pid, "connect": {"host": "10.0.0.7", "port": 4100}});
    let arguments = json!({"request": "attach", "configuration": configuration});
    let request =
        json!({"seq": seq, "type": "request", "command": "startDebugging", "arguments": arguments});
    dap.send(&request).await.unwrap();
}

/// Accepts the next `startDebugging` request and returns its configuration.
pub(super) async fn accept_start_debugging(client: &mut Debugger) -> Value {
    let mut request = client.until(|m| m["command"] == "startDebugging").await;
    let seq = &request["seq"];
    let answer = json!({"seq": 1_000, "type": "response", "request_seq": seq, "success": true, "command": "startDebugging"});
    client.dap.send(&answer).await.unwrap();
    request["arguments"]["configuration"].take()
}

/// Expects that debugpy gets the client's response to its request.
async fn expect_answer(dap: &mut Conversation<TcpStream>, seq: u64) {
    let answer = timeout(TEST_TIMEOUT, dap.read()).await.unwrap().unwrap();
    assert_eq!(
        (&answer["type"], &answer["request_seq"]),
        (&json!("response"), &json!(seq))
    );
}

async fn open_subprocess(
    context: &Arc<Context>,
    worker: &Worker,
    configuration: Value,
) -> Subprocess {
    let (mut child, attach) = Debugger::attaching(context, configuration).await;
    let (mut child_dap, request) = worker.attached().await;
    assert_eq!(request["arguments"]["subProcessId"], 7);
    initialized(&mut child_dap).await;
    child.event("initialized").await;
    let configuration_done = child.send("configurationDone", json!({})).await;
    answer_request(&mut child_dap, "configurationDone").await;
    child.answer(configuration_done).await;
    let answer = json!({"seq": 9, "type": "response", "request_seq": attach, "success": true, "command": "attach"});
    child_dap.send(&answer).await.unwrap();
    child.answer(attach).await;
    child_dap.send(&stopped(3)).await.unwrap();
    child.event("stopped").await;
    (child, child_dap)
}

/// Creates a paused task of `ann` with a subprocess.
pub(super) async fn task_with_subprocess(
    context: &Arc<Context>,
) -> (Worker, Debugger, Conversation<TcpStream>, Subprocess) {
    attach_task_with_subprocess(context, with_token(token_of("ann"))).await
}

/// Attaches with these arguments to a worker that has stopped.
async fn attach_task_with_subprocess(
    context: &Arc<Context>,
    arguments: Value,
) -> (Worker, Debugger, Conversation<TcpStream>, Subprocess) {
    let (worker, mut parent, mut dap) = stopped_session_with(context, arguments).await;
    announce_subprocess(&mut dap, 50, 7).await;
    let configuration = accept_start_debugging(&mut parent).await;
    expect_answer(&mut dap, 50).await;
    let subprocess = open_subprocess(context, &worker, configuration).await;
    (worker, parent, dap, subprocess)
}

pub(super) async fn until_states(context: &Context, expected: &[SessionState]) {
    let states = || {
        let rows = context.sessions.table.rows();
        rows.iter().map(|row| row.state).collect::<Vec<_>>()
    };
    let deadline = Instant::now() + TEST_TIMEOUT;
    while states() != expected {
        assert!(Instant::now() < deadline, "{:?}", states());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Resumes the child's session, which needs no further connection to the worker.
pub(super) async fn resume_subprocess(context: &Arc<Context>, configuration: Value) -> Debugger {
    let (mut child, messages) = reattach_with(context, configuration).await;
    let output = output_texts(&messages);
    assert!(
        output[0].contains("the subprocess 7 of square"),
        "{output:?}"
    );
    assert_eq!(messages.last().unwrap()["body"]["threadId"], 3);
    child.send("threads", json!({})).await;
    child
}

#[tokio::test]
async fn parked_task_is_resumed_with_its_subprocess() {
    let (context, spy) = relay(minutes(15));
    let (worker, parent, mut dap, (child, mut child_dap)) = task_with_subprocess(&context).await;
    drop((parent.dap, child.dap));
    until_states(&context, &[SessionState::Parked; 2]).await;
    expect_silence(&mut dap, Duration::from_millis(100)).await;
    expect_silence(&mut child_dap, Duration::from_millis(100)).await;
    let parked = (EntryKind::SessionParked, "parked".to_owned());
    let entries = outcomes(&spy);
    assert_eq!(entries.iter().filter(|line| **line == parked).count(), 2);

    let (mut parent, _) = reattach(&context, "ann").await;
    let configuration = accept_start_debugging(&mut parent).await;
    assert_eq!(configuration["subProcessId"], 7);
    assert_eq!(
        configuration["rayRelay"]["breakpoint"],
        json!(worker.breakpoint.id)
    );
    let mut child = resume_subprocess(&context, configuration).await;
    expect_request(&mut child_dap, "threads").await;
    // The worker's debugger sent no request, so it gets no response.
    expect_silence(&mut dap, Duration::from_millis(100)).await;
    until_states(&context, &[SessionState::Attached; 2]).await;
    // Each session detaches separately.
    child
        .send("disconnect", json!({"terminateDebuggee": false}))
        .await;
    expect_detach(&mut child_dap).await;
    parent.send("threads", json!({})).await;
    expect_request(&mut dap, "threads").await;
}

/// Parks the task and subprocess of [`task_with_subprocess`] and lets an administrator take over the task. Returns the
/// configuration that this client is asked to open as the last item.
pub(super) async fn take_over_with_subprocess(
    context: &Arc<Context>,
) -> (
    Debugger,
    Conversation<TcpStream>,
    Conversation<TcpStream>,
    Value,
) {
    let (worker, parent, dap, (child, child_dap)) = task_with_subprocess(context).await;
    drop((parent.dap, child.dap));
    until_states(context, &[SessionState::Parked; 2]).await;
    let id = worker.breakpoint.id;
    let by_id = json!({"rayRelay": {"breakpoint": id, "takeOver": true, "token": token_of("adm")}});
    let mut dap = dap;
    let (mut parent, _) = while_arguments_apply(&mut dap, reattach_with(context, by_id)).await;
    let configuration = accept_start_debugging(&mut parent).await;
    (parent, dap, child_dap, configuration)
}

#[tokio::test]
async fn take_over_reopens_the_subprocess_for_the_taker() {
    let (context, spy) = relay(minutes(15));
    let (mut parent, mut dap, mut child_dap, configuration) =
        take_over_with_subprocess(&context).await;
    assert_eq!(configuration["subProcessId"], 7);
    let id = configuration["rayRelay"]["breakpoint"].clone();
    expect_silence(&mut child_dap, Duration::from_millis(50)).await;
    // It no longer belongs to the previous owner.
    let arguments =
        json!({"subProcessId": 7, "rayRelay": {"breakpoint": id, "token": token_of("ann")}});
    refusal(&context, arguments).await;
    let child =
        while_arguments_apply(&mut child_dap, resume_subprocess(&context, configuration)).await;
    expect_request(&mut child_dap, "threads").await;
    until_states(&context, &[SessionState::Attached; 2]).await;
    let lines = spy.lines();
    let is_takeover = |line: &&AuditLine| line.details["taken_from"] == "ann";
    let takeovers: Vec<_> = lines.iter().filter(is_takeover).collect();
    assert_eq!(takeovers.len(), 2);
    assert!(
        takeovers
            .iter()
            .all(|line| line.subject.as_deref() == Some("adm"))
    );
    // Task and subprocess belong to the administrator from now on.
    drop(child.dap);
    until_states(&context, &[SessionState::Attached, SessionState::Parked]).await;
    parent
        .send("disconnect", json!({"terminateDebuggee": false}))
        .await;
    expect_detach(&mut dap).await;
    drop(dap);
    expect_detach(&mut child_dap).await;
}

/// Some clients, such as a prompt, open no sessions with subprocesses.
#[tokio::test]
async fn subprocess_stays_parked_until_the_taker_detaches() {
    let (context, _) = relay(minutes(15));
    let (mut parent, mut dap, mut child_dap, _) = take_over_with_subprocess(&context).await;
    expect_silence(&mut child_dap, Duration::from_millis(200)).await;
    parent
        .send("disconnect", json!({"terminateDebuggee": false}))
        .await;
    expect_detach(&mut dap).await;
    drop(dap);
    expect_detach(&mut child_dap).await;
}

/// The attach of an administrator can be refused after the subprocess was prepared for them.
#[tokio::test]
async fn subprocess_stays_with_its_owner_until_the_next_attach() {
    let (context, _) = relay(minutes(15));
    let (_parent, _dap, mut child_dap, configuration) = take_over_with_subprocess(&context).await;
    let list = context.registry.snapshot();
    let ben = ray_relay_access::identity::testing::principal(&context.auth, "ben").await;
    let parks = &context.sessions.parks;
    parks.follow_taker(list.held().next().unwrap(), &ben);
    let _child =
        while_arguments_apply(&mut child_dap, resume_subprocess(&context, configuration)).await;
    expect_request(&mut child_dap, "threads").await;
}

#[tokio::test]
async fn lost_subprocess_session_is_reopened_once() {
    let (context, _) = relay(minutes(15));
    let (_worker, mut parent, _dap, (child, mut child_dap)) = task_with_subprocess(&context).await;
    drop(child.dap);
    let configuration = accept_start_debugging(&mut parent).await;
    let child = resume_subprocess(&context, configuration).await;
    expect_request(&mut child_dap, "threads").await;
    drop(child.dap);
    until_states(&context, &[SessionState::Attached, SessionState::Parked]).await;
    parent.send("evaluate", json!({"expression": "1"})).await;
    let message = timeout(Duration::from_millis(100), parent.dap.read()).await;
    assert!(message.is_err(), "{message:?}");
}

/// The task waits for its subprocess, which must not stay paused after the task resumed.
#[tokio::test]
async fn subprocess_resumes_with_its_task() {
    for cause in ["time", "release", "goodbye"] {
        let park_time = match cause {
            "time" => Duration::from_millis(500),
            _ => minutes(15),
        };
        let (context, spy) = relay(park_time);
        let (worker, mut parent, mut dap, (child, mut child_dap)) =
            task_with_subprocess(&context).await;
        let id = worker.breakpoint.id;
        drop(child.dap);
        match cause {
            "goodbye" => {
                until_states(&context, &[SessionState::Attached, SessionState::Parked]).await;
                parent
                    .send("disconnect", json!({"terminateDebuggee": false}))
                    .await;
            }
            _ => {
                drop(parent.dap);
                until_parked(&context, id).await;
            }
        }
        if cause == "release" {
            until_states(&context, &[SessionState::Parked; 2]).await;
            let list = context.registry.snapshot();
            let ann = ray_relay_access::identity::testing::principal(&context.auth, "ann").await;
            let authorised = authorise(
                &ann,
                list.find(id).unwrap(),
                ray_relay_access::policy::Scope::View,
            );
            let parks = Arc::clone(&context.sessions.parks);
            let authorised = authorised.unwrap();
            tokio::spawn(async move { parks.let_run(&authorised).await });
        }
        expect_detach(&mut dap).await;
        drop(dap);
        expect_detach(&mut child_dap).await;
        expect_close(&mut child_dap).await;
        drop(child_dap);
        timeout(TEST_TIMEOUT, child.ended).await.unwrap().unwrap();
        let outcome = outcomes(&spy).last().unwrap().1.clone();
        assert!(
            ["released", "expired", "client"].contains(&&*outcome),
            "{cause}: {outcome}"
        );
    }
}

/// VS Code ends the child sessions of a task when it disconnects from the task.
#[tokio::test]
async fn disconnect_of_a_subprocess_parks_it_with_its_task() {
    for first in ["task", "subprocess"] {
        let (context, _) = relay(minutes(15));
        let (_worker, mut parent, mut dap, (mut child, mut child_dap)) =
            task_with_subprocess(&context).await;
        if first == "subprocess" {
            child.send("disconnect", json!({"restart": false})).await;
        }
        parent
            .send(
                "disconnect",
                json!({"restart": false, "suspendDebuggee": true}),
            )
            .await;
        if first == "task" {
            child.send("disconnect", json!({"restart": false})).await;
        }
        until_states(&context, &[SessionState::Parked; 2]).await;
        expect_silence(&mut dap, Duration::from_millis(50)).await;
        expect_silence(&mut child_dap, Duration::from_millis(50)).await;
    }
}

/// Some editors hide the child sessions of a detached task without ending them.
#[tokio::test]
async fn subprocess_parks_with_its_task_and_reopens_with_it() {
    let suspend = json!({"restart": false, "suspendDebuggee": true});
    for (on_close, arguments_of_disconnect) in
        [(None, suspend), (Some("park"), json!({"restart": false}))]
    {
        let (context, _) = relay(minutes(15));
        let mut arguments = with_token(token_of("ann"));
        if let Some(on_close) = on_close {
            arguments["rayRelay"]["onClose"] = on_close.into();
        }
        let (_worker, mut parent, mut dap, (mut child, mut child_dap)) =
            attach_task_with_subprocess(&context, arguments).await;
        parent.send("disconnect", arguments_of_disconnect).await;
        child.output("you left its task where it is").await;
        child.event("terminated").await;
        until_states(&context, &[SessionState::Parked; 2]).await;
        expect_silence(&mut dap, Duration::from_millis(50)).await;
        expect_silence(&mut child_dap, Duration::from_millis(50)).await;
        let (mut parent, _) = reattach(&context, "ann").await;
        let configuration = accept_start_debugging(&mut parent).await;
        let _child = resume_subprocess(&context, configuration).await;
        expect_request(&mut child_dap, "threads").await;
    }
}

/// debugpy announces a subprocess once, and the subprocess waits for a client's `configurationDone`.
#[tokio::test]
async fn unopened_subprocess_is_reannounced_and_finally_resumed() {
    let (context, _) = relay(minutes(15));
    let (worker, mut parent, mut dap) = stopped_session(&context).await;
    announce_subprocess(&mut dap, 50, 7).await;
    accept_start_debugging(&mut parent).await;
    expect_answer(&mut dap, 50).await;
    drop(parent.dap);
    until_parked(&context, worker.breakpoint.id).await;
    announce_subprocess(&mut dap, 51, 8).await;
    let (mut parent, messages) = reattach(&context, "ann").await;
    let request = messages.iter().find(|m| m["command"] == "startDebugging");
    let configuration = &request.unwrap()["arguments"]["configuration"];
    assert_eq!(configuration["subProcessId"], 8);
    assert_eq!(accept_start_debugging(&mut parent).await["subProcessId"], 7);
    parent
        .send("disconnect", json!({"terminateDebuggee": false}))
        .await;
    expect_detach(&mut dap).await;
    drop(parent.dap);
    for pid in [7, 8] {
        let (mut dap, attach) = worker.attached().await;
        assert_eq!(attach["arguments"]["subProcessId"], pid);
        let request = Request {
            seq: attach["seq"].clone(),
            command: "attach".to_owned(),
            arguments: Value::Null,
        };
        initialized(&mut dap).await;
        answer_request(&mut dap, "configurationDone").await;
        dap.send(&request.success(Value::Null)).await.unwrap();
        answer_request(&mut dap, "disconnect").await;
    }
}
