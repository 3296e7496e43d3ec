//! Prompts of both debuggers whose connection is lost: the task stays paused, and its owner finds the prompt unchanged.

use std::io::Write;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::nc::{Person, attempt};
use crate::support::agent::{Agent, linked};
use crate::support::driver::Driver;
use crate::support::issuer::Issuer;
use crate::support::namespaces::Cluster;
use crate::support::ray::NEWEST;
use crate::support::relay::{PORT, Relay};
use crate::support::scene::Scene;
use crate::support::{eventually, parks_in_a_row};

const RESTORE_TIMEOUT: Duration = Duration::from_secs(30);

/// How a client is lost.
#[derive(Debug, Clone, Copy)]
enum Loss {
    /// Its sending half is closed; it can still read.
    Fin,
    Reset,
    /// Its process is killed.
    Killed,
}

fn id(row: &Value) -> &str {
    row["id"].as_str().unwrap()
}

fn wait_state(scene: &Scene<'_>, row: &Value, state: &str) -> Value {
    eventually(format!("{state}: {}", id(row)), RESTORE_TIMEOUT, || {
        let mut rows = scene.list().into_iter();
        rows.find(|now| now["id"] == row["id"] && now["state"] == state)
    })
}

/// At the prompt of `row`, after what comes before it.
async fn enters(scene: &Scene<'_>, row: &Value, loss: Loss) -> (Person, String) {
    let env: &[_] = match loss {
        Loss::Reset => &[("BRIDGE_RESETS", "1")],
        Loss::Fin | Loss::Killed => &[],
    };
    let mut person = Person::connect_with(scene, env);
    person.list().await;
    let shown = person.line(id(row), "(Pdb) ").await;
    (person, shown)
}

async fn is_lost(scene: &Scene<'_>, person: Person, row: &Value, loss: Loss) {
    match loss {
        Loss::Fin => {
            let reply = person.close().await;
            assert!(reply.contains("is parked for 10m 00s"), "{reply}");
            assert!(
                reply.contains(&format!("ray-relay release {}", id(row))),
                "{reply}"
            );
        }
        Loss::Reset | Loss::Killed => drop(person),
    }
    wait_state(scene, row, "parked");
}

/// Without a goodbye.
fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn returning_user_gets_the_unchanged_prompt() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("relay.toml");
    std::fs::write(&config, "[park]\nfor = \"10m\"\n").unwrap();
    let scene = Scene::with(&cluster, &["--config", config.to_str().unwrap()]);
    debugpy(&scene).await;
    by_the_command(&scene);
    legacy(&scene).await;
    many(&scene).await;
}

async fn debugpy(scene: &Scene<'_>) {
    let mut driver = scene.cluster.start_driver("tasks.py", &[]);
    let rows = scene.wait_listed(3);
    for (n, (row, loss)) in rows
        .iter()
        .zip([Loss::Fin, Loss::Reset, Loss::Killed])
        .enumerate()
    {
        let (mut person, _) = enters(scene, row, loss).await;
        person.line("n", "(Pdb) ").await;
        person.line(&format!("!y = {}", 1000 + n), "(Pdb) ").await;
        let set = person.line("b 11", "(Pdb) ").await;
        assert!(set.contains("Breakpoint 1 at "), "{set}");
        is_lost(scene, person, row, loss).await;
        let listed = scene.command(&["list"]).output().unwrap();
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        assert!(
            listed.contains("parked by terminal for 10m more"),
            "{listed}"
        );
        assert!(driver.is_waiting());
        let (mut person, shown) = enters(scene, row, loss).await;
        assert!(
            shown.contains("*** you were parked at ") && shown.contains("tasks.py:10 for "),
            "{shown}"
        );
        assert!(shown.contains("tasks.py(10)square()"), "{shown}");
        let y = person.line("p y", "(Pdb) ").await;
        assert!(y.starts_with(&format!("{}\n", 1000 + n)), "{y}");
        let set = person.line("b", "(Pdb) ").await;
        assert!(set.contains("tasks.py:11"), "{set}");
        // Once more, and from an editor, which sees the same stop.
        is_lost(scene, person, row, loss).await;
        let mut editor = scene.attached(row).await;
        let (thread, _) = editor.stopped().await;
        let frames = editor.frames(thread).await;
        assert_eq!(frames[0].line, 10);
        assert_eq!(
            editor.locals(frames[0].id).await["y"],
            (1000 + n).to_string()
        );
        drop(editor);
        wait_state(scene, row, "parked");
        let (mut person, shown) = enters(scene, row, loss).await;
        assert!(shown.contains("tasks.py(10)square()"), "{shown}");
        let stepped = person.line("n", "(Pdb) ").await;
        assert!(stepped.contains("tasks.py(11)square()"), "{stepped}");
        // The breakpoint is still there, whatever was attached meanwhile.
        let set = person.line("b", "(Pdb) ").await;
        assert!(set.contains("tasks.py:11"), "{set}");
        person.line("cl 1", "(Pdb) ").await;
        // The last one ends with its job, with another message.
        person.line("c", " has ended").await;
        person.until("q leaves): ").await;
    }
    let result = driver.result();
    let values = result.as_array().unwrap().iter();
    let mut values: Vec<_> = values.map(|row| row[1].as_u64().unwrap()).collect();
    values.sort_unstable();
    assert_eq!(values, [1000, 1001, 1002]);
    scene.assert_none_paused();
}

