//! A task that was taken over, and its subprocess, at the relay that goes on with both: after a hot restart, and beside a keeper.

use std::collections::BTreeMap;

use tokio_util::task::AbortOnDropHandle;

use super::subprocesses::{
    asked_to_open, goes_on, standing_with_subprocess, taken_over, until_states,
};
use super::*;
use crate::identity::CarriedIdentity;
use crate::identity::testing::principal;
use crate::keeper::testing::{self, KeeperPlace, KeptRelay};
use crate::keeper::{self, LeftConnection};
use crate::policy::Scope;
use crate::ray::registry::{ClaimError, Holder, State};
use crate::session::authorise;
use crate::takeover::{PassedPark, TestSuccessor, held_by_predecessor};
use crate::upstream::park::restored;
use crate::upstream::restored::Restored;

/// How long is waited for what is not to come: longer than a park takes to look for a successor.
const QUIET: Duration = Duration::from_millis(400);

/// A task that `adm` has taken over from `ann`, and its subprocess: both are parked.
struct TakenTask {
    breakpoint: Breakpoint,
    dap: Conversation<TcpStream>,
    childs: Conversation<TcpStream>,
}

async fn taken(context: &Arc<Context>) -> TakenTask {
    let (parent, dap, childs, configuration) = taken_over(context).await;
    let list = context.registry.snapshot();
    let id = configuration["rayRelay"]["breakpoint"].as_str().unwrap();
    let id = id.parse().unwrap();
    drop(parent.dap);
    until_parked(context, id).await;
    TakenTask {
        breakpoint: as_paused(list.find(id).unwrap()),
        dap,
        childs,
    }
}

/// As another relay finds it.
fn as_paused(breakpoint: &Breakpoint) -> Breakpoint {
    Breakpoint {
        state: State::Paused,
        ..breakpoint.clone()
    }
}

/// A relay after the one of the test, with the rights of `policy`, that is given the parks which are `read` for it.
fn next_relay(
    policy: &str,
    breakpoint: &Breakpoint,
    read: impl FnOnce(&Context) -> Vec<Restored>,
) -> Arc<Context> {
    let context = guarded(authenticator(policy), Audit::off(), |config| {
        config.park.r#for = minutes(15);
    });
    context.registry.insert(breakpoint.clone());
    for restored in read(&context) {
        restore(&context, restored);
    }
    context
}

fn restore(context: &Arc<Context>, restored: Restored) {
    let relay = Arc::clone(context);
    tokio::spawn(async move {
        if let Some(claimed) = restored.claim(&relay).await {
            restored::run(&relay, claimed).await;
        }
    });
}

fn passed(parks: Vec<PassedPark>) -> impl FnOnce(&Context) -> Vec<Restored> {
    |context| {
        let parks = parks.into_iter();
        let read = |park| Restored::passed(context, park).unwrap();
        parks.map(read).collect()
    }
}

/// The parks of a task and its subprocess, in the order in which they are handed over.
async fn both(successor: &mut TestSuccessor) -> Vec<PassedPark> {
    let mut parks = Vec::new();
    for process in [Value::Null, 7.into()] {
        let park = timeout(PATIENCE, successor.next())
            .await
            .expect("passed on");
        assert_eq!(park.stored["tenant"]["process"], process);
        parks.push(park);
    }
    parks
}

/// The same to a process that takes over now.
async fn handed_over(context: &Context) -> Vec<PassedPark> {
    let mut successor = context.peers.takeover.succeeded_by();
    successor.takes_parks();
    both(&mut successor).await
}

fn to(who: &str, id: BreakpointId) -> Value {
    json!({"rayRelay": {"breakpoint": id, "token": token_of(who)}})
}

fn to_subprocess(who: &str, id: BreakpointId) -> Value {
    let mut arguments = to(who, id);
    arguments["subProcessId"] = 7.into();
    arguments
}

