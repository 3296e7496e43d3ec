//! A relay that is killed or restarted during sessions, without agents. A keeper or a service manager holds its connections to
//! debuggers, and the owners resume their sessions at the next relay.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::nc::{Person, attempt};
use crate::subprocesses::Standing;
use crate::support::dap_client::{DapClient, Editor, Frame};
use crate::support::driver::Driver;
use crate::support::keeper::Keeper;
use crate::support::namespaces::{Cluster, RELAY_IP};
use crate::support::ray::NEWEST;
use crate::support::relay::{PORT, Relay};
use crate::support::scene::Scene;
use crate::support::{eventually, say};

const RESTORE_TIMEOUT: Duration = Duration::from_secs(30);

/// Tasks of cuts.py.
const TASKS: usize = 10;

/// The files of a relay that parks sessions for minutes.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mode = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(folder.path(), mode).unwrap();
        let text = "[upstream]\npath = \"direct\"\n[park]\nfor = \"5m\"\n";
        std::fs::write(folder.path().join("relay.toml"), text).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn config(&self) -> String {
        self.path("relay.toml").to_str().unwrap().to_owned()
    }
}

/// A keeper, with one relay after the other.
struct BesideKeeper<'a> {
    cluster: &'a Cluster,
    place: Place,
    keeper: Keeper,
}

impl<'a> BesideKeeper<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        let place = Place::new();
        let keeper = Keeper::start(cluster, &place.path("keeper"));
        Self {
            cluster,
            place,
            keeper,
        }
    }

    /// The next relay.
    fn relay(&self) -> Scene<'a> {
        let (config, socket) = (self.place.config(), &*self.keeper.socket);
        Scene::with(self.cluster, &["--config", &config, "--keeper", socket])
    }

    /// The same once that of `scene` is killed.
    fn killed(&self, scene: Scene<'_>) -> Scene<'a> {
        scene.relay.signal(Signal::KILL);
        drop(scene);
        self.relay()
    }
}

/// Of ten sessions, those with debugpy; the others are at prompts of the legacy debugger.
const WITH_DEBUGPY: usize = 8;

/// Starts a job of `count` tasks on two nodes. Each writes a file into `past` when it resumes.
fn tasks(past: &Path, count: usize, start: impl FnOnce(&[(&str, &str)]) -> Driver) -> Driver {
    let tasks: String = (0..count)
        .map(|n| format!("task{n}@{} ", ["head", "w1"][n % 2]))
        .collect();
    let past = past.to_str().unwrap();
    start(&[("TASKS", &*tasks), ("RUNS", "0"), ("PAST", past)])
}

/// Waits until no session has the task of `row`; gives its id.
fn until_free(scene: &Scene<'_>, row: &Value) -> String {
    eventually("no session has it", RESTORE_TIMEOUT, || {
        let list = scene.list();
        let now = list.iter().find(|now| now["id"] == row["id"])?;
        (now["state"] != "attached").then(|| now["id"].as_str().unwrap().to_owned())
    })
}

/// The relay of `scene` has all of `rows` parked.
fn all_parked(scene: &Scene<'_>, rows: &[Value]) {
    eventually("all sessions parked", RESTORE_TIMEOUT, || {
        let list = scene.list();
        let is_parked = |row: &&Value| {
            list.iter()
                .any(|now| now["id"] == row["id"] && now["state"] == "parked")
        };
        (rows.iter().filter(is_parked).count() == rows.len()).then_some(())
    });
}

/// Attaches to `row`, and waits for the stop.
async fn attached(scene: &Scene<'_>, row: &Value) -> (DapClient, u64, Vec<Frame>) {
    let mut client = scene.connect(Editor::VsCode).await;
    let selector = json!({"breakpoint": row["id"]});
    let arguments = scene.arguments(Editor::VsCode, "", selector);
    client.start(arguments, None).await;
    let (thread, _) = client.stopped().await;
    let frames = client.frames(thread).await;
    (client, thread, frames)
}

