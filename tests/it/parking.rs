//! Clients that are lost, on real debugpy: the task stays where it is, and whoever comes again goes on with it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::dap_client::{DapClient, Editor};
use crate::support::namespaces::Cluster;
use crate::support::ray::{self, NEWEST};
use crate::support::scene::Scene;
use crate::support::{eventually, parks_in_a_row};

/// The line of `square` in tasks.py behind the one of the breakpoint.
const NEXT: u32 = 10;

/// A relay that keeps the sessions of lost clients for so long, as the configuration says it.
fn scene<'a>(cluster: &'a Cluster, keeps: &str) -> Scene<'a> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("relay.toml");
    std::fs::write(&file, format!("[park]\nfor = \"{keeps}\"\n")).unwrap();
    // It has read the file when it listens.
    Scene::with(cluster, &["--config", file.to_str().unwrap()])
}

fn wait_parked(scene: &Scene<'_>, count: usize) -> Vec<Value> {
    eventually("parked sessions", Duration::from_secs(10), || {
        let mut rows = scene.list();
        rows.retain(|row| row["state"] == "parked");
        (rows.len() == count).then_some(rows)
    })
}

/// VS Code's parent session and those that it opens, by the value of `x` in each.
async fn attach_all(scene: &Scene<'_>) -> (DapClient, BTreeMap<String, (DapClient, u64)>) {
    let workspace = ray::job("");
    let address = scene.relay.address();
    let host = address.ip().to_string();
    let attach = Editor::VsCode.attach(&host, address.port(), workspace.to_str().unwrap());
    let mut parent = scene.connect(Editor::VsCode).await;
    parent.start(attach, None).await;
    let mut children = BTreeMap::new();
    for _ in 0..3 {
        let configuration = parent.child().await;
        let mut child = scene.connect(Editor::VsCode).await;
        child.start(configuration, None).await;
        let (thread, _) = child.stopped().await;
        let frames = child.frames(thread).await;
        let x = child.locals(frames[0].id).await["x"].clone();
        children.insert(x, (child, thread));
    }
    (parent, children)
}

#[tokio::test]
async fn a_lost_cluster_session_is_taken_up_again_as_a_whole() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let scene = scene(&cluster, "10m");
    let mut driver = cluster.start_driver("tasks.py", &[]);
    scene.wait_listed(3);
    let (parent, mut children) = attach_all(&scene).await;
    let mut before = BTreeMap::new();
    for (x, (child, thread)) in &mut children {
        let frame = child.frames(*thread).await[0].id;
        // Something that debugpy knows of this session alone, and something that only the task knows.
        child.evaluate(frame, &format!("y = 1000 + {x}")).await;
        child.step_over(*thread).await;
        let frames = child.frames(*thread).await;
        assert_eq!(frames[0].line, NEXT);
        before.insert(
            x.clone(),
            frames.iter().map(|f| (f.id, f.line)).collect::<Vec<_>>(),
        );
    }
    // The editor is killed: no goodbye on any connection.
    drop((parent, children));
    wait_parked(&scene, 3);
    let listed = scene.command(&["list"]).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(
        listed.contains("parked by Visual Studio Code for 10m more"),
        "{listed}"
    );
    std::thread::sleep(Duration::from_secs(2));
    assert!(driver.is_waiting());

    let (parent, mut children) = attach_all(&scene).await;
    for (x, (child, thread)) in &mut children {
        let frames = child.frames(*thread).await;
        let now: Vec<_> = frames.iter().map(|f| (f.id, f.line)).collect();
        assert_eq!(now, before[x], "the same frames of the same stop");
        let y: u32 = child.locals(frames[0].id).await["y"].parse().unwrap();
        assert_eq!(y, 1000 + x.parse::<u32>().unwrap());
        assert_eq!(
            child.evaluate(frames[0].id, "x + 1").await,
            (x.parse::<u32>().unwrap() + 1).to_string()
        );
        let (thread, _) = child.step_over(*thread).await;
        assert_eq!(child.frames(thread).await[0].line, NEXT + 1);
    }
    // Once more, and then to the end.
    drop((parent, children));
    wait_parked(&scene, 3);
    let (_parent, mut children) = attach_all(&scene).await;
    for (child, thread) in children.values_mut() {
        child.resume(*thread).await;
    }
    let result = driver.result();
    assert_eq!(result, json!([["head", 1002], ["w1", 1003], ["w2", 1004]]));
}

#[tokio::test]
async fn a_park_that_is_over_or_released_lets_its_task_run() {
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

/// Nothing that is sent to this port of the client arrives, and nothing that it sends.
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
async fn who_comes_again_while_the_old_connection_is_silent_is_let_in_within_seconds() {
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
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
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
async fn a_task_that_was_parked_many_times_is_as_it_was() {
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
        let seen: Vec<_> = frames.iter().map(|f| (f.id, f.line)).collect();
        let (before, descriptors) =
            first.get_or_insert_with(|| (seen.clone(), scene.relay.descriptors()));
        assert_eq!(seen, *before, "{round}");
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
