//! From the client's namespace through the relay's one port into paused tasks, as editors do it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::dap_client::{Editor, TEST_TIMEOUT};
use crate::support::eventually;
use crate::support::namespaces::Cluster;
use crate::support::ray::{self, NEWEST};
use crate::support::scene::Scene;

/// Lines of `square` in tasks.py.
const BREAKPOINT_LINE: u32 = 9;
const RETURN_LINE: u32 = 11;

/// A VS Code with nothing but host and port: one child session for each of three paused tasks.
pub(crate) async fn vs_code_gets_a_session_for_each_task(scene: &Scene<'_>, version: &str) {
    let mut driver = scene.cluster.start_driver("tasks.py", &[]);
    scene.wait_listed(3);
    let address = scene.relay.address();
    let host = address.ip().to_string();
    let file = ray::job("tasks.py");
    let file = file.to_str().unwrap();
    let workspace = ray::job("");
    let attach = Editor::VsCode.attach(&host, address.port(), workspace.to_str().unwrap());
    let mut parent = scene.connect(Editor::VsCode).await;
    parent.start(attach, None).await;

    let mut children = Vec::new();
    let mut names = BTreeSet::new();
    for _ in 0..3 {
        let configuration = parent.child().await;
        let name = configuration["name"].as_str().unwrap().to_owned();
        assert!(name.contains("square"), "{name}");
        names.insert(name);
        assert_eq!(
            configuration["connect"],
            json!({"host": host, "port": address.port()})
        );
        let mut child = scene.connect(Editor::VsCode).await;
        child
            .start(configuration, Some((file, &[RETURN_LINE])))
            .await;
        children.push(child);
    }
    assert_eq!(names.len(), 3, "{names:?}");

    for child in &mut children {
        let (thread, reason) = child.stopped().await;
        assert_eq!(reason, "breakpoint");
        let frames = child.frames(thread).await;
        assert_eq!(frames[0].name, "square", "{frames:?}");
        assert_eq!(frames[0].path, file);
        assert_eq!(frames[0].line, BREAKPOINT_LINE, "{frames:?}");
        let locals = child.locals(frames[0].id).await;
        let x: u32 = locals["x"].parse().unwrap();
        assert_eq!(locals["y"], (x * x).to_string());
        let (thread, _) = child.step_over(thread).await;
        assert_eq!(child.frames(thread).await[0].line, BREAKPOINT_LINE + 1);
        child.resume(thread).await;
        let (thread, _) = child.stopped().await;
        assert_eq!(child.frames(thread).await[0].line, RETURN_LINE);
        assert!(driver.is_waiting());
        child.resume(thread).await;
    }
    assert_eq!(driver.result(), json!([["head", 4], ["w1", 9], ["w2", 16]]));
    // A job that went well ends without a toast, and the parent says that it has.
    if version == NEWEST {
        for child in &mut children {
            let message = child.output_with("has ended: its job is over").await;
            assert_eq!(message["category"], "console", "{message}");
        }
        let message = parent.output_with("has ended").await;
        assert_eq!(message["category"], "console", "{message}");
        let list = scene.get("/relay/v1/breakpoints?ended=1");
        for row in list["breakpoints"].as_array().unwrap() {
            assert_eq!(
                (&row["state"], &row["why"]),
                (&"finished".into(), &"its job is over".into())
            );
        }
    }
    for child in &children {
        let text = child.transcript();
        assert!(!text.contains("\"10.88.0."), "an address leaked: {text}");
    }
    assert!(!parent.transcript().contains("\"10.88.0."));
}

#[tokio::test]
async fn vs_code_newest_ray() {
    if let Some(cluster) = Cluster::shared(NEWEST) {
        vs_code_gets_a_session_for_each_task(&Scene::new(&cluster), NEWEST).await;
    }
}

