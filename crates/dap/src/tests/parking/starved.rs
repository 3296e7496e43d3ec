//! A client that exceeds its memory has not asked for its task to resume.

use super::*;
use ray_relay_base::memory::MemoryUse;

#[tokio::test]
async fn session_out_of_memory_parks_its_task() {
    let (context, _) = relay(minutes(15));
    let (worker, mut debugger, mut dap) = standing(&context).await;
    let mut others = context
        .memory
        .account(Some("ann"))
        .empty(MemoryUse::Messages);
    others.insist(context.memory.owner_limit());
    // What it is cannot be told before it is there.
    let long = json!({"a": "x".repeat(600 << 10), "type": "request", "command": "evaluate"});
    debugger.dap.send(&long).await.unwrap();
    until_parked(&context, worker.breakpoint.id).await;
    nothing_for(&mut dap, Duration::from_millis(100)).await;
    drop(others);
    let (_next, told) = again(&context, "ann").await;
    assert_eq!(told.last().unwrap()["body"]["threadId"], 1);
}

/// A message whose type is known only at its end.
fn long(name: &str) -> Value {
    json!({"a": "x".repeat(600 << 10), "type": "event", "event": name})
}

#[tokio::test]
async fn oversized_worker_message_parks_the_task() {
    let (context, _) = relay(minutes(15));
    let (worker, mut debugger, mut dap) = standing(&context).await;
    let mut others = context
        .memory
        .account(Some("ann"))
        .empty(MemoryUse::Messages);
    others.insist(context.memory.owner_limit());
    dap.send(&long("output")).await.unwrap();
    let told = debugger.output("more than the").await;
    assert_output(&told, "the task stays parked for 15m");
    debugger.event("terminated").await;
    until_parked(&context, worker.breakpoint.id).await;
    nothing_for(&mut dap, Duration::from_millis(100)).await;
    drop(others);
    let (_next, told) = again(&context, "ann").await;
    assert_eq!(told.last().unwrap()["body"]["threadId"], 1);
}

#[tokio::test]
async fn park_skips_messages_there_is_no_memory_for() {
    let (context, _) = relay(minutes(15));
    let (worker, debugger, mut dap) = standing(&context).await;
    drop(debugger.dap);
    until_parked(&context, worker.breakpoint.id).await;
    let mut others = context
        .memory
        .account(Some("ann"))
        .empty(MemoryUse::Messages);
    others.insist(context.memory.owner_limit());
    dap.send(&long("output")).await.unwrap();
    dap.send(&output("meanwhile")).await.unwrap();
    let runs = message::event("continued", json!({"allThreadsContinued": true}));
    dap.send(&runs).await.unwrap();
    dap.send(&stopped(7)).await.unwrap();
    nothing_for(&mut dap, Duration::from_millis(300)).await;
    drop(others);
    let (_next, told) = again(&context, "ann").await;
    let said = texts(&told);
    assert!(said[1].contains("1 messages of output"), "{said:?}");
    assert_eq!(said[2..], ["meanwhile"]);
    assert_eq!(told.last().unwrap()["body"]["threadId"], 7);
}

#[tokio::test]
async fn small_messages_pass_without_free_memory() {
    let (context, _) = relay(minutes(15));
    let (_worker, mut debugger, mut dap) = standing(&context).await;
    let mut others = context
        .memory
        .account(Some("ann"))
        .empty(MemoryUse::Messages);
    others.insist(context.memory.owner_limit());
    let seq = debugger.send("evaluate", json!({"expression": "x"})).await;
    let asked = got(&mut dap, "evaluate").await;
    dap.send(&asked.success(json!({"result": "1"})))
        .await
        .unwrap();
    assert_eq!(debugger.answer(seq).await["success"], true);
    dap.send(&stopped(7)).await.unwrap();
    debugger.event("stopped").await;
}