/// `ray-relay debug` at `row`, which has shown what it prints for `typed`.
fn debugs(scene: &Scene<'_>, row: &Value, typed: &str) -> Child {
    let mut child = scene
        .command(&["debug", id(row)])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let typing = child.stdin.as_mut().unwrap();
    typing.write_all(typed.as_bytes()).unwrap();
    typing.flush().unwrap();
    child
}

/// A file that a command at a prompt has written.
fn wait_written(file: &std::path::Path) {
    eventually("a command that was done", RESTORE_TIMEOUT, || {
        file.exists().then_some(())
    });
}

/// `ray-relay park` of a detached task, and snapshots, which do not end the park.
fn for_the_night(scene: &Scene<'_>, row: &Value) {
    let run = |words: &[&str]| {
        let output = scene.command(words).output().unwrap();
        let text = [&*output.stdout, &output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(output.status.success(), "{words:?}: {text}");
        text
    };
    let parked = run(&["park", id(row), "--for", "2h"]);
    assert!(parked.contains("for 2h 00m"), "{parked}");
    let until = || {
        let row = wait_state(scene, row, "parked");
        row["holder"]["parked_until"].as_f64().unwrap()
    };
    let before = until();
    let shown = run(&["snapshot", id(row)]);
    assert!(
        shown.contains("tasks.py(9)square()\n    -> breakpoint()\n"),
        "{shown}"
    );
    let message = run(&["exec", id(row), "--", "p y == x * x"]);
    assert!(message.starts_with("True\n"), "{message}");
    assert!((until() - before).abs() < 0.01, "no shorter and no longer");
    let listed = run(&["list"]);
    assert!(listed.contains("tasks.py:9"), "{listed}");
}

fn by_the_command(scene: &Scene<'_>) {
    let folder = tempfile::tempdir().unwrap();
    let ran = |driver: &mut Driver, rows: &[Value]| {
        for (n, row) in rows.iter().enumerate() {
            let done = folder.path().join(id(row));
            let (name, leaves) = match row["kind"] == "pdb" {
                true => ("x", "c"),
                false => ("y", "q"),
            };
            let typed = format!("n\n!{name} = {}\n!open({done:?}, 'w').close()\n", 50 + n);
            let child = debugs(scene, row, &typed);
            wait_written(&done);
            kill(child);
            wait_state(scene, row, "parked");
            assert!(driver.is_waiting());
            let (code, output) =
                attempt(scene, &["debug", id(row)], &format!("p {name}\n{leaves}\n"));
            assert_eq!(code, 0, "{output}");
            assert!(
                output.contains("this resumes your session with "),
                "{output}"
            );
            assert!(output.contains(&format!("{}\n", 50 + n)), "{output}");
        }
    };
    let mut driver = scene.cluster.start_driver("tasks.py", &[]);
    let rows = scene.wait_listed(3);
    for_the_night(scene, &rows[0]);
    ran(&mut driver, &rows);
    let result = driver.result();
    assert_eq!(result.as_array().unwrap().len(), 3);
    scene.assert_none_paused();
    let mut driver = scene.cluster.start_legacy_driver("legacy.py", &[]);
    let rows = scene.wait_listed(2);
    ran(&mut driver, &rows);
    assert_eq!(driver.result().as_array().unwrap().len(), 2);
    scene.assert_none_paused();
    // A client that closes its input has detached.
    let mut driver = scene.cluster.start_legacy_driver("legacy.py", &[]);
    for row in &scene.wait_listed(2) {
        let (code, output) = attempt(scene, &["debug", id(row)], "!x = 3\n");
        assert_eq!(code, 0, "{output}");
    }
    assert_eq!(driver.result(), json!([[3, 6], [3, 6]]));
    scene.assert_none_paused();
}

async fn legacy(scene: &Scene<'_>) {
    for loss in [Loss::Fin, Loss::Reset, Loss::Killed] {
        let mut driver = scene.cluster.start_legacy_driver("legacy.py", &[]);
        let rows = scene.wait_listed(2);
        let (one, other) = (scene.on(&rows, "head"), scene.on(&rows, "w2"));
        let (mut person, _) = enters(scene, one, loss).await;
        person.line("n", "(Pdb) ").await;
        person.line("!x = 40", "(Pdb) ").await;
        is_lost(scene, person, one, loss).await;
        let (person, _) = enters(scene, other, loss).await;
        is_lost(scene, person, other, loss).await;
        assert!(driver.is_waiting());
        let (mut person, shown) = enters(scene, one, loss).await;
        assert!(
            shown.contains("*** this resumes your session with "),
            "{shown}"
        );
        let x = person.line("p x", "(Pdb) ").await;
        assert!(x.starts_with("40\r\n"), "{x}");
        let stepped = person.line("n", "(Pdb) ").await;
        assert!(stepped.contains("return [x, twice]"), "{stepped}");
        person.line("c", "q leaves): ").await;
        let (code, output) = attempt(scene, &["release", id(other)], "");
        assert_eq!(code, 0, "{output}");
        assert_eq!(driver.result(), json!([[40, 80], [2, 4]]));
        scene.assert_none_paused();
    }
}

/// Parks of prompts in a row leave nothing open.
async fn many(scene: &Scene<'_>) {
    let mut driver = scene.cluster.start_driver("tasks.py", &[]);
    let rows = scene.wait_listed(3);
    let times = parks_in_a_row();
    let mut first = None;
    for round in 0..times {
        let loss = [Loss::Reset, Loss::Killed][round % 2];
        let (person, _) = enters(scene, &rows[0], loss).await;
        let before = *first.get_or_insert_with(|| scene.relay.descriptors());
        assert!(scene.relay.descriptors() <= before + 4, "{round}");
        is_lost(scene, person, &rows[0], loss).await;
    }
    assert!(driver.is_waiting());
    for row in &rows {
        let (code, output) = attempt(scene, &["release", id(row)], "");
        assert_eq!(code, 0, "{output}");
    }
    assert_eq!(driver.result(), json!([["head", 4], ["w1", 9], ["w2", 16]]));
    scene.assert_none_paused();
}

/// Tokens, and the files of relays.
struct Known(Issuer);

impl Known {
    fn scene<'a>(&self, cluster: &'a Cluster, port: u16, (user, more): (&str, &str)) -> Scene<'a> {
        let Self(issuer) = self;
        let (key, revoked) = (issuer.path("relay.pub"), issuer.path("revoked"));
        let auth = format!("[auth]\nkeys = [{key:?}]\nrevocations_file = {revoked:?}\n{more}");
        let config = issuer.write(&format!("relay-{port}.toml"), &auth);
        Scene {
            relay: Relay::guarded_at(cluster, port, &["--config", &config]),
            cluster,
            token: Some(self.mint(user)),
        }
    }

    fn mint(&self, user: &str) -> String {
        self.0.mint(user, &["--scope", "list,debug,terminal"])
    }
}

