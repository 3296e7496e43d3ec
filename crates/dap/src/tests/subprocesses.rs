//! Processes that a task starts, and those that they start: each is a session of its own on the worker's port.

use super::*;

/// A session for the process `pid` that a session with the worker announced.
async fn of(context: &Arc<Context>, worker: &Worker, pid: u64) -> Debugger {
    let process = json!({"subProcessId": pid, "rayRelay": {"breakpoint": worker.breakpoint.id}});
    Debugger::attaching(context, process).await.0
}

async fn refused(mut debugger: Debugger) -> String {
    let answer = debugger.until(|m| m["command"] == "attach").await;
    sentence(&answer).to_owned()
}

/// The client disconnects, and the process ends.
async fn gone(client: Debugger, worker: Conversation<TcpStream>) {
    drop((client.dap, worker));
    let ended = timeout(TEST_TIMEOUT, client.ended).await;
    ended.expect("its session ended in time").unwrap();
}

#[tokio::test]
async fn nested_subprocess_is_reachable_after_its_task_ended() {
    let context = context(|_| {});
    let (worker, parent, parents) = session(&context, json!({})).await;
    let id = worker.breakpoint.id;
    let child = of(&context, &worker, 7).await;
    let (childs, attach) = worker.attached().await;
    assert_eq!(attach["arguments"]["subProcessId"], 7);

    gone(parent, parents).await;
    context.registry.end(id, None);
    assert!(context.registry.snapshot().find(id).is_none());

    let grandchild = of(&context, &worker, 8).await;
    let (grandchilds, attach) = worker.attached().await;
    assert_eq!(attach["arguments"]["subProcessId"], 8);

    // The client is gone.
    gone(child, childs).await;
    gone(grandchild, grandchilds).await;
    let said = refused(of(&context, &worker, 9).await).await;
    assert!(said.contains("has ended"), "{said}");
}

/// It would be a session with a free task, and the next user would be accepted as well.
#[tokio::test]
async fn task_process_is_refused_as_a_subprocess() {
    let context = context(|_| {});
    let (worker, _parent, _parents) = session(&context, json!({})).await;
    let own = u64::from(worker.breakpoint.pid);
    let said = refused(of(&context, &worker, own).await).await;
    assert!(said.contains("the process of the task itself"), "{said}");
}
