//! A cluster session and its child sessions.

use super::*;

/// A user with two paused tasks, the first of them open in a child session.
struct FamilyScene {
    context: Arc<Context>,
    parent: Debugger,
    child: Debugger,
    /// The connection to the child's worker.
    dap: Conversation<TcpStream>,
    _workers: [Worker; 2],
}

/// A configuration of VS Code without an open folder, which numbers its sessions.
fn configuration(session: &str) -> Value {
    json!({"name": "Ray", "__sessionId": session})
}

async fn start_cluster_session(parent: &mut Debugger, session: &str) {
    start_cluster_session_with(parent, configuration(session)).await;
}

pub(super) async fn start_cluster_session_with(parent: &mut Debugger, configuration: Value) {
    parent.attach(configuration).await;
    parent.event("initialized").await;
    parent.send("configurationDone", json!({})).await;
}

pub(super) async fn next_announcement(parent: &mut Debugger) -> Value {
    let mut request = parent.until(|m| m["command"] == "startDebugging").await;
    request["arguments"]["configuration"].take()
}

/// Ends the cluster session, and expects that it announced nothing further.
async fn expect_no_announcement(parent: &mut Debugger) {
    let seq = parent.send("disconnect", json!({})).await;
    let is_last = |m: &Value| m["request_seq"] == seq || m["command"] == "startDebugging";
    let message = parent.until(is_last).await;
    assert_eq!(message["command"], "disconnect", "{message}");
}

/// Opens the session of `configuration` at the worker it names.
pub(super) async fn open_child(
    context: &Arc<Context>,
    configuration: Value,
    workers: &[Worker; 2],
) -> (Debugger, Conversation<TcpStream>) {
    let is_named = |w: &&Worker| configuration["rayRelay"]["breakpoint"] == json!(w.breakpoint.id);
    let worker = workers.iter().find(is_named).unwrap();
    let (mut child, attach) = Debugger::attaching(context, configuration.clone()).await;
    let (mut dap, request) = worker.attached().await;
    assert!(request["arguments"].get("rayRelay").is_none(), "{request}");
    initialized(&mut dap).await;
    child.event("initialized").await;
    child.send("configurationDone", json!({})).await;
    answer_request(&mut dap, "configurationDone").await;
    let attached = json!({"seq": 9, "type": "response", "request_seq": request["seq"], "success": true, "command": "attach"});
    dap.send(&attached).await.unwrap();
    child.answer(attach).await;
    (child, dap)
}

impl FamilyScene {
    async fn new() -> Self {
        let context = context(|_| {});
        let workers = [
            Worker::listen().await,
            Worker::listening(paused("cube", 2)).await,
        ];
        for worker in &workers {
            context.registry.insert(worker.breakpoint.clone());
        }
        let mut parent = Debugger::connect(&context).await;
        start_cluster_session(&mut parent, "one").await;
        let configuration = next_announcement(&mut parent).await;
        next_announcement(&mut parent).await;
        let (child, dap) = open_child(&context, configuration, &workers).await;
        Self {
            context,
            parent,
            child,
            dap,
            _workers: workers,
        }
    }
}

/// Expects a clean detach, and the reason in the child's console: no pop-up, because the user ended the session.
async fn expect_end_with_parent(mut child: Debugger, mut dap: Conversation<TcpStream>) {
    // `disconnect` waits for the answer to the previous request.
    answer_request(&mut dap, "setFunctionBreakpoints").await;
    let disconnect = answer_request(&mut dap, "disconnect").await;
    assert_eq!(disconnect.arguments, json!({"terminateDebuggee": false}));
    let output = child.event("output").await;
    let expected = "the cluster session that opened it has ended; the task runs on";
    assert_output(&output, expected);
    assert_eq!(output["body"]["category"], "console");
    child.event("terminated").await;
}

#[tokio::test]
async fn stopping_the_cluster_session_resumes_its_tasks() {
    let mut family = FamilyScene::new().await;
    let parent = &mut family.parent;
    let seq = parent.send("disconnect", json!({"restart": false})).await;
    let output = parent.output("1 session ends with this one").await;
    assert_eq!(output["body"]["category"], "console");
    parent.answer(seq).await;
    expect_end_with_parent(family.child, family.dap).await;
}

#[tokio::test]
async fn lost_cluster_session_ends_its_child_sessions() {
    let family = FamilyScene::new().await;
    drop(family.parent);
    expect_end_with_parent(family.child, family.dap).await;
}