/// `scene` with another user's token.
async fn refused(scene: &mut Scene<'_>, token: String, row: &Value) -> String {
    let own = scene.token.replace(token);
    let mut person = Person::connect(scene);
    person.list().await;
    let reply = person.line(id(row), "q leaves): ").await;
    scene.token = own;
    reply
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompt_is_parked_for_its_owner_until_their_credential_ends() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let known = Known(Issuer::new());
    let mut scene = known.scene(&cluster, PORT, ("ada", "[park]\nfor = \"15m\"\n"));
    let mut driver = cluster.start_driver("tasks.py", &[]);
    let rows = scene.wait_listed(3);
    for row in &rows[..2] {
        let (person, _) = enters(&scene, row, Loss::Killed).await;
        drop(person);
        wait_state(&scene, row, "parked");
    }
    let message = refused(&mut scene, known.mint("bob"), &rows[0]).await;
    // Not with what client, nor from where.
    assert!(message.contains("is parked by ada for 14m"), "{message}");
    let released = scene
        .command(&["release", "--yes", "--insecure-send-token", id(&rows[0])])
        .output()
        .unwrap();
    assert!(released.status.success(), "{released:?}");
    let file = known.0.path("revoked");
    known.0.token(&["revoke", "--sub", "ada", "--file", &file]);
    scene.token = Some(known.mint("eve"));
    eventually("the end of a park", RESTORE_TIMEOUT, || {
        let waits = scene.list().iter().any(|row| row["id"] == rows[1]["id"]);
        (!waits).then_some(())
    });
    assert!(driver.is_waiting());
    drop(scene);
    // Without parks the task resumes at once.
    let scene = known.scene(&cluster, PORT, ("eve", "[park]\nfor = \"0s\"\n"));
    scene.wait_listed(1);
    let (person, _) = enters(&scene, &rows[2], Loss::Killed).await;
    drop(person);
    assert_eq!(driver.result(), json!([["head", 4], ["w1", 9], ["w2", 16]]));
    scene.assert_none_paused();
}

