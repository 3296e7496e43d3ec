//! Workers that are reached through the agents of their nodes, and in no other way: what becomes of a task whose relay dies.
//! That all of a session passes through agents is in `closed_network`.

use rustix::process::Signal;
use serde_json::json;

use crate::support::agent::{Agent, linked};
use crate::support::namespaces::{Cluster, ON_TWO_NODES};
use crate::support::ray::NEWEST;
use crate::support::scene::Scene;

/// A relay that reaches workers through agents alone.
fn scene<'a>(cluster: &'a Cluster, dir: &tempfile::TempDir) -> Scene<'a> {
    let config = dir.path().join("relay.toml");
    std::fs::write(&config, "[upstream]\npath = \"agent\"\n").unwrap();
    Scene::with(cluster, &["--config", config.to_str().unwrap()])
}

/// The relay is killed in the middle of a session: the agent leaves the debugger for it, and the task runs on.
#[tokio::test]
async fn a_relay_that_is_killed_leaves_no_task_behind() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let mut driver = cluster.start_driver("tasks.py", &ON_TWO_NODES);
    let scene = scene(&cluster, &dir);
    let _agents = ["head", "w1"].map(|node| Agent::on(&scene, node, &["--allow-plaintext"]));
    linked(&scene, 2);
    let rows = scene.wait_listed(3);
    let mut clients = Vec::new();
    for row in &rows {
        let mut client = scene.attached(row).await;
        client.stopped().await;
        clients.push(client);
    }
    // Not a word to anybody.
    scene.relay.signal(Signal::KILL);
    assert_eq!(
        driver.result(),
        json!([["head", 4], ["w1", 9], ["head", 16]])
    );
}
