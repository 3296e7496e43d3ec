//! Processes that a task starts, and those that they start: each is a session of its own on the worker's port.

use super::*;

/// A session for the process `pid` that a session with the worker was told of.
async fn of(context: &Arc<Context>, worker: &Worker, pid: u64) -> Debugger {
    let mut debugger = Debugger::connect(context).await;
    debugger
        .attach(json!({"subProcessId": pid, "rayRelay": {"breakpoint": worker.breakpoint.id}}))
        .await;
    debugger
}

async fn refused(mut debugger: Debugger) -> String {
    let answer = debugger.until(|m| m["command"] == "attach").await;
    sentence(&answer).to_owned()
}

#[tokio::test]
async fn the_subprocess_of_a_subprocess_is_reached_when_the_task_has_gone_on() {
    let context = context(|_| {});
    let worker = Worker::listen().await;
    let id = worker.breakpoint.id;
    context.registry.insert(worker.breakpoint.clone());
    let mut parent = Debugger::connect(&context).await;
    parent.attach(json!({})).await;
    let (parents, _) = worker.attached().await;
    let child = of(&context, &worker, 7).await;
    let (childs, attach) = worker.attached().await;
    assert_eq!(attach["arguments"]["subProcessId"], 7);

    let (mut left, gone) = (Vec::new(), "its session ended in time");
    for debugger in [parent, child] {
        left.push((debugger.dap, debugger.ended));
    }
    let mut left = left.into_iter();
    let (dap, ended) = left.next().unwrap();
    drop((dap, parents));
    timeout(PATIENCE, ended).await.expect(gone).unwrap();
    context.registry.end(id, None);
    assert!(context.registry.snapshot().find(id).is_none());

    let grandchild = of(&context, &worker, 8).await;
    let (grandchilds, attach) = worker.attached().await;
    assert_eq!(attach["arguments"]["subProcessId"], 8);

    // Nobody is there any more.
    let (dap, ended) = left.next().unwrap();
    drop((dap, childs));
    timeout(PATIENCE, ended).await.expect(gone).unwrap();
    let Debugger { dap, ended, .. } = grandchild;
    drop((dap, grandchilds));
    timeout(PATIENCE, ended).await.expect(gone).unwrap();
    let said = refused(of(&context, &worker, 9).await).await;
    assert!(said.contains("has ended"), "{said}");
}

/// It would be a session with the task which nobody holds, and the next person would be let in as well.
#[tokio::test]
async fn the_task_itself_is_no_subprocess() {
    let context = context(|_| {});
    let worker = Worker::listen().await;
    context.registry.insert(worker.breakpoint.clone());
    let mut parent = Debugger::connect(&context).await;
    parent.attach(json!({})).await;
    let _parents = worker.attached().await;
    let own = u64::from(worker.breakpoint.pid);
    let said = refused(of(&context, &worker, own).await).await;
    assert!(said.contains("the process of the task itself"), "{said}");
}
