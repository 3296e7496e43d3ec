//! Legacy prompts of a killed relay, restored by the next relay. Ray no longer lists them.

use std::os::fd::AsFd as _;
use std::pin::pin;

use serde_json::{Value, json};
use tokio::net::TcpSocket;

use super::parking::until_state;
use crate::lineproto::tests::*;
use ray_relay_access::audit::testing::AuditLine;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_base::timestamp::unix_ms;
use ray_relay_base::wire::passed_descriptors::PassedDescriptors;
use ray_relay_base::wire::tunnel::messages::ParkTerms;
use ray_relay_debugger::debugger::kept::Stored;
use ray_relay_debugger::keeper::Keeper;
use ray_relay_debugger::keeper::testing::{self, KeptRelay};
use ray_relay_ray::ray::registry::{BreakpointId, EnteredBreakpoint, Holder};
use ray_relay_session::session::authorise;
use ray_relay_session::session::live::RECORD_RETRY_DELAY;
use ray_relay_session::upstream::park::restored;
use ray_relay_session::upstream::restored::Restored;

/// How long to wait for an event that must not come.
const SILENCE_TIMEOUT: Duration = Duration::from_millis(400);

/// The previous relay's record of a prompt at `breakpoint` with the state `prompt`, parked for `keeps_ms`.
fn stored(breakpoint: &Breakpoint, keeps_ms: u64, prompt: Value) -> Value {
    let now = unix_ms(std::time::SystemTime::now());
    let terms = ParkTerms {
        owner: "".into(),
        credential: None,
        keeps_ms,
        at_least_ms: None,
        at_most_ms: None,
        lasted_ms: 0,
        capabilities: "".into(),
        attach: 0,
        cluster_session: None,
        entered: EnteredBreakpoint::to_text(breakpoint),
    };
    let owner = json!({
        "identity": null,
        "cluster": &*breakpoint.cluster,
        "worker_id": &*breakpoint.worker_id,
        "breakpoint": breakpoint.id.to_string(),
        "session": 41,
        "client": "terminal",
        "peer": "192.0.2.1:5000",
        "since_unix_ms": now,
    });
    let mut stored = serde_json::to_value(Stored::of_prompt(owner)).unwrap();
    stored["keep"] = json!([terms, now]);
    stored["prompt"] = prompt;
    stored
}

/// A legacy breakpoint whose id is derived from its key.
fn legacy_breakpoint() -> Breakpoint {
    let breakpoint = paused_in_pdb("outer", 1);
    Breakpoint {
        id: BreakpointId::derive(&breakpoint.cluster, breakpoint.key()),
        ..breakpoint
    }
}

/// Restores the connection to an unlisted prompt at `relay`, and returns the prompt's end.
async fn restored_prompt(
    relay: &Relay,
    breakpoint: &Breakpoint,
    keeps_ms: u64,
    prompt_state: Value,
) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap());
    let (near, far) = tokio::join!(near, listener.accept());
    let connection = near.unwrap().into_std().unwrap().into();
    let unclaimed = testing::left(connection, &stored(breakpoint, keeps_ms, prompt_state));
    let context = Arc::clone(&relay.context);
    tokio::spawn(async move {
        let restored = Restored::decode(unclaimed).unwrap();
        if let Some(claimed) = restored.claim(&context).await {
            restored::run(&context, claimed).await;
        }
    });
    far.unwrap().0
}

/// The state of a prompt that waits for a command, with undelivered input.
fn waiting_prompt(pending: &str) -> Value {
    json!({"question": b"(Pdb) ", "pending": pending.as_bytes(), "leaves": false})
}

async fn until_released(relay: &Relay, breakpoint: &Breakpoint) {
    let mut snapshots = relay.context.registry.watch();
    let gone = snapshots.wait_for(|list| list.find(breakpoint.id).is_none());
    timeout(TEST_TIMEOUT, gone)
        .await
        .expect("given back")
        .unwrap();
}

