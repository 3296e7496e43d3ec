//! A relay that is upgraded under its sessions.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::subprocesses::Standing;
use crate::support::agent::{Agent, linked};
use crate::support::dap_client::{DapClient, Editor};
use crate::support::namespaces::{Cluster, RELAY_IP};
use crate::support::ray::{self, NEWEST};
use crate::support::relay::PORT;
use crate::support::scene::Scene;
use crate::support::{eventually, say};

/// Lines of `square` in tasks.py.
const BREAKPOINT: u32 = 9;

/// How long a relay may take to end that has nothing left.
const SOON: Duration = Duration::from_secs(30);

/// A configuration with a folder for its socket.
struct Place(tempfile::TempDir);

impl Place {
    /// `path` is that to the workers.
    fn new(path: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mode = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(folder.path(), mode).unwrap();
        let socket = folder.path().join("takeover");
        let text = format!(
            "[listen]\ntakeover = {socket:?}\ndrain_timeout = \"10m\"\n[upstream]\npath = {path:?}\n[park]\nfor = \"5m\"\n"
        );
        std::fs::write(folder.path().join("relay.toml"), text).unwrap();
        Self(folder)
    }

    fn socket(&self) -> PathBuf {
        self.0.path().join("takeover")
    }

    /// A relay that takes over from the one before, where there is one.
    fn relay<'a>(&self, cluster: &'a Cluster) -> Scene<'a> {
        let config = self.0.path().join("relay.toml");
        Scene::with(cluster, &["--config", config.to_str().unwrap()])
    }
}

#[tokio::test]
async fn sessions_outlive_the_upgrade_of_a_relay() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let place = Place::new("direct");
    cluster_session(&cluster, &place).await;
    subprocess(&cluster, &place, &[]).await;
    say("the same with agents, which link with both");
    let place = Place::new("agent");
    subprocess(&cluster, &place, &["head", "w1", "w2"]).await;
}

async fn cluster_session(cluster: &Cluster, place: &Place) {
    say("a cluster session in VS Code, one task stopped, while one relay takes over from another");
    let mut older = place.relay(cluster);
    let mut driver = cluster.start_driver("tasks.py", &[]);
    let rows = older.wait_listed(3);
    let mut parent = older.connect(Editor::VsCode).await;
    let attach = older.arguments(Editor::VsCode, "", json!(null));
    parent.start(attach, None).await;
    let file = ray::job("tasks.py");
    let file = file.to_str().unwrap();
    let mut first = older.connect(Editor::VsCode).await;
    first.start(parent.child().await, None).await;
    let (thread, _) = first.stopped().await;
    let frames = first.frames(thread).await;
    assert_eq!((&*frames[0].path, frames[0].line), (file, BREAKPOINT));

    let newer = place.relay(cluster);
    eventually("the new relay's list", SOON, || {
        let list = newer.list();
        let held = list.iter().filter(|row| row["state"] == "attached").count();
        (list.len() == 3 && held == 1).then_some(())
    });
    let held = newer
        .list()
        .into_iter()
        .find(|row| row["state"] == "attached");
    let held = held.unwrap();
    assert!(rows.iter().any(|row| row["id"] == held["id"]));
    let sentence = newer.refusal(json!({"breakpoint": held["id"]})).await;
    assert!(sentence.contains("is being debugged"), "{sentence}");
    let sessions = newer.get("/relay/v1/sessions");
    let all = sessions["sessions"].as_array().unwrap();
    assert!(
        all.iter().any(|row| row["breakpoint"] == held["id"]),
        "{sessions}"
    );

    say("it steps on, and the editor opens the others at the new relay");
    let (thread, _) = first.step_over(thread).await;
    assert_eq!(first.frames(thread).await[0].line, BREAKPOINT + 1);
    let mut others = Vec::new();
    for _ in 0..2 {
        let configuration = parent.child().await;
        let mut child = newer.connect(Editor::VsCode).await;
        child.start(configuration, None).await;
        let (thread, _) = child.stopped().await;
        assert_eq!(child.frames(thread).await[0].line, BREAKPOINT);
        others.push((child, thread));
    }
    assert!(
        older.relay.log().contains("forwarded"),
        "{}",
        older.relay.log()
    );
    first.resume(thread).await;
    for (child, thread) in &mut others {
        child.resume(*thread).await;
    }
    assert_eq!(driver.result(), json!([["head", 4], ["w1", 9], ["w2", 16]]));
    assert!(place.socket().exists());
    parent.disconnect().await;
    drop((first, others));
    assert!(older.relay.wait_exit(SOON).success());
    newer.gone();
    stop(newer, place);
}

