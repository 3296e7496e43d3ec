//! Terminals whose connection is lost: parking, resuming, and other ends of a park.

mod keeper;
mod leaving;

use serde_json::{Value, json};

use crate::lineproto::tests::debugpy::{Debugpy, Worker};
use crate::lineproto::tests::*;
use ray_relay_access::policy::Scope;
use ray_relay_ray::hold::SLOTS_PER_USER;
use ray_relay_session::context::Context;

use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::dap::conversation::Conversation;
use ray_relay_base::wire::dap::message::{event, request};
use ray_relay_base::wire::dap::stored_messages::MAX_STORED_BYTES;
use ray_relay_ray::ray::registry::BreakpointId;
use ray_relay_session::session::authorise;
use ray_relay_session::session::state::SessionState;

pub(super) async fn until_state(context: &Context, id: BreakpointId, word: &str) {
    let mut snapshots = context.registry.watch();
    let is_reached =
        snapshots.wait_for(|list| list.find(id).is_some_and(|row| row.state.word() == word));
    timeout(TEST_TIMEOUT, is_reached)
        .await
        .expect(word)
        .unwrap();
}

/// Waits until the output of the parked debugger is read: it answers an expression after its earlier output.
async fn until_output_is_read(relay: &Relay, user: &str, id: BreakpointId) {
    let principal = ray_relay_access::identity::testing::principal(&relay.context.auth, user).await;
    let list = relay.context.registry.snapshot();
    let authorised = authorise(&principal, list.find(id).unwrap(), Scope::Terminal).unwrap();
    let parks = &relay.context.sessions.parks;
    let answered = async {
        while parks.look(&authorised, "1".to_owned()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(TEST_TIMEOUT, answered).await.expect("it answers");
}

/// Creates a debugpy breakpoint, and a client of `user` at its prompt.
async fn at_debugpy_prompt(relay: &Relay, user: &str) -> (Debugpy, Worker, Client) {
    let debugpy = Debugpy::listen().await;
    relay.context.registry.insert(debugpy.breakpoint.clone());
    let (client, worker) =
        tokio::join!(enter(relay, user, debugpy.breakpoint.id), debugpy.accept());
    (debugpy, worker, client)
}

async fn enter(relay: &Relay, user: &str, id: BreakpointId) -> Client {
    let mut client = Client::connect(relay);
    client
        .send(&format!("{}\nenter {id}\n", token_of(user)))
        .await;
    client.until("(Pdb) ").await;
    client
}

/// Sends `command` as `user`, and returns the whole output.
async fn refused_output(relay: &Relay, user: &str, command: &str) -> String {
    let mut client = Client::connect(relay);
    client
        .send(&format!("{}\n{command}\n", token_of(user)))
        .await;
    client.read_all().await
}

fn outcomes(relay: &Relay) -> Vec<(EntryKind, String)> {
    let outcome = |details: &Value| details["outcome"].as_str().unwrap_or_default().to_owned();
    let entries = relay.spy.take().into_iter();
    entries
        .map(|entry| (entry.action, outcome(&entry.details)))
        .collect()
}

#[tokio::test]
async fn reconnect_resumes_the_prompt() {
    let relay = relay(true, |_| {});
    let (debugpy, mut worker, mut ann) = at_debugpy_prompt(&relay, "ann").await;
    let id = debugpy.breakpoint.id;
    ann.send("n\n").await;
    ann.until("> /job.py(9)add()").await;
    ann.until("(Pdb) ").await;
    ann.send("alias pp9 p 9\n").await;
    ann.until("(Pdb) ").await;
    drop(ann.stream);
    until_state(&relay.context, id, "parked").await;
    let list = relay.context.registry.snapshot();
    let holder = list.find(id).unwrap().holder().unwrap().clone();
    assert_eq!(holder.subject.as_deref(), Some("ann"));
    let rows = relay.context.sessions.table.rows();
    assert_eq!(
        (rows[0].state, rows[0].protocol),
        (SessionState::Parked, "terminal")
    );
    worker.take_commands();
    worker.send(event(
        "output",
        json!({"category": "stdout", "output": "meanwhile\n"}),
    ));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(
        worker.take_commands().is_empty(),
        "the debugger notices nothing"
    );

    let mut next_client = Client::connect(&relay);
    next_client
        .send(&format!("{}\n{id}\n", token_of("ann")))
        .await;
    let output = next_client.until("(Pdb) ").await;
    assert!(
        output.contains("*** you were parked at /job.py:9 for 0s; going on"),
        "{output}"
    );
    assert!(
        output.contains("> /job.py(9)add()") && output.contains("meanwhile\n"),
        "{output}"
    );
    until_state(&relay.context, id, "attached").await;
    timeout(TEST_TIMEOUT, ann.ended).await.unwrap().unwrap();
    next_client.send("alias\n").await;
    assert!(next_client.until("(Pdb) ").await.contains("pp9 = p 9"));
    next_client.send("n\n").await;
    next_client.until("> /job.py(10)add()").await;
    assert!(!worker.take_commands().contains(&"attach".to_owned()));
    next_client.send("q\n").await;
    next_client.until("The task runs on").await;
    worker.expect_detach().await;
    next_client.send("q\n").await;
    next_client.read_all().await;
    let entries = outcomes(&relay);
    for expected in [
        (EntryKind::SessionParked, "parked"),
        (EntryKind::SessionEnded, "taken_over"),
        (EntryKind::SessionEnded, "client"),
    ] {
        let expected = (expected.0, expected.1.to_owned());
        assert!(entries.contains(&expected), "{entries:?}");
    }
}

#[tokio::test]
async fn half_closed_client_gets_answers_and_the_park_notice() {
    let relay = relay(true, |_| {});
    let (debugpy, worker, mut ann) = at_debugpy_prompt(&relay, "ann").await;
    ann.send("n\np 1\n").await;
    ann.stream.shutdown().await.unwrap();
    let output = ann.read_to_close().await;
    assert!(output.contains("> /job.py(9)add()"), "{output}");
    let expected = format!(
        "is parked for 15m 00s: come again to go on with it; `ray-relay release {}` lets the task run",
        debugpy.breakpoint.id
    );
    assert!(output.contains(&expected), "{output}");
    until_state(&relay.context, debugpy.breakpoint.id, "parked").await;
    drop(worker);
}

#[tokio::test]
async fn others_cannot_resume_a_park_and_an_admin_releases_it() {
    let relay = relay(true, |_| {});
    let (debugpy, worker, ann) = at_debugpy_prompt(&relay, "ann").await;
    let id = debugpy.breakpoint.id;
    drop(ann.stream);
    until_state(&relay.context, id, "parked").await;
    for command in [format!("enter {id}"), format!("enter {id} take-over")] {
        let output = refused_output(&relay, "ed", &command).await;
        assert!(
            output.contains("is parked by ann") && output.contains("for 1"),
            "{output}"
        );
    }
    // Without `take-over`, an administrator is refused too.
    let output = refused_output(&relay, "adm", &format!("enter {id}")).await;
    assert!(output.contains("is parked by ann"), "{output}");
    let mut adm = Client::connect(&relay);
    adm.send(&format!("{}\nenter {id} take-over\n", token_of("adm")))
        .await;
    let output = adm.until("(Pdb) ").await;
    assert!(
        output.contains("this resumes ann's session with "),
        "{output}"
    );
    drop(adm.stream);
    until_state(&relay.context, id, "parked").await;
    let principal =
        ray_relay_access::identity::testing::principal(&relay.context.auth, "adm").await;
    let list = relay.context.registry.snapshot();
    let authorised = authorise(&principal, list.find(id).unwrap(), Scope::Terminal);
    let released = relay
        .context
        .sessions
        .parks
        .let_run(&authorised.unwrap())
        .await;
    assert_eq!(released, Ok(()));
    worker.expect_detach().await;
    assert!(outcomes(&relay).contains(&(EntryKind::SessionEnded, "released".into())));
}

#[tokio::test]
async fn park_ends_with_its_token_or_its_time() {
    let relay = relay(true, |config| config.park.r#for = Duration::from_secs(1));
    let (debugpy, worker, ann) = at_debugpy_prompt(&relay, "ann").await;
    drop(ann.stream);
    worker.expect_detach().await;
    let output = refused_output(&relay, "ann", &format!("enter {}", debugpy.breakpoint.id)).await;
    assert!(output.contains("was kept"), "{output}");
    assert!(outcomes(&relay).contains(&(EntryKind::SessionEnded, "expired".into())));

    let relay = super::relay(true, |_| {});
    let (debugpy, worker, ann) = at_debugpy_prompt(&relay, "ann").await;
    drop(ann.stream);
    until_state(&relay.context, debugpy.breakpoint.id, "parked").await;
    revoke(&relay.context.auth, "ann").await;
    worker.expect_detach().await;
    assert!(outcomes(&relay).contains(&(EntryKind::SessionEnded, "revoked".into())));
}

#[tokio::test]
async fn policy_rule_turns_parking_off() {
    let relay = relay(true, |_| {});
    let (_debugpy, worker, zoe) = at_debugpy_prompt(&relay, "zoe").await;
    drop(zoe.stream);
    worker.expect_detach().await;
    expect_session_end(zoe.ended).await;
    relay.assert_ended("client");
}

#[tokio::test]
async fn stored_output_is_bounded_and_the_loss_reported() {
    let relay = relay(true, |_| {});
    let (debugpy, worker, ann) = at_debugpy_prompt(&relay, "ann").await;
    drop(ann.stream);
    until_state(&relay.context, debugpy.breakpoint.id, "parked").await;
    for n in 0..300 {
        let text = format!("{n} {}\n", "x".repeat(1000));
        worker.send(event(
            "output",
            json!({"category": "stdout", "output": text}),
        ));
    }
    until_output_is_read(&relay, "ann", debugpy.breakpoint.id).await;
    let mut next_client = Client::connect(&relay);
    let input = format!("{}\nenter {}\n", token_of("ann"), debugpy.breakpoint.id);
    next_client.send(&input).await;
    let output = next_client.until("(Pdb) ").await;
    assert!(
        output.contains("messages of output were dropped meanwhile"),
        "{output}"
    );
    assert!(output.contains("\n299 x") && !output.contains("\n9 x"));
    assert!(output.len() < 2 * MAX_STORED_BYTES);
}

#[tokio::test]
async fn user_at_the_park_limit_gets_no_further_park() {
    let relay = relay(true, |_| {});
    let mut parked = Vec::new();
    for n in 0..=SLOTS_PER_USER {
        let (listener, breakpoint) = listening(paused("add", u8::try_from(n).unwrap() + 10)).await;
        let debugpy = Debugpy::new(listener, breakpoint);
        relay.context.registry.insert(debugpy.breakpoint.clone());
        let id = debugpy.breakpoint.id;
        let (client, worker) = tokio::join!(enter(&relay, "ann", id), debugpy.accept());
        drop(client.stream);
        if n == SLOTS_PER_USER {
            worker.expect_detach().await;
            break;
        }
        until_state(&relay.context, id, "parked").await;
        parked.push((debugpy, worker));
    }
    assert!(outcomes(&relay).contains(&(EntryKind::SessionParked, "refused".into())));
}

/// Attaches an editor of `user` to a parked task. Returns it and its output before `stopped`.
async fn attach_editor(
    relay: &Relay,
    user: &str,
    id: BreakpointId,
) -> (Conversation<DuplexStream>, String) {
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
    let block = json!({"breakpoint": id.to_string(), "token": token_of(user), "parkFor": "2h"});
    let attach = json!({"request": "attach", "type": "debugpy", "rayRelay": block});
    editor.send(&request(2, "attach", attach)).await.unwrap();
    let mut output = String::new();
    loop {
        let message = timeout(TEST_TIMEOUT, editor.read()).await.unwrap().unwrap();
        output += message["body"]["output"].as_str().unwrap_or_default();
        match message["event"].as_str() {
            Some("initialized") => {
                editor
                    .send(&request(3, "configurationDone", json!({})))
                    .await
                    .unwrap();
            }
            Some("stopped") => return (editor, output),
            _ => {}
        }
    }
}

#[tokio::test]
async fn editor_and_prompt_resume_each_others_parks() {
    let relay = relay(true, |_| {});
    let (debugpy, mut worker, mut ed) = at_debugpy_prompt(&relay, "ed").await;
    let id = debugpy.breakpoint.id;
    ed.send("n\n").await;
    ed.until("> /job.py(9)add()").await;
    ed.until("(Pdb) ").await;
    drop(ed.stream);
    until_state(&relay.context, id, "parked").await;
    let (mut editor, output) = attach_editor(&relay, "ed", id).await;
    assert!(output.contains("this resumes your session"), "{output}");
    worker.take_commands();
    let next = request(4, "next", json!({"threadId": 1}));
    editor.send(&next).await.unwrap();
    worker.expect_command("next").await;
    while timeout(TEST_TIMEOUT, editor.read()).await.unwrap().unwrap()["event"] != "stopped" {}
    drop(editor);
    until_state(&relay.context, id, "parked").await;
    let mut next_client = Client::connect(&relay);
    next_client
        .send(&format!("{}\nenter {id}\n", token_of("ed")))
        .await;
    let output = next_client.until("(Pdb) ").await;
    assert!(
        output.contains("this resumes your session with "),
        "{output}"
    );
    assert!(output.contains("> /job.py(10)add()"), "{output}");
    // The editor requested two hours, and losing the prompt does not shorten that.
    drop(next_client.stream);
    until_state(&relay.context, id, "parked").await;
    let list = relay.context.registry.snapshot();
    let deadline = list.find(id).unwrap().holder().unwrap().parked_until;
    let remaining = Timestamp::now().until(deadline.unwrap());
    assert!(remaining > Duration::from_secs(7000), "{remaining:?}");
    let mut last_client = enter(&relay, "ed", id).await;
    last_client.send("q\n").await;
    worker.expect_detach().await;
}

#[tokio::test]
async fn legacy_prompt_is_parked_with_its_output() {
    let relay = relay(true, |_| {});
    let input = format!("{}\n0\n", token_of("ann"));
    let (pdb, mut ann, mut prompt) = at_prompt_of(&relay, &input).await;
    let id = pdb.breakpoint.id;
    ann.send("p x\n").await;
    read_until(&mut prompt, "p x\n").await;
    // A typed command is answered before the park. A partial line is not a command.
    ann.send("q").await;
    ann.stream.shutdown().await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    prompt.write_all(b"1\r\n(Pdb) ").await.unwrap();
    let output = ann.read_to_close().await;
    assert!(
        output.contains("1\r\n(Pdb) ") && output.contains("is parked for 15m 00s"),
        "{output}"
    );
    until_state(&relay.context, id, "parked").await;
    let output = refused_output(&relay, "ed", &format!("enter {id}")).await;
    assert!(output.contains("is parked by ann"), "{output}");
    prompt.write_all(b"\r\nmeanwhile\r\n(Pdb) ").await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut next_client = Client::connect(&relay);
    next_client
        .send(&format!("{}\nenter {id}\n", token_of("ann")))
        .await;
    let output = next_client.until("meanwhile\r\n(Pdb) ").await;
    assert!(
        output.contains("*** this resumes your session with "),
        "{output}"
    );
    next_client.send("n\n").await;
    assert_eq!(read_until(&mut prompt, "n\n").await, "n\n");
    prompt.write_all(b"-> y\r\n(Pdb) ").await.unwrap();
    next_client.until("(Pdb) ").await;
    // The connection is reset at the prompt.
    drop(next_client.stream);
    until_state(&relay.context, id, "parked").await;
    // Without new output, the prompt is shown again.
    let mut last_client = Client::connect(&relay);
    last_client
        .send(&format!("{}\nenter {id}\n", token_of("ann")))
        .await;
    last_client.until("(Pdb) ").await;
    last_client.send("c\n").await;
    last_client.stream.shutdown().await.unwrap();
    assert_eq!(read_until(&mut prompt, "c\nc\n").await, "c\nc\n");
    drop(prompt);
    last_client.read_all().await;
    relay.assert_ended("client");
}

#[tokio::test]
async fn repeated_parks_leak_no_session_or_connection() {
    let relay = relay(true, |_| {});
    let (debugpy, mut worker, mut client) = at_debugpy_prompt(&relay, "ann").await;
    let id = debugpy.breakpoint.id;
    for round in 0..200 {
        drop(client.stream);
        until_state(&relay.context, id, "parked").await;
        assert_eq!(relay.context.sessions.table.len(), 1, "{round}");
        client = enter(&relay, "ann", id).await;
    }
    let commands = worker.take_commands();
    let attach_commands = commands.iter().filter(|command| *command == "attach");
    assert_eq!(attach_commands.count(), 1, "one connection did all of it");
    client.send("q\n").await;
    worker.expect_detach().await;
}
