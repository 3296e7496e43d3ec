//! Breakpoints that are reachable though Ray's list lacks them, and the list after a task ends before its session, on the
//! newest Ray. `closed_network` covers the oldest.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::dap_client::Editor;
use crate::support::namespaces::Cluster;
use crate::support::ray::NEWEST;
use crate::support::scene::Scene;
use crate::support::{eventually, say};

/// A task is paused but Ray counts no paused thread. A user knows its worker's id, from `ray list workers`.
async fn by_worker_id(scene: &Scene<'_>) {
    say("a worker that stands, and is not listed as paused");
    for whole in [true, false] {
        // Workers of tests before this one may be on their way out.
        let before: Vec<Value> = with_debugger(scene).iter().map(id).collect();
        let mut driver = scene.cluster.start_driver("unlisted.py", &[]);
        let worker = eventually("its debugger", Duration::from_secs(120), || {
            with_debugger(scene)
                .into_iter()
                .find(|row| !before.contains(&id(row)))
        });
        assert!(worker["num_paused_threads"].as_u64().unwrap_or(0) == 0);
        assert!(scene.list().is_empty() && driver.is_waiting());
        let id = worker["worker_id"].as_str().unwrap();
        if whole {
            let mut client = scene.connect(Editor::VsCode).await;
            let selector = json!({ "worker": id });
            client
                .start(scene.arguments(Editor::VsCode, "", selector), None)
                .await;
            let (thread, _) = client.stopped().await;
            let frames = client.frames(thread).await;
            assert_eq!(frames[0].name, "hidden", "{frames:?}");
            assert_eq!(scene.list()[0]["worker_id"], id);
            client.evaluate(frames[0].id, "x = 4").await;
            client.resume(thread).await;
            assert_eq!(driver.result(), json!(4));
            client.disconnect().await;
        } else {
            // From its first nine characters.
            let output = scene.command(&["release", &id[..9]]).output().unwrap();
            let stdout = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success() && stdout.contains("released"),
                "{stdout}"
            );
            assert_eq!(driver.result(), json!(3));
        }
        scene.assert_none_paused();
    }
}

/// Workers that live and have a debugger's port.
fn with_debugger(scene: &Scene<'_>) -> Vec<Value> {
    let mut rows = scene.cluster.rows("workers?detail=1&limit=10000");
    rows.retain(|row| row["is_alive"] == true && port(row) > 0);
    rows
}

fn id(row: &Value) -> Value {
    row["worker_id"].clone()
}

/// Some versions write ports as text.
fn port(row: &Value) -> u64 {
    let port = &row["debugger_port"];
    let text = || port.as_str()?.parse().ok();
    port.as_u64().or_else(text).unwrap_or(0)
}

/// The editor is notified, and the list no longer shows the task as waiting.
async fn outlived(scene: &Scene<'_>) {
    say("a session that outlives its task");
    let mut driver = scene.cluster.start_driver("tasks.py", &[]);
    let rows = scene.wait_listed(3);
    let id = &rows[0]["id"];
    let mut client = scene.attached(&rows[0]).await;
    let (thread, _) = client.stopped().await;
    let listed = || scene.list().into_iter().find(|row| row["id"] == *id);
    assert!(listed().unwrap()["task_ended"].is_null());
    client.resume(thread).await;
    let message = client.output_with("has ended").await;
    assert_eq!(
        message["data"],
        json!({"rayRelay": "taskEnded"}),
        "{message}"
    );
    let row = listed().unwrap();
    assert_eq!(row["state"], "attached", "{row}");
    assert!(row["task_ended"].is_number(), "{row}");
    assert!(driver.is_waiting());
    client.disconnect().await;
    eventually("its row gone", Duration::from_secs(30), || {
        listed().is_none().then_some(())
    });
    for row in &rows[1..] {
        let client = scene.attached(row).await;
        client.disconnect().await;
    }
    assert_eq!(driver.result(), json!([["head", 4], ["w1", 9], ["w2", 16]]));
    scene.assert_none_paused();
}

pub(crate) async fn unlisted_breakpoints(scene: &Scene<'_>) {
    by_worker_id(scene).await;
    outlived(scene).await;
}

#[tokio::test]
async fn unlisted_breakpoints_on_the_newest_ray() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let scene = Scene::new(&cluster);
    scene.idle_descriptors();
    unlisted_breakpoints(&scene).await;
}