async fn subprocess(cluster: &Cluster, place: &Place, nodes: &[&str]) {
    say("a task starts a subprocess after the upgrade");
    let mut older = place.relay(cluster);
    let agent = |node: &&str| Agent::on(&older, node, &["--allow-plaintext"]);
    let _agents: Vec<_> = nodes.iter().map(agent).collect();
    linked(&older, nodes.len());
    let mut driver = cluster.start_driver("subprocess_task.py", &[]);
    let row = older.listed("parent", &driver);
    let mut client = older.attached(&row).await;
    let (thread, _) = client.stopped().await;
    let newer = place.relay(cluster);
    linked(&newer, nodes.len());
    client.resume(thread).await;
    let configuration = client.child().await;
    let mut child = newer.connect(Editor::VsCode).await;
    child.start(configuration, None).await;
    assert_eq!(driver.result(), json!("child 7"));
    child.event("terminated").await;
    client.disconnect().await;
    drop(child);
    assert!(older.relay.wait_exit(SOON).success());
    newer.gone();
    stop(newer, place);
}

/// Nothing is left of the last one.
fn stop(mut last: Scene<'_>, place: &Place) {
    last.relay.signal(Signal::TERM);
    assert!(last.relay.wait_exit(SOON).success());
    assert!(!place.socket().exists());
}

/// Somebody at the client who knocks at the relay's port again and again. Killed when dropped.
struct Knocking(Child);

impl Knocking {
    fn start(cluster: &Cluster) -> Self {
        const KNOCK: &str = r#"
import select, socket, sys
times = 0
while not select.select([sys.stdin], [], [], 0.005)[0]:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10) as door:
        door.sendall(b"GET /relay/healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = door.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 200 "), answer
    times += 1
print(times)
"#;
        let mut command = cluster.exec("client", cluster.venv().python());
        command
            .args(["-c", KNOCK, &RELAY_IP.to_string(), &PORT.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    /// How often it was let in; it was never turned away.
    fn over(mut self) -> usize {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success(), "it was turned away");
        let mut said = String::new();
        let mut answer = self.0.stdout.take().unwrap();
        answer.read_to_string(&mut said).unwrap();
        said.trim().parse().unwrap()
    }
}

impl Drop for Knocking {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A session that stands where `frames` say.
struct Session {
    client: DapClient,
    thread: u64,
    frames: Vec<(u64, u32)>,
}

impl Session {
    async fn new(scene: &Scene<'_>, row: &Value) -> Self {
        let mut client = scene.attached(row).await;
        let (thread, _) = client.stopped().await;
        let frames = client.frames(thread).await;
        let frames = frames.iter().map(|frame| (frame.id, frame.line)).collect();
        Self {
            client,
            thread,
            frames,
        }
    }

    /// The same that stood at `before`.
    async fn resumed(scene: &Scene<'_>, row: &Value, before: &[(u64, u32)]) -> Self {
        let session = Self::new(scene, row).await;
        assert_eq!(session.frames, before);
        session
    }

