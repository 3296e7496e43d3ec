//! Leaving a task where it is, on purpose: `disconnect` with `suspendDebuggee`, VS Code's "Disconnect and Suspend".

use super::*;
use crate::session::parks::EACH;

fn suspend() -> Value {
    json!({"restart": false, "suspendDebuggee": true})
}

#[tokio::test]
async fn who_leaves_and_suspends_finds_the_task_where_it_was() {
    let (context, spy) = relay(minutes(15));
    let (worker, mut debugger, mut dap) = standing(&context).await;
    let answer = debugger.ask("disconnect", suspend()).await;
    assert_eq!(answer["success"], true, "{answer}");
    until_parked(&context, worker.breakpoint.id).await;
    nothing_for(&mut dap, Duration::from_millis(50)).await;
    let parked = (Action::SessionParked, "parked".to_owned());
    assert_eq!(outcomes(&spy).last(), Some(&parked));
    let (_next, told) = again(&context, "ann").await;
    assert_eq!(told.last().unwrap()["body"]["threadId"], 1);
}

/// It was asked for that the task stays, so it is not let run in place of that.
#[tokio::test]
async fn a_session_that_cannot_be_kept_goes_on_and_says_why() {
    let (context, _) = relay(minutes(15));
    let (_, mut debugger, mut dap) = standing_of(&context, "off").await;
    let capabilities = debugger.ask("disconnect", suspend()).await;
    assert_eq!(capabilities["success"], false, "{capabilities}");
    let said = capabilities["message"].as_str().unwrap();
    assert!(said.contains("neither the policy"), "{said}");
    debugger.send("threads", json!({})).await;
    got(&mut dap, "threads").await;

    let (context, _) = relay(minutes(15));
    let mut taken = Vec::new();
    for n in 0..EACH {
        let id = paused("square", 100 + n as u8).id;
        let ann = crate::identity::testing::principal(&context.auth, "ann").await;
        let share = context.parks.share(&ann, None).unwrap();
        taken.push(context.parks.park(&ann, id, share).unwrap());
    }
    let (_, mut debugger, mut dap) = standing(&context).await;
    let refused = debugger.ask("disconnect", suspend()).await;
    let said = refused["message"].as_str().unwrap();
    assert!(said.contains("8 sessions of one person are kept"), "{said}");
    nothing_for(&mut dap, Duration::from_millis(50)).await;
}
