//! A task that an administrator has taken over, and its subprocess, at the next relay with a keeper.

use std::collections::BTreeMap;

use tokio_util::task::AbortOnDropHandle;

use super::subprocesses::{
    accept_start_debugging, resume_subprocess, take_over_with_subprocess, until_states,
};
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
const SILENCE_TIMEOUT: Duration = Duration::from_millis(400);

/// A task that `adm` has taken over from `ann`, and its subprocess: both are parked.
struct TakenOverTask {
    breakpoint: Breakpoint,
    dap: Conversation<TcpStream>,
    child_dap: Conversation<TcpStream>,
}

async fn take_over_task(context: &Arc<Context>) -> TakenOverTask {
    let (parent, dap, child_dap, configuration) = take_over_with_subprocess(context).await;
    let list = context.registry.snapshot();
    let id = configuration["rayRelay"]["breakpoint"].as_str().unwrap();
    let id = id.parse().unwrap();
    drop(parent.dap);
    until_parked(context, id).await;
    TakenOverTask {
        breakpoint: as_paused(list.find(id).unwrap()),
        dap,
        child_dap,
    }
}

/// The breakpoint as another relay finds it.
fn as_paused(breakpoint: &Breakpoint) -> Breakpoint {
    Breakpoint {
        state: State::Paused,
        ..breakpoint.clone()
    }
}