/// VS Code says goodbye to the parent alone: at Restart, and at Stop.
#[tokio::test]
async fn stopping_the_parent_session_resumes_the_children() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let scene = Scene::new(&cluster);
    let mut driver = cluster.start_driver("tasks.py", &[]);
    scene.wait_listed(3);
    let mut parent = scene.connect(Editor::VsCode).await;
    let attach = scene.arguments(Editor::VsCode, "", json!(null));
    parent.start(attach.clone(), None).await;
    let mut children = Vec::new();
    for _ in 0..2 {
        let configuration = parent.child().await;
        let mut child = scene.connect(Editor::VsCode).await;
        child.start(configuration, None).await;
        let (thread, _) = child.stopped().await;
        children.push((child, thread));
    }
    parent.child().await;
    parent.restart().await;

    let mut parent = scene.connect(Editor::VsCode).await;
    parent.start(attach, None).await;
    let configuration = parent.child().await;
    let mut child = scene.connect(Editor::VsCode).await;
    child.start(configuration, None).await;
    let (thread, _) = child.stopped().await;
    children.push((child, thread));
    for (child, thread) in &mut children {
        // Restart of a child asks for nothing of the worker.
        child.call("restart", json!({})).await;
        assert_eq!(child.stopped().await.0, *thread);
        assert_eq!(
            child.frames(*thread).await[0].name,
            "square",
            "it stands where it stood"
        );
    }
    assert!(driver.is_waiting());

    parent.disconnect().await;
    for (mut child, _) in children {
        let message = child
            .output_with("the cluster session that opened it has ended")
            .await;
        assert_eq!(message["category"], "console", "{message}");
        child.event("terminated").await;
    }
    assert_eq!(driver.result(), json!([["head", 4], ["w1", 9], ["w2", 16]]));
    scene.assert_none_paused();
}

/// A client of the State API can know a worker before the relay has polled. The worker's address works anyway.
#[tokio::test]
async fn breakpoint_from_the_state_api_is_found_before_the_next_poll() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let config = tempfile::NamedTempFile::new().unwrap();
    let rarely = "[registry]\npoll_interval = \"60s\"\n";
    std::fs::write(config.path(), rarely).unwrap();
    let scene = Scene::with(&cluster, &["--config", config.path().to_str().unwrap()]);
    scene.idle_descriptors();
    let mut driver = cluster.start_driver("tasks.py", &[]);
    let mut squares = Vec::new();
    let rows = eventually("three rows", TEST_TIMEOUT, || {
        Some(scene.paused_workers()).filter(|rows| rows.len() == 3)
    });
    for row in rows {
        let (host, port) = (row["ip"].as_str().unwrap(), scene.relay.address().port());
        let mut client = scene.connect(Editor::Neovim).await;
        client
            .start(Editor::Neovim.attach(host, port, ""), None)
            .await;
        let (thread, _) = client.stopped().await;
        let frames = client.frames(thread).await;
        squares.push(client.evaluate(frames[0].id, "y").await);
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
}

/// F5 before anything stops: sessions open as tasks stop, and again as the same worker stops again. Beside it, a client
/// that can have one session only waits for the next stop.
#[tokio::test]
async fn cluster_session_opens_tasks_that_stop_later() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let scene = Scene::new(&cluster);
    scene.idle_descriptors();
    let mut parent = scene.connect(Editor::VsCode).await;
    parent
        .start(scene.arguments(Editor::VsCode, "", json!(null)), None)
        .await;
    let mut driver = cluster.start_driver("reuse.py", &[]);
    for method in ["Steps.first", "Steps.second"] {
        let configuration = parent.child().await;
        assert!(
            configuration["name"].as_str().unwrap().contains(method),
            "{configuration:?}"
        );
        let mut child = scene.connect(Editor::VsCode).await;
        child.start(configuration, None).await;
        let (thread, _) = child.stopped().await;
        child.resume(thread).await;
        child.disconnect().await;
    }
    assert_eq!(driver.result(), json!([1, 2]));
    parent.disconnect().await;
    scene.assert_none_paused();

    let mut waiting = scene.connect(Editor::Plain).await;
    waiting.initialize().await;
    let selector = scene.arguments(
        Editor::Plain,
        "",
        json!({"next": true, "task": "Counter.*"}),
    );
    let attach = waiting.send("attach", Value::Object(selector)).await;
    let message = waiting.event("output").await;
    assert!(
        message["output"]
            .as_str()
            .unwrap()
            .contains("waiting for the next breakpoint"),
        "{message}"
    );
    let mut driver = cluster.start_driver("actor.py", &[]);
    waiting.event("initialized").await;
    waiting.call("configurationDone", json!({})).await;
    assert_eq!(waiting.response(attach).await["success"], true);
    let (thread, _) = waiting.stopped().await;
    waiting.resume(thread).await;
    assert_eq!(driver.result(), 5);
    waiting.disconnect().await;
    scene.assert_none_paused();
}
