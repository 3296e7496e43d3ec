//! `ray-relay doctor` at a client of a real cluster: all is well, and then it is not.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::agent::{Agent, linked};
use crate::support::issuer::Issuer;
use crate::support::namespaces::Cluster;
use crate::support::ray::{NEWEST, OLDEST};
use crate::support::relay::Relay;
use crate::support::scene::Scene;
use crate::support::{eventually, say};

/// Returns the findings and the exit code.
fn findings(scene: &Scene<'_>) -> (Vec<Value>, Option<i32>) {
    let mut command = scene.command(&["doctor", "--json"]);
    if scene.token.is_some() {
        command.arg("--insecure-send-token");
    }
    let output = command.output().unwrap();
    let mut report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let findings = serde_json::from_value(report["findings"].take()).unwrap();
    (findings, output.status.code())
}

async fn healthy_cluster_and_node_without_debugpy(version: &str) {
    let Some(cluster) = Cluster::up(version, 1, &[]) else {
        return;
    };
    let scene = Scene::new(&cluster);
    let driver = cluster.start_driver("tasks.py", &[]);
    scene.wait_listed(3);
    let (found, code) = findings(&scene);
    assert_eq!(code, Some(0), "{found:#?}");
    let summary = |link: &str| {
        let of_link = found.iter().find(|found| found["link"] == link);
        of_link.map_or("", |found| found["says"].as_str().unwrap())
    };
    assert!(
        summary("head").contains(&format!("Ray {version}")),
        "{found:#?}"
    );
    assert_eq!(
        summary("tasks"),
        "3 tasks wait for a debugger",
        "{found:#?}"
    );
    assert!(
        summary("agents").starts_with("2 nodes have no agent"),
        "{found:#?}"
    );
    // Doctor has only inspected: all tasks wait as before.
    assert_eq!(scene.paused_workers().len(), 3);
    drop(driver);
    scene.assert_none_paused();

    let mut driver = cluster.start_driver("no_debugpy.py", &[]);
    driver.line("READY");
    // Ray's agent of the node gets a worker's log a moment later.
    let what = "the warning of a node without debugpy";
    let found = eventually(what, Duration::from_secs(60), || {
        let (found, code) = findings(&scene);
        (code == Some(1)).then_some(found)
    });
    let missing = found.iter().find(|found| found["severity"] == "warning");
    let missing = missing.unwrap_or_else(|| panic!("{found:#?}"));
    let node = cluster.address("w1").to_string();
    assert!(
        missing["says"].as_str().unwrap().ends_with(&node),
        "{missing}"
    );
    assert!(
        missing["next"]
            .as_str()
            .unwrap()
            .contains("pip install debugpy")
    );
}

#[tokio::test]
async fn on_the_newest() {
    healthy_cluster_and_node_without_debugpy(NEWEST).await;
}

#[tokio::test]
async fn on_the_oldest() {
    healthy_cluster_and_node_without_debugpy(OLDEST).await;
}

/// Returns the findings of `link` with their next steps, and the exit code.
fn wrong(scene: &Scene<'_>, link: &str) -> (Vec<String>, Option<i32>) {
    let (found, code) = findings(scene);
    let of_link = found
        .iter()
        .filter(|found| found["link"] == link && found["severity"] != "ok");
    let text = of_link.map(|found| {
        let next = found["next"].as_str().expect("a next step");
        format!("{} | {next}", found["says"].as_str().unwrap())
    });
    (text.collect(), code)
}

/// Waits until `link` says something with `part` in it, once, and says with which exit code.
fn says_once(scene: &Scene<'_>, link: &str, part: &str, code: i32) -> String {
    let mut last = (Vec::new(), None);
    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        eventually(part, Duration::from_secs(30), || {
            last = wrong(scene, link);
            let fitting: Vec<_> = last.0.iter().filter(|text| text.contains(part)).collect();
            let [only] = fitting.as_slice() else {
                return None;
            };
            (last.1 == Some(code)).then(|| only.to_string())
        })
    }));
    found.unwrap_or_else(|_| panic!("{part}: {last:#?}"))
}

