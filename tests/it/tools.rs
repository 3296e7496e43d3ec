//! Stock tools through the one port: Ray's own CLI, and a client built like ray-debugger.nvim.

use serde_json::{Map, Value, json};

use crate::support::dap_client::{DapClient, Editor};
use crate::support::namespaces::Cluster;
use crate::support::ray::{self, NEWEST, OLDEST};
use crate::support::say;
use crate::support::scene::Scene;

#[tokio::test]
async fn on_the_newest_ray() {
    stock_tools(NEWEST).await;
}

#[tokio::test]
async fn on_the_oldest_ray() {
    stock_tools(OLDEST).await;
}

async fn stock_tools(version: &str) {
    let Some(cluster) = Cluster::shared(version) else {
        return;
    };
    let scene = Scene::new(&cluster);
    neovim(&scene).await;
    ray_cli(&scene);
}

/// State API first, then DAP to the host and port from its answer, used literally.
pub(crate) async fn neovim(scene: &Scene<'_>) {
    say("a client like ray-debugger.nvim");
    let mut driver = scene.cluster.start_driver("tasks.py", &[]);
    scene.wait_listed(3);
    let paused = scene.paused_workers();
    assert_eq!(paused.len(), 3);
    let mut squares = Vec::new();
    for row in paused {
        let (host, port) = (
            row["ip"].as_str().unwrap(),
            row["debugger_port"].as_u64().unwrap() as u16,
        );
        assert_eq!(port, scene.relay.address().port());
        let arguments: Map<String, Value> = Editor::Neovim.attach(host, port, "");
        // All spellings are the relay's one address.
        let mut client = scene.connect(Editor::Neovim).await;
        client.start(arguments, None).await;
        let (thread, _) = client.stopped().await;
        let frames = client.frames(thread).await;
        assert_eq!(frames[0].name, "square");
        squares.push(client.locals(frames[0].id).await["y"].clone());
        client.resume(thread).await;
        client.disconnect().await;
    }
    squares.sort();
    assert_eq!(
        squares,
        ["16", "4", "9"],
        "each address led to a worker of its own"
    );
    assert_eq!(driver.result(), json!([["head", 4], ["w1", 9], ["w2", 16]]));
    scene.assert_none_paused();
}

fn ray_cli(scene: &Scene<'_>) {
    say("ray list workers, ray job submit");
    let run = |args: &[&str]| {
        // Bounded: a job that hangs is a failure with its output.
        let mut command = scene.cluster.exec("client", "timeout");
        let output = command
            .arg("120")
            .arg(scene.cluster.venv().ray())
            .args(args)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {text}");
        text
    };
    let url = scene.relay.url();
    let listed = run(&["list", "workers", "--address", &url]);
    assert!(
        listed.contains("WORKER") && listed.contains("Total:"),
        "{listed}"
    );
    // The package is uploaded, its log followed over a WebSocket until the end.
    let project = ray::job("project");
    let submitted = run(&[
        "job",
        "submit",
        "--address",
        &url,
        "--working-dir",
        project.to_str().unwrap(),
        "--",
        "python",
        "plain.py",
    ]);
    assert!(
        submitted.contains("RESULT 12") && submitted.contains("succeeded"),
        "{submitted}"
    );
}

/// The address of one breakpoint never leads to another.
#[tokio::test]
async fn address_of_a_removed_breakpoint_is_unreachable() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let scene = Scene::new(&cluster);
    let mut driver = cluster.start_driver("reuse.py", &[]);
    let row = scene.listed("Steps.first", &driver);
    let rows = scene.workers();
    let own = rows
        .iter()
        .find(|found| found["worker_id"] == row["worker_id"])
        .unwrap();
    let host = own["ip"].as_str().unwrap().to_owned();
    for _ in 0..2 {
        let mut client = scene.connect(Editor::Neovim).await;
        client
            .start(
                Editor::Neovim.attach(&host, scene.relay.address().port(), ""),
                None,
            )
            .await;
        let (thread, _) = client.stopped().await;
        client.resume(thread).await;
        client.disconnect().await;
        if driver.is_waiting() {
            scene.listed("Steps.second", &driver);
        }
    }
    assert_eq!(driver.result(), json!([1, 2]));
    scene.assert_none_paused();
    let mut late: DapClient = scene.connect(Editor::Neovim).await;
    let refused = late
        .try_start(
            Editor::Neovim.attach(&host, scene.relay.address().port(), ""),
            None,
        )
        .await;
    assert_eq!(refused["success"], false, "{refused}");
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("no longer waits"),
        "{refused}"
    );
}
