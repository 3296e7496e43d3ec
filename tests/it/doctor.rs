//! `ray-relay doctor` at a client of a real cluster: all is well, and then it is not.

use std::time::Duration;

use serde_json::Value;

use crate::support::eventually;
use crate::support::namespaces::Cluster;
use crate::support::ray::{NEWEST, OLDEST};
use crate::support::scene::Scene;

/// What it finds, and its exit code.
fn findings(scene: &Scene<'_>) -> (Vec<Value>, Option<i32>) {
    let output = scene.command(&["doctor", "--json"]).output().unwrap();
    let mut told: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let findings = serde_json::from_value(told["findings"].take()).unwrap();
    (findings, output.status.code())
}

async fn a_cluster_that_is_well_and_a_node_without_debugpy(version: &str) {
    let Some(cluster) = Cluster::up(version, 1, &[]) else {
        return;
    };
    let scene = Scene::new(&cluster);
    let driver = cluster.start_driver("tasks.py", &[]);
    scene.wait_listed(3);
    let (found, code) = findings(&scene);
    assert_eq!(code, Some(0), "{found:#?}");
    let says = |link: &str| {
        let of_link = found.iter().find(|found| found["link"] == link);
        of_link.map_or("", |found| found["says"].as_str().unwrap())
    };
    assert!(
        says("head").contains(&format!("Ray {version}")),
        "{found:#?}"
    );
    assert_eq!(says("tasks"), "3 tasks wait for a debugger", "{found:#?}");
    assert!(
        says("agents").starts_with("2 nodes have no agent"),
        "{found:#?}"
    );
    // It has looked, and not touched: all of them wait as before.
    assert_eq!(scene.paused_workers().len(), 3);
    drop(driver);
    scene.gone();

    let mut driver = cluster.start_driver("no_debugpy.py", &[]);
    driver.line("READY");
    // What a worker has logged is with its node's agent of Ray's a moment later.
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
    a_cluster_that_is_well_and_a_node_without_debugpy(NEWEST).await;
}

#[tokio::test]
async fn on_the_oldest() {
    a_cluster_that_is_well_and_a_node_without_debugpy(OLDEST).await;
}