/// A probed client has four seconds to answer: on a network outage that is longer, its session would be lost.
#[tokio::test]
async fn cluster_session_does_not_probe_its_own_children() {
    let mut family = FamilyScene::new().await;
    // By now it probes the sessions of earlier cluster sessions.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let seq = family.child.send("threads", json!({})).await;
    let threads = expect_request(&mut family.dap, "threads").await;
    family.dap.send(&threads.success(json!({}))).await.unwrap();
    let is_answer = |m: &Value| {
        assert_ne!(m["body"]["category"], "telemetry", "{m}");
        m["type"] == "response" && m["request_seq"] == seq
    };
    family.child.until(is_answer).await;
}

#[tokio::test]
async fn restarted_cluster_session_readmits_its_children() {
    let mut family = FamilyScene::new().await;
    let restart = json!({"restart": true});
    let answer = family.parent.ask("disconnect", restart).await;
    assert_eq!(answer["success"], true);
    family.parent.closed().await;
    let mut parent = Debugger::connect(&family.context).await;
    start_cluster_session(&mut parent, "two").await;
    let configuration = next_announcement(&mut parent).await;
    assert!(
        configuration["name"].as_str().unwrap().contains("cube"),
        "{configuration}"
    );
    // The child session goes on.
    let seq = family.child.send("threads", json!({})).await;
    assert_eq!(expect_request(&mut family.dap, "threads").await.seq, seq);
    // Its worker is not announced again, and it ends with the new parent.
    expect_no_announcement(&mut parent).await;
    expect_end_with_parent(family.child, family.dap).await;
}

#[tokio::test]
async fn child_of_an_ended_cluster_session_is_refused() {
    let mut family = FamilyScene::new().await;
    let context = family.context.clone();
    context.registry.insert(paused("late", 3));
    let configuration = next_announcement(&mut family.parent).await;
    family.parent.ask("disconnect", json!({})).await;
    let (mut child, seq) = Debugger::attaching(&context, configuration).await;
    assert_refused(&child.answer(seq).await, "start the cluster session again");
    let snapshot = context.registry.snapshot();
    let row = snapshot.live.iter().find(|b| b.name() == "late").unwrap();
    assert!(row.is_paused(), "its task waits as before");
}

/// An editor hides the children of a parent session that ended.
#[tokio::test]
async fn shutdown_ends_the_cluster_session_after_its_children() {
    let mut family = FamilyScene::new().await;
    family.context.shutdown.drain.cancel();
    family.parent.output("being shut down").await;
    let answer = family.parent.ask("threads", json!({})).await;
    assert_eq!(answer["success"], true, "it stays");
    family.context.shutdown.abort.cancel();
    family.parent.event("terminated").await;
    family.child.event("terminated").await;
}

/// VS Code sends `restart` if `supportsRestartRequest` is announced: the task stays attached, and the editor shows it
/// again.
#[tokio::test]
async fn restarting_a_session_keeps_its_task_paused() {
    let mut family = FamilyScene::new().await;
    let stop = json!({"reason": "breakpoint", "threadId": 7, "allThreadsStopped": true});
    let stopped = message::event("stopped", stop.clone());
    family.dap.send(&stopped).await.unwrap();
    family.child.event("stopped").await;
    let answer = family.child.ask("restart", json!({})).await;
    assert_eq!(answer["success"], true, "{answer}");
    let stop_again = family.child.event("stopped").await;
    assert_eq!(stop_again["body"], stop);
    // A running task has no location to show.
    family.child.send("continue", json!({"threadId": 7})).await;
    expect_request(&mut family.dap, "continue").await;
    family.child.ask("restart", json!({})).await;
    let seq = family.child.send("threads", json!({})).await;
    let request = expect_request(&mut family.dap, "threads").await;
    assert_eq!(request.seq, seq);
    let threads = json!([{"id": 1, "name": "PythonGCThread"}, {"id": 7, "name": "MainThread"}]);
    let answer = request.success(json!({"threads": threads}));
    family.dap.send(&answer).await.unwrap();
    let is_next = |m: &Value| m["event"] == "stopped" || m["command"] == "threads";
    let message = family.child.until(is_next).await;
    assert_eq!(
        message["body"]["threads"][0]["name"], "MainThread",
        "{message}"
    );
}

#[tokio::test]
async fn restarted_cluster_session_announces_unopened_children() {
    let mut family = FamilyScene::new().await;
    let answer = family.parent.ask("restart", json!({})).await;
    assert_eq!(answer["success"], true, "{answer}");
    let configuration = next_announcement(&mut family.parent).await;
    assert!(
        configuration["name"].as_str().unwrap().contains("cube"),
        "{configuration}"
    );
    // Open sessions are not announced again.
    expect_no_announcement(&mut family.parent).await;
}
