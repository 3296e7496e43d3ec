//! Subprocesses of a task: each has a session of its own, which is parked like that of the task.

use super::*;
use ray_relay_access::audit::testing::AuditLine;
use ray_relay_session::session::authorise;

/// A session with the paused subprocess 7 of a task, and its debugger.
pub(super) type Subprocess = (Debugger, Conversation<TcpStream>);

/// The worker's debugger announces a subprocess.
async fn name(dap: &mut Conversation<TcpStream>, seq: u64, pid: u64) {
    let configuration = json!({"subProcessId": pid, "connect": {"host": "10.0.0.7", "port": 4100}});
    let arguments = json!({"request": "attach", "configuration": configuration});
    let named =
        json!({"seq": seq, "type": "request", "command": "startDebugging", "arguments": arguments});
    dap.send(&named).await.unwrap();
}

/// The session that the client is asked to open next, and accepts.
pub(super) async fn asked_to_open(client: &mut Debugger) -> Value {
    let mut asked = client.until(|m| m["command"] == "startDebugging").await;
    let seq = &asked["seq"];
    let answer = json!({"seq": 1_000, "type": "response", "request_seq": seq, "success": true, "command": "startDebugging"});
    client.dap.send(&answer).await.unwrap();
    asked["arguments"]["configuration"].take()
}

/// The client has answered debugpy's own request.
async fn answered(dap: &mut Conversation<TcpStream>, seq: u64) {
    let answer = timeout(TEST_TIMEOUT, dap.read()).await.unwrap().unwrap();
    assert_eq!(
        (&answer["type"], &answer["request_seq"]),
        (&json!("response"), &json!(seq))
    );
}

async fn opened(context: &Arc<Context>, worker: &Worker, configuration: Value) -> Subprocess {
    let (mut child, attach) = Debugger::attaching(context, configuration).await;
    let (mut childs, sent) = worker.attached().await;
    assert_eq!(sent["arguments"]["subProcessId"], 7);
    initialized(&mut childs).await;
    child.event("initialized").await;
    let done = child.send("configurationDone", json!({})).await;
    asked(&mut childs, "configurationDone").await;
    child.answer(done).await;
    let answer = json!({"seq": 9, "type": "response", "request_seq": attach, "success": true, "command": "attach"});
    childs.send(&answer).await.unwrap();
    child.answer(attach).await;
    childs.send(&stopped(3)).await.unwrap();
    child.event("stopped").await;
    (child, childs)
}

/// `ann`'s paused task, and its subprocess.
pub(super) async fn standing_with_subprocess(
    context: &Arc<Context>,
) -> (Worker, Debugger, Conversation<TcpStream>, Subprocess) {
    with_subprocess(context, with_token(token_of("ann"))).await
}

/// The same by an `attach` with these arguments.
async fn with_subprocess(
    context: &Arc<Context>,
    arguments: Value,
) -> (Worker, Debugger, Conversation<TcpStream>, Subprocess) {
    let (worker, mut parent, mut dap) = standing_with(context, arguments).await;
    name(&mut dap, 50, 7).await;
    let configuration = asked_to_open(&mut parent).await;
    answered(&mut dap, 50).await;
    let subprocess = opened(context, &worker, configuration).await;
    (worker, parent, dap, subprocess)
}