/// At `context` the task and its subprocess are those of `adm`, who finds both by attaching once, and no other person's.
async fn are_the_takers(
    context: &Arc<Context>,
    id: BreakpointId,
    (dap, childs): (&mut Conversation<TcpStream>, &mut Conversation<TcpStream>),
) {
    asked(dap, "threads").await;
    asked(childs, "threads").await;
    until_states(context, &[SessionState::Parked; 2]).await;
    for arguments in [to("ann", id), to_subprocess("ann", id)] {
        let said = refusal(context, arguments).await;
        assert!(said.contains("adm"), "{said}");
    }
    let (mut parent, _) = again_with(context, to("adm", id)).await;
    let configuration = asked_to_open(&mut parent).await;
    assert_eq!(configuration["subProcessId"], 7);
    let _child = goes_on(context, configuration).await;
    got(childs, "threads").await;
    parent.send("threads", json!({})).await;
    got(dap, "threads").await;
}

#[tokio::test]
async fn a_hot_restart_leaves_a_task_and_its_subprocess_to_who_has_taken_them_over() {
    let (context, _) = relay(minutes(15));
    let mut taken = taken(&context).await;
    let parks = handed_over(&context).await;
    let next = next_relay(POLICY, &taken.breakpoint, passed(parks));
    let debuggers = (&mut taken.dap, &mut taken.childs);
    are_the_takers(&next, taken.breakpoint.id, debuggers).await;
}

/// The subprocess waits for its task, which another person takes over at the process before.
#[tokio::test]
async fn a_task_that_is_taken_over_in_the_middle_of_a_hot_restart_keeps_its_subprocess() {
    let (context, _) = relay(minutes(15));
    let (worker, parent, mut dap, (child, mut childs)) = standing_with_subprocess(&context).await;
    let id = worker.breakpoint.id;
    drop((parent.dap, child.dap));
    until_states(&context, &[SessionState::Parked; 2]).await;
    let mut successor = context.peers.takeover.succeeded_by();
    let mut takes = to("adm", id);
    takes["rayRelay"]["takeOver"] = true.into();
    let (mut parent, _) = reattached(&mut dap, again_with(&context, takes)).await;
    successor.takes_parks();
    let configuration = asked_to_open(&mut parent).await;
    assert!(timeout(QUIET, successor.next()).await.is_err());
    let child = reattached(&mut childs, goes_on(&context, configuration)).await;
    let threads = got(&mut childs, "threads").await;
    let answer = threads.success(json!({"threads": []}));
    childs.send(&answer).await.unwrap();
    drop((child.dap, parent.dap));
    let parks = both(&mut successor).await;
    let next = next_relay(POLICY, &worker.breakpoint, passed(parks));
    are_the_takers(&next, id, (&mut dap, &mut childs)).await;
}

#[tokio::test]
async fn what_was_taken_over_stays_where_the_taker_has_no_rights_any_more() {
    const WITHOUT: &str = r#"
[[rule]]
subjects = ["ann"]
scopes = ["list", "debug"]
"#;
    let (context, _) = relay(minutes(15));
    let mut taken = taken(&context).await;
    let id = taken.breakpoint.id;
    let parks = handed_over(&context).await;
    let next = next_relay(WITHOUT, &taken.breakpoint, passed(parks));
    asked(&mut taken.dap, "threads").await;
    asked(&mut taken.childs, "threads").await;
    until_states(&next, &[SessionState::Parked; 2]).await;
    // It is not the first person's again.
    let said = refusal(&next, to("ann", id)).await;
    assert!(said.contains("is parked by adm"), "{said}");
    nothing_for(&mut taken.childs, QUIET).await;
}

/// As an older version hands them over: the subprocess is the first person's still.
#[tokio::test]
async fn a_subprocess_whose_record_names_another_person_than_its_task_is_kept_and_given_to_no_one()
{
    let (context, _) = relay(minutes(15));
    let mut taken = taken(&context).await;
    let id = taken.breakpoint.id;
    let mut parks = handed_over(&context).await;
    let ann = principal(&context.auth, "ann").await;
    parks[1].stored["tenant"]["identity"] =
        serde_json::to_value(CarriedIdentity::of(&ann)).unwrap();
    let next = next_relay(POLICY, &taken.breakpoint, passed(parks));
    asked(&mut taken.dap, "threads").await;
    asked(&mut taken.childs, "threads").await;
    until_states(&next, &[SessionState::Parked; 2]).await;
    for arguments in [
        to("ann", id),
        to_subprocess("ann", id),
        to_subprocess("adm", id),
    ] {
        let said = refusal(&next, arguments).await;
        assert!(said.contains("adm"), "{said}");
    }
    nothing_for(&mut taken.childs, QUIET).await;
    // It runs on with its task.
    let adm = principal(&next.auth, "adm").await;
    let list = next.registry.snapshot();
    let may = authorise(&adm, list.find(id).unwrap(), Scope::View).unwrap();
    let relay = Arc::clone(&next);
    tokio::spawn(async move { relay.sessions.parks.let_run(&may).await });
    let_go(&mut taken.dap).await;
    drop(taken.dap);
    let_go(&mut taken.childs).await;
}

