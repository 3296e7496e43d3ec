//! One end-to-end test of each scene, on one cluster of the newest Ray. Its nodes are on loopback addresses, so no root is needed.
//!
//! `tests/it` has the rest: other versions, networks, faults.
#![allow(clippy::unwrap_used)]

#[path = "../it/support/mod.rs"]
#[expect(dead_code, reason = "tests/it uses more of it")]
mod support;

mod inspections;
mod sessions;
mod survival;

use std::time::Duration;

use serde_json::Value;

use support::eventually;
use support::issuer::Issuer;
use support::namespaces::Cluster;
use support::scene::Scene;
use support::shared::Shared;

/// The process that holds the cluster runs this test alone.
#[tokio::test]
#[ignore = "is no test: it holds the cluster of the others"]
async fn holds_the_cluster() {
    support::loopback::hold().await;
}

/// The cluster, for one test at a time. `None` (and a message) without a Python for Ray.
fn cluster() -> Option<Shared> {
    Shared::on_loopback("holds_the_cluster")
}

/// Tokens of a relay: without them an agent speaks for the node that it dials from alone.
struct Tokens(Issuer);

impl Tokens {
    fn new() -> Self {
        Self(Issuer::new())
    }

    /// The section of the configuration.
    fn section(&self) -> String {
        format!("[auth]\nkeys = [{:?}]\n", self.0.path("relay.pub"))
    }

    /// The option of an agent that speaks for every node.
    fn of_agent(&self) -> String {
        let token = self.0.mint("agents", &["--scope", "node", "--node", "*"]);
        format!("--token-file={}", self.0.write("agent.token", &token))
    }

    /// The relay with these arguments, as a user sees it.
    fn scene<'a>(&self, cluster: &'a Cluster, args: &[&str]) -> Scene<'a> {
        let scope = "list,view,debug,terminal,admin";
        let token = self.0.mint("ann", &["--scope", scope]);
        Scene {
            token: Some(token),
            ..Scene::with(cluster, args)
        }
    }
}

/// The path of a configuration file for relays of `cluster` with `text`, in `folder`.
fn configuration(folder: &tempfile::TempDir, cluster: &Cluster, text: &str) -> String {
    let file = folder.path().join("relay.toml");
    let (dashboard, gcs) = (cluster.dashboard(), cluster.gcs().unwrap());
    let head = format!(
        "[[cluster]]\nname = \"default\"\nray_address = {dashboard:?}\ngcs_address = {gcs:?}\n"
    );
    std::fs::write(&file, format!("{text}{head}")).unwrap();
    file.to_str().unwrap().to_owned()
}

fn id(row: &Value) -> &str {
    row["id"].as_str().unwrap()
}

/// Waits until `count` tasks are parked.
fn wait_parked(scene: &Scene<'_>, count: usize) {
    eventually("parked tasks", Duration::from_secs(30), || {
        let rows = scene.list();
        let parked = rows.iter().filter(|row| row["state"] == "parked");
        (parked.count() == count).then_some(())
    });
}

/// The exit code and the output of `ray-relay ARGS`.
fn ray_relay(scene: &Scene<'_>, args: &[&str]) -> (Option<i32>, String) {
    let output = scene.command(args).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

/// Resumes every paused task.
fn release_all(scene: &Scene<'_>) {
    let (code, text) = ray_relay(scene, &["release", "--all", "--yes"]);
    assert_eq!(code, Some(0), "{text}");
}
