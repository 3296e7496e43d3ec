//! A relay that is upgraded under its sessions.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::support::agent::{Agent, linked};
use crate::support::dap_client::Editor;
use crate::support::namespaces::Cluster;
use crate::support::ray::{self, NEWEST};
use crate::support::scene::Scene;
use crate::support::{eventually, say};

/// Lines of `square` in tasks.py.
const BREAKPOINT: u32 = 9;

/// How long a relay may take to end that has nothing left.
const SOON: Duration = Duration::from_secs(30);

/// A configuration with a folder for its socket.
struct Place(tempfile::TempDir);

impl Place {
    /// `path` is that to the workers.
    fn new(path: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mode = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(folder.path(), mode).unwrap();
        let socket = folder.path().join("takeover");
        let text = format!(
            "[listen]\ntakeover = {socket:?}\ndrain_timeout = \"10m\"\n[upstream]\npath = {path:?}\n"
        );
        std::fs::write(folder.path().join("relay.toml"), text).unwrap();
        Self(folder)
    }

    fn socket(&self) -> PathBuf {
        self.0.path().join("takeover")
    }

    /// A relay that takes over from the one before, where there is one.
    fn relay<'a>(&self, cluster: &'a Cluster) -> Scene<'a> {
        let config = self.0.path().join("relay.toml");
        Scene::with(cluster, &["--config", config.to_str().unwrap()])
    }
}

#[tokio::test]
async fn sessions_outlive_the_upgrade_of_a_relay() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let place = Place::new("direct");
    cluster_session(&cluster, &place).await;
    subprocess(&cluster, &place, &[]).await;
    say("the same with agents, which link with both");
    let place = Place::new("agent");
    subprocess(&cluster, &place, &["head", "w1", "w2"]).await;
}

async fn cluster_session(cluster: &Cluster, place: &Place) {
    say("a cluster session in VS Code, one task stopped, while one relay takes over from another");
    let mut older = place.relay(cluster);
    let mut driver = cluster.start_driver("tasks.py", &[]);
    let rows = older.wait_listed(3);
    let mut parent = older.connect(Editor::VsCode).await;
    let attach = older.arguments(Editor::VsCode, "", json!(null));
    parent.start(attach, None).await;
    let file = ray::job("tasks.py");
    let file = file.to_str().unwrap();
    let mut first = older.connect(Editor::VsCode).await;
    first.start(parent.child().await, None).await;
    let (thread, _) = first.stopped().await;
    let frames = first.frames(thread).await;
    assert_eq!((&*frames[0].path, frames[0].line), (file, BREAKPOINT));

    let newer = place.relay(cluster);
    eventually("the new relay's list", SOON, || {
        let list = newer.list();
        let held = list.iter().filter(|row| row["state"] == "attached").count();
        (list.len() == 3 && held == 1).then_some(())
    });
    let held = newer
        .list()
        .into_iter()
        .find(|row| row["state"] == "attached");
    let held = held.unwrap();
    assert!(rows.iter().any(|row| row["id"] == held["id"]));
    let sentence = newer.refusal(json!({"breakpoint": held["id"]})).await;
    assert!(sentence.contains("is being debugged"), "{sentence}");
    let sessions = newer.get("/relay/v1/sessions");
    let all = sessions["sessions"].as_array().unwrap();
    assert!(
        all.iter().any(|row| row["breakpoint"] == held["id"]),
        "{sessions}"
    );

    say("it steps on, and the editor opens the others at the new relay");
    let (thread, _) = first.step_over(thread).await;
    assert_eq!(first.frames(thread).await[0].line, BREAKPOINT + 1);
    let mut others = Vec::new();
    for _ in 0..2 {
        let configuration = parent.child().await;
        let mut child = newer.connect(Editor::VsCode).await;
        child.start(configuration, None).await;
        let (thread, _) = child.stopped().await;
        assert_eq!(child.frames(thread).await[0].line, BREAKPOINT);
        others.push((child, thread));
    }
    assert!(
        older.relay.log().contains("passed on"),
        "{}",
        older.relay.log()
    );
    first.resume(thread).await;
    for (child, thread) in &mut others {
        child.resume(*thread).await;
    }
    assert_eq!(driver.result(), json!([["head", 4], ["w1", 9], ["w2", 16]]));
    assert!(place.socket().exists());
    parent.disconnect().await;
    drop((first, others));
    assert!(older.relay.wait_exit(SOON).success());
    newer.gone();
    stop(newer, place);
}

async fn subprocess(cluster: &Cluster, place: &Place, nodes: &[&str]) {
    say("a task starts a subprocess after the upgrade");
    let mut older = place.relay(cluster);
    let agent = |node: &&str| Agent::on(&older, node, &["--allow-plaintext"]);
    let _agents: Vec<_> = nodes.iter().map(agent).collect();
    linked(&older, nodes.len());
    let mut driver = cluster.start_driver("subprocess_task.py", &[]);
    let row = older.listed("parent", &driver);
    let mut client = older.attached(&row).await;
    let (thread, _) = client.stopped().await;
    let newer = place.relay(cluster);
    linked(&newer, nodes.len());
    client.resume(thread).await;
    let configuration = client.child().await;
    let mut child = newer.connect(Editor::VsCode).await;
    child.start(configuration, None).await;
    assert_eq!(driver.result(), json!("child 7"));
    child.event("terminated").await;
    client.disconnect().await;
    drop(child);
    assert!(older.relay.wait_exit(SOON).success());
    newer.gone();
    stop(newer, place);
}

/// Nothing is left of the last one.
fn stop(mut last: Scene<'_>, place: &Place) {
    last.relay.signal(Signal::TERM);
    assert!(last.relay.wait_exit(SOON).success());
    assert!(!place.socket().exists());
}
