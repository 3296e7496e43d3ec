//! `all`: one prompt for many, by sessions of the relay's own.

use crate::lineproto::tests::debugpy::Debugpy;
use crate::lineproto::tests::*;
use ray_relay_access::connection::ConnectionInfo;
use ray_relay_ray::ray::registry::Snapshot;

/// Has `relay` serve what it opens itself, as its listener does.
fn serves_itself(relay: &Relay) {
    let context = relay.context.clone();
    tokio::spawn(async move {
        loop {
            let arrived = context.peers.links.arrived().await;
            let context = context.clone();
            tokio::spawn(async move {
                let summary = Summary::new(arrived.peer);
                let session = context.sessions.table.open(&summary);
                let who = arrived.principal;
                let connection = ConnectionInfo {
                    certificate: (!who.is_anonymous()).then_some(who),
                    linked: true,
                    ..ConnectionInfo::of(summary)
                };
                ray_relay_dap::serve(context, session, arrived.stream, connection).await;
            });
        }
    });
}

/// Two tasks that wait in the list of `relay`.
async fn two(relay: &Relay) -> [Debugpy; 2] {
    let mut both = Vec::new();
    for number in [1, 2] {
        let (listener, breakpoint) = listening(paused("add", number)).await;
        relay.context.registry.insert(breakpoint.clone());
        both.push(Debugpy::of(listener, breakpoint));
    }
    both.try_into().unwrap_or_else(|_| unreachable!())
}

async fn until_all(relay: &Relay, state: &str) {
    let mut lists = relay.context.registry.watch();
    let are = |list: &Arc<Snapshot>| list.live.iter().all(|one| one.state.word() == state);
    let listed = timeout(TEST_TIMEOUT, lists.wait_for(are)).await;
    listed.expect("in time").unwrap();
}

#[tokio::test]
async fn all_prompt_detaches_without_waiting_for_running_tasks() {
    let relay = relay(true, |_| {});
    serves_itself(&relay);
    let [one, other] = two(&relay).await;
    let mut ed = Person::connect(&relay);
    ed.say(&format!("\n{}\n", token_of("ed"))).await;
    let list = ed.until("q leaves): ").await;
    assert!(list.contains("`all` debugs all of this list"), "{list}");
    ed.say("all\n").await;
    let mut workers = [one.entered().await, other.entered().await];
    let opened = ed.until("(Pdb ×2) ").await;
    assert!(opened.contains("add ×2: > /job.py(8)add()\n"), "{opened}");
    ed.say("n\n").await;
    let told = ed.until("(Pdb ×2) ").await;
    assert_eq!(told, "add ×2: > /job.py(9)add()\n(Pdb ×2) ");
    ed.say("c\nquit\n").await;
    for worker in &mut workers {
        worker.asked("continue").await;
    }
    let left = ed.until("q leaves): ").await;
    let runs_on = "! add ×2: the task runs on without a debugger\n";
    assert!(left.starts_with(runs_on), "{left}");
    for worker in workers {
        worker.let_go().await;
    }
    let group = relay.kept.take();
    let groups = group
        .iter()
        .filter(|line| line.details.get("command") == Some(&"group".into()));
    let groups: Vec<_> = groups.collect();
    assert_eq!(groups.len(), 1, "{groups:?}");
    assert_eq!(groups[0].action, EntryKind::Administration);
    assert_eq!(
        groups[0].details["members"].as_array().map(Vec::len),
        Some(2)
    );
    let began = group
        .iter()
        .filter(|line| line.action == EntryKind::SessionBegan);
    let began: Vec<_> = began.map(|line| line.details["group"].as_str()).collect();
    assert_eq!(began.len(), 2, "{began:?}");
    assert!(began[0].is_some() && began[0] == began[1], "{began:?}");
}

#[tokio::test]
async fn unrecorded_all_prompt_opens_nothing() {
    let relay = relay(false, |_| {});
    let both = two(&relay).await;
    relay.kept.refuse(EntryKind::Administration);
    let mut person = Person::connect(&relay);
    person.say("all\n").await;
    let rest = person.rest().await;
    assert!(
        rest.contains("*** the relay cannot write its audit log"),
        "{rest}"
    );
    both.into_iter().for_each(Debugpy::not_entered);
}

#[tokio::test]
async fn lost_connection_parks_paused_tasks() {
    let relay = relay(true, |config| config.park.r#for = Duration::from_secs(900));
    serves_itself(&relay);
    let [one, other] = two(&relay).await;
    let mut ed = Person::connect(&relay);
    ed.say(&format!("all add\n{}\n", token_of("ed"))).await;
    let _workers = [one.entered().await, other.entered().await];
    ed.until("(Pdb ×2) ").await;
    drop(ed);
    until_all(&relay, "parked").await;

    // They are gone on with by the same word.
    let mut ed = Person::connect(&relay);
    ed.say(&format!("all\n{}\n", token_of("ed"))).await;
    ed.until("(Pdb ×2) ").await;
    until_all(&relay, "attached").await;
}

#[tokio::test]
async fn all_prompt_needs_both_view_and_terminal() {
    let relay = relay(true, |_| {});
    serves_itself(&relay);
    let both = two(&relay).await;
    for (who, lacks) in [("lou", "terminal"), ("ann", "view")] {
        let mut person = Person::connect(&relay);
        person.say(&format!("all\n{}\n", token_of(who))).await;
        let rest = person.rest().await;
        assert!(rest.contains("\n! pid 101"), "{rest}");
        assert!(rest.contains(&format!(": {who} may not ")), "{rest}");
        assert!(rest.contains(&format!("permission `{lacks}`")), "{rest}");
        assert!(rest.contains("*** none of them can be debugged now"));
    }
    // Who sees nothing is told of nothing.
    let mut eve = Person::connect(&relay);
    eve.say(&format!("all\n{}\n", token_of("eve"))).await;
    let rest = eve.rest().await;
    assert!(rest.contains("*** no task waits at a breakpoint"), "{rest}");
    both.into_iter().for_each(Debugpy::not_entered);
}
