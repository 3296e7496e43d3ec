//! Clients that are lost, on real debugpy: the task stays paused, and its owner resumes the session.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::namespaces::Cluster;
use crate::support::ray::NEWEST;
use crate::support::scene::Scene;
use crate::support::{eventually, parks_in_a_row};

/// A relay that keeps the sessions of lost clients for so long, as the configuration says it.
fn scene<'a>(cluster: &'a Cluster, keeps: &str) -> Scene<'a> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("relay.toml");
    std::fs::write(&file, format!("[park]\nfor = \"{keeps}\"\n")).unwrap();
    // The relay has read the file once it listens.
    Scene::with(cluster, &["--config", file.to_str().unwrap()])
}

fn wait_parked(scene: &Scene<'_>, count: usize) -> Vec<Value> {
    eventually("parked sessions", Duration::from_secs(10), || {
        let mut rows = scene.list();
        rows.retain(|row| row["state"] == "parked");
        (rows.len() == count).then_some(rows)
    })
}

#[tokio::test]
async fn expired_or_released_park_resumes_its_task() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let scene = scene(&cluster, "4s");
    let mut driver = cluster.start_driver("tasks.py", &[]);
    let rows = scene.wait_listed(3);
    let mut clients = Vec::new();
    for row in &rows {
        let mut client = scene.attached(row).await;
        client.stopped().await;
        clients.push(client);
    }
    let last = clients.pop();
    drop(clients);
    let parked = wait_parked(&scene, 2);
    let id = parked[0]["id"].as_str().unwrap();
    let released = scene.command(&["release", id]).output().unwrap();
    assert!(released.status.success(), "{released:?}");
    assert_eq!(wait_parked(&scene, 1)[0]["id"], parked[1]["id"]);
    let times_out = Duration::from_secs(10);
    eventually("the end of the other park", times_out, || {
        let waits = scene.list().iter().any(|row| row["id"] == parked[1]["id"]);
        (!waits).then_some(())
    });
    assert!(driver.is_waiting());
    last.unwrap().disconnect().await;
    assert_eq!(driver.result(), json!([["head", 4], ["w1", 9], ["w2", 16]]));
}

/// Drops all packets to and from this port of the client.
fn silence(cluster: &Cluster, port: &str) {
    let rules = format!(
        "add table inet cut;
         add chain inet cut outgoing {{ type filter hook output priority filter; }};
         add chain inet cut incoming {{ type filter hook input priority filter; }};
         add rule inet cut outgoing tcp sport {port} drop;
         add rule inet cut incoming tcp dport {port} drop"
    );
    let status = cluster.on_network_of("client", "nft").arg(rules).status();
    assert!(status.unwrap().success());
}

#[tokio::test]
async fn reconnecting_user_replaces_their_silent_connection() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let nft = cluster.on_network_of("client", "nft").arg("-v").output();
    if !nft.is_ok_and(|shown| shown.status.success()) {
        return crate::support::skip("nft is missing, which cuts; apt install nftables");
    }
    let scene = scene(&cluster, "10m");
    let mut driver = cluster.start_driver("tasks.py", &[]);
    let rows = scene.wait_listed(3);
    let mut lost = scene.attached(&rows[0]).await;
    let (thread, _) = lost.stopped().await;
    let frame = lost.frames(thread).await[0].id;
    let held = scene.list();
    let peer = held.iter().find_map(|row| row["holder"]["peer"].as_str());
    silence(&cluster, peer.unwrap().rsplit_once(':').unwrap().1);
    let began = Instant::now();
    let mut client = scene.attached(&rows[0]).await;
    let (thread, _) = client.stopped().await;
    let elapsed = began.elapsed();
    assert!(elapsed < Duration::from_secs(10), "{elapsed:?}");
    assert_eq!(client.frames(thread).await[0].id, frame);
    // A second window, while the first one is there.
    let refused = scene.refusal(json!({"breakpoint": rows[0]["id"]})).await;
    assert!(refused.contains("is being debugged by"), "{refused}");
    assert_eq!(client.frames(thread).await[0].id, frame);
    let cut = ["delete", "table", "inet", "cut"];
    let status = cluster.on_network_of("client", "nft").args(cut).status();
    assert!(status.unwrap().success());
    client.disconnect().await;
    drop(lost);
    for row in &rows[1..] {
        scene.attached(row).await.disconnect().await;
    }
    assert_eq!(driver.result(), json!([["head", 4], ["w1", 9], ["w2", 16]]));
}

#[tokio::test]
async fn repeatedly_parked_task_is_unchanged() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let scene = scene(&cluster, "10m");
    let mut driver = cluster.start_driver("tasks.py", &[]);
    let rows = scene.wait_listed(3);
    let times = parks_in_a_row();
    let mut first = None;
    for round in 0..times {
        let mut client = scene.attached(&rows[0]).await;
        let (thread, _) = client.stopped().await;
        let frames = client.frames(thread).await;
        let frame_ids: Vec<_> = frames.iter().map(|f| (f.id, f.line)).collect();
        let (before, descriptors) =
            first.get_or_insert_with(|| (frame_ids.clone(), scene.relay.descriptors()));
        assert_eq!(frame_ids, *before, "{round}");
        assert!(scene.relay.descriptors() <= *descriptors + 4, "{round}");
        drop(client);
        wait_parked(&scene, 1);
    }
    assert!(driver.is_waiting());
    for row in &rows {
        scene.attached(row).await.disconnect().await;
    }
    assert_eq!(driver.result(), json!([["head", 4], ["w1", 9], ["w2", 16]]));
}
