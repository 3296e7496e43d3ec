//! Workers that are reached through the agents of their nodes, and in no other way.

use rustix::process::Signal;
use serde_json::json;

use crate::support::agent::{Agent, linked};
use crate::support::namespaces::{Cluster, ON_TWO_NODES};
use crate::support::ray::{NEWEST, OLDEST};
use crate::support::scene::Scene;

/// A relay that reaches workers through agents alone.
fn scene<'a>(cluster: &'a Cluster, dir: &tempfile::TempDir) -> Scene<'a> {
    let config = dir.path().join("relay.toml");
    std::fs::write(&config, "[upstream]\npath = \"agent\"\n").unwrap();
    Scene::with(cluster, &["--config", config.to_str().unwrap()])
}

#[tokio::test]
async fn debuggers_of_every_node_are_reached_through_its_agent_alone() {
    for version in [NEWEST, OLDEST] {
        let Some(cluster) = Cluster::up(version, 2, &[]) else {
            return;
        };
        let dir = tempfile::tempdir().unwrap();
        let scene = scene(&cluster, &dir);
        let mut driver = cluster.start_driver("tasks.py", &[]);
        let rows = scene.wait_listed(3);
        let refusal = scene.refusal(json!({"breakpoint": rows[0]["id"]})).await;
        assert!(refusal.contains("agent"), "{refusal}");

        let _agents =
            ["head", "w1", "w2"].map(|node| Agent::on(&scene, node, &["--allow-plaintext"]));
        linked(&scene, 3);
        for row in &rows {
            let mut client = scene.attached(row).await;
            let (thread, _) = client.stopped().await;
            let frames = client.frames(thread).await;
            let evaluated = client.evaluate(frames[0].id, "x * 100").await;
            assert!(evaluated.ends_with("00"), "{evaluated}");
            client.resume(thread).await;
            client.disconnect().await;
        }
        assert_eq!(driver.result(), json!([["head", 4], ["w1", 9], ["w2", 16]]));
        scene.gone();

        // These listen on their node's loopback address.
        let mut driver = cluster.start_legacy_driver("legacy.py", &[]);
        scene.wait_listed(2);
        let released = scene
            .command(&["release", "--all", "--yes"])
            .output()
            .unwrap();
        assert!(released.status.success(), "{released:?}");
        assert_eq!(driver.result(), json!([[1, 2], [2, 4]]));
    }
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
