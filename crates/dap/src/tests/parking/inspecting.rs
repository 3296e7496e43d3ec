//! Inspections of a park, which leave it unchanged: by a client that does not configure, and by the relay itself.

use super::*;
use crate::tests::family::{next_announcement, start_cluster_session_with};
use ray_relay_access::identity::testing::principal;
use ray_relay_access::policy::Scope;
use ray_relay_session::session::authorise;
use ray_relay_session::session::parks::ParkView;

fn park_view(context: &Context, id: BreakpointId) -> ParkView {
    let list = context.registry.snapshot();
    ParkView::of(list.find(id).unwrap().holder().unwrap()).unwrap()
}

fn assert_unchanged(after: &ParkView, before: &ParkView) {
    assert_eq!(after.client, before.client);
    assert_eq!((after.since, after.until), (before.since, before.until));
}

#[tokio::test]
async fn aborted_resume_keeps_the_client_and_deadline_of_a_park() {
    let (context, _) = relay(minutes(15));
    let (worker, debugger, _dap) = stopped_session(&context).await;
    let id = worker.breakpoint.id;
    drop(debugger.dap);
    until_parked(&context, id).await;
    let before = park_view(&context, id);
    for disconnects in [true, false] {
        let (mut brief, _) = Debugger::attaching(&context, with_token(token_of("ann"))).await;
        brief.event("initialized").await;
        if disconnects {
            brief.ask("disconnect", json!({"restart": false})).await;
        }
        drop(brief.dap);
        until_parked(&context, id).await;
        assert_unchanged(&park_view(&context, id), &before);
        let rows = context.sessions.table.rows();
        assert_eq!(rows.last().unwrap().client.as_ref(), Some(&before.client));
    }
    // A session that resumes the park sets a new deadline.
    let (next, _) = reattach(&context, "ann").await;
    drop(next.dap);
    until_parked(&context, id).await;
    assert!(park_view(&context, id).until > before.until);
}

/// An editor keeps the name of a session, so the rank must be known before a park of `exec --stay` opens.
#[tokio::test]
async fn parked_actor_is_queried_for_its_rank_before_it_opens() {
    let (context, _) = relay(minutes(15));
    let mut breakpoint = paused("Trainer.step", 1);
    breakpoint.names_mut().actor_id = Some("ac01".to_owned());
    let worker = Worker::listening(breakpoint).await;
    let id = worker.breakpoint.id;
    context.registry.insert(worker.breakpoint.clone());
    let (debugger, _) = Debugger::attaching(&context, with_token(token_of("ann"))).await;
    let (dap, _) = worker.attached().await;
    let (_worker, debugger, mut dap) = until_stopped((worker, debugger, dap)).await;
    drop(debugger.dap);
    until_parked(&context, id).await;
    let mut parent = Debugger::connect(&context).await;
    let mut arguments = with_token(token_of("ann"));
    arguments["rayRelay"]["all"] = true.into();
    start_cluster_session_with(&mut parent, arguments).await;
    let answers = async {
        let evaluate = expect_request(&mut dap, "evaluate").await;
        let result = json!({"text": "None\n", "total": 4, "rank": 5}).to_string();
        let body = json!({"result": result, "variablesReference": 0});
        dap.send(&evaluate.success(body)).await.unwrap();
    };
    let (configuration, ()) = tokio::join!(next_announcement(&mut parent), answers);
    let name = configuration["name"].as_str().unwrap();
    assert!(name.starts_with("rank 5 · Trainer.step"), "{name}");
    until_parked(&context, id).await;
}

#[tokio::test]
async fn snapshot_leaves_the_park_unchanged() {
    let (context, _) = relay(minutes(15));
    let (worker, debugger, mut dap) = stopped_session(&context).await;
    let id = worker.breakpoint.id;
    drop(debugger.dap);
    until_parked(&context, id).await;
    let before = park_view(&context, id);
    let inspect_as = async |user: &'static str| {
        let principal = principal(&context.auth, user).await;
        let row = context.registry.snapshot().find(id).cloned().unwrap();
        let authorised = authorise(&principal, &row, Scope::View).unwrap();
        context
            .sessions
            .parks
            .look(&authorised, "1 + 1".to_owned())
            .await
    };
    let refused = inspect_as("ben").await.unwrap_err().to_string();
    assert!(refused.contains("is parked"), "{refused}");
    let answers = async {
        let evaluate = expect_request(&mut dap, "evaluate").await;
        assert_eq!(evaluate.arguments["expression"], "1 + 1");
        // Output before the answer is retained for the next client.
        dap.send(&output("meanwhile")).await.unwrap();
        let value = evaluate.success(json!({"result": "2", "variablesReference": 0}));
        dap.send(&value).await.unwrap();
        let evaluate = expect_request(&mut dap, "evaluate").await;
        dap.send(&evaluate.failure("no")).await.unwrap();
    };
    let inspections = async {
        assert_eq!(inspect_as("ann").await.unwrap(), "2");
        assert_eq!(inspect_as("ann").await.unwrap_err().to_string(), "no");
    };
    tokio::join!(answers, inspections);
    assert_unchanged(&park_view(&context, id), &before);
    let (_next, messages) = reattach(&context, "ann").await;
    assert_eq!(output_texts(&messages)[1..], ["meanwhile"]);
    assert!(
        messages.iter().all(|m| m["command"] != "evaluate"),
        "{messages:?}"
    );
}