/// Ten paused tasks: six in editors (two of them lost), two at prompts, and two in the legacy debugger (one of them lost). The
/// relay is `killed`, and their owners resume them at the next one, until the job ends.
async fn ten_sessions<'a>(scene: Scene<'a>, killed: impl AsyncFnOnce(Scene<'a>) -> Scene<'a>) {
    let cluster = scene.cluster;
    let past = tempfile::tempdir().unwrap();
    let mut driver = tasks(past.path(), WITH_DEBUGPY, |env| {
        cluster.start_driver("cuts.py", env)
    });
    let debugpy = scene.wait_listed(WITH_DEBUGPY);
    let (in_editors, at_prompts) = debugpy.split_at(6);
    let mut legacy_driver = cluster.start_legacy_driver("legacy.py", &[]);
    let rows = scene.wait_listed(TASKS);
    let legacy = rows.iter().filter(|row| row["kind"] == "pdb");
    let legacy: Vec<_> = legacy.cloned().collect();
    assert_eq!(legacy.len(), TASKS - WITH_DEBUGPY);
    let mut sessions = Vec::new();
    for (n, row) in in_editors.iter().enumerate() {
        let (mut client, thread, frames) = attached(&scene, row).await;
        let value = client.evaluate(frames[0].id, "y").await;
        client.step_over(thread).await;
        let frames = client.frames(thread).await;
        sessions.push((frames, value, (n > 1).then_some(client)));
    }
    let mut people = Vec::new();
    for row in at_prompts {
        let mut user = Person::connect(&scene);
        user.list().await;
        user.line(row["id"].as_str().unwrap(), "(Pdb) ").await;
        user.line("n", "(Pdb) ").await;
        user.line("y = 4711", "(Pdb) ").await;
        people.push(user);
    }
    for row in &legacy {
        let mut user = Person::connect(&scene);
        user.list().await;
        user.line(row["id"].as_str().unwrap(), "(Pdb) ").await;
        user.line("n", "(Pdb) ").await;
        user.line("x = 40", "(Pdb) ").await;
        people.push(user);
    }
    drop(people.pop());
    all_parked(&scene, &debugpy[..2]);
    all_parked(&scene, &legacy[1..]);
    let waiting: Vec<_> = scene.list();
    assert_eq!(waiting.len(), TASKS);

    say("the relay ends under ten sessions");
    let next = killed(scene).await;
    all_parked(&next, &rows);
    assert_eq!(std::fs::read_dir(&past).unwrap().count(), 0, "none ran on");
    for (row, (before, value, _client)) in in_editors.iter().zip(&sessions) {
        let (mut client, thread, frames) = attached(&next, row).await;
        assert_eq!(frames, *before, "the same frames of the same stop");
        assert_eq!(client.evaluate(frames[0].id, "y").await, *value);
        client.resume(thread).await;
    }
    for row in at_prompts {
        let mut user = Person::connect(&next);
        user.list().await;
        user.line(row["id"].as_str().unwrap(), "(Pdb) ").await;
        let y = user.line("p y", "(Pdb) ").await;
        assert!(y.contains("4711"), "{y}");
        user.line("c", " ended").await;
    }
    for row in &legacy {
        let mut user = Person::connect(&next);
        user.list().await;
        let shown = user.line(row["id"].as_str().unwrap(), "(Pdb) ").await;
        assert!(
            shown.contains("*** this resumes your session with outer"),
            "{shown}"
        );
        let x = user.line("p x", "(Pdb) ").await;
        assert!(x.starts_with("40\r\n"), "{x}");
        let stepped = user.line("n", "(Pdb) ").await;
        assert!(stepped.contains("return [x, twice]"), "{stepped}");
        user.line("c", "q leaves): ").await;
    }
    assert_eq!(legacy_driver.result(), json!([[40, 80], [40, 80]]));
    let result = driver.result();
    let values = result.as_array().unwrap();
    assert_eq!(values.len(), WITH_DEBUGPY);
    assert_eq!(
        values.iter().filter(|row| row[1] == 4711).count(),
        2,
        "{result}"
    );
    next.assert_none_paused();
    eventually("no session left", RESTORE_TIMEOUT, || {
        let sessions = next.get("/relay/v1/sessions");
        sessions["sessions"].as_array()?.is_empty().then_some(())
    });
}

/// debugpy's adapter does not survive a client that is lost during an attach: 5 of 30 such tasks hung.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_task_is_lost_whenever_its_relay_is_killed() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let setup = BesideKeeper::new(&cluster);
    let mut scene = setup.relay();
    let past = tempfile::tempdir().unwrap();
    let mut driver = tasks(past.path(), TASKS, |env| {
        cluster.start_driver("cuts.py", env)
    });
    let rows = scene.wait_listed(TASKS);
    for (row, n) in rows.iter().zip(0..) {
        let mut client = scene.connect(Editor::VsCode).await;
        let selector = json!({"breakpoint": row["id"]});
        let arguments = scene.arguments(Editor::VsCode, "", selector);
        // An attach takes some 150 ms from here.
        let moment = Duration::from_millis(20 * n);
        _ = timeout(moment, client.start(arguments, None)).await;
        scene = setup.killed(scene);
    }
    assert_eq!(std::fs::read_dir(&past).unwrap().count(), 0, "none ran on");
    for row in &rows {
        until_free(&scene, row);
        let (mut client, thread, _) = attached(&scene, row).await;
        client.resume(thread).await;
    }
    assert_eq!(driver.result().as_array().unwrap().len(), TASKS);
    scene.assert_none_paused();
}