pub(super) async fn until_states(context: &Context, wanted: &[SessionState]) {
    let states = || {
        let rows = context.sessions.table.rows();
        rows.iter().map(|row| row.state).collect::<Vec<_>>()
    };
    let until = Instant::now() + TEST_TIMEOUT;
    while states() != wanted {
        assert!(Instant::now() < until, "{:?}", states());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The child's session resumes without another connection to the worker.
pub(super) async fn goes_on(context: &Arc<Context>, configuration: Value) -> Debugger {
    let (mut child, told) = again_with(context, configuration).await;
    let said = texts(&told);
    assert!(said[0].contains("the subprocess 7 of square"), "{said:?}");
    assert_eq!(told.last().unwrap()["body"]["threadId"], 3);
    child.send("threads", json!({})).await;
    child
}

#[tokio::test]
async fn parked_task_is_resumed_with_its_subprocess() {
    let (context, spy) = relay(minutes(15));
    let (worker, parent, mut dap, (child, mut childs)) = standing_with_subprocess(&context).await;
    drop((parent.dap, child.dap));
    until_states(&context, &[SessionState::Parked; 2]).await;
    nothing_for(&mut dap, Duration::from_millis(100)).await;
    nothing_for(&mut childs, Duration::from_millis(100)).await;
    let parked = (EntryKind::SessionParked, "parked".to_owned());
    let on_record = outcomes(&spy);
    assert_eq!(on_record.iter().filter(|line| **line == parked).count(), 2);

    let (mut parent, _) = again(&context, "ann").await;
    let configuration = asked_to_open(&mut parent).await;
    assert_eq!(configuration["subProcessId"], 7);
    assert_eq!(
        configuration["rayRelay"]["breakpoint"],
        json!(worker.breakpoint.id)
    );
    let mut child = goes_on(&context, configuration).await;
    got(&mut childs, "threads").await;
    // The worker's debugger has asked for nothing, and hears no answer.
    nothing_for(&mut dap, Duration::from_millis(100)).await;
    until_states(&context, &[SessionState::Attached; 2]).await;
    // Each leaves by itself.
    child
        .send("disconnect", json!({"terminateDebuggee": false}))
        .await;
    let_go(&mut childs).await;
    parent.send("threads", json!({})).await;
    got(&mut dap, "threads").await;
}

/// The task and its subprocess of [`standing_with_subprocess`] are parked. An administrator has taken over the task,
/// and is asked to open the last item.
pub(super) async fn taken_over(
    context: &Arc<Context>,
) -> (
    Debugger,
    Conversation<TcpStream>,
    Conversation<TcpStream>,
    Value,
) {
    let (worker, parent, dap, (child, childs)) = standing_with_subprocess(context).await;
    drop((parent.dap, child.dap));
    until_states(context, &[SessionState::Parked; 2]).await;
    let id = worker.breakpoint.id;
    let by_id = json!({"rayRelay": {"breakpoint": id, "takeOver": true, "token": token_of("adm")}});
    let mut dap = dap;
    let (mut parent, _) = reattached(&mut dap, again_with(context, by_id)).await;
    let configuration = asked_to_open(&mut parent).await;
    (parent, dap, childs, configuration)
}

#[tokio::test]
async fn take_over_reopens_the_subprocess_for_the_taker() {
    let (context, spy) = relay(minutes(15));
    let (mut parent, mut dap, mut childs, configuration) = taken_over(&context).await;
    assert_eq!(configuration["subProcessId"], 7);
    let id = configuration["rayRelay"]["breakpoint"].clone();
    nothing_for(&mut childs, Duration::from_millis(50)).await;
    // Not that of the person who had it, any more.
    let own = json!({"subProcessId": 7, "rayRelay": {"breakpoint": id, "token": token_of("ann")}});
    refusal(&context, own).await;
    let child = reattached(&mut childs, goes_on(&context, configuration)).await;
    got(&mut childs, "threads").await;
    until_states(&context, &[SessionState::Attached; 2]).await;
    let lines = spy.lines();
    let of = |line: &&AuditLine| line.details["taken_from"] == "ann";
    let taken: Vec<_> = lines.iter().filter(of).collect();
    assert_eq!(taken.len(), 2);
    assert!(
        taken
            .iter()
            .all(|line| line.subject.as_deref() == Some("adm"))
    );
    // It is kept with the task for that person from now on.
    drop(child.dap);
    until_states(&context, &[SessionState::Attached, SessionState::Parked]).await;
    parent
        .send("disconnect", json!({"terminateDebuggee": false}))
        .await;
    let_go(&mut dap).await;
    drop(dap);
    let_go(&mut childs).await;
}

/// Some open no sessions with subprocesses, as a prompt does.
#[tokio::test]
async fn subprocess_stays_parked_until_the_taker_detaches() {
    let (context, _) = relay(minutes(15));
    let (mut parent, mut dap, mut childs, _) = taken_over(&context).await;
    nothing_for(&mut childs, Duration::from_millis(200)).await;
    parent
        .send("disconnect", json!({"terminateDebuggee": false}))
        .await;
    let_go(&mut dap).await;
    drop(dap);
    let_go(&mut childs).await;
}

/// An administrator may be refused when all is prepared.
#[tokio::test]
async fn subprocess_stays_with_its_owner_until_the_next_attach() {
    let (context, _) = relay(minutes(15));
    let (_parent, _dap, mut childs, configuration) = taken_over(&context).await;
    let list = context.registry.snapshot();
    let next = ray_relay_access::identity::testing::principal(&context.auth, "ben").await;
    let parks = &context.sessions.parks;
    parks.follow_taker(list.held().next().unwrap(), &next);
    let _child = reattached(&mut childs, goes_on(&context, configuration)).await;
    got(&mut childs, "threads").await;
}

#[tokio::test]
async fn lost_subprocess_session_is_reopened_once() {
    let (context, _) = relay(minutes(15));
    let (_worker, mut parent, _dap, (child, mut childs)) = standing_with_subprocess(&context).await;
    drop(child.dap);
    let configuration = asked_to_open(&mut parent).await;
    let child = goes_on(&context, configuration).await;
    got(&mut childs, "threads").await;
    drop(child.dap);
    until_states(&context, &[SessionState::Attached, SessionState::Parked]).await;
    parent.send("evaluate", json!({"expression": "1"})).await;
    let more = timeout(Duration::from_millis(100), parent.dap.read()).await;
    assert!(more.is_err(), "{more:?}");
}

/// The task waits for its subprocess, which must not stay paused after the task resumed.
#[tokio::test]
async fn subprocess_resumes_with_its_task() {
    for ends in ["time", "release", "goodbye"] {
        let keeps = match ends {
            "time" => Duration::from_millis(500),
            _ => minutes(15),
        };
        let (context, spy) = relay(keeps);
        let (worker, mut parent, mut dap, (child, mut childs)) =
            standing_with_subprocess(&context).await;
        let id = worker.breakpoint.id;
        drop(child.dap);
        match ends {
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
        if ends == "release" {
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
        let_go(&mut dap).await;
        drop(dap);
        let_go(&mut childs).await;
        left(&mut childs).await;
        drop(childs);
        timeout(TEST_TIMEOUT, child.ended).await.unwrap().unwrap();
        let ended = outcomes(&spy).last().unwrap().1.clone();
        assert!(
            ["released", "expired", "client"].contains(&&*ended),
            "{ends}: {ended}"
        );
    }
}

/// VS Code ends the child sessions of a task when it disconnects from that.
#[tokio::test]
async fn disconnect_of_a_subprocess_parks_it_with_its_task() {
    for first in ["task", "subprocess"] {
        let (context, _) = relay(minutes(15));
        let (_worker, mut parent, mut dap, (mut child, mut childs)) =
            standing_with_subprocess(&context).await;
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
        nothing_for(&mut dap, Duration::from_millis(50)).await;
        nothing_for(&mut childs, Duration::from_millis(50)).await;
    }
}

/// An editor that hides sessions of a task that it has left does not end them either.
#[tokio::test]
async fn subprocess_parks_with_its_task_and_reopens_with_it() {
    let suspends = json!({"restart": false, "suspendDebuggee": true});
    for (on_close, goodbye) in [(None, suspends), (Some("park"), json!({"restart": false}))] {
        let (context, _) = relay(minutes(15));
        let mut arguments = with_token(token_of("ann"));
        if let Some(on_close) = on_close {
            arguments["rayRelay"]["onClose"] = on_close.into();
        }
        let (_worker, mut parent, mut dap, (mut child, mut childs)) =
            with_subprocess(&context, arguments).await;
        parent.send("disconnect", goodbye).await;
        child.output("you left its task where it is").await;
        child.event("terminated").await;
        until_states(&context, &[SessionState::Parked; 2]).await;
        nothing_for(&mut dap, Duration::from_millis(50)).await;
        nothing_for(&mut childs, Duration::from_millis(50)).await;
        let (mut parent, _) = again(&context, "ann").await;
        let configuration = asked_to_open(&mut parent).await;
        let _child = goes_on(&context, configuration).await;
        got(&mut childs, "threads").await;
    }
}

/// debugpy announces each once, and it waits until a client has configured.
#[tokio::test]
async fn unopened_subprocess_is_reannounced_and_finally_resumed() {
    let (context, _) = relay(minutes(15));
    let (worker, mut parent, mut dap) = standing(&context).await;
    name(&mut dap, 50, 7).await;
    asked_to_open(&mut parent).await;
    answered(&mut dap, 50).await;
    drop(parent.dap);
    until_parked(&context, worker.breakpoint.id).await;
    name(&mut dap, 51, 8).await;
    let (mut parent, told) = again(&context, "ann").await;
    let meanwhile = told.iter().find(|m| m["command"] == "startDebugging");
    let meanwhile = &meanwhile.unwrap()["arguments"]["configuration"];
    assert_eq!(meanwhile["subProcessId"], 8);
    assert_eq!(asked_to_open(&mut parent).await["subProcessId"], 7);
    parent
        .send("disconnect", json!({"terminateDebuggee": false}))
        .await;
    let_go(&mut dap).await;
    drop(parent.dap);
    for pid in [7, 8] {
        let (mut visited, attach) = worker.attached().await;
        assert_eq!(attach["arguments"]["subProcessId"], pid);
        let request = Request {
            seq: attach["seq"].clone(),
            command: "attach".to_owned(),
            arguments: Value::Null,
        };
        initialized(&mut visited).await;
        asked(&mut visited, "configurationDone").await;
        visited.send(&request.success(Value::Null)).await.unwrap();
        asked(&mut visited, "disconnect").await;
    }
}
