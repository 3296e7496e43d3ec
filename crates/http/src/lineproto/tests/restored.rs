//! Prompts of the legacy debugger whose relay was killed, at the next one, whose list Ray has forgotten them in.

use std::os::fd::AsFd as _;
use std::pin::pin;

use serde_json::{Value, json};
use tokio::net::TcpSocket;

use super::parking::until_listed;
use crate::lineproto::tests::*;
use ray_relay_access::audit::testing::AuditLine as Audited;
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

/// How long is waited for what is not to come.
const QUIET: Duration = Duration::from_millis(400);

/// The previous relay's record of a prompt at `breakpoint`, with its state, kept for so many milliseconds.
fn stored(breakpoint: &Breakpoint, keeps_ms: u64, at: Value) -> Value {
    let said = unix_ms(std::time::SystemTime::now());
    let keep = ParkTerms {
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
    let tenant = json!({
        "identity": null,
        "cluster": &*breakpoint.cluster,
        "worker_id": &*breakpoint.worker_id,
        "breakpoint": breakpoint.id.to_string(),
        "session": 41,
        "client": "terminal",
        "peer": "192.0.2.1:5000",
        "since_unix_ms": said,
    });
    let mut stored = serde_json::to_value(Stored::of_prompt(tenant)).unwrap();
    stored["keep"] = json!([keep, said]);
    stored["prompt"] = at;
    stored
}

/// A legacy breakpoint, with the id that its key has.
fn entered() -> Breakpoint {
    let breakpoint = paused_in_pdb("outer", 1);
    Breakpoint {
        id: BreakpointId::derive(&breakpoint.cluster, breakpoint.key()),
        ..breakpoint
    }
}

/// Gives the connection to such a prompt to `relay`, which does not list it; the other end.
async fn given(relay: &Relay, breakpoint: &Breakpoint, keeps_ms: u64, at: Value) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap());
    let (near, far) = tokio::join!(near, listener.accept());
    let connection = near.unwrap().into_std().unwrap().into();
    let left = testing::left(connection, &stored(breakpoint, keeps_ms, at));
    let context = Arc::clone(&relay.context);
    tokio::spawn(async move {
        let restored = Restored::decode(left).unwrap();
        if let Some(claimed) = restored.claim(&context).await {
            restored::run(&context, claimed).await;
        }
    });
    far.unwrap().0
}

/// It stood at its prompt, no client was leaving it, and these lines had not reached it.
fn standing(pending: &str) -> Value {
    json!({"question": b"(Pdb) ", "pending": pending.as_bytes(), "leaves": false})
}

async fn until_gone(relay: &Relay, breakpoint: &Breakpoint) {
    let mut lists = relay.context.registry.watch();
    let gone = lists.wait_for(|list| list.find(breakpoint.id).is_none());
    timeout(TEST_TIMEOUT, gone)
        .await
        .expect("given back")
        .unwrap();
}

#[tokio::test]
async fn restored_prompt_is_parked_once_recorded() {
    let relay = relay(false, |_| {});
    relay.kept.refuse_all(true);
    let breakpoint = entered();
    let mut prompt = given(&relay, &breakpoint, 600_000, standing("")).await;
    until_listed(&relay.context, breakpoint.id, "parked").await;
    let list = relay.context.registry.snapshot();
    assert_eq!(list.find(breakpoint.id).unwrap().name(), breakpoint.name());
    let tries = timeout(2 * RECORD_RETRY_DELAY, prompt.read_u8()).await;
    assert!(tries.is_err(), "it hears nothing meanwhile: {tries:?}");
    relay.kept.refuse_all(false);
    let parked = async {
        let is_parked = |line: &Audited| line.action == EntryKind::SessionParked;
        while !relay.kept.lines().iter().any(is_parked) {
            tokio::task::yield_now().await;
        }
    };
    timeout(TEST_TIMEOUT, parked).await.unwrap();

    let mut person = Person::connect(&relay);
    person.say(&format!("enter {}\n", breakpoint.id)).await;
    let told = person.until("(Pdb) ").await;
    assert!(told.contains("this resumes your session with "), "{told}");
    person.say("p x\n").await;
    assert_eq!(until(&mut prompt, "\n").await, "p x\n");
    prompt.write_all(b"4711\r\n(Pdb) ").await.unwrap();
    person.until("4711\r\n(Pdb) ").await;
    person.say("c\n").await;
    assert_eq!(until(&mut prompt, "\n").await, "c\n");
    drop(prompt);
    until_gone(&relay, &breakpoint).await;
}

#[tokio::test]
async fn pending_input_is_delivered_before_a_release() {
    let relay = relay(false, |_| {});
    let breakpoint = entered();
    let mut prompt = given(&relay, &breakpoint, 600_000, standing("me = 1\n")).await;
    assert_eq!(until(&mut prompt, "\n").await, "me = 1\n");
    prompt.write_all(b"(Pdb) ").await.unwrap();
    let context = &relay.context;
    let begun = async {
        let is_parked = |line: &Audited| line.action == EntryKind::SessionParked;
        while !relay.kept.lines().iter().any(is_parked) {
            tokio::task::yield_now().await;
        }
    };
    timeout(TEST_TIMEOUT, begun).await.unwrap();
    let list = context.registry.snapshot();
    let row = list.find(breakpoint.id).unwrap();
    let may = authorise(&Principal::anonymous(), row, Scope::Terminal).unwrap();
    let released = context.sessions.parks.let_run(&may);
    let left = async {
        let said = until(&mut prompt, "\n").await;
        drop(prompt);
        said
    };
    let (released, said) = tokio::join!(released, left);
    assert_eq!((released, &*said), (Ok(()), "c\n"));
    until_gone(&relay, &breakpoint).await;
}

