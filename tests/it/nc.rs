//! A user of `nc` in the client's namespace: breakpoints of both debuggers.

use std::time::Duration;

use serde_json::json;

use crate::support::eventually;
use crate::support::namespaces::Cluster;
pub(crate) use crate::support::nc::{Person, attempt};
use crate::support::ray::NEWEST;
use crate::support::scene::Scene;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_lines_are_enough_for_both_debuggers() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let scene = Scene::new(&cluster);
    legacy(&scene).await;
    debugpy(&scene).await;
    task_end(&scene).await;
    commands(&scene);
}

pub(crate) async fn legacy(scene: &Scene<'_>) {
    let mut driver = scene.cluster.start_legacy_driver("legacy.py", &[]);
    let rows = scene.wait_listed(2);
    assert!(rows.iter().all(|row| row["kind"] == "pdb"), "{rows:?}");
    let (on_head, on_worker) = (scene.on(&rows, "head"), scene.on(&rows, "w2"));
    let node = on_worker["node_ip"].as_str().unwrap();
    let [on_head, on_worker] = [on_head, on_worker].map(|row| row["id"].as_str().unwrap());
    // The list comes on Enter, and waits for no breakpoint to be touched.
    let mut user = Person::connect(scene);
    let list = user.list().await;
    assert_eq!(list.matches("outer").count(), 2, "{list}");
    assert!(list.contains("legacy.py:") && list.contains(node), "{list}");
    // As `ray-relay debug` shows it.
    assert!(
        list.contains("INDEX  ID ") && list.contains("KIND"),
        "{list}"
    );
    user.line(on_head, "-> x = x + 0").await;
    user.until("(Pdb) ").await;
    assert!(user.line("p x", "(Pdb) ").await.starts_with("1\r\n"));
    user.line("n", "(Pdb) ").await;
    user.line("!x = 40", "(Pdb) ").await;
    // Into the task that it calls, which registers as the same breakpoint.
    user.line("remote", "Waiting for the session").await;
    let there = user.until("(Pdb) ").await;
    assert!(there.contains("double()"), "{there}");
    assert!(user.line("p x", "(Pdb) ").await.starts_with("40\r\n"));
    user.line("!x = 21", "(Pdb) ").await;
    user.line("c", "q leaves): ").await;
    // Another one, and a connection that just goes, to a relay that keeps none.
    let mut second = Person::connect(scene);
    second.list().await;
    second.line(on_worker, "(Pdb) ").await;
    assert!(second.line("p x", "(Pdb) ").await.starts_with("2\r\n"));
    drop(second);
    assert_eq!(driver.result(), json!([[40, 42], [2, 4]]));
    scene.assert_none_paused();
    user.line("q", "").await;
}

pub(crate) async fn debugpy(scene: &Scene<'_>) {
    let mut driver = scene.cluster.start_driver("actor.py", &[]);
    scene.listed("Counter.add", &driver);
    let mut user = Person::connect(scene);
    user.list().await;
    let stop = user.line("0", "(Pdb) ").await;
    assert!(stop.contains("actor.py"), "{stop}");
    assert!(user.line("p self.total", "(Pdb) ").await.starts_with("5\n"));
    user.line("!self.total = 40", "(Pdb) ").await;
    user.line("p undefined", "*** NameError").await;
    user.line("c", "").await;
    assert_eq!(driver.result(), json!(40));
    drop(user);
    scene.assert_none_paused();
}

/// A task that ends while its driver continues: the worker stays, and debugpy sends nothing.
pub(crate) async fn task_end(scene: &Scene<'_>) {
    let mut driver = scene.cluster.start_driver("tasks.py", &[]);
    let rows = scene.wait_listed(3);
    let mut user = Person::connect(scene);
    user.list().await;
    let ids: Vec<_> = rows.iter().map(|row| row["id"].as_str().unwrap()).collect();
    user.line(ids[0], "(Pdb) ").await;
    user.line("c", "The task has ended.").await;
    user.until("q leaves): ").await;
    let (code, output) = attempt(
        scene,
        &["exec", "--continue", ids[1], "--", "c", "p 'never'"],
        "",
    );
    assert_eq!(code, 1, "{output}");
    let expected = "the task has ended, and there are commands left";
    assert!(
        output.contains(expected) && !output.contains("never"),
        "{output}"
    );
    user.line(ids[2], "(Pdb) ").await;
    user.line("q", "The task runs on").await;
    assert_eq!(driver.result().as_array().unwrap().len(), 3);
    scene.assert_none_paused();
}

/// `ray-relay debug` on one legacy breakpoint and `release` of the other; then `release` of several threads of an actor.
pub(crate) fn commands(scene: &Scene<'_>) {
    let attempt = |args: &[&str], typed: &str| attempt(scene, args, typed);
    let run = |args: &[&str], typed: &str| {
        let (code, text) = attempt(args, typed);
        assert_eq!(code, 0, "{args:?}: {text}");
        text
    };
    let mut driver = scene.cluster.start_legacy_driver("legacy.py", &[]);
    let rows = scene.wait_listed(2);
    let id = scene.on(&rows, "head")["id"].as_str().unwrap();
    let output = run(&["debug", id], "p 'seen', x\n!x = 7\nc\n");
    assert!(output.contains("(Pdb) ('seen', 1)"), "{output}");
    let output = run(&["release", "--all"], "");
    assert_eq!(output.matches("  released").count(), 1, "{output}");
    assert_eq!(driver.result(), json!([[7, 14], [2, 4]]));
    scene.assert_none_paused();

    let mut driver = scene.cluster.start_driver("threaded_actor.py", &[]);
    let row = scene.listed("Pool.work", &driver);
    let output = run(&["release", row["id"].as_str().unwrap()], "");
    assert_eq!(output.matches("  released").count(), 1, "{output}");
    // Waiting threads are detached together. A thread that stops later is listed again and needs another release.
    eventually("every thread is let go", Duration::from_secs(120), || {
        attempt(&["release", "--older-than", "1ms"], "");
        (!driver.is_waiting()).then_some(())
    });
    assert_eq!(driver.result(), json!([1, 4]));
    scene.assert_none_paused();
}
