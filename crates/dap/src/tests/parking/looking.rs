//! Inspections of a park, which leave it unchanged: by a client that does not configure, and by the relay itself.

use super::*;
use crate::tests::family::{announced, configured_with};
use ray_relay_access::identity::testing::principal;
use ray_relay_access::policy::Scope;
use ray_relay_session::session::authorise;
use ray_relay_session::session::parks::ParkView;

fn left(context: &Context, id: BreakpointId) -> ParkView {
    let list = context.registry.snapshot();
    ParkView::of(list.find(id).unwrap().holder().unwrap()).unwrap()
}

fn assert_as_it_was(one: &ParkView, other: &ParkView) {
    assert_eq!(one.client, other.client);
    assert_eq!((one.since, one.until), (other.since, other.until));
}

#[tokio::test]
async fn aborted_resume_keeps_the_client_and_deadline_of_a_park() {
    let (context, _) = relay(minutes(15));
    let (worker, debugger, _dap) = standing(&context).await;
    let id = worker.breakpoint.id;
    drop(debugger.dap);
    until_parked(&context, id).await;
    let before = left(&context, id);
    for leaves in [true, false] {
        let (mut short, _) = Debugger::attaching(&context, with_token(token_of("ann"))).await;
        short.event("initialized").await;
        if leaves {
            short.ask("disconnect", json!({"restart": false})).await;
        }
        drop(short.dap);
        until_parked(&context, id).await;
        assert_as_it_was(&left(&context, id), &before);
        let rows = context.sessions.table.rows();
        assert_eq!(rows.last().unwrap().client.as_ref(), Some(&before.client));
    }
    // A session that resumes it sets another deadline.
    let (next, _) = again(&context, "ann").await;
    drop(next.dap);
    until_parked(&context, id).await;
    assert!(left(&context, id).until > before.until);
}

/// A park of `exec --stay`: an editor that opens it keeps the name.
#[tokio::test]
async fn parked_actor_is_queried_for_its_rank_before_it_opens() {
    let (context, _) = relay(minutes(15));
    let mut one = paused("Trainer.step", 1);
    one.names_mut().actor_id = Some("ac01".to_owned());
    let worker = Worker::listening(one).await;
    let id = worker.breakpoint.id;
    context.registry.insert(worker.breakpoint.clone());
    let (debugger, _) = Debugger::attaching(&context, with_token(token_of("ann"))).await;
    let (dap, _) = worker.attached().await;
    let (_worker, debugger, mut dap) = stands((worker, debugger, dap)).await;
    drop(debugger.dap);
    until_parked(&context, id).await;
    let mut parent = Debugger::connect(&context).await;
    let mut arguments = with_token(token_of("ann"));
    arguments["rayRelay"]["all"] = true.into();
    configured_with(&mut parent, arguments).await;
    let answers = async {
        let evaluate = got(&mut dap, "evaluate").await;
        let told = json!({"text": "None\n", "total": 4, "rank": 5}).to_string();
        let body = json!({"result": told, "variablesReference": 0});
        dap.send(&evaluate.success(body)).await.unwrap();
    };
    let (opened, ()) = tokio::join!(announced(&mut parent), answers);
    let name = opened["name"].as_str().unwrap();
    assert!(name.starts_with("rank 5 · Trainer.step"), "{name}");
    until_parked(&context, id).await;
}

#[tokio::test]
async fn snapshot_leaves_the_park_unchanged() {
    let (context, _) = relay(minutes(15));
    let (worker, debugger, mut dap) = standing(&context).await;
    let id = worker.breakpoint.id;
    drop(debugger.dap);
    until_parked(&context, id).await;
    let before = left(&context, id);
    let look = async |who: &'static str| {
        let principal = principal(&context.auth, who).await;
        let held = context.registry.snapshot().find(id).cloned().unwrap();
        let authorised = authorise(&principal, &held, Scope::View).unwrap();
        context
            .sessions
            .parks
            .look(&authorised, "1 + 1".to_owned())
            .await
    };
    let refused = look("ben").await.unwrap_err().to_string();
    assert!(refused.contains("is parked"), "{refused}");
    let answers = async {
        let evaluate = got(&mut dap, "evaluate").await;
        assert_eq!(evaluate.arguments["expression"], "1 + 1");
        // Output before the answer is retained for the next client.
        dap.send(&output("meanwhile")).await.unwrap();
        let value = evaluate.success(json!({"result": "2", "variablesReference": 0}));
        dap.send(&value).await.unwrap();
        let evaluate = got(&mut dap, "evaluate").await;
        dap.send(&evaluate.failure("no")).await.unwrap();
    };
    let looks = async {
        assert_eq!(look("ann").await.unwrap(), "2");
        assert_eq!(look("ann").await.unwrap_err().to_string(), "no");
    };
    tokio::join!(answers, looks);
    assert_as_it_was(&left(&context, id), &before);
    let (_next, told) = again(&context, "ann").await;
    assert_eq!(texts(&told)[1..], ["meanwhile"]);
    assert!(told.iter().all(|m| m["command"] != "evaluate"), "{told:?}");
}
