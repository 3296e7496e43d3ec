//! A task of a dead relay, whose worker is reachable only through the agent of its node.
//! `closed_network` checks that whole sessions pass through agents.

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

/// The relay is killed during a session: its agent detaches the debugger, and the task resumes.
#[tokio::test]
async fn killed_relay_leaves_no_task_unattachable() {
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
