//! Subprocesses of a task, and their subprocesses: each is a session of its own on the worker's port.

use super::*;

/// Attaches to the process `pid` that a session with the worker announced.
async fn attach_subprocess(context: &Arc<Context>, worker: &Worker, pid: u64) -> Debugger {
    let process = json!({"subProcessId": pid, "rayRelay": {"breakpoint": worker.breakpoint.id}});
    Debugger::attaching(context, process).await.0
}

async fn attach_error(mut debugger: Debugger) -> String {
    let answer = debugger.until(|m| m["command"] == "attach").await;
    refusal_message(&answer).to_owned()
}

/// The client disconnects, and the process ends.
async fn end_process(client: Debugger, worker: Conversation<TcpStream>) {
    drop((client.dap, worker));
    let ended = timeout(TEST_TIMEOUT, client.ended).await;
    ended.expect("its session ended in time").unwrap();
}

#[tokio::test]
async fn nested_subprocess_is_reachable_after_its_task_ended() {
    let context = context(|_| {});
    let (worker, parent, parent_dap) = session(&context, json!({})).await;
    let id = worker.breakpoint.id;
    let child = attach_subprocess(&context, &worker, 7).await;
    let (child_dap, attach) = worker.attached().await;
    assert_eq!(attach["arguments"]["subProcessId"], 7);

    end_process(parent, parent_dap).await;
    context.registry.end(id, None);
    assert!(context.registry.snapshot().find(id).is_none());

    let grandchild = attach_subprocess(&context, &worker, 8).await;
    let (grandchild_dap, attach) = worker.attached().await;
    assert_eq!(attach["arguments"]["subProcessId"], 8);

    // The client is gone.
    end_process(child, child_dap).await;
    end_process(grandchild, grandchild_dap).await;
    let error = attach_error(attach_subprocess(&context, &worker, 9).await).await;
    assert!(error.contains("has ended"), "{error}");
}

/// Otherwise this session would not claim the task, and the next user would be accepted as well.
#[tokio::test]
async fn task_process_is_refused_as_a_subprocess() {
    let context = context(|_| {});
    let (worker, _parent, _parent_dap) = session(&context, json!({})).await;
    let pid = u64::from(worker.breakpoint.pid);
    let error = attach_error(attach_subprocess(&context, &worker, pid).await).await;
    assert!(error.contains("the process of the task itself"), "{error}");
}