#[tokio::test]
async fn restored_prompt_is_parked_once_recorded() {
    let relay = relay(false, |_| {});
    relay.spy.refuse_all(true);
    let breakpoint = legacy_breakpoint();
    let mut prompt = restored_prompt(&relay, &breakpoint, 600_000, waiting_prompt("")).await;
    until_state(&relay.context, breakpoint.id, "parked").await;
    let list = relay.context.registry.snapshot();
    assert_eq!(list.find(breakpoint.id).unwrap().name(), breakpoint.name());
    let received = timeout(2 * RECORD_RETRY_DELAY, prompt.read_u8()).await;
    assert!(
        received.is_err(),
        "it hears nothing meanwhile: {received:?}"
    );
    relay.spy.refuse_all(false);
    let parked = async {
        let is_parked = |line: &AuditLine| line.action == EntryKind::SessionParked;
        while !relay.spy.lines().iter().any(is_parked) {
            tokio::task::yield_now().await;
        }
    };
    timeout(TEST_TIMEOUT, parked).await.unwrap();

    let mut client = Client::connect(&relay);
    client.send(&format!("enter {}\n", breakpoint.id)).await;
    let output = client.until("(Pdb) ").await;
    assert!(
        output.contains("this resumes your session with "),
        "{output}"
    );
    client.send("p x\n").await;
    assert_eq!(read_until(&mut prompt, "\n").await, "p x\n");
    prompt.write_all(b"4711\r\n(Pdb) ").await.unwrap();
    client.until("4711\r\n(Pdb) ").await;
    client.send("c\n").await;
    assert_eq!(read_until(&mut prompt, "\n").await, "c\n");
    drop(prompt);
    until_released(&relay, &breakpoint).await;
}

#[tokio::test]
async fn pending_input_is_delivered_before_a_release() {
    let relay = relay(false, |_| {});
    let breakpoint = legacy_breakpoint();
    let mut prompt =
        restored_prompt(&relay, &breakpoint, 600_000, waiting_prompt("me = 1\n")).await;
    assert_eq!(read_until(&mut prompt, "\n").await, "me = 1\n");
    prompt.write_all(b"(Pdb) ").await.unwrap();
    let context = &relay.context;
    let recorded = async {
        let is_parked = |line: &AuditLine| line.action == EntryKind::SessionParked;
        while !relay.spy.lines().iter().any(is_parked) {
            tokio::task::yield_now().await;
        }
    };
    timeout(TEST_TIMEOUT, recorded).await.unwrap();
    let list = context.registry.snapshot();
    let row = list.find(breakpoint.id).unwrap();
    let authorised = authorise(&Principal::anonymous(), row, Scope::Terminal).unwrap();
    let released = context.sessions.parks.let_run(&authorised);
    let released_input = async {
        let received = read_until(&mut prompt, "\n").await;
        drop(prompt);
        received
    };
    let (released, received) = tokio::join!(released, released_input);
    assert_eq!((released, &*received), (Ok(()), "c\n"));
    until_released(&relay, &breakpoint).await;
}

#[tokio::test]
async fn busy_prompt_is_not_reported_as_released() {
    let relay = relay(false, |_| {});
    let breakpoint = legacy_breakpoint();
    let busy = json!({"question": b"", "pending": b"p slow()\n", "leaves": false});
    let mut prompt = restored_prompt(&relay, &breakpoint, 600_000, busy).await;
    until_state(&relay.context, breakpoint.id, "parked").await;
    assert_eq!(read_until(&mut prompt, "\n").await, "p slow()\n");
    let context = &relay.context;
    let list = context.registry.snapshot();
    let row = list.find(breakpoint.id).unwrap();
    let authorised = authorise(&Principal::anonymous(), row, Scope::Terminal).unwrap();
    let error = context
        .sessions
        .parks
        .let_run(&authorised)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("does not run on yet"), "{error}");
    assert_eq!(read_until(&mut prompt, "\n").await, "c\n");
}

/// Ray may still list the prompt for a moment after a client entered it.
#[tokio::test]
async fn restored_prompt_waits_for_a_conflicting_claim() {
    let relay = relay(false, |_| {});
    let breakpoint = legacy_breakpoint();
    let registry = &relay.context.registry;
    registry.insert(breakpoint.clone());
    let holder = Holder::here(41, None, "terminal", None);
    let claim = registry.claim(breakpoint.id, holder).unwrap();
    let mut prompt = restored_prompt(&relay, &breakpoint, 600_000, waiting_prompt("")).await;
    let received = timeout(SILENCE_TIMEOUT, prompt.read_u8()).await;
    assert!(
        received.is_err(),
        "it hears nothing meanwhile: {received:?}"
    );
    drop(claim);
    until_state(&relay.context, breakpoint.id, "parked").await;
}

