//! A cluster session and its child sessions.

use super::*;

/// A user with two paused tasks, the first of them open in a child session.
struct FamilyScene {
    context: Arc<Context>,
    parent: Debugger,
    child: Debugger,
    /// The child's worker.
    dap: Conversation<TcpStream>,
    _workers: [Worker; 2],
}

/// A configuration as VS Code sends it where no folder is open: with a number of its own for each session.
fn configuration(session: &str) -> Value {
    json!({"name": "Ray", "__sessionId": session})
}

async fn configured(parent: &mut Debugger, session: &str) {
    configured_with(parent, configuration(session)).await;
}

pub(super) async fn configured_with(parent: &mut Debugger, configuration: Value) {
    parent.attach(configuration).await;
    parent.event("initialized").await;
    parent.send("configurationDone", json!({})).await;
}

pub(super) async fn announced(parent: &mut Debugger) -> Value {
    let mut asked = parent.until(|m| m["command"] == "startDebugging").await;
    asked["arguments"]["configuration"].take()
}

/// Ends the cluster session, which announced nothing further.
async fn leaves_unannounced(parent: &mut Debugger) {
    let seq = parent.send("disconnect", json!({})).await;
    let last = |m: &Value| m["request_seq"] == seq || m["command"] == "startDebugging";
    let last = parent.until(last).await;
    assert_eq!(last["command"], "disconnect", "{last}");
}

/// Opens the session of `configuration`, at the worker that it names.
pub(super) async fn open(
    context: &Arc<Context>,
    configuration: Value,
    workers: &[Worker; 2],
) -> (Debugger, Conversation<TcpStream>) {
    let wanted = |w: &&Worker| configuration["rayRelay"]["breakpoint"] == json!(w.breakpoint.id);
    let worker = workers.iter().find(wanted).unwrap();
    let (mut child, attach) = Debugger::attaching(context, configuration.clone()).await;
    let (mut dap, seen) = worker.attached().await;
    assert!(seen["arguments"].get("rayRelay").is_none(), "{seen}");
    initialized(&mut dap).await;
    child.event("initialized").await;
    child.send("configurationDone", json!({})).await;
    asked(&mut dap, "configurationDone").await;
    let taken = json!({"seq": 9, "type": "response", "request_seq": seen["seq"], "success": true, "command": "attach"});
    dap.send(&taken).await.unwrap();
    child.answer(attach).await;
    (child, dap)
}

impl FamilyScene {
    async fn found() -> Self {
        let context = context(|_| {});
        let workers = [
            Worker::listen().await,
            Worker::listening(paused("cube", 2)).await,
        ];
        for worker in &workers {
            context.registry.insert(worker.breakpoint.clone());
        }
        let mut parent = Debugger::connect(&context).await;
        configured(&mut parent, "one").await;
        let first = announced(&mut parent).await;
        announced(&mut parent).await;
        let (child, dap) = open(&context, first, &workers).await;
        Self {
            context,
            parent,
            child,
            dap,
            _workers: workers,
        }
    }
}

/// The worker was detached in order, and the child's console says why; no toast, because its user has ended it.
async fn ended_with_its_parent(mut child: Debugger, mut dap: Conversation<TcpStream>) {
    // The disconnect waits for the answer to the request before it.
    asked(&mut dap, "setFunctionBreakpoints").await;
    let goodbye = asked(&mut dap, "disconnect").await;
    assert_eq!(goodbye.arguments, json!({"terminateDebuggee": false}));
    let told = child.event("output").await;
    let why = "the cluster session that opened it has ended; the task runs on";
    assert_output(&told, why);
    assert_eq!(told["body"]["category"], "console");
    child.event("terminated").await;
}

#[tokio::test]
async fn stopping_the_cluster_session_resumes_its_tasks() {
    let mut family = FamilyScene::found().await;
    let parent = &mut family.parent;
    let seq = parent.send("disconnect", json!({"restart": false})).await;
    let told = parent.output("1 session ends with this one").await;
    assert_eq!(told["body"]["category"], "console");
    parent.answer(seq).await;
    ended_with_its_parent(family.child, family.dap).await;
}

#[tokio::test]
async fn lost_cluster_session_ends_its_child_sessions() {
    let family = FamilyScene::found().await;
    drop(family.parent);
    ended_with_its_parent(family.child, family.dap).await;
}