/// What a relay with a keeper leaves that has a task and its subprocess, and is gone.
struct LeftBehind {
    taken: TakenTask,
    left: Vec<LeftConnection>,
    previous: Arc<Context>,
    _next: KeptRelay,
    _keeping: (KeeperPlace, AbortOnDropHandle<Result<(), keeper::Error>>),
}

async fn left_behind() -> LeftBehind {
    let place = testing::place();
    let keeping = testing::keeper(&place).await;
    let first = testing::relay(&place).await;
    let (mut context, _) = relay(minutes(15));
    Arc::get_mut(&mut context).unwrap().keeper = Some(Arc::clone(&first.keeper));
    let taken = taken(&context).await;
    // Nothing more is written of them where the relay ends.
    context.shutdown.drain.cancel();
    until_states(&context, &[]).await;
    first.killed().await;
    let mut next = testing::relay(&place).await;
    LeftBehind {
        taken,
        left: next.is_left(2).await,
        previous: context,
        _next: next,
        _keeping: (place, keeping),
    }
}

fn left(left: Vec<LeftConnection>) -> impl FnOnce(&Context) -> Vec<Restored> {
    |context| {
        let read = |left| Restored::left(context, left).unwrap();
        left.into_iter().map(read).collect()
    }
}

#[tokio::test]
async fn a_keeper_has_a_task_and_its_subprocess_for_who_has_taken_them_over() {
    let mut before = left_behind().await;
    let owners: BTreeMap<_, _> = before.left.iter().map(whose).collect();
    assert_eq!(
        owners,
        BTreeMap::from([(None, "adm".to_owned()), (Some(7), "adm".to_owned())])
    );
    let taken = &mut before.taken;
    let next = next_relay(POLICY, &taken.breakpoint, left(before.left));
    let debuggers = (&mut taken.dap, &mut taken.childs);
    are_the_takers(&next, taken.breakpoint.id, debuggers).await;
}

/// The predecessor's word that it has the worker does not end with it: there is a moment until the keeper gives that back.
#[tokio::test]
async fn what_a_keeper_gives_back_after_a_hot_restart_is_no_other_clients_before() {
    let mut before = left_behind().await;
    let taken = &mut before.taken;
    let next = next_relay(POLICY, &taken.breakpoint, |_| Vec::new());
    let holder = Holder::here(41, Some("adm".into()), "Visual Studio Code", None);
    let hold = held_by_predecessor(&taken.breakpoint, &holder);
    let takeover = &next.peers.takeover;
    takeover.expect_left();
    let ends = takeover.loses_predecessor(hold);
    timeout(PATIENCE, ends).await.expect("it is noticed");
    let another = next.registry.claim(taken.breakpoint.id, holder);
    assert!(matches!(another, Err(ClaimError::InUse(_))));
    for restored in left(before.left)(&next) {
        restore(&next, restored);
    }
    let debuggers = (&mut taken.dap, &mut taken.childs);
    are_the_takers(&next, taken.breakpoint.id, debuggers).await;
    assert!(next.registry.remote(|said| said.iter().next().is_none()));
}

/// It tells its successor so: no client reaches the worker before the keeper has given it back.
#[tokio::test]
async fn a_relay_that_drains_has_what_it_has_left_to_a_keeper_to_its_end() {
    let LeftBehind {
        taken, previous, ..
    } = left_behind().await;
    let registry = &previous.registry;
    let ended = timeout(PATIENCE, registry.claims_ended()).await;
    ended.expect("nothing is left to be done");
    let holder = Holder::here(41, Some("adm".into()), "Visual Studio Code", None);
    let another = registry.claim(taken.breakpoint.id, holder);
    assert!(matches!(another, Err(ClaimError::InUse(_))));
}

