//! Breakpoints whose client has closed: when they are free again, and when their debugger is dialled again.

use std::time::Instant;

use super::*;

/// How long [`ray_relay_session::upstream`] waits for a debugger to close after its answer to the disconnect, and then
/// for its session to end, which debugpy does not report.
const CLOSE: Duration = Duration::from_millis(500);
const SETTLED: Duration = Duration::from_millis(300);
const WRITTEN_DOWN: Duration = Duration::from_millis(100);

/// A client that is attached and has had every answer, and its worker's debugger.
async fn running(context: &Arc<Context>) -> (Debugger, Conversation<TcpStream>) {
    let (_, mut debugger, mut dap) = session(context, json!({})).await;
    initialized(&mut dap).await;
    debugger.event("initialized").await;
    let done = debugger.send("configurationDone", json!({})).await;
    asked(&mut dap, "configurationDone").await;
    debugger.answer(done).await;
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
    let_go(&mut dap).await;
    let mut lists = context.registry.watch();
    let free = |list: &Arc<ray_relay_ray::ray::registry::Snapshot>| {
        list.find(id).is_some_and(|row| row.is_paused())
    };
    timeout(TEST_TIMEOUT, lists.wait_for(free))
        .await
        .unwrap()
        .unwrap();
    let by_id = json!({"rayRelay": {"breakpoint": id}});
    let (mut next, _) = Debugger::attaching(&context, by_id).await;
    tokio::select! {
        biased;
        () = left(&mut dap) => {}
        _ = worker.listener.accept() => panic!("dialled before the last connection was ended"),
    }
    let ended = Instant::now();
    let (mut second, _) = worker.attached().await;
    // The relay's end of the connection may have been seen a moment late.
    assert!(ended.elapsed() >= SETTLED * 8 / 10, "{:?}", ended.elapsed());
    initialized(&mut second).await;
    next.event("initialized").await;
}

#[tokio::test]
async fn client_with_all_answers_is_closed_promptly() {
    let context = context(|_| {});
    let (debugger, mut dap) = running(&context).await;
    drop(debugger);
    let_go(&mut dap).await;
    let answered = Instant::now();
    left(&mut dap).await;
    let took = answered.elapsed();
    // Its debugger may end the connection first.
    assert!(took >= CLOSE * 8 / 10, "{took:?}");
    assert!(took < CLOSE * 2, "{took:?}");
    assert_eq!(context.sessions.table.len(), 0);
}

#[tokio::test]
async fn half_closed_client_still_gets_its_late_answer() {
    let context = context(|_| {});
    let (mut debugger, mut dap) = running(&context).await;
    let asked_for = debugger.send("threads", json!({})).await;
    let (mut stream, rest) = debugger.dap.into_parts();
    stream.shutdown().await.unwrap();
    let mut client = Conversation::resume(stream, &rest, 1 << 20);
    let threads = got(&mut dap, "threads").await;
    let_go(&mut dap).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let answer = threads.success(json!({"threads": []}));
    dap.send(&answer).await.unwrap();
    let told = timeout(TEST_TIMEOUT, client.read()).await.unwrap().unwrap();
    assert_eq!(told["request_seq"], asked_for);
}

/// Ray takes a moment to record that a thread no longer waits, and an older list would show it as paused again.
#[tokio::test]
async fn resumed_task_is_released_once_ray_can_know() {
    let context = context(|_| {});
    let began = Instant::now();
    let (debugger, mut dap) = running(&context).await;
    let mut lists = context.registry.watch();
    drop(debugger);
    let_go(&mut dap).await;
    let released = lists.wait_for(|list| list.live.is_empty());
    timeout(TEST_TIMEOUT, released).await.unwrap().unwrap();
    assert!(began.elapsed() >= WRITTEN_DOWN, "{:?}", began.elapsed());
}
