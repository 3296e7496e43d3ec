//! A task whose debugger has died: this is reported, and its worker can be ended through Ray.

use std::process::Output;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::dap_client::TEST_TIMEOUT;
use crate::support::eventually;
use crate::support::namespaces::Cluster;
use crate::support::ray::{self, NEWEST};
use crate::support::scene::Scene;

/// Ends every debug adapter of the node it runs on, and not itself.
const END_ADAPTERS: &str = "for process in /proc/[0-9]*; do
    if tr '\\0' ' ' <$process/cmdline 2>/dev/null | grep -q '[d]ebugpy/adapter'; then kill -9 ${process#/proc/}; fi
done";

fn end_adapters(cluster: &Cluster, node: &str) {
    let mut command = cluster.exec(node, "sh");
    let status = command.args(["-c", END_ADAPTERS]).status();
    assert!(status.unwrap().success());
}

fn release(scene: &Scene<'_>, args: &[&str]) -> (Output, String) {
    let mut command = scene
        .cluster
        .exec("client", env!("CARGO_BIN_EXE_ray-relay"));
    command
        .args(["release", "--relay", &scene.relay.url()])
        .args(args);
    let output = command.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, stdout)
}

#[tokio::test]
async fn worker_without_a_debugger_is_ended_through_ray() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let config = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    std::fs::write(config.path(), "[dap]\nallow_terminate = true\n").unwrap();
    let scene = Scene::with(&cluster, &["--config", config.path().to_str().unwrap()]);
    let mut driver = cluster.start_driver("tasks.py", &[]);
    let rows = scene.wait_listed(3);
    let on_w1 = cluster.address("w1").to_string();
    let row = rows.iter().find(|row| row["node_ip"] == on_w1).unwrap();
    let id = row["id"].as_str().unwrap();
    end_adapters(&cluster, "w1");

    let refused = scene.refusal(json!({ "breakpoint": id })).await;
    assert!(
        refused.contains("its debugger is gone") && refused.contains("release --force"),
        "{refused}"
    );
    let removed = scene
        .list()
        .into_iter()
        .find(|row| row["id"] == id)
        .unwrap();
    assert_eq!(removed["state"], "unreachable");
    assert!(removed["unreachable_since"].is_number(), "{removed}");
    let (output, text) = release(&scene, &[id]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text.contains("not released: its debugger is gone"),
        "{text}"
    );
    // The others are detached; this one is not among them.
    let (output, text) = release(&scene, &["--all", "--yes"]);
    assert!(output.status.success() && !text.contains(id), "{text}");

    let (output, text) = release(&scene, &["--force", id]);
    assert!(
        output.status.success() && text.contains("worker ended"),
        "{text}"
    );
    // Ray runs the task again, in another worker.
    let again = eventually("another attempt", Duration::from_secs(120), || {
        let list = scene.list();
        let [only] = list.as_slice() else { return None };
        (only["state"] == "paused" && only["name"] == "square").then(|| only.clone())
    });
    assert_ne!(again["worker_id"], row["worker_id"]);
    let (output, text) = release(&scene, &["--all"]);
    assert!(output.status.success(), "{text}");
    assert_eq!(driver.result(), json!([["head", 4], ["w1", 9], ["w2", 16]]));
    scene.assert_none_paused();
}

/// An actor, whose worker a job ends on its node, and a driver that was submitted as a job, which Ray itself stops.
#[tokio::test]
async fn so_are_an_actor_and_a_driver() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let config = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    std::fs::write(config.path(), "[dap]\nallow_terminate = true\n").unwrap();
    let scene = Scene::with(&cluster, &["--config", config.path().to_str().unwrap()]);
    let mut owner = cluster.start_driver("actor.py", &[]);
    let job = format!("stands-{}", std::process::id());
    let (python, script) = (cluster.venv().python(), ray::job("driver_breakpoint.py"));
    let submitted = cluster
        .exec("client", cluster.venv().ray())
        .args([
            "job",
            "submit",
            "--no-wait",
            "--address",
            &scene.relay.url(),
        ])
        .args(["--submission-id", &job, "--", "RAY_DEBUG=1"])
        .args([python, script])
        .output()
        .unwrap();
    assert!(submitted.status.success(), "{submitted:?}");
    let rows = scene.wait_listed(2);
    for node in ["head", "w2"] {
        end_adapters(&cluster, node);
    }
    for row in &rows {
        let id = row["id"].as_str().unwrap();
        let (output, text) = release(&scene, &["--force", id]);
        assert!(
            output.status.success() && text.contains("worker ended"),
            "{row}: {text}"
        );
    }
    let outcome = owner.result();
    assert!(outcome.as_str().unwrap().contains("Actor"), "{outcome}");
    eventually("the job stopped", TEST_TIMEOUT, || {
        let url = format!("{}/api/jobs/{job}", cluster.dashboard());
        let (_, body) = cluster.get("relay", &url, TEST_TIMEOUT).ok()?;
        let job: Value = serde_json::from_slice(&body).ok()?;
        (job["status"] == "STOPPED").then_some(())
    });
    scene.assert_none_paused();
}