#[tokio::test]
async fn busy_prompt_is_not_reported_as_released() {
    let relay = relay(false, |_| {});
    let breakpoint = entered();
    let busy = json!({"question": b"", "pending": b"p slow()\n", "leaves": false});
    let mut prompt = given(&relay, &breakpoint, 600_000, busy).await;
    until_listed(&relay.context, breakpoint.id, "parked").await;
    assert_eq!(until(&mut prompt, "\n").await, "p slow()\n");
    let context = &relay.context;
    let list = context.registry.snapshot();
    let row = list.find(breakpoint.id).unwrap();
    let may = authorise(&Principal::anonymous(), row, Scope::Terminal).unwrap();
    let why = context.sessions.parks.let_run(&may).await.unwrap_err();
    assert!(why.to_string().contains("does not run on yet"), "{why}");
    assert_eq!(until(&mut prompt, "\n").await, "c\n");
}

/// Ray may list it for a moment after it was entered.
#[tokio::test]
async fn restored_prompt_waits_for_a_conflicting_claim() {
    let relay = relay(false, |_| {});
    let breakpoint = entered();
    let registry = &relay.context.registry;
    registry.insert(breakpoint.clone());
    let holder = Holder::here(41, None, "terminal", None);
    let claim = registry.claim(breakpoint.id, holder).unwrap();
    let mut prompt = given(&relay, &breakpoint, 600_000, standing("")).await;
    let told = timeout(QUIET, prompt.read_u8()).await;
    assert!(told.is_err(), "it hears nothing meanwhile: {told:?}");
    drop(claim);
    until_listed(&relay.context, breakpoint.id, "parked").await;
}

#[tokio::test]
async fn unparked_or_detaching_prompt_resumes_its_task() {
    let gone =
        |pending: &str| json!({"question": [], "pending": pending.as_bytes(), "leaves": true});
    for (keeps_ms, at) in [(0, standing("")), (600_000, gone("c\n"))] {
        let relay = relay(false, |_| {});
        let breakpoint = entered();
        let mut prompt = given(&relay, &breakpoint, keeps_ms, at).await;
        assert_eq!(until(&mut prompt, "\n").await, "c\n");
        prompt.shutdown().await.unwrap();
        let rest = timeout(TEST_TIMEOUT, prompt.read_u8()).await.unwrap();
        assert!(rest.is_err(), "it is told once");
        until_gone(&relay, &breakpoint).await;
    }
}

/// A client that has entered is gone with its process: the keeper has the connection, and by what it is kept, before it is one.
#[tokio::test]
async fn prompt_is_kept_when_its_relay_dies_on_entry() {
    let place = testing::place();
    let _keeping = testing::keeper(&place).await;
    let (keeper, _) = Keeper::open(Some(&place.path), &mut PassedDescriptors::default())
        .await
        .unwrap()
        .unwrap();
    let mut relay = relay(false, |config| {
        config.park.r#for = Duration::from_secs(600);
    });
    Arc::get_mut(&mut relay.context).unwrap().keeper = Some(Arc::clone(&keeper));
    let pdb = Pdb::listed(&relay).await;
    let (mut person, serving) = Person::served(&relay);
    let enter = format!("enter {}\n", pdb.breakpoint.id);
    person.write_all(enter.as_bytes()).await.unwrap();
    let mut serving = pin!(serving);
    // Nothing more is done for the person once it is dialled: the process is killed then.
    let mut dialled = pin!(async {
        tokio::select! {
            biased;
            accepted = pdb.listener.accept() => accepted.unwrap(),
            () = &mut serving => panic!("the session has ended"),
        }
    });
    // With this clock a time is over when there is nothing else to do.
    tokio::time::pause();
    let early = timeout(Duration::from_millis(10), &mut dialled).await;
    assert!(early.is_err(), "it is entered before the keeper has it");
    tokio::time::resume();
    let link = KeptRelay::linked(keeper, Vec::new());
    let dialled = timeout(TEST_TIMEOUT, dialled).await;
    let _prompt = dialled.expect("the relay dials");
    // All that the relay is to the keeper.
    link.killed().await;
    let mut next = testing::relay(&place).await;
    let left = next.is_left(1).await.remove(0);
    let stored: Stored = serde_json::from_slice(&left.record).unwrap();
    let (keep, _) = stored.keep.unwrap();
    assert_eq!(keep.keeps_ms, 600_000);
    let entered = EnteredBreakpoint::read(keep.entered.as_deref().unwrap());
    assert_eq!(entered.unwrap().breakpoint().name(), pdb.breakpoint.name());
    // What it says now may be lost with the process.
    let at = serde_json::to_value(stored.prompt).unwrap();
    assert_eq!(at, standing(""));
}

/// The record of a process that was killed before it had dialled.
#[tokio::test]
async fn undialled_record_restores_no_session() {
    let relay = relay(false, |_| {});
    let breakpoint = entered();
    relay.context.registry.insert(breakpoint.clone());
    let mut stored = stored(&breakpoint, 600_000, standing(""));
    stored["dials"] = true.into();
    let socket = TcpSocket::new_v4().unwrap();
    let connection = socket.as_fd().try_clone_to_owned().unwrap();
    let restored = Restored::decode(testing::left(connection, &stored)).unwrap();
    let claimed = timeout(TEST_TIMEOUT, restored.claim(&relay.context)).await;
    assert!(claimed.unwrap().is_none());
    let list = relay.context.registry.snapshot();
    assert!(list.find(breakpoint.id).unwrap().is_paused(), "it is free");
}