#[tokio::test]
async fn what_a_keeper_gives_back_waits_for_a_client_that_claims_it_in_vain() {
    let mut before = left_behind().await;
    let taken = &mut before.taken;
    let next = next_relay(POLICY, &taken.breakpoint, |_| Vec::new());
    let holder = Holder::here(41, Some("ann".into()), "Visual Studio Code", None);
    let claim = next.registry.claim(taken.breakpoint.id, holder).unwrap();
    for restored in left(before.left)(&next) {
        restore(&next, restored);
    }
    nothing_for(&mut taken.dap, QUIET).await;
    drop(claim);
    let debuggers = (&mut taken.dap, &mut taken.childs);
    are_the_takers(&next, taken.breakpoint.id, debuggers).await;
}

/// Which process a record is of, and whose it is.
fn whose(left: &LeftConnection) -> (Option<u64>, String) {
    let record: Value = serde_json::from_slice(&left.record).unwrap();
    let tenant = &record["tenant"];
    let subject = tenant["identity"]["subject"].as_str().unwrap();
    (tenant["process"].as_u64(), subject.to_owned())
}

/// The relay is gone, and with it the word that the task has ended.
#[tokio::test]
async fn a_subprocess_whose_task_ends_while_a_keeper_has_both_runs_on() {
    let before = left_behind().await;
    let mut taken = before.taken;
    drop(taken.dap);
    let next = next_relay(POLICY, &taken.breakpoint, left(before.left));
    asked(&mut taken.childs, "threads").await;
    // For as long as its task may take to be restored.
    tokio::time::pause();
    let mut said = taken.childs.read().await.unwrap();
    tokio::time::resume();
    let said = Request::read(&mut said).unwrap();
    assert_eq!(said.command, "setFunctionBreakpoints");
    taken.childs.send(&said.success(Value::Null)).await.unwrap();
    asked(&mut taken.childs, "disconnect").await;
    drop(next);
}

#[tokio::test]
async fn whoever_is_in_a_session_when_the_process_ends_goes_on_at_the_next_one() {
    for is_busy in [false, true] {
        let (context, spy) = relay(minutes(15));
        let (worker, mut debugger, mut dap) = standing(&context).await;
        let mut successor = context.peers.takeover.succeeded_by();
        successor.takes_parks();
        context.shutdown.drain.cancel();
        if is_busy {
            context.shutdown.abort.cancel();
        }
        debugger
            .output("the task stays parked for 15m 00s: attach again")
            .await;
        debugger.event("terminated").await;
        let park = timeout(PATIENCE, successor.next())
            .await
            .expect("passed on");
        timeout(PATIENCE, debugger.ended).await.unwrap().unwrap();
        let ended = (EntryKind::SessionEnded, "taken_over".to_owned());
        assert_eq!(outcomes(&spy).last(), Some(&ended));
        let id = worker.breakpoint.id;
        let next = next_relay(POLICY, &worker.breakpoint, passed(vec![park]));
        // It was asked nothing, and told no goodbye.
        asked(&mut dap, "threads").await;
        let (mut ann, _) = again_with(&next, to("ann", id)).await;
        ann.send("threads", json!({})).await;
        got(&mut dap, "threads").await;
    }
}

#[tokio::test]
async fn a_task_and_its_subprocess_go_on_at_the_next_one_in_order() {
    let (context, _) = relay(minutes(15));
    let (worker, mut parent, mut dap, (child, mut childs)) =
        standing_with_subprocess(&context).await;
    parent.send("threads", json!({})).await;
    let threads = got(&mut dap, "threads").await;
    let mut successor = context.peers.takeover.succeeded_by();
    successor.takes_parks();
    context.shutdown.drain.cancel();
    context.shutdown.abort.cancel();
    // The task's debugger owes an answer, and its subprocess does not go before it.
    assert!(timeout(QUIET, successor.next()).await.is_err());
    dap.send(&threads.success(json!({"threads": []})))
        .await
        .unwrap();
    let parks = both(&mut successor).await;
    drop((parent, child));
    let next = next_relay(POLICY, &worker.breakpoint, passed(parks));
    asked(&mut dap, "threads").await;
    asked(&mut childs, "threads").await;
    until_states(&next, &[SessionState::Parked; 2]).await;
}
