//! Editors and prompts.

use std::collections::BTreeMap;

use serde_json::json;

use super::{cluster, configuration, id, ray_relay, release_all, wait_parked};
use crate::support::dap_client::{DapClient, Editor};
use crate::support::nc::Person;
use crate::support::ray;
use crate::support::scene::Scene;

/// The line of the breakpoint in tasks.py.
const BREAKPOINT_LINE: u32 = 9;

#[tokio::test]
async fn editor_steps_in_a_task_and_changes_its_result() {
    let Some(cluster) = cluster() else {
        return;
    };
    let scene = Scene::new(&cluster);
    let mut driver = cluster.start_driver("tasks.py", &[]);
    let rows = scene.wait_listed(3);
    let row = scene.on(&rows, "w1");
    let mut client = scene.attached(row).await;
    let (thread, _) = client.stopped().await;
    let frames = client.frames(thread).await;
    let file = ray::job("tasks.py");
    assert_eq!(
        (&*frames[0].path, frames[0].line),
        (file.to_str().unwrap(), BREAKPOINT_LINE)
    );
    assert_eq!(client.locals(frames[0].id).await["y"], "9");
    let refused = scene.refusal(json!({"breakpoint": id(row)})).await;
    assert!(refused.contains("is being debugged"), "{refused}");
    let (thread, _) = client.step_over(thread).await;
    let frames = client.frames(thread).await;
    assert_eq!(frames[0].line, BREAKPOINT_LINE + 1);
    client.evaluate(frames[0].id, "y = 4711").await;
    client.resume(thread).await;
    release_all(&scene);
    assert_eq!(
        driver.result(),
        json!([["head", 4], ["w1", 4711], ["w2", 16]])
    );
}

/// The parent session of VS Code, and those that it opens by the value of `x` in each.
async fn open_all(scene: &Scene<'_>) -> (DapClient, BTreeMap<String, (DapClient, u64)>) {
    let mut parent = scene.connect(Editor::VsCode).await;
    let all = scene.arguments(Editor::VsCode, "", json!({"all": true}));
    parent.start(all, None).await;
    let mut children = BTreeMap::new();
    for _ in 0..3 {
        let configuration = parent.child().await;
        let mut child = scene.connect(Editor::VsCode).await;
        child.start(configuration, None).await;
        let (thread, _) = child.stopped().await;
        let frame = child.frames(thread).await[0].id;
        let x = child.locals(frame).await["x"].clone();
        children.insert(x, (child, thread));
    }
    (parent, children)
}

#[tokio::test]
async fn lost_cluster_session_is_parked_and_resumed_as_a_whole() {
    let Some(cluster) = cluster() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(&folder, &cluster, "[park]\nfor = \"10m\"\n");
    let scene = Scene::with(&cluster, &["--config", &config]);
    let mut driver = cluster.start_driver("tasks.py", &[]);
    scene.wait_listed(3);
    let (parent, mut children) = open_all(&scene).await;
    let mut before = BTreeMap::new();
    for (x, (child, thread)) in &mut children {
        let frame = child.frames(*thread).await[0].id;
        child.evaluate(frame, &format!("y = 1000 + {x}")).await;
        child.step_over(*thread).await;
        before.insert(x.clone(), child.frames(*thread).await);
    }
    // The editor is killed.
    drop((parent, children));
    wait_parked(&scene, 3);
    let (_, listed) = ray_relay(&scene, &["list"]);
    assert!(
        listed.contains("parked by Visual Studio Code for 10m more"),
        "{listed}"
    );
    assert!(driver.is_waiting());
    let (_parent, mut children) = open_all(&scene).await;
    for (x, (child, thread)) in &mut children {
        assert_eq!(child.frames(*thread).await, before[x], "the same stop");
        let (thread, _) = child.step_over(*thread).await;
        assert_eq!(child.frames(thread).await[0].line, BREAKPOINT_LINE + 2);
        child.resume(thread).await;
    }
    let result = json!([["head", 1002], ["w1", 1003], ["w2", 1004]]);
    assert_eq!(driver.result(), result);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn legacy_prompt_is_parked_and_changes_a_result() {
    let Some(cluster) = cluster() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(&folder, &cluster, "[park]\nfor = \"10m\"\n");
    let scene = Scene::with(&cluster, &["--config", &config]);
    let mut driver = cluster.start_legacy_driver("legacy.py", &[]);
    let rows = scene.wait_listed(2);
    let (one, other) = (scene.on(&rows, "head"), scene.on(&rows, "w2"));
    let mut user = Person::connect(&scene);
    let list = user.list().await;
    assert_eq!(list.matches("outer").count(), 2, "{list}");
    user.line(id(one), "(Pdb) ").await;
    user.line("!x = 40", "(Pdb) ").await;
    drop(user);
    wait_parked(&scene, 1);
    assert!(driver.is_waiting());
    let mut user = Person::connect(&scene);
    user.list().await;
    let shown = user.line(id(one), "(Pdb) ").await;
    assert!(
        shown.contains("*** this resumes your session with outer"),
        "{shown}"
    );
    assert!(user.line("p x", "(Pdb) ").await.starts_with("40\r\n"));
    user.line("c", "q leaves): ").await;
    let (code, text) = ray_relay(&scene, &["release", id(other)]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(driver.result(), json!([[40, 80], [2, 4]]));
    scene.assert_none_paused();
}

#[tokio::test]
async fn release_resumes_one_task_and_then_all() {
    let Some(cluster) = cluster() else {
        return;
    };
    let scene = Scene::new(&cluster);
    let mut driver = cluster.start_driver("tasks.py", &[]);
    let rows = scene.wait_listed(3);
    let (code, text) = ray_relay(&scene, &["release", id(&rows[0])]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(text.matches("  released").count(), 1, "{text}");
    scene.wait_listed(2);
    assert!(driver.is_waiting());
    release_all(&scene);
    assert_eq!(driver.result(), json!([["head", 4], ["w1", 9], ["w2", 16]]));
    scene.assert_none_paused();
}
