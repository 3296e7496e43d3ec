//! From the client's namespace through the relay's one port into paused tasks, as editors do it.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::dap_client::{DapClient, Editor, PATIENCE};
use crate::support::eventually;
use crate::support::namespaces::Cluster;
use crate::support::ray::{self, NEWEST, OLDEST};
use crate::support::relay::Relay;

/// Lines of `square` in tasks.py.
const BREAKPOINT: u32 = 9;
const RETURN: u32 = 11;

/// Waits until the relay lists `count` paused workers with names, asked from the client.
fn wait_listed(cluster: &Cluster, relay: &Relay, count: usize) {
    let url = format!("{}/relay/v1/breakpoints", relay.url());
    eventually("the relay's list", Duration::from_secs(60), || {
        let (_, body) = cluster.get("client", &url, PATIENCE).ok()?;
        let answer: Value = serde_json::from_slice(&body).ok()?;
        let paused = answer["breakpoints"].as_array()?.iter();
        let paused = paused.filter(|b| b["state"] == "paused" && b["task_id"].is_string());
        (paused.count() == count).then_some(())
    });
}

/// A VS Code with nothing but host and port: one child session for each of three paused tasks.
async fn vs_code_gets_a_session_for_each_task(version: &str) {
    let Some(cluster) = Cluster::shared(version) else {
        return;
    };
    let relay = Relay::beside(&cluster, &[]);
    let mut driver = cluster.start_driver("tasks.py", &[]);
    wait_listed(&cluster, &relay, 3);
    let address = relay.address();
    let host = address.ip().to_string();
    let file = ray::job("tasks.py");
    let file = file.to_str().unwrap();
    let workspace = ray::job("");
    let attach = Editor::VsCode.attach(&host, address.port(), workspace.to_str().unwrap());
    let mut parent = DapClient::connect_from(Editor::VsCode, &cluster, "client", address).await;
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
        let mut child = DapClient::connect_from(Editor::VsCode, &cluster, "client", address).await;
        child.start(configuration, Some((file, &[RETURN]))).await;
        children.push(child);
    }
    assert_eq!(names.len(), 3, "{names:?}");

    for child in &mut children {
        let (thread, reason) = child.stopped().await;
        assert_eq!(reason, "breakpoint");
        let frames = child.frames(thread).await;
        assert_eq!(frames[0].name, "square", "{frames:?}");
        assert_eq!(frames[0].path, file);
        assert_eq!(frames[0].line, BREAKPOINT, "{frames:?}");
        let locals = child.locals(frames[0].id).await;
        let x: u32 = locals["x"].parse().unwrap();
        assert_eq!(locals["y"], (x * x).to_string());
        let (thread, _) = child.step_over(thread).await;
        assert_eq!(child.frames(thread).await[0].line, BREAKPOINT + 1);
        child.resume(thread).await;
        let (thread, _) = child.stopped().await;
        assert_eq!(child.frames(thread).await[0].line, RETURN);
        assert!(driver.is_waiting());
        child.resume(thread).await;
    }
    assert_eq!(driver.result(), json!([["head", 4], ["w1", 9], ["w2", 16]]));
    for child in &children {
        let text = child.transcript();
        assert!(!text.contains("\"10.88.0."), "an address leaked: {text}");
    }
    assert!(!parent.transcript().contains("\"10.88.0."));
}

#[tokio::test]
async fn vs_code_newest_ray() {
    vs_code_gets_a_session_for_each_task(NEWEST).await;
}

#[tokio::test]
async fn vs_code_oldest_ray() {
    vs_code_gets_a_session_for_each_task(OLDEST).await;
}

/// A client built like ray-debugger.nvim: the State API, then the host and port found there.
#[tokio::test]
async fn a_state_api_client_attaches_to_what_it_is_told() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let relay = Relay::beside(&cluster, &[]);
    let mut driver = cluster.start_driver("actor.py", &[]);
    wait_listed(&cluster, &relay, 1);
    let url = format!("{}/api/v0/workers?detail=1&limit=10000", relay.url());
    let row = eventually("the worker's row", PATIENCE, || {
        let (status, body) = cluster.get("client", &url, PATIENCE).unwrap();
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        let answer: Value = serde_json::from_slice(&body).unwrap();
        let rows = answer["data"]["result"]["result"].as_array().unwrap();
        rows.iter()
            .find(|row| row["is_alive"] == true && row["num_paused_threads"] == 1)
            .cloned()
    });
    let host = row["ip"].as_str().unwrap();
    let port: u16 = row["debugger_port"]
        .to_string()
        .trim_matches('"')
        .parse()
        .unwrap();
    assert_eq!(port, relay.address().port());

    let mut client =
        DapClient::connect_from(Editor::Neovim, &cluster, "client", relay.address()).await;
    client
        .start(Editor::Neovim.attach(host, port, ""), None)
        .await;
    let (thread, _) = client.stopped().await;
    let frames = client.frames(thread).await;
    let add = frames.iter().find(|frame| frame.name.ends_with("add"));
    let add = add.unwrap_or_else(|| panic!("{frames:?}"));
    assert_eq!(client.evaluate(add.id, "self.total").await, "5");
    client.resume(thread).await;
    client.disconnect().await;
    assert_eq!(driver.result(), 5);
}