    async fn steps(&mut self) {
        self.client.step_over(self.thread).await;
        let frames = self.client.frames(self.thread).await;
        assert_eq!(frames[0].line, self.frames[0].1 + 1);
        self.frames = frames.iter().map(|frame| (frame.id, frame.line)).collect();
    }
}

/// Waits until `scene` lists `attached` and `parked`, each once.
fn wait_states(scene: &Scene<'_>, attached: usize, parked: usize) {
    let what = format!("{attached} attached and {parked} parked");
    eventually(&what, SOON, || {
        let rows = scene.list();
        let ids: BTreeSet<_> = rows.iter().map(|row| row["id"].to_string()).collect();
        assert_eq!(ids.len(), rows.len(), "a row is there twice: {rows:?}");
        let with = |state: &str| rows.iter().filter(|row| row["state"] == state).count();
        ((with("attached"), with("parked")) == (attached, parked)).then_some(())
    });
}

#[tokio::test]
async fn what_is_parked_or_in_a_session_at_the_end_is_the_successors() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let place = Place::new("direct");
    let mut older = place.relay(&cluster);
    let mut driver = cluster.start_driver("tasks.py", &[]);
    let rows = older.wait_listed(3);
    let mut left = Vec::new();
    for row in &rows[..2] {
        let mut client = older.attached(row).await;
        let (thread, _) = client.stopped().await;
        client.step_over(thread).await;
        left.push(client.frames(thread).await);
    }
    let mut held = Session::new(&older, &rows[2]).await;
    wait_states(&older, 1, 2);
    let newer = place.relay(&cluster);
    wait_states(&newer, 1, 2);
    held.steps().await;
    older.relay.signal(Signal::TERM);
    held.client.event("terminated").await;
    let told = held.client.transcript();
    assert!(told.contains("the task stays parked for 5m"), "{told}");
    assert!(older.relay.wait_exit(SOON).success());
    wait_states(&newer, 0, 3);
    assert!(driver.is_waiting());
    say(
        "one is gone on with by its id, one is released, and one goes on whose session has ended with its relay",
    );
    let mut client = newer.attached(&rows[0]).await;
    let (thread, _) = client.stopped().await;
    assert_eq!(client.frames(thread).await, left[0]);
    client.resume(thread).await;
    let id = rows[1]["id"].as_str().unwrap();
    let released = newer.command(&["release", "--yes", id]).output().unwrap();
    assert!(released.status.success(), "{released:?}");
    let mut again = Session::resumed(&newer, &rows[2], &held.frames).await;
    again.client.resume(again.thread).await;
    assert_eq!(driver.result(), json!([["head", 4], ["w1", 9], ["w2", 16]]));
    newer.gone();
    stop(newer, &place);
}

#[tokio::test]
async fn ten_sessions_and_five_parks_outlive_the_upgrade_of_a_relay() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let place = Place::new("direct");
    let mut older = place.relay(&cluster);
    let tasks: Vec<_> = (0..15)
        .map(|n| format!("task{n}@{}", ["head", "w1", "w2"][n % 3]))
        .collect();
    let past = tempfile::tempdir().unwrap();
    let env = [
        ("TASKS", &*tasks.join(" ")),
        ("RUNS", "0"),
        ("PAST", past.path().to_str().unwrap()),
    ];
    let mut driver = cluster.start_driver("cuts.py", &env);
    let rows = older.wait_listed(15);
    let mut sessions = BTreeMap::new();
    for (n, row) in rows.iter().enumerate() {
        let mut session = Session::new(&older, row).await;
        session.steps().await;
        sessions.insert(n, session);
    }
    let mut before: Vec<_> = sessions.values().map(|held| held.frames.clone()).collect();
    drop(sessions.split_off(&10));
    wait_states(&older, 10, 5);

    say("another relay takes over");
    let knocking = Knocking::start(&cluster);
    let newer = place.relay(&cluster);
    // What its predecessor has parked it lists as that.
    wait_states(&newer, 10, 5);
    for (n, session) in &mut sessions {
        session.steps().await;
        before[*n] = session.frames.clone();
    }
    for n in 10..13 {
        sessions.insert(n, Session::resumed(&newer, &rows[n], &before[n]).await);
    }
    wait_states(&newer, 13, 2);
    let knocked = knocking.over();
    assert!(knocked > 100, "{knocked}");
    for n in 0..15 {
        if let Entry::Vacant(lost) = sessions.entry(n) {
            lost.insert(Session::resumed(&newer, &rows[n], &before[n]).await);
        }
    }
    let has_run_on = std::fs::read_dir(&past).unwrap().next();
    assert!(has_run_on.is_none(), "{has_run_on:?}");
    for session in sessions.values_mut() {
        session.client.resume(session.thread).await;
    }
    assert_eq!(driver.result().as_array().unwrap().len(), 15);
    drop(sessions);
    assert!(older.relay.wait_exit(SOON).success());
    newer.gone();
    stop(newer, &place);
}

#[tokio::test]
async fn a_parked_task_and_its_subprocess_are_the_successors() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let place = Place::new("direct");
    let mut older = place.relay(&cluster);
    let mut lost = Standing::new(&older, None).await.lost();
    lost.parked(&older);
    let newer = place.relay(&cluster);
    assert!(older.relay.wait_exit(SOON).success());
    lost.parked(&newer);
    lost.goes_on(&newer).await;
    stop(newer, &place);
}
