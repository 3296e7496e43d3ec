//! Subprocesses of tasks, on real debugpy: their sessions are kept as those of their tasks are.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::dap_client::{DapClient, Editor, Frame};
use crate::support::driver::Driver;
use crate::support::eventually;
use crate::support::namespaces::{Cluster, ON_TWO_NODES};
use crate::support::ray::{self, NEWEST};
use crate::support::scene::Scene;

/// The line at which the subprocess is stopped.
const BREAKPOINT_LINE: u32 = 5;

/// Sessions with a task and its paused subprocess.
pub(crate) struct Standing {
    row: Value,
    token: Option<String>,
    client: DapClient,
    child: DapClient,
    frames: Vec<Frame>,
    driver: Driver,
}

/// The sessions with a task and its subprocess at the relay of `scene`, by `token`, and the thread of that which stands.
async fn attached(
    scene: &Scene<'_>,
    row: &Value,
    token: Option<&str>,
) -> (DapClient, DapClient, u64) {
    let mut client = scene.connect(Editor::VsCode).await;
    let mut selector = json!({"breakpoint": row["id"]});
    if let Some(token) = token {
        selector["token"] = token.into();
    }
    let arguments = scene.arguments(Editor::VsCode, "", selector);
    client.start(arguments, None).await;
    let waits = row["state"] == "paused";
    if waits {
        let (thread, _) = client.stopped().await;
        client.resume(thread).await;
    }
    let configuration = client.child().await;
    let mut child = scene.connect(Editor::VsCode).await;
    let program = ray::job("child.py");
    let stop = waits.then(|| (program.to_str().unwrap(), &[BREAKPOINT_LINE][..]));
    child.start(configuration, stop).await;
    let (thread, _) = child.stopped().await;
    (client, child, thread)
}

impl Standing {
    pub(crate) async fn new(scene: &Scene<'_>, token: Option<&str>) -> Self {
        let driver = scene
            .cluster
            .start_driver("subprocess_stops.py", &ON_TWO_NODES);
        let row = scene.listed("parent", &driver);
        let (client, mut child, thread) = attached(scene, &row, token).await;
        let frames = child.frames(thread).await;
        assert_eq!(frames[0].line, BREAKPOINT_LINE);
        child.evaluate(frames[0].id, "x = 41").await;
        let token = token.map(str::to_owned);
        Self {
            row,
            token,
            client,
            child,
            frames,
            driver,
        }
    }

    /// Its clients are lost without a disconnect.
    pub(crate) fn lost(self) -> Lost {
        let Self {
            row,
            token,
            client,
            child,
            frames,
            driver,
        } = self;
        drop((client, child));
        Lost {
            row,
            token,
            frames,
            driver,
        }
    }
}

/// The same without their clients.
pub(crate) struct Lost {
    row: Value,
    token: Option<String>,
    frames: Vec<Frame>,
    driver: Driver,
}

impl Lost {
    /// The task is listed as parked.
    pub(crate) fn parked(&mut self, scene: &Scene<'_>) {
        eventually("the parked task", Duration::from_secs(30), || {
            let rows = scene.list();
            let row = rows.iter().find(|row| row["id"] == self.row["id"])?;
            (row["state"] == "parked").then(|| self.row = row.clone())
        });
        std::thread::sleep(Duration::from_secs(1));
        assert!(self.driver.is_waiting(), "the subprocess stands");
    }

    /// A client that attaches again is asked to open the subprocess, which is still paused.
    pub(crate) async fn resume_and_finish(mut self, scene: &Scene<'_>) {
        let (client, mut child, thread) = attached(scene, &self.row, self.token.as_deref()).await;
        let frames = child.frames(thread).await;
        let ids = |frames: &[Frame]| frames.iter().map(|f| (f.id, f.line)).collect::<Vec<_>>();
        assert_eq!(ids(&frames), ids(&self.frames), "the same stop");
        assert_eq!(child.locals(frames[0].id).await["x"], "41");
        child.resume(thread).await;
        assert_eq!(self.driver.result(), json!("child 42"));
        child.event("terminated").await;
        client.disconnect().await;
        scene.assert_none_paused();
    }
}

#[tokio::test]
async fn lost_task_is_restored_with_its_subprocess() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("relay.toml");
    std::fs::write(&file, "[park]\nfor = \"10m\"\n").unwrap();
    let scene = Scene::with(&cluster, &["--config", file.to_str().unwrap()]);
    let mut lost = Standing::new(&scene, None).await.lost();
    lost.parked(&scene);
    lost.resume_and_finish(&scene).await;

    // Released, both resume.
    let mut lost = Standing::new(&scene, None).await.lost();
    lost.parked(&scene);
    let id = lost.row["id"].as_str().unwrap();
    let released = scene.command(&["release", id]).output().unwrap();
    assert!(released.status.success(), "{released:?}");
    assert_eq!(lost.driver.result(), json!("child 42"));
    scene.assert_none_paused();
}

/// With debugpy it waits for a client, even after its task has ended.
#[tokio::test]
async fn unattached_subprocess_does_not_hold_its_task() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let scene = Scene::with(&cluster, &[]);
    let mut driver = cluster.start_driver("subprocess_task.py", &[]);
    let row = scene.listed("parent", &driver);
    let mut client = scene.attached(&row).await;
    let (thread, _) = client.stopped().await;
    client.resume(thread).await;
    client.child().await;
    std::thread::sleep(Duration::from_secs(1));
    assert!(driver.is_waiting(), "it waits for its session");
    client.disconnect().await;
    assert_eq!(driver.result(), json!("child 7"));
    scene.assert_none_paused();
}