/// The next relay, with the rights of `policy` and the parks that `decode` returns.
fn next_relay(
    policy: &str,
    breakpoint: &Breakpoint,
    decode: impl FnOnce(&Context) -> Vec<Restored>,
) -> Arc<Context> {
    let context = context_with(authenticator(policy), Audit::off(), |config| {
        config.park.r#for = minutes(15);
    });
    context.registry.insert(breakpoint.clone());
    for restored in decode(&context) {
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

fn attach_to(user: &str, id: BreakpointId) -> Value {
    json!({"rayRelay": {"breakpoint": id, "token": token_of(user)}})
}

fn attach_to_subprocess(user: &str, id: BreakpointId) -> Value {
    let mut arguments = attach_to(user, id);
    arguments["subProcessId"] = 7.into();
    arguments
}

/// Expects that the task and its subprocess belong to `adm` at `context`: one attach opens both, and no other user may
/// attach.
async fn expect_owned_by_adm(
    context: &Arc<Context>,
    id: BreakpointId,
    (dap, child_dap): (&mut Conversation<TcpStream>, &mut Conversation<TcpStream>),
) {
    answer_request(dap, "threads").await;
    answer_request(child_dap, "threads").await;
    until_states(context, &[SessionState::Parked; 2]).await;
    for arguments in [attach_to("ann", id), attach_to_subprocess("ann", id)] {
        let error = refusal(context, arguments).await;
        assert!(error.contains("adm"), "{error}");
    }
    let (mut parent, _) = reattach_with(context, attach_to("adm", id)).await;
    let configuration = accept_start_debugging(&mut parent).await;
    assert_eq!(configuration["subProcessId"], 7);
    let _child = resume_subprocess(context, configuration).await;
    expect_request(child_dap, "threads").await;
    parent.send("threads", json!({})).await;
    expect_request(dap, "threads").await;
}

#[tokio::test]
async fn park_stays_with_the_taker_after_losing_the_rights() {
    const POLICY_WITHOUT_ADM: &str = r#"
[[rule]]
subjects = ["ann"]
scopes = ["list", "debug"]
"#;
    let mut killed = killed_relay().await;
    let task = &mut killed.task;
    let id = task.breakpoint.id;
    let next = next_relay(
        POLICY_WITHOUT_ADM,
        &task.breakpoint,
        decode_records(killed.connections),
    );
    answer_request(&mut task.dap, "threads").await;
    answer_request(&mut task.child_dap, "threads").await;
    until_states(&next, &[SessionState::Parked; 2]).await;
    // The park does not return to the first user.
    let error = refusal(&next, attach_to("ann", id)).await;
    assert!(error.contains("is parked by adm"), "{error}");
    expect_silence(&mut task.child_dap, SILENCE_TIMEOUT).await;
}

/// An older version stores the records like this: the subprocess still belongs to the first user.
#[tokio::test]
async fn subprocess_record_of_another_owner_is_given_to_no_user() {
    let mut killed = killed_relay().await;
    let task = &mut killed.task;
    let id = task.breakpoint.id;
    let ann = principal(&killed.previous.auth, "ann").await;
    for connection in &mut killed.connections {
        let mut stored: Value = serde_json::from_slice(&connection.record).unwrap();
        if stored["tenant"]["process"] == 7 {
            stored["tenant"]["identity"] = serde_json::to_value(CarriedIdentity::of(&ann)).unwrap();
            connection.record = serde_json::to_vec(&stored).unwrap();
        }
    }
    let next = next_relay(POLICY, &task.breakpoint, decode_records(killed.connections));
    answer_request(&mut task.dap, "threads").await;
    answer_request(&mut task.child_dap, "threads").await;
    until_states(&next, &[SessionState::Parked; 2]).await;
    for arguments in [
        attach_to("ann", id),
        attach_to_subprocess("ann", id),
        attach_to_subprocess("adm", id),
    ] {
        let error = refusal(&next, arguments).await;
        assert!(error.contains("adm"), "{error}");
    }
    expect_silence(&mut task.child_dap, SILENCE_TIMEOUT).await;
    // The subprocess resumes with its task.
    let adm = principal(&next.auth, "adm").await;
    let list = next.registry.snapshot();
    let authorised = authorise(&adm, list.find(id).unwrap(), Scope::View).unwrap();
    let relay = Arc::clone(&next);
    tokio::spawn(async move { relay.sessions.parks.let_run(&authorised).await });
    expect_detach(&mut task.dap).await;
    expect_detach(&mut task.child_dap).await;
}

/// The state that a relay with a keeper leaves behind, with a task and its subprocess.
struct KilledRelay {
    task: TakenOverTask,
    connections: Vec<UnclaimedConnection>,
    previous: Arc<Context>,
    _next: KeptRelay,
    _keeper: (KeeperPlace, AbortOnDropHandle<Result<(), keeper::Error>>),
}

async fn killed_relay() -> KilledRelay {
    let place = testing::place();
    let keeper = testing::keeper(&place).await;
    let first = testing::relay(&place).await;
    let (mut context, _) = relay(minutes(15));
    Arc::get_mut(&mut context).unwrap().keeper = Some(Arc::clone(&first.keeper));
    let task = take_over_task(&context).await;
    // The draining relay writes no further record of them.
    context.shutdown.drain.cancel();
    until_states(&context, &[]).await;
    first.killed().await;
    let mut next = testing::relay(&place).await;
    KilledRelay {
        task,
        connections: next.is_left(2).await,
        previous: context,
        _next: next,
        _keeper: (place, keeper),
    }
}

fn decode_records(connections: Vec<UnclaimedConnection>) -> impl FnOnce(&Context) -> Vec<Restored> {
    |_| {
        let decode = |connection| Restored::decode(connection).unwrap();
        connections.into_iter().map(decode).collect()
    }
}

#[tokio::test]
async fn keeper_restores_task_and_subprocess_to_the_taker() {
    let mut killed = killed_relay().await;
    let owners: BTreeMap<_, _> = killed.connections.iter().map(owner_of).collect();
    assert_eq!(
        owners,
        BTreeMap::from([(None, "adm".to_owned()), (Some(7), "adm".to_owned())])
    );
    let task = &mut killed.task;
    let next = next_relay(POLICY, &task.breakpoint, decode_records(killed.connections));
    let daps = (&mut task.dap, &mut task.child_dap);
    expect_owned_by_adm(&next, task.breakpoint.id, daps).await;
}

/// No client reaches the worker before the process has ended.
#[tokio::test]
async fn draining_relay_holds_what_it_handed_to_a_keeper() {
    let KilledRelay { task, previous, .. } = killed_relay().await;
    let registry = &previous.registry;
    let holder = Holder::here(41, Some("adm".into()), "Visual Studio Code", None);
    let claim = registry.claim(task.breakpoint.id, holder);
    assert!(matches!(claim, Err(ClaimError::InUse(_))));
}

#[tokio::test]
async fn restored_session_waits_for_a_conflicting_claim() {
    let mut killed = killed_relay().await;
    let task = &mut killed.task;
    let next = next_relay(POLICY, &task.breakpoint, |_| Vec::new());
    let holder = Holder::here(41, Some("ann".into()), "Visual Studio Code", None);
    let claim = next.registry.claim(task.breakpoint.id, holder).unwrap();
    for restored in decode_records(killed.connections)(&next) {
        restore(&next, restored);
    }
    expect_silence(&mut task.dap, SILENCE_TIMEOUT).await;
    drop(claim);
    let daps = (&mut task.dap, &mut task.child_dap);
    expect_owned_by_adm(&next, task.breakpoint.id, daps).await;
}

/// Returns the process of a record and its owner.
fn owner_of(connection: &UnclaimedConnection) -> (Option<u64>, String) {
    let record: Value = serde_json::from_slice(&connection.record).unwrap();
    let owner = &record["tenant"];
    let subject = owner["identity"]["subject"].as_str().unwrap();
    (owner["process"].as_u64(), subject.to_owned())
}

/// The report that the task ended is lost with the relay.
#[tokio::test]
async fn subprocess_resumes_when_its_task_ended_at_the_keeper() {
    let killed = killed_relay().await;
    let mut task = killed.task;
    drop(task.dap);
    let next = next_relay(POLICY, &task.breakpoint, decode_records(killed.connections));
    answer_request(&mut task.child_dap, "threads").await;
    // The paused clock skips the time in which its task could be restored.
    tokio::time::pause();
    let mut message = task.child_dap.read().await.unwrap();
    tokio::time::resume();
    let request = Request::read(&mut message).unwrap();
    assert_eq!(request.command, "setFunctionBreakpoints");
    task.child_dap
        .send(&request.success(Value::Null))
        .await
        .unwrap();
    answer_request(&mut task.child_dap, "disconnect").await;
    drop(next);
}

#[tokio::test]
async fn session_of_an_ending_process_is_parked_at_the_next() {
    for is_busy in [false, true] {
        let place = testing::place();
        let _keeper = testing::keeper(&place).await;
        let first = testing::relay(&place).await;
        let (mut context, spy) = relay(minutes(15));
        Arc::get_mut(&mut context).unwrap().keeper = Some(Arc::clone(&first.keeper));
        let (worker, mut debugger, mut dap) = stopped_session(&context).await;
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
        let connections = link.is_left(1).await;
        let id = worker.breakpoint.id;
        let next = next_relay(POLICY, &worker.breakpoint, decode_records(connections));
        // The debugger got no request and no detach sequence.
        answer_request(&mut dap, "threads").await;
        let (mut ann, _) = reattach_with(&next, attach_to("ann", id)).await;
        ann.send("threads", json!({})).await;
        expect_request(&mut dap, "threads").await;
    }
}