/// Ray tells no relay of them any more, so what the agents say is all that one that comes later knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_keep_prompts_of_the_legacy_debugger_for_a_relay_that_never_saw_them() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let known = Known(Issuer::new());
    let more = "[upstream]\npath = \"agent\"\n[park]\nfor = \"5m\"\n";
    let one = known.scene(&cluster, PORT, ("ada", more));
    let token = known.0.mint("agents", &["--scope", "node"]);
    let token = known.0.write("agent.token", &token);
    let token = format!("--token-file={token}");
    let _agents = ["head", "w2"].map(|node| Agent::on(&one, node, &["--allow-plaintext", &token]));
    linked(&one, 2);
    let mut driver = cluster.start_legacy_driver("legacy.py", &[]);
    let rows = one.wait_listed(2);
    let (first, second) = (one.on(&rows, "head"), one.on(&rows, "w2"));
    let (mut person, _) = enters(&one, first, Loss::Killed).await;
    person.line("n", "(Pdb) ").await;
    person.line("!x = 40", "(Pdb) ").await;
    let (parked, _) = enters(&one, second, Loss::Killed).await;
    // One is parked when the relay dies, and one is at its prompt.
    is_lost(&one, parked, second, Loss::Killed).await;
    one.relay.signal(Signal::KILL);
    drop((one, person));

    let late = known.scene(&cluster, PORT, ("ada", more));
    linked(&late, 2);
    let listed = wait_state(&late, first, "parked");
    assert_eq!(listed["name"], first["name"]);
    wait_state(&late, second, "parked");
    assert!(driver.is_waiting());
    let (mut person, shown) = enters(&late, first, Loss::Killed).await;
    assert!(
        shown.contains("*** this resumes your session with "),
        "{shown}"
    );
    let x = person.line("p x", "(Pdb) ").await;
    assert!(x.starts_with("40\r\n"), "{x}");
    // Again, without a client.
    drop(person);
    wait_state(&late, first, "parked");
    let (mut person, _) = enters(&late, first, Loss::Killed).await;
    let stepped = person.line("n", "(Pdb) ").await;
    assert!(stepped.contains("return [x, twice]"), "{stepped}");
    person.line("c", "q leaves): ").await;
    let released = late
        .command(&["release", "--yes", "--insecure-send-token", id(second)])
        .output()
        .unwrap();
    assert!(released.status.success(), "{released:?}");
    assert_eq!(driver.result(), json!([[40, 80], [2, 4]]));
    late.assert_none_paused();
}
