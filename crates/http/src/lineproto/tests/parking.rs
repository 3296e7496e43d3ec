//! Terminals whose connection is lost: what becomes of the task, who may go on with it, and how a park ends otherwise.

mod leaving;

use serde_json::{Value, json};

use crate::lineproto::tests::debugpy::{Debugpy, Worker};
use crate::lineproto::tests::*;
use ray_relay_access::policy::Scope;
use ray_relay_ray::hold::SLOTS_PER_USER;
use ray_relay_session::context::Context;
use tokio_util::task::AbortOnDropHandle;

use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::dap::conversation::Conversation;
use ray_relay_base::wire::dap::message::{event, request};
use ray_relay_base::wire::dap::stored_messages::MAX_STORED_BYTES;
use ray_relay_debugger::debugger::kept::Stored;
use ray_relay_debugger::keeper::testing::{self, KeeperPlace, KeptRelay};
use ray_relay_debugger::keeper::{self, UnclaimedConnection};
use ray_relay_ray::ray::registry::BreakpointId;
use ray_relay_session::session::authorise;
use ray_relay_session::session::state::SessionState;

pub(super) async fn until_listed(context: &Context, id: BreakpointId, word: &str) {
    let mut lists = context.registry.watch();
    let is_so = lists.wait_for(|list| list.find(id).is_some_and(|row| row.state.word() == word));
    timeout(TEST_TIMEOUT, is_so).await.expect(word).unwrap();
}