/// A prompt of `nc` whose relay is killed at one of [`TASKS`] moments, each `step` behind the other.
async fn no_prompt_is_lost(start: fn(&Cluster, &str, &[(&str, &str)]) -> Driver, step: Duration) {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let setup = BesideKeeper::new(&cluster);
    let mut scene = setup.relay();
    let past = tempfile::tempdir().unwrap();
    let mut driver = tasks(past.path(), TASKS, |env| start(&cluster, "cuts.py", env));
    let rows = scene.wait_listed(TASKS);
    for (row, n) in rows.iter().zip(0..) {
        let id = until_free(&scene, row);
        let mut user = Person::connect(&scene);
        user.list().await;
        _ = timeout(step * n, user.line(&id, "(Pdb) ")).await;
        scene = setup.killed(scene);
    }
    let ran_on: Vec<_> = std::fs::read_dir(&past)
        .unwrap()
        .map(|file| file.unwrap().file_name())
        .collect();
    assert!(ran_on.is_empty(), "{ran_on:?} of {rows:?} ran on");
    for row in &rows {
        let id = until_free(&scene, row);
        assert!(driver.is_waiting());
        // The driver ends behind the last of them, and its worker with it.
        let (_, output) = attempt(&scene, &["debug", &id], "w\nc\n");
        assert!(output.contains(")stays()\n-> "), "{output}");
    }
    assert_eq!(driver.result().as_array().unwrap().len(), TASKS);
    scene.assert_none_paused();
}

/// A legacy prompt accepts one client, and its task fails when that client is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_legacy_prompt_is_lost_whenever_its_relay_is_killed() {
    // The prompt opens some milliseconds after the line.
    no_prompt_is_lost(Cluster::start_legacy_driver, Duration::from_millis(1)).await;
}

/// The prompt attaches and receives the stop before the user sees anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_prompt_is_lost_whenever_its_relay_is_killed() {
    no_prompt_is_lost(Cluster::start_driver, Duration::from_millis(30)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_sessions_outlive_a_killed_relay_in_the_service_managers_store() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let place = Place::new();
    let manager = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/cluster/service_manager.py"
    );
    let pid_file = place.path("pid");
    let mut command = cluster.exec("relay", cluster.venv().python());
    let listen = format!("{RELAY_IP}:{PORT}");
    command
        .args([manager, env!("CARGO_BIN_EXE_ray-relay"), "serve"])
        .args(["--ray-address", &cluster.dashboard()])
        .args(["--listen", &listen, "--insecure-no-auth"])
        .args(["--config", &place.config()])
        .env("PID_FILE", &pid_file);
    let scene = Scene {
        relay: Relay::start(command),
        cluster: &cluster,
        token: None,
    };
    let pid = || {
        let text = std::fs::read_to_string(&pid_file).unwrap_or_default();
        text.parse().ok().and_then(Pid::from_raw)
    };
    let to = scene.relay.address();
    let killed = async |scene| {
        let before = pid().unwrap();
        kill_process(before, Signal::KILL).unwrap();
        eventually("the next relay", RESTORE_TIMEOUT, || {
            let is_next = pid().is_some_and(|now| now != before);
            (is_next && cluster.connects("client", to)).then_some(())
        });
        scene
    };
    ten_sessions(scene, killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_sessions_survive_a_restart_beside_a_keeper() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let setup = BesideKeeper::new(&cluster);
    let restarted = async |mut scene: Scene<'_>| {
        scene.relay.signal(Signal::TERM);
        assert!(scene.relay.wait_exit(2 * RESTORE_TIMEOUT).success());
        drop(scene);
        setup.relay()
    };
    ten_sessions(setup.relay(), restarted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_and_subprocess_survive_a_killed_relay_with_a_keeper() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let setup = BesideKeeper::new(&cluster);
    let scene = setup.relay();
    let paused = Standing::new(&scene, None).await;
    let next = setup.killed(scene);
    let mut lost = paused.lost();
    lost.parked(&next);
    lost.resume_and_finish(&next).await;
}