#[tokio::test]
async fn remaining_tasks_are_named_at_the_end() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let config = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    std::fs::write(config.path(), "[park]\nfor = \"5m\"\n").unwrap();
    let scene = Scene::with(&cluster, &["--config", config.path().to_str().unwrap()]);
    let _driver = cluster.start_driver("tasks.py", &[]);
    let rows = scene.wait_listed(3);

    say("somebody else holds it");
    let mut editor = scene.attached(scene.on(&rows, "head")).await;
    editor.stopped().await;
    let held = says_once(
        &scene,
        "tasks",
        "is being debugged by Visual Studio Code",
        0,
    );
    assert!(held.contains("square"), "{held}");

    say("its editor is lost");
    drop(editor);
    let parked = says_once(&scene, "tasks", "is parked by Visual Studio Code for", 0);
    assert!(parked.contains("ray-relay release"), "{parked}");

    say("the port of its debugger is closed");
    let there = scene.on(&rows, "w1");
    let rule = "add table inet shut; add chain inet shut incoming { type filter hook input priority filter; };
        add rule inet shut incoming iifname != lo tcp dport";
    let nft = |rules: &str| {
        let status = cluster.on_network_of("w1", "nft").arg(rules).status();
        assert!(status.unwrap().success(), "{rules}");
    };
    let workers = cluster.rows("workers?detail=1");
    let worker = workers
        .iter()
        .find(|row| row["worker_id"] == there["worker_id"]);
    let port = &worker.unwrap()["debugger_port"];
    nft(&format!("{rule} {port} reject with tcp reset"));
    let refused = scene.refusal(json!({"breakpoint": there["id"]})).await;
    assert!(refused.contains("release --force"), "{refused}");
    let id = there["id"].as_str().unwrap();
    let closed = says_once(&scene, "tasks", "cannot be attached to", 69);
    assert!(
        closed.contains(id) && closed.contains("release --force"),
        "{closed}"
    );
    nft("delete table inet shut");

    say("its worker is killed");
    let dying = scene.on(&rows, "w2");
    cluster.signal("w2", dying["pid"].as_u64().unwrap() as u32, "KILL");
    let refusal = says_once(&scene, "tasks", "is gone: the worker process", 69);
    assert!(refusal.contains(dying["id"].as_str().unwrap()), "{refusal}");
}

#[tokio::test]
async fn doctor_names_an_absent_agent_and_the_legacy_debugger() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let issuer = Issuer::new();
    let key = issuer.path("relay.pub");
    let text = format!("[upstream]\npath = \"agent\"\n[auth]\nkeys = [{key:?}]\n");
    let scene = Scene {
        relay: Relay::guarded(&cluster, &["--config", &issuer.write("relay.toml", &text)]),
        cluster: &cluster,
        token: Some(issuer.mint("ada", &["--scope", "list,debug,admin"])),
    };
    let token = issuer.mint("agents", &["--scope", "node", "--node", "*"]);
    let token = format!("--token-file={}", issuer.write("agent.token", &token));
    let agent = |node| Agent::on(&scene, node, &["--allow-plaintext", &token]);
    let mut agents = ["head", "w1", "w2"].map(|node| Some(agent(node)));
    linked(&scene, 3);
    let _driver = cluster.start_legacy_driver("legacy.py", &[]);
    scene.wait_listed(2);
    let legacy = says_once(&scene, "debugger", "2 tasks stand in", 0);
    assert!(legacy.contains("`ray-relay debug`"), "{legacy}");
    let (well, _) = wrong(&scene, "agents");
    assert!(well.is_empty(), "{well:?}");

    agents[2] = None;
    let away = says_once(&scene, "agents", "has been gone for", 69);
    let node = cluster.address("w2").to_string();
    assert!(
        away.contains(&node) && away.contains("`ray-relay node`"),
        "{away}"
    );
    let unreachable = says_once(&scene, "tasks", "cannot be reached", 69);
    assert!(
        unreachable.contains(&format!("node {node} has no agent")),
        "{unreachable}"
    );
}
