//! `all`: one prompt for several tasks, with linked sessions of the relay.

use crate::lineproto::tests::debugpy::Debugpy;
use crate::lineproto::tests::*;
use ray_relay_access::connection::ConnectionInfo;
use ray_relay_ray::ray::registry::Snapshot;

/// Serves the sessions that `relay` opens to itself, like its listener.
fn serve_own_sessions(relay: &Relay) {
    let context = relay.context.clone();
    tokio::spawn(async move {
        loop {
            let link = context.peers.links.arrived().await;
            let context = context.clone();
            tokio::spawn(async move {
                let summary = Summary::new(link.peer);
                let session = context.sessions.table.open(&summary);
                let principal = link.principal;
                let connection = ConnectionInfo {
                    certificate: (!principal.is_anonymous()).then_some(principal),
                    linked: true,
                    ..ConnectionInfo::of(summary)
                };
                ray_relay_dap::serve(context, session, link.stream, connection).await;
            });
        }
    });
}

/// Lists two paused tasks at `relay`.
async fn two_tasks(relay: &Relay) -> [Debugpy; 2] {
    let mut tasks = Vec::new();
    for number in [1, 2] {
        let (listener, breakpoint) = listening(paused("add", number)).await;
        relay.context.registry.insert(breakpoint.clone());
        tasks.push(Debugpy::new(listener, breakpoint));
    }
    tasks.try_into().unwrap_or_else(|_| unreachable!())
}

async fn until_all_in_state(relay: &Relay, state: &str) {
    let mut snapshots = relay.context.registry.watch();
    let all_match = |list: &Arc<Snapshot>| list.live.iter().all(|row| row.state.word() == state);
    let result = timeout(TEST_TIMEOUT, snapshots.wait_for(all_match)).await;
    result.expect("in time").unwrap();
}

#[tokio::test]
async fn all_prompt_detaches_without_waiting_for_running_tasks() {
    let relay = relay(true, |_| {});
    serve_own_sessions(&relay);
    let [first, second] = two_tasks(&relay).await;
    let mut ed = Client::connect(&relay);
    ed.send(&format!("\n{}\n", token_of("ed"))).await;
    let list = ed.until("q leaves): ").await;
    assert!(list.contains("`all` debugs all of this list"), "{list}");
    ed.send("all\n").await;
    let mut workers = [first.accept().await, second.accept().await];
    let output = ed.until("(Pdb ×2) ").await;
    assert!(output.contains("add ×2: > /job.py(8)add()\n"), "{output}");
    ed.send("n\n").await;
    let output = ed.until("(Pdb ×2) ").await;
    assert_eq!(output, "add ×2: > /job.py(9)add()\n(Pdb ×2) ");
    ed.send("c\nquit\n").await;
    for worker in &mut workers {
        worker.expect_command("continue").await;
    }
    let output = ed.until("q leaves): ").await;
    let expected = "! add ×2: the task runs on without a debugger\n";
    assert!(output.starts_with(expected), "{output}");
    for worker in workers {
        worker.expect_detach().await;
    }
    let group = relay.spy.take();
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
    let groups_of_sessions = group
        .iter()
        .filter(|line| line.action == EntryKind::SessionBegan);
    let groups_of_sessions: Vec<_> = groups_of_sessions
        .map(|line| line.details["group"].as_str())
        .collect();
    assert_eq!(groups_of_sessions.len(), 2, "{groups_of_sessions:?}");
    assert!(
        groups_of_sessions[0].is_some() && groups_of_sessions[0] == groups_of_sessions[1],
        "{groups_of_sessions:?}"
    );
}

#[tokio::test]
async fn unrecorded_all_prompt_opens_nothing() {
    let relay = relay(false, |_| {});
    let tasks = two_tasks(&relay).await;
    relay.spy.refuse(EntryKind::Administration);
    let mut client = Client::connect(&relay);
    client.send("all\n").await;
    let output = client.read_all().await;
    assert!(
        output.contains("*** the relay cannot write its audit log"),
        "{output}"
    );
    tasks.into_iter().for_each(Debugpy::expect_not_dialled);
}

#[tokio::test]
async fn lost_connection_parks_paused_tasks() {
    let relay = relay(true, |config| config.park.r#for = Duration::from_secs(900));
    serve_own_sessions(&relay);
    let [first, second] = two_tasks(&relay).await;
    let mut ed = Client::connect(&relay);
    ed.send(&format!("all add\n{}\n", token_of("ed"))).await;
    let _workers = [first.accept().await, second.accept().await];
    ed.until("(Pdb ×2) ").await;
    drop(ed);
    until_all_in_state(&relay, "parked").await;

    // The same command resumes them.
    let mut ed = Client::connect(&relay);
    ed.send(&format!("all\n{}\n", token_of("ed"))).await;
    ed.until("(Pdb ×2) ").await;
    until_all_in_state(&relay, "attached").await;
}

#[tokio::test]
async fn all_prompt_needs_both_view_and_terminal() {
    let relay = relay(true, |_| {});
    serve_own_sessions(&relay);
    let tasks = two_tasks(&relay).await;
    for (user, missing) in [("lou", "terminal"), ("ann", "view")] {
        let mut client = Client::connect(&relay);
        client.send(&format!("all\n{}\n", token_of(user))).await;
        let output = client.read_all().await;
        assert!(output.contains("\n! pid 101"), "{output}");
        assert!(output.contains(&format!(": {user} may not ")), "{output}");
        assert!(
            output.contains(&format!("permission `{missing}`")),
            "{output}"
        );
        assert!(output.contains("*** none of them can be debugged now"));
    }
    // A user without visible tasks learns of none.
    let mut eve = Client::connect(&relay);
    eve.send(&format!("all\n{}\n", token_of("eve"))).await;
    let output = eve.read_all().await;
    assert!(
        output.contains("*** no task waits at a breakpoint"),
        "{output}"
    );
    tasks.into_iter().for_each(Debugpy::expect_not_dialled);
}
