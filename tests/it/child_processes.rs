//! Processes that a task starts stop at a `breakpoint()` like the task itself, in workers with the hook. Each has a value that
//! was planted in it, by which it is told from its worker and from the others.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::agent::{Agent, linked};
use crate::support::dap_client::{DapClient, Editor};
use crate::support::driver::Driver;
use crate::support::eventually;
use crate::support::namespaces::Cluster;
use crate::support::ray::{NEWEST, OLDEST, job, write_hook};
use crate::support::scene::Scene;

const MAX_WAIT: Duration = Duration::from_secs(60);

/// The node of the actor.
const NODE: &str = "w1";

fn prepare(folder: &Path) {
    write_hook(folder);
    std::fs::copy(
        job("child_breakpoint.py"),
        folder.join("child_breakpoint.py"),
    )
    .unwrap();
}

/// Returns the value that was planted in the process where `client` is stopped, and resumes it.
async fn planted(client: &mut DapClient, variable: &str) -> String {
    let (thread, _) = client.stopped().await;
    let frames = client.frames(thread).await;
    let is_work = |name: &str| name == "work" || name == "Starter.stop" || name == "stop";
    let frame = frames.iter().find(|frame| is_work(&frame.name)).unwrap();
    let value = client.evaluate(frame.id, variable).await;
    client.resume(thread).await;
    value
}

/// The row of the method `name` of the actor, paused for the time number `stop`.
fn stopped(scene: &Scene<'_>, name: &str, stop: u64) -> Value {
    let row = || {
        let rows = scene.list();
        let is_it =
            |row: &&Value| row["stop"] == stop && row["state"] == "paused" && row["name"] == name;
        rows.iter().find(is_it).cloned()
    };
    eventually(format!("stop {stop}"), MAX_WAIT, row)
}

async fn stop_of_each_method(scene: &Scene<'_>, driver: &mut Driver) {
    // By fork, forkserver, spawn and `subprocess`.
    for (call, value) in ["11", "12", "13", "14"].into_iter().enumerate() {
        let row = stopped(scene, "Starter.start", call as u64 + 1);
        let mut client = scene.attached(&row).await;
        assert_eq!(planted(&mut client, "planted").await, value);
        assert_eq!(driver.line(&format!("CODES {call} ")), "[0]");
        client.disconnect().await;
    }
}

/// Two processes are listed one after the other.
async fn stop_of_two_at_once(scene: &Scene<'_>, driver: &mut Driver) {
    let mut seen = Vec::new();
    for stop in [5, 6] {
        let row = stopped(scene, "Starter.start", stop);
        let mut client = scene.attached(&row).await;
        seen.push(planted(&mut client, "planted").await);
        client.disconnect().await;
    }
    seen.sort();
    assert_eq!(seen, ["15", "16"]);
    assert_eq!(driver.line("CODES 4 "), "[0, 0]");
}

/// The end of a process that waits ends its stop.
fn killed_process(scene: &Scene<'_>, driver: &mut Driver) {
    stopped(scene, "Starter.start", 7);
    let pattern = ".*multiprocessing.spawn import spawn_main.*";
    let [process] = scene.cluster.processes(NODE, pattern)[..] else {
        panic!("several processes");
    };
    scene.cluster.signal(NODE, process, "KILL");
    assert_eq!(driver.line("CODES 5 "), "[-9]");
}

/// A process that stops while its worker is in a session opens as a session of that one's client.
async fn process_of_a_debugged_worker(scene: &Scene<'_>, folder: &Path) {
    let row = stopped(scene, "Starter.stop", 8);
    let mut parent = scene.attached(&row).await;
    let (thread, _) = parent.stopped().await;
    std::fs::write(folder.join("go"), "").unwrap();
    let configuration = parent.child().await;
    let mut child = scene.connect(Editor::VsCode).await;
    child.start(configuration, None).await;
    assert_eq!(planted(&mut child, "planted").await, "18");
    child.event("terminated").await;
    let frames = parent.frames(thread).await;
    let frame = frames.iter().find(|frame| frame.name == "stop").unwrap();
    assert_eq!(parent.evaluate(frame.id, "own").await, "19");
    parent.resume(thread).await;
    parent.disconnect().await;
}

/// Processes that start when the worker has a debugger without a client: debugpy connects them with it.
async fn processes_of_a_worker_with_a_debugger(scene: &Scene<'_>, driver: &mut Driver) {
    for (call, value) in ["21", "22", "23"].into_iter().enumerate() {
        let row = stopped(scene, "Starter.start", call as u64 + 9);
        // debugpy answers nothing more until its request for the process is answered.
        let mut parent = scene.connect(Editor::VsCode).await;
        parent.initialize().await;
        let selector = json!({"breakpoint": row["id"]});
        let arguments = scene.arguments(Editor::VsCode, "", selector);
        parent.send("attach", Value::Object(arguments)).await;
        parent.event("initialized").await;
        parent.send("configurationDone", json!({})).await;
        let configuration = parent.child().await;
        let mut child = scene.connect(Editor::VsCode).await;
        child.start(configuration, None).await;
        assert_eq!(planted(&mut child, "planted").await, value);
        child.event("terminated").await;
        assert_eq!(driver.line(&format!("LATER {call} ")), "[0]");
        parent.disconnect().await;
    }
}

async fn processes_stop(version: &str) {
    let Some(cluster) = Cluster::up(version, 1, &[]) else {
        return;
    };
    let scene = Scene::new(&cluster);
    let _agent = Agent::on(&scene, NODE, &["--allow-plaintext"]);
    linked(&scene, 1);
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path());
    let env = [("JOB_DIR", folder.path().to_str().unwrap())];
    let mut driver = cluster.start_driver("child_processes.py", &env);
    stop_of_each_method(&scene, &mut driver).await;
    stop_of_two_at_once(&scene, &mut driver).await;
    killed_process(&scene, &mut driver);
    process_of_a_debugged_worker(&scene, folder.path()).await;
    processes_of_a_worker_with_a_debugger(&scene, &mut driver).await;
    assert_eq!(driver.result(), json!([0, 19]));
    scene.assert_none_paused();
}

#[tokio::test]
async fn processes_of_a_task_stop_like_it_on_the_newest_ray() {
    processes_stop(NEWEST).await;
}

#[tokio::test]
async fn processes_of_a_task_stop_like_it_on_the_oldest_ray() {
    processes_stop(OLDEST).await;
}
