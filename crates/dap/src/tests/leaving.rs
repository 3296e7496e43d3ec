//! When a breakpoint is free again after its client has closed, and when its debugger is dialled again.

use std::time::Instant;

use super::*;

/// How long [`ray_relay_session::upstream`] waits for a debugger to close after its answer to `disconnect`, and then
/// for its session to end, which debugpy does not report.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
const SESSION_END_DELAY: Duration = Duration::from_millis(300);
const RELEASE_DELAY: Duration = Duration::from_millis(100);

/// Attaches a client that has received every answer. Returns it and its worker's debugger.
async fn running(context: &Arc<Context>) -> (Debugger, Conversation<TcpStream>) {
    let (_, mut debugger, mut dap) = session(context, json!({})).await;
    initialized(&mut dap).await;
    debugger.event("initialized").await;
    let configuration_done = debugger.send("configurationDone", json!({})).await;
    answer_request(&mut dap, "configurationDone").await;
    debugger.answer(configuration_done).await;
    // `attach` is the second request of a client.
    let attached = json!({"seq": 9, "type": "response", "request_seq": 2, "success": true, "command": "attach"});
    dap.send(&attached).await.unwrap();
    debugger.until(|m| m["command"] == "attach").await;
    (debugger, dap)
}

/// debugpy's adapter does not survive a client that connects while it ends the previous session.
#[tokio::test]
async fn released_breakpoint_is_dialled_after_its_debugger_ends() {
    let context = context(|_| {});
    let (worker, mut debugger, mut dap) = session(&context, json!({})).await;
    let id = worker.breakpoint.id;
    initialized(&mut dap).await;
    debugger.event("initialized").await;
    drop(debugger);
    expect_detach(&mut dap).await;
    let mut snapshots = context.registry.watch();
    let is_free = |list: &Arc<ray_relay_ray::ray::registry::Snapshot>| {
        list.find(id).is_some_and(|row| row.is_paused())
    };
    timeout(TEST_TIMEOUT, snapshots.wait_for(is_free))
        .await
        .unwrap()
        .unwrap();
    let by_id = json!({"rayRelay": {"breakpoint": id}});
    let (mut next, _) = Debugger::attaching(&context, by_id).await;
    tokio::select! {
        biased;
        () = expect_close(&mut dap) => {}
        _ = worker.listener.accept() => panic!("dialled before the last connection was ended"),
    }
    let closed_at = Instant::now();
    let (mut next_dap, _) = worker.attached().await;
    // The test may notice a moment late that the relay closed the connection.
    assert!(
        closed_at.elapsed() >= SESSION_END_DELAY * 8 / 10,
        "{:?}",
        closed_at.elapsed()
    );
    initialized(&mut next_dap).await;
    next.event("initialized").await;
}

#[tokio::test]
async fn client_with_all_answers_is_closed_promptly() {
    let context = context(|_| {});
    let (debugger, mut dap) = running(&context).await;
    drop(debugger);
    expect_detach(&mut dap).await;
    let answered_at = Instant::now();
    expect_close(&mut dap).await;
    let elapsed = answered_at.elapsed();
    // The debugger has this time to close the connection first.
    assert!(elapsed >= CLOSE_TIMEOUT * 8 / 10, "{elapsed:?}");
    assert!(elapsed < CLOSE_TIMEOUT * 2, "{elapsed:?}");
    assert_eq!(context.sessions.table.len(), 0);
}

#[tokio::test]
async fn half_closed_client_still_gets_its_late_answer() {
    let context = context(|_| {});
    let (mut debugger, mut dap) = running(&context).await;
    let seq = debugger.send("threads", json!({})).await;
    let (mut stream, buffered) = debugger.dap.into_parts();
    stream.shutdown().await.unwrap();
    let mut client = Conversation::resume(stream, &buffered, 1 << 20);
    let threads = expect_request(&mut dap, "threads").await;
    expect_detach(&mut dap).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let answer = threads.success(json!({"threads": []}));
    dap.send(&answer).await.unwrap();
    let answer = timeout(TEST_TIMEOUT, client.read()).await.unwrap().unwrap();
    assert_eq!(answer["request_seq"], seq);
}

/// Ray takes a moment to record that a thread no longer waits, and an older list would show it as paused again.
#[tokio::test]
async fn resumed_task_is_released_once_ray_can_know() {
    let context = context(|_| {});
    let started = Instant::now();
    let (debugger, mut dap) = running(&context).await;
    let mut snapshots = context.registry.watch();
    drop(debugger);
    expect_detach(&mut dap).await;
    let released = snapshots.wait_for(|list| list.live.is_empty());
    timeout(TEST_TIMEOUT, released).await.unwrap().unwrap();
    assert!(
        started.elapsed() >= RELEASE_DELAY,
        "{:?}",
        started.elapsed()
    );
}
