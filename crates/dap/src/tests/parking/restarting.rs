//! A task that an administrator has taken over, and its subprocess, at the next relay with a keeper.

use std::collections::BTreeMap;

use tokio_util::task::AbortOnDropHandle;

use super::subprocesses::{asked_to_open, goes_on, taken_over, until_states};
use super::*;
use ray_relay_access::identity::CarriedIdentity;
use ray_relay_access::identity::testing::principal;
use ray_relay_access::policy::Scope;
use ray_relay_debugger::keeper::testing::{self, KeeperPlace, KeptRelay};
use ray_relay_debugger::keeper::{self, UnclaimedConnection};
use ray_relay_ray::ray::registry::{ClaimError, Holder, State};
use ray_relay_session::session::authorise;
use ray_relay_session::upstream::park::restored;
use ray_relay_session::upstream::restored::Restored;

/// How long to wait for an event that must not come.
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

/// The breakpoint as another relay finds it.
fn as_paused(breakpoint: &Breakpoint) -> Breakpoint {
    Breakpoint {
        state: State::Paused,
        ..breakpoint.clone()
    }
}

/// A relay after that of the test, with the rights of `policy`, that is given the parks which are `read` for it.
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

fn to(who: &str, id: BreakpointId) -> Value {
    json!({"rayRelay": {"breakpoint": id, "token": token_of(who)}})
}

fn to_subprocess(who: &str, id: BreakpointId) -> Value {
    let mut arguments = to(who, id);
    arguments["subProcessId"] = 7.into();
    arguments
}

/// Expects that at `context` the task and its subprocess belong to `adm`, who finds both by attaching once, and to no
/// other user.
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
async fn park_stays_with_the_taker_after_losing_the_rights() {
    const WITHOUT: &str = r#"
[[rule]]
subjects = ["ann"]
scopes = ["list", "debug"]
"#;
    let mut before = left_behind().await;
    let taken = &mut before.taken;
    let id = taken.breakpoint.id;
    let next = next_relay(WITHOUT, &taken.breakpoint, left(before.left));
    asked(&mut taken.dap, "threads").await;
    asked(&mut taken.childs, "threads").await;
    until_states(&next, &[SessionState::Parked; 2]).await;
    // It is not the first person's again.
    let said = refusal(&next, to("ann", id)).await;
    assert!(said.contains("is parked by adm"), "{said}");
    nothing_for(&mut taken.childs, QUIET).await;
}

/// As an older version stores them: the subprocess still belongs to the first user.
#[tokio::test]
async fn subprocess_record_of_another_owner_is_given_to_no_user() {
    let mut before = left_behind().await;
    let taken = &mut before.taken;
    let id = taken.breakpoint.id;
    let ann = principal(&before.previous.auth, "ann").await;
    for left in &mut before.left {
        let mut stored: Value = serde_json::from_slice(&left.record).unwrap();
        if stored["tenant"]["process"] == 7 {
            stored["tenant"]["identity"] = serde_json::to_value(CarriedIdentity::of(&ann)).unwrap();
            left.record = serde_json::to_vec(&stored).unwrap();
        }
    }
    let next = next_relay(POLICY, &taken.breakpoint, left(before.left));
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
    let_go(&mut taken.childs).await;
}

/// The state that a relay with a keeper leaves behind, with a task and its subprocess.
struct LeftBehind {
    taken: TakenTask,
    left: Vec<UnclaimedConnection>,
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

fn left(left: Vec<UnclaimedConnection>) -> impl FnOnce(&Context) -> Vec<Restored> {
    |_| {
        let read = |left| Restored::decode(left).unwrap();
        left.into_iter().map(read).collect()
    }
}

#[tokio::test]
async fn keeper_restores_task_and_subprocess_to_the_taker() {
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

/// No client reaches the worker before the process has ended.
#[tokio::test]
async fn draining_relay_holds_what_it_handed_to_a_keeper() {
    let LeftBehind {
        taken, previous, ..
    } = left_behind().await;
    let registry = &previous.registry;
    let holder = Holder::here(41, Some("adm".into()), "Visual Studio Code", None);
    let another = registry.claim(taken.breakpoint.id, holder);
    assert!(matches!(another, Err(ClaimError::InUse(_))));
}

#[tokio::test]
async fn restored_session_waits_for_a_conflicting_claim() {
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

/// The process of a record, and its owner.
fn whose(left: &UnclaimedConnection) -> (Option<u64>, String) {
    let record: Value = serde_json::from_slice(&left.record).unwrap();
    let tenant = &record["tenant"];
    let subject = tenant["identity"]["subject"].as_str().unwrap();
    (tenant["process"].as_u64(), subject.to_owned())
}

/// The relay is gone, and with it the report that the task has ended.
#[tokio::test]
async fn subprocess_resumes_when_its_task_ended_at_the_keeper() {
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
async fn session_of_an_ending_process_is_parked_at_the_next() {
    for is_busy in [false, true] {
        let place = testing::place();
        let _keeping = testing::keeper(&place).await;
        let first = testing::relay(&place).await;
        let (mut context, spy) = relay(minutes(15));
        Arc::get_mut(&mut context).unwrap().keeper = Some(Arc::clone(&first.keeper));
        let (worker, mut debugger, mut dap) = standing(&context).await;
        context.shutdown.drain.cancel();
        if is_busy {
            context.shutdown.abort.cancel();
        }
        debugger
            .output("the task stays parked for 15m 00s: attach again")
            .await;
        debugger.event("terminated").await;
        timeout(TEST_TIMEOUT, debugger.ended)
            .await
            .unwrap()
            .unwrap();
        let ended = (EntryKind::SessionEnded, "drained".to_owned());
        assert_eq!(outcomes(&spy).last(), Some(&ended));
        first.killed().await;
        let mut link = testing::relay(&place).await;
        let kept = link.is_left(1).await;
        let id = worker.breakpoint.id;
        let next = next_relay(POLICY, &worker.breakpoint, left(kept));
        // It was asked nothing, and got no detach sequence.
        asked(&mut dap, "threads").await;
        let (mut ann, _) = again_with(&next, to("ann", id)).await;
        ann.send("threads", json!({})).await;
        got(&mut dap, "threads").await;
    }
}
