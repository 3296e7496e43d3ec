//! A session that exceeds its memory is parked: its client did not ask to resume the task.

use super::*;
use ray_relay_base::memory::MemoryUse;

#[tokio::test]
async fn session_out_of_memory_parks_its_task() {
    let (context, _) = relay(minutes(15));
    let (worker, mut debugger, mut dap) = stopped_session(&context).await;
    let mut memory = context
        .memory
        .account(Some("ann"))
        .empty(MemoryUse::Messages);
    memory.insist(context.memory.owner_limit());
    // The command is known only once the whole message has arrived.
    let request = json!({"a": "x".repeat(600 << 10), "type": "request", "command": "evaluate"});
    debugger.dap.send(&request).await.unwrap();
    until_parked(&context, worker.breakpoint.id).await;
    expect_silence(&mut dap, Duration::from_millis(100)).await;
    drop(memory);
    let (_next, messages) = reattach(&context, "ann").await;
    assert_eq!(messages.last().unwrap()["body"]["threadId"], 1);
}

/// A message whose type is known only at its end.
fn long(name: &str) -> Value {
    json!({"a": "x".repeat(600 << 10), "type": "event", "event": name})
}

#[tokio::test]
async fn oversized_worker_message_parks_the_task() {
    let (context, _) = relay(minutes(15));
    let (worker, mut debugger, mut dap) = stopped_session(&context).await;
    let mut memory = context
        .memory
        .account(Some("ann"))
        .empty(MemoryUse::Messages);
    memory.insist(context.memory.owner_limit());
    dap.send(&long("output")).await.unwrap();
    let output = debugger.output("more than the").await;
    assert_output(&output, "the task stays parked for 15m");
    debugger.event("terminated").await;
    until_parked(&context, worker.breakpoint.id).await;
    expect_silence(&mut dap, Duration::from_millis(100)).await;
    drop(memory);
    let (_next, messages) = reattach(&context, "ann").await;
    assert_eq!(messages.last().unwrap()["body"]["threadId"], 1);
}

#[tokio::test]
async fn park_skips_messages_there_is_no_memory_for() {
    let (context, _) = relay(minutes(15));
    let (worker, debugger, mut dap) = stopped_session(&context).await;
    drop(debugger.dap);
    until_parked(&context, worker.breakpoint.id).await;
    let mut memory = context
        .memory
        .account(Some("ann"))
        .empty(MemoryUse::Messages);
    memory.insist(context.memory.owner_limit());
    dap.send(&long("output")).await.unwrap();
    dap.send(&output("meanwhile")).await.unwrap();
    let continued = message::event("continued", json!({"allThreadsContinued": true}));
    dap.send(&continued).await.unwrap();
    dap.send(&stopped(7)).await.unwrap();
    expect_silence(&mut dap, Duration::from_millis(300)).await;
    drop(memory);
    let (_next, messages) = reattach(&context, "ann").await;
    let output = output_texts(&messages);
    assert!(output[1].contains("1 messages of output"), "{output:?}");
    assert_eq!(output[2..], ["meanwhile"]);
    assert_eq!(messages.last().unwrap()["body"]["threadId"], 7);
}

#[tokio::test]
async fn small_messages_pass_without_free_memory() {
    let (context, _) = relay(minutes(15));
    let (_worker, mut debugger, mut dap) = stopped_session(&context).await;
    let mut memory = context
        .memory
        .account(Some("ann"))
        .empty(MemoryUse::Messages);
    memory.insist(context.memory.owner_limit());
    let seq = debugger.send("evaluate", json!({"expression": "x"})).await;
    let request = expect_request(&mut dap, "evaluate").await;
    dap.send(&request.success(json!({"result": "1"})))
        .await
        .unwrap();
    assert_eq!(debugger.answer(seq).await["success"], true);
    dap.send(&stopped(7)).await.unwrap();
    debugger.event("stopped").await;
}