#[tokio::test]
async fn unparked_or_detaching_prompt_resumes_its_task() {
    let detaching_prompt =
        |pending: &str| json!({"question": [], "pending": pending.as_bytes(), "leaves": true});
    for (keeps_ms, prompt_state) in [(0, waiting_prompt("")), (600_000, detaching_prompt("c\n"))] {
        let relay = relay(false, |_| {});
        let breakpoint = legacy_breakpoint();
        let mut prompt = restored_prompt(&relay, &breakpoint, keeps_ms, prompt_state).await;
        assert_eq!(read_until(&mut prompt, "\n").await, "c\n");
        prompt.shutdown().await.unwrap();
        let received = timeout(TEST_TIMEOUT, prompt.read_u8()).await.unwrap();
        assert!(received.is_err(), "it is told once");
        until_released(&relay, &breakpoint).await;
    }
}

/// The keeper gets the connection and its park terms before the prompt is dialled, so that no crash of the relay loses it.
#[tokio::test]
async fn prompt_is_kept_when_its_relay_dies_on_entry() {
    let place = testing::place();
    let _keeper = testing::keeper(&place).await;
    let (keeper, _) = Keeper::open(Some(&place.path), &mut PassedDescriptors::default())
        .await
        .unwrap()
        .unwrap();
    let mut relay = relay(false, |config| {
        config.park.r#for = Duration::from_secs(600);
    });
    Arc::get_mut(&mut relay.context).unwrap().keeper = Some(Arc::clone(&keeper));
    let pdb = Pdb::listed(&relay).await;
    let (mut client, serving) = Client::unspawned(&relay);
    let enter = format!("enter {}\n", pdb.breakpoint.id);
    client.write_all(enter.as_bytes()).await.unwrap();
    let mut serving = pin!(serving);
    // The process is killed right after the dial.
    let mut dialled = pin!(async {
        tokio::select! {
            biased;
            accepted = pdb.listener.accept() => accepted.unwrap(),
            () = &mut serving => panic!("the session has ended"),
        }
    });
    // On a paused clock, the timeout expires once all tasks wait.
    tokio::time::pause();
    let dialled_early = timeout(Duration::from_millis(10), &mut dialled).await;
    assert!(
        dialled_early.is_err(),
        "it is entered before the keeper has it"
    );
    tokio::time::resume();
    let link = KeptRelay::linked(keeper, Vec::new());
    let dialled = timeout(TEST_TIMEOUT, dialled).await;
    let _prompt = dialled.expect("the relay dials");
    // To the keeper, the closed link is the end of the relay.
    link.killed().await;
    let mut next = testing::relay(&place).await;
    let connection = next.is_left(1).await.remove(0);
    let stored: Stored = serde_json::from_slice(&connection.record).unwrap();
    let (terms, _) = stored.keep.unwrap();
    assert_eq!(terms.keeps_ms, 600_000);
    let recorded = EnteredBreakpoint::read(terms.entered.as_deref().unwrap());
    assert_eq!(recorded.unwrap().breakpoint().name(), pdb.breakpoint.name());
    // The prompt's output may be lost with the process, so the record has the waiting state.
    let prompt = serde_json::to_value(stored.prompt).unwrap();
    assert_eq!(prompt, waiting_prompt(""));
}

/// Covers the record of a process that was killed before it dialled.
#[tokio::test]
async fn undialled_record_restores_no_session() {
    let relay = relay(false, |_| {});
    let breakpoint = legacy_breakpoint();
    relay.context.registry.insert(breakpoint.clone());
    let mut stored = stored(&breakpoint, 600_000, waiting_prompt(""));
    stored["dials"] = true.into();
    let socket = TcpSocket::new_v4().unwrap();
    let connection = socket.as_fd().try_clone_to_owned().unwrap();
    let restored = Restored::decode(testing::left(connection, &stored)).unwrap();
    let claimed = timeout(TEST_TIMEOUT, restored.claim(&relay.context)).await;
    assert!(claimed.unwrap().is_none());
    let list = relay.context.registry.snapshot();
    assert!(list.find(breakpoint.id).unwrap().is_paused(), "it is free");
}