/// Waits until what the debugger parked by `who` has said is read: its answer to a question comes behind that.
async fn until_heard(relay: &Relay, who: &str, id: BreakpointId) {
    let principal = ray_relay_access::identity::testing::principal(&relay.context.auth, who).await;
    let list = relay.context.registry.snapshot();
    let may = authorise(&principal, list.find(id).unwrap(), Scope::Terminal).unwrap();
    let parks = &relay.context.sessions.parks;
    let heard = async {
        while parks.look(&may, "1".to_owned()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(TEST_TIMEOUT, heard).await.expect("it answers");
}

/// A relay, a debugpy breakpoint, and what `who` sees of it.
async fn standing(relay: &Relay, who: &str) -> (Debugpy, Worker, Person) {
    let debugpy = Debugpy::listen().await;
    relay.context.registry.insert(debugpy.breakpoint.clone());
    let (person, worker) =
        tokio::join!(enters(relay, who, debugpy.breakpoint.id), debugpy.entered());
    (debugpy, worker, person)
}

async fn enters(relay: &Relay, who: &str, id: BreakpointId) -> Person {
    let mut person = Person::connect(relay);
    person
        .say(&format!("{}\nenter {id}\n", token_of(who)))
        .await;
    person.until("(Pdb) ").await;
    person
}

/// The same, of whom the last words are wanted.
async fn refused(relay: &Relay, who: &str, said: &str) -> String {
    let mut person = Person::connect(relay);
    person.say(&format!("{}\n{said}\n", token_of(who))).await;
    person.rest().await
}

fn outcomes(relay: &Relay) -> Vec<(EntryKind, String)> {
    let outcome = |details: &Value| details["outcome"].as_str().unwrap_or_default().to_owned();
    let kept = relay.kept.take().into_iter();
    kept.map(|entry| (entry.action, outcome(&entry.details)))
        .collect()
}

#[tokio::test]
async fn reconnect_resumes_the_prompt() {
    let relay = relay(true, |_| {});
    let (debugpy, mut worker, mut ann) = standing(&relay, "ann").await;
    let id = debugpy.breakpoint.id;
    ann.say("n\n").await;
    ann.until("> /job.py(9)add()").await;
    ann.until("(Pdb) ").await;
    ann.say("alias pp9 p 9\n").await;
    ann.until("(Pdb) ").await;
    drop(ann.stream);
    until_listed(&relay.context, id, "parked").await;
    let list = relay.context.registry.snapshot();
    let holder = list.find(id).unwrap().holder().unwrap().clone();
    assert_eq!(holder.subject.as_deref(), Some("ann"));
    let rows = relay.context.sessions.table.rows();
    assert_eq!(
        (rows[0].state, rows[0].protocol),
        (SessionState::Parked, "terminal")
    );
    worker.asked_so_far();
    worker.say(event(
        "output",
        json!({"category": "stdout", "output": "meanwhile\n"}),
    ));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(
        worker.asked_so_far().is_empty(),
        "the debugger notices nothing"
    );

    let mut again = Person::connect(&relay);
    again.say(&format!("{}\n{id}\n", token_of("ann"))).await;
    let shown = again.until("(Pdb) ").await;
    assert!(
        shown.contains("*** you were parked at /job.py:9 for 0s; going on"),
        "{shown}"
    );
    assert!(
        shown.contains("> /job.py(9)add()") && shown.contains("meanwhile\n"),
        "{shown}"
    );
    until_listed(&relay.context, id, "attached").await;
    timeout(TEST_TIMEOUT, ann.ended).await.unwrap().unwrap();
    again.say("alias\n").await;
    assert!(again.until("(Pdb) ").await.contains("pp9 = p 9"));
    again.say("n\n").await;
    again.until("> /job.py(10)add()").await;
    assert!(!worker.asked_so_far().contains(&"attach".to_owned()));
    again.say("q\n").await;
    again.until("The task runs on").await;
    worker.let_go().await;
    again.say("q\n").await;
    again.rest().await;
    let on_record = outcomes(&relay);
    for wanted in [
        (EntryKind::SessionParked, "parked"),
        (EntryKind::SessionEnded, "taken_over"),
        (EntryKind::SessionEnded, "client"),
    ] {
        let wanted = (wanted.0, wanted.1.to_owned());
        assert!(on_record.contains(&wanted), "{on_record:?}");
    }
}

#[tokio::test]
async fn half_closed_client_gets_answers_and_the_park_notice() {
    let relay = relay(true, |_| {});
    let (debugpy, worker, mut ann) = standing(&relay, "ann").await;
    ann.say("n\np 1\n").await;
    ann.stream.shutdown().await.unwrap();
    let shown = ann.rest_of_it().await;
    assert!(shown.contains("> /job.py(9)add()"), "{shown}");
    let told = format!(
        "is parked for 15m 00s: come again to go on with it; `ray-relay release {}` lets the task run",
        debugpy.breakpoint.id
    );
    assert!(shown.contains(&told), "{shown}");
    until_listed(&relay.context, debugpy.breakpoint.id, "parked").await;
    drop(worker);
}

#[tokio::test]
async fn others_cannot_resume_a_park_and_an_admin_releases_it() {
    let relay = relay(true, |_| {});
    let (debugpy, worker, ann) = standing(&relay, "ann").await;
    let id = debugpy.breakpoint.id;
    drop(ann.stream);
    until_listed(&relay.context, id, "parked").await;
    for said in [format!("enter {id}"), format!("enter {id} take-over")] {
        let told = refused(&relay, "ed", &said).await;
        assert!(
            told.contains("is parked by ann") && told.contains("for 1"),
            "{told}"
        );
    }
    // Without saying so, an administrator does not either.
    let told = refused(&relay, "adm", &format!("enter {id}")).await;
    assert!(told.contains("is parked by ann"), "{told}");
    let mut adm = Person::connect(&relay);
    adm.say(&format!("{}\nenter {id} take-over\n", token_of("adm")))
        .await;
    let told = adm.until("(Pdb) ").await;
    assert!(told.contains("this resumes ann's session with "), "{told}");
    drop(adm.stream);
    until_listed(&relay.context, id, "parked").await;
    let principal =
        ray_relay_access::identity::testing::principal(&relay.context.auth, "adm").await;
    let list = relay.context.registry.snapshot();
    let may = authorise(&principal, list.find(id).unwrap(), Scope::Terminal);
    let released = relay.context.sessions.parks.let_run(&may.unwrap()).await;
    assert_eq!(released, Ok(()));
    worker.let_go().await;
    assert!(outcomes(&relay).contains(&(EntryKind::SessionEnded, "released".into())));
}

#[tokio::test]
async fn park_ends_with_its_token_or_its_time() {
    let relay = relay(true, |config| config.park.r#for = Duration::from_secs(1));
    let (debugpy, worker, ann) = standing(&relay, "ann").await;
    drop(ann.stream);
    worker.let_go().await;
    let told = refused(&relay, "ann", &format!("enter {}", debugpy.breakpoint.id)).await;
    assert!(told.contains("was kept"), "{told}");
    assert!(outcomes(&relay).contains(&(EntryKind::SessionEnded, "expired".into())));

    let relay = super::relay(true, |_| {});
    let (debugpy, worker, ann) = standing(&relay, "ann").await;
    drop(ann.stream);
    until_listed(&relay.context, debugpy.breakpoint.id, "parked").await;
    revoke(&relay.context.auth, "ann").await;
    worker.let_go().await;
    assert!(outcomes(&relay).contains(&(EntryKind::SessionEnded, "revoked".into())));
}

#[tokio::test]
async fn policy_rule_turns_parking_off() {
    let relay = relay(true, |_| {});
    let (_debugpy, worker, zoe) = standing(&relay, "zoe").await;
    drop(zoe.stream);
    worker.let_go().await;
    over(zoe.ended).await;
    relay.assert_ended("client");
}

#[tokio::test]
async fn stored_output_is_bounded_and_the_loss_reported() {
    let relay = relay(true, |_| {});
    let (debugpy, worker, ann) = standing(&relay, "ann").await;
    drop(ann.stream);
    until_listed(&relay.context, debugpy.breakpoint.id, "parked").await;
    for n in 0..300 {
        let text = format!("{n} {}\n", "x".repeat(1000));
        worker.say(event(
            "output",
            json!({"category": "stdout", "output": text}),
        ));
    }
    until_heard(&relay, "ann", debugpy.breakpoint.id).await;
    let mut again = Person::connect(&relay);
    let said = format!("{}\nenter {}\n", token_of("ann"), debugpy.breakpoint.id);
    again.say(&said).await;
    let shown = again.until("(Pdb) ").await;
    assert!(
        shown.contains("messages of output were dropped meanwhile"),
        "{shown}"
    );
    assert!(shown.contains("\n299 x") && !shown.contains("\n9 x"));
    assert!(shown.len() < 2 * MAX_STORED_BYTES);
}

#[tokio::test]
async fn user_at_the_park_limit_gets_no_further_park() {
    let relay = relay(true, |_| {});
    let mut parked = Vec::new();
    for n in 0..=SLOTS_PER_USER {
        let (listener, breakpoint) = listening(paused("add", u8::try_from(n).unwrap() + 10)).await;
        let debugpy = Debugpy::of(listener, breakpoint);
        relay.context.registry.insert(debugpy.breakpoint.clone());
        let id = debugpy.breakpoint.id;
        let (person, worker) = tokio::join!(enters(&relay, "ann", id), debugpy.entered());
        drop(person.stream);
        if n == SLOTS_PER_USER {
            worker.let_go().await;
            break;
        }
        until_listed(&relay.context, id, "parked").await;
        parked.push((debugpy, worker));
    }
    assert!(outcomes(&relay).contains(&(EntryKind::SessionParked, "refused".into())));
}

/// An editor of `who`, attached to what is parked, and what it was told before its `stopped`.
async fn edits(relay: &Relay, who: &str, id: BreakpointId) -> (Conversation<DuplexStream>, String) {
    let (stream, accepted) = duplex(1 << 16);
    let connection = ConnectionInfo::plain(([127, 0, 0, 1], 40_001).into());
    let context = relay.context.clone();
    tokio::spawn(async move {
        let session = context.sessions.table.open(&connection.summary);
        ray_relay_dap::serve(context, session, accepted, connection).await;
    });
    let mut editor = Conversation::new(stream, 1 << 20);
    let initialize = json!({"clientID": "nvim", "adapterID": "debugpy"});
    editor
        .send(&request(1, "initialize", initialize))
        .await
        .unwrap();
    let block = json!({"breakpoint": id.to_string(), "token": token_of(who), "parkFor": "2h"});
    let attach = json!({"request": "attach", "type": "debugpy", "rayRelay": block});
    editor.send(&request(2, "attach", attach)).await.unwrap();
    let mut told = String::new();
    loop {
        let message = timeout(TEST_TIMEOUT, editor.read()).await.unwrap().unwrap();
        told += message["body"]["output"].as_str().unwrap_or_default();
        match message["event"].as_str() {
            Some("initialized") => {
                editor
                    .send(&request(3, "configurationDone", json!({})))
                    .await
                    .unwrap();
            }
            Some("stopped") => return (editor, told),
            _ => {}
        }
    }
}

#[tokio::test]
async fn editor_and_prompt_resume_each_others_parks() {
    let relay = relay(true, |_| {});
    let (debugpy, mut worker, mut ed) = standing(&relay, "ed").await;
    let id = debugpy.breakpoint.id;
    ed.say("n\n").await;
    ed.until("> /job.py(9)add()").await;
    ed.until("(Pdb) ").await;
    drop(ed.stream);
    until_listed(&relay.context, id, "parked").await;
    let (mut editor, told) = edits(&relay, "ed", id).await;
    assert!(told.contains("this resumes your session"), "{told}");
    worker.asked_so_far();
    let next = request(4, "next", json!({"threadId": 1}));
    editor.send(&next).await.unwrap();
    worker.asked("next").await;
    while timeout(TEST_TIMEOUT, editor.read()).await.unwrap().unwrap()["event"] != "stopped" {}
    drop(editor);
    until_listed(&relay.context, id, "parked").await;
    let mut again = Person::connect(&relay);
    again
        .say(&format!("{}\nenter {id}\n", token_of("ed")))
        .await;
    let shown = again.until("(Pdb) ").await;
    assert!(shown.contains("this resumes your session with "), "{shown}");
    assert!(shown.contains("> /job.py(10)add()"), "{shown}");
    // The editor has asked for two hours, and the prompt is lost for no shorter.
    drop(again.stream);
    until_listed(&relay.context, id, "parked").await;
    let list = relay.context.registry.snapshot();
    let until = list.find(id).unwrap().holder().unwrap().parked_until;
    let left = Timestamp::now().until(until.unwrap());
    assert!(left > Duration::from_secs(7000), "{left:?}");
    let mut last = enters(&relay, "ed", id).await;
    last.say("q\n").await;
    worker.let_go().await;
}

/// A relay beside a keeper.
struct BesideKeeper {
    relay: Relay,
    link: KeptRelay,
    place: KeeperPlace,
    _keeping: AbortOnDropHandle<Result<(), keeper::Error>>,
}

async fn beside_keeper() -> BesideKeeper {
    let place = testing::place();
    let keeping = testing::keeper(&place).await;
    let link = testing::relay(&place).await;
    let mut relay = relay(true, |_| {});
    Arc::get_mut(&mut relay.context).unwrap().keeper = Some(Arc::clone(&link.keeper));
    BesideKeeper {
        relay,
        link,
        place,
        _keeping: keeping,
    }
}

/// The relay's process ends: `person` is told that the task stays parked. Returns the record that the next relay gets.
async fn left_behind(beside: BesideKeeper, person: Person) -> (BesideNext, Stored) {
    let shutdown = &beside.relay.context.shutdown;
    shutdown.drain.cancel();
    shutdown.abort.cancel();
    let told = person.rest().await;
    assert!(told.contains("the task stays parked for 15m 00s"), "{told}");
    beside.link.killed().await;
    let mut next = testing::relay(&beside.place).await;
    let left = next.is_left(1).await.remove(0);
    let stored = serde_json::from_slice(&left.record).unwrap();
    let next = BesideNext {
        _left: left,
        _next: next,
        _before: (beside.relay, beside.place, beside._keeping),
    };
    (next, stored)
}

/// Everything that has to live for the connection to stay open.
struct BesideNext {
    _left: UnclaimedConnection,
    _next: KeptRelay,
    _before: (
        Relay,
        KeeperPlace,
        AbortOnDropHandle<Result<(), keeper::Error>>,
    ),
}

#[tokio::test]
async fn prompt_of_an_ending_process_is_resumed_at_the_next() {
    let beside = beside_keeper().await;
    let (_debugpy, mut worker, ann) = standing(&beside.relay, "ann").await;
    let (_next, stored) = left_behind(beside, ann).await;
    assert!(stored.prompt.is_none(), "{stored:?}");
    let asked = worker.asked_so_far();
    assert!(!asked.contains(&"disconnect".to_owned()), "{asked:?}");
}

#[tokio::test]
async fn attaching_prompt_is_resumed_at_the_next_process() {
    let beside = beside_keeper().await;
    let relay = &beside.relay;
    let debugpy = Debugpy::listen().await;
    let id = debugpy.breakpoint.id;
    relay.context.registry.insert(debugpy.breakpoint.clone());
    let mut ann = Person::connect(relay);
    ann.say(&format!("{}\nenter {id}\n", token_of("ann"))).await;
    let mut worker = debugpy.entered().await;
    worker.asked("configurationDone").await;
    let (_next, _) = left_behind(beside, ann).await;
    let asked = worker.asked_so_far();
    assert!(!asked.contains(&"disconnect".to_owned()), "{asked:?}");
}

#[tokio::test]
async fn legacy_prompt_is_resumed_at_the_next_process() {
    let beside = beside_keeper().await;
    let said = format!("{}\n0\n", token_of("ann"));
    let (_pdb, ann, mut prompt) = picked(&beside.relay, &said).await;
    let (next, stored) = left_behind(beside, ann).await;
    assert!(stored.prompt.is_some(), "{stored:?}");
    drop(next);
    // Nothing was said in its place.
    assert_eq!(prompt.read(&mut [0; 16]).await.unwrap(), 0);
}

#[tokio::test]
async fn legacy_prompt_is_parked_with_its_output() {
    let relay = relay(true, |_| {});
    let said = format!("{}\n0\n", token_of("ann"));
    let (pdb, mut ann, mut prompt) = picked(&relay, &said).await;
    let id = pdb.breakpoint.id;
    ann.say("p x\n").await;
    until(&mut prompt, "p x\n").await;
    // What was typed is answered before it is parked; half a line is no command.
    ann.say("q").await;
    ann.stream.shutdown().await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    prompt.write_all(b"1\r\n(Pdb) ").await.unwrap();
    let shown = ann.rest_of_it().await;
    assert!(
        shown.contains("1\r\n(Pdb) ") && shown.contains("is parked for 15m 00s"),
        "{shown}"
    );
    until_listed(&relay.context, id, "parked").await;
    let told = refused(&relay, "ed", &format!("enter {id}")).await;
    assert!(told.contains("is parked by ann"), "{told}");
    prompt.write_all(b"\r\nmeanwhile\r\n(Pdb) ").await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut again = Person::connect(&relay);
    again
        .say(&format!("{}\nenter {id}\n", token_of("ann")))
        .await;
    let shown = again.until("meanwhile\r\n(Pdb) ").await;
    assert!(
        shown.contains("*** this resumes your session with "),
        "{shown}"
    );
    again.say("n\n").await;
    assert_eq!(until(&mut prompt, "n\n").await, "n\n");
    prompt.write_all(b"-> y\r\n(Pdb) ").await.unwrap();
    again.until("(Pdb) ").await;
    // Reset, while the prompt asks.
    drop(again.stream);
    until_listed(&relay.context, id, "parked").await;
    // With nothing said meanwhile, what it asks is asked again.
    let mut last = Person::connect(&relay);
    last.say(&format!("{}\nenter {id}\n", token_of("ann")))
        .await;
    last.until("(Pdb) ").await;
    last.say("c\n").await;
    last.stream.shutdown().await.unwrap();
    assert_eq!(until(&mut prompt, "c\nc\n").await, "c\nc\n");
    drop(prompt);
    last.rest().await;
    relay.assert_ended("client");
}

#[tokio::test]
async fn repeated_parks_leak_no_session_or_connection() {
    let relay = relay(true, |_| {});
    let (debugpy, mut worker, mut person) = standing(&relay, "ann").await;
    let id = debugpy.breakpoint.id;
    for round in 0..200 {
        drop(person.stream);
        until_listed(&relay.context, id, "parked").await;
        assert_eq!(relay.context.sessions.table.len(), 1, "{round}");
        person = enters(&relay, "ann", id).await;
    }
    let attaches = worker.asked_so_far();
    let attaches = attaches.iter().filter(|command| *command == "attach");
    assert_eq!(attaches.count(), 1, "one connection did all of it");
    person.say("q\n").await;
    worker.let_go().await;
}
