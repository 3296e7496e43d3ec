//! Who asks for more memory than there is has not asked for a task to run on.

use super::*;
use crate::memory::Kind;

#[tokio::test]
async fn a_session_that_ends_for_want_of_memory_leaves_its_task_where_it_is() {
    let (context, _) = relay(minutes(15));
    let (worker, mut debugger, mut dap) = standing(&context).await;
    let mut others = context.memory.account(Some("ann")).nothing(Kind::Messages);
    others.insist(context.memory.of_one());
    // What it is cannot be told before it is there.
    let long = json!({"a": "x".repeat(600 << 10), "type": "request", "command": "evaluate"});
    debugger.dap.send(&long).await.unwrap();
    until_parked(&context, worker.breakpoint.id).await;
    nothing_for(&mut dap, Duration::from_millis(100)).await;
    drop(others);
    let (_next, told) = again(&context, "ann").await;
    assert_eq!(told.last().unwrap()["body"]["threadId"], 1);
}