/// A probed client has four seconds to answer: on a network outage that is longer, its session would be lost.
#[tokio::test]
async fn cluster_session_does_not_probe_its_own_children() {
    let mut family = FamilyScene::found().await;
    // Longer than it leaves those of earlier ones alone.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let seq = family.child.send("threads", json!({})).await;
    let threads = got(&mut family.dap, "threads").await;
    family.dap.send(&threads.success(json!({}))).await.unwrap();
    let answered = |m: &Value| {
        assert_ne!(m["body"]["category"], "telemetry", "{m}");
        m["type"] == "response" && m["request_seq"] == seq
    };
    family.child.until(answered).await;
}

#[tokio::test]
async fn restarted_cluster_session_readmits_its_children() {
    let mut family = FamilyScene::found().await;
    let restart = json!({"restart": true});
    let answer = family.parent.ask("disconnect", restart).await;
    assert_eq!(answer["success"], true);
    family.parent.closed().await;
    let mut parent = Debugger::connect(&family.context).await;
    configured(&mut parent, "two").await;
    let other = announced(&mut parent).await;
    assert!(other["name"].as_str().unwrap().contains("cube"), "{other}");
    // The child is there as before.
    let seq = family.child.send("threads", json!({})).await;
    assert_eq!(got(&mut family.dap, "threads").await.seq, seq);
    // Nothing is announced of its worker, and it ends with the new parent.
    leaves_unannounced(&mut parent).await;
    ended_with_its_parent(family.child, family.dap).await;
}

#[tokio::test]
async fn child_of_an_ended_cluster_session_is_refused() {
    let mut family = FamilyScene::found().await;
    let context = family.context.clone();
    context.registry.insert(paused("late", 3));
    let late = announced(&mut family.parent).await;
    family.parent.ask("disconnect", json!({})).await;
    let (mut child, seq) = Debugger::attaching(&context, late).await;
    assert_refused(&child.answer(seq).await, "start the cluster session again");
    let snapshot = context.registry.snapshot();
    let waits = snapshot.live.iter().find(|b| b.name() == "late").unwrap();
    assert!(waits.is_paused(), "its task waits as before");
}

/// An editor shows no children of a parent that is gone.
#[tokio::test]
async fn shutdown_ends_the_cluster_session_after_its_children() {
    let mut family = FamilyScene::found().await;
    family.context.shutdown.drain.cancel();
    family.parent.output("being shut down").await;
    let answer = family.parent.ask("threads", json!({})).await;
    assert_eq!(answer["success"], true, "it stays");
    family.context.shutdown.abort.cancel();
    family.parent.event("terminated").await;
    family.child.event("terminated").await;
}

/// As VS Code does it where `supportsRestartRequest` is announced: the task is not detached, and the editor shows it
/// again.
#[tokio::test]
async fn restarting_a_session_keeps_its_task_paused() {
    let mut family = FamilyScene::found().await;
    let stop = json!({"reason": "breakpoint", "threadId": 7, "allThreadsStopped": true});
    let stopped = message::event("stopped", stop.clone());
    family.dap.send(&stopped).await.unwrap();
    family.child.event("stopped").await;
    let answer = family.child.ask("restart", json!({})).await;
    assert_eq!(answer["success"], true, "{answer}");
    let again = family.child.event("stopped").await;
    assert_eq!(again["body"], stop);
    // A running task has no location to show.
    family.child.send("continue", json!({"threadId": 7})).await;
    got(&mut family.dap, "continue").await;
    family.child.ask("restart", json!({})).await;
    let seq = family.child.send("threads", json!({})).await;
    let asked = got(&mut family.dap, "threads").await;
    assert_eq!(asked.seq, seq);
    let both = json!([{"id": 1, "name": "PythonGCThread"}, {"id": 7, "name": "MainThread"}]);
    let answer = asked.success(json!({"threads": both}));
    family.dap.send(&answer).await.unwrap();
    let next = |m: &Value| m["event"] == "stopped" || m["command"] == "threads";
    let next = family.child.until(next).await;
    assert_eq!(next["body"]["threads"][0]["name"], "MainThread", "{next}");
}

#[tokio::test]
async fn restarted_cluster_session_announces_unopened_children() {
    let mut family = FamilyScene::found().await;
    let answer = family.parent.ask("restart", json!({})).await;
    assert_eq!(answer["success"], true, "{answer}");
    let other = announced(&mut family.parent).await;
    assert!(other["name"].as_str().unwrap().contains("cube"), "{other}");
    // Open sessions are not announced again.
    leaves_unannounced(&mut family.parent).await;
}
