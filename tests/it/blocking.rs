//! Eight ranks with blocking `__repr__` methods and endless expressions: what a snapshot shows, what Ctrl-C interrupts, and
//! that the tasks continue unchanged. Checked in the processes themselves, independently of the relay.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::nc::Person;
use crate::support::namespaces::Cluster;
use crate::support::ray::NEWEST;
use crate::support::scene::Scene;
use crate::support::{eventually, say};

const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The variables of the innermost frame of `shot`, by their names.
fn variables(shot: &Value) -> &Value {
    let threads = shot["threads"].as_array().unwrap();
    let frames = threads[0]["frames"].as_array().unwrap();
    let step = frames.iter().find(|frame| frame["function"] == "step");
    &step.unwrap()["locals"]
}

fn snapshots_of_all(scene: &Scene<'_>) {
    for round in 0..3 {
        let began = Instant::now();
        let output = scene.command(&["snapshot", "--all", "--json"]).output();
        let output = output.unwrap();
        let elapsed = began.elapsed();
        let stdout = String::from_utf8_lossy(&output.stdout);
        say(format!("round {round}: {elapsed:?}"));
        assert!(output.status.success(), "{stdout}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let shots = report["snapshots"].as_array().unwrap();
        assert_eq!(shots.len(), 8, "{report}");
        for shot in shots {
            let rank = shot["breakpoint"]["rank"].as_u64().unwrap();
            let shown = variables(shot);
            assert_eq!(shown["rank"], rank.to_string(), "{shot}");
            let one = shown["one"].as_str().unwrap();
            let matches = match (rank % 4, round) {
                (0, 0) => one == "‹no repr within 0.5 s›" || one.starts_with("‹not asked"),
                (0, _) => one == "‹no repr: one of an earlier snapshot has not returned›",
                (1, _) => one == "‹no repr: SystemExit›",
                (2, _) => one.starts_with("‹no"),
                _ => one == "by a task" || one.starts_with("‹no"),
            };
            assert!(matches, "rank {rank}, round {round}: {shown}");
        }
        // Four at a time, of which one or two take the whole of 5 s.
        assert!(elapsed < Duration::from_secs(40), "{elapsed:?}");
        // The hold of a snapshot ends with it.
        let rows = scene.list();
        assert!(rows.iter().all(|row| row["holder"].is_null()), "{rows:?}");
    }
}

/// Seconds of processor time that the process of `row` has used, as its node says.
fn busy(scene: &Scene<'_>, row: &Value) -> f64 {
    let nodes = ["head", "w1", "w2"];
    let is_on = |node: &&str| row["node_ip"] == scene.cluster.address(node).to_string();
    let node = nodes.into_iter().find(is_on).unwrap();
    let mut cat = scene.cluster.exec(node, "cat");
    let output = cat
        .arg(format!("/proc/{}/stat", row["pid"]))
        .output()
        .unwrap();
    let stat = String::from_utf8(output.stdout).unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks = |at: usize| fields[at].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / 100.0
}

async fn expressions(scene: &Scene<'_>) {
    let mut nc = Person::connect(scene);
    nc.list().await;
    nc.line("all Trainer", "(Pdb ×8) ").await;
    nc.line("while True: pass", "").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let reply = nc.line("interrupt", "(Pdb ×8) ").await;
    say(format!("interrupt:\n{reply}"));
    assert!(reply.contains("0-7: *** KeyboardInterrupt"), "{reply}");
    // pydevd warns of what takes more than 3 s, which is no answer and makes no rank odd.
    let slow = "__import__('time').sleep(3.5 if rank == 3 else 0) or 'slept'";
    let reply = nc.line(slow, "(Pdb ×8) ").await;
    assert!(reply.ends_with("0-7: 'slept'\n(Pdb ×8) "), "{reply}");
    assert!(!reply.contains("Evaluating"), "{reply}");

    let rows = scene.list();
    assert_eq!(rows.len(), 8, "{rows:?}");
    nc.line("while True: pass", "").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(nc);
    // While it runs nothing is called parked; it is interrupted, and the tasks are parked then.
    let parked = || {
        let rows = scene.list();
        let count = |state: &str| rows.iter().filter(|row| row["state"] == state).count();
        (count("parked") == 8).then_some(())
    };
    eventually("eight parks", TEST_TIMEOUT, parked);
    let before: Vec<f64> = rows.iter().map(|row| busy(scene, row)).collect();
    tokio::time::sleep(Duration::from_secs(2)).await;
    for (row, before) in rows.iter().zip(before) {
        let used = busy(scene, row) - before;
        assert!(used < 1.0, "{used} s of 2 s: {row}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocking_values_and_endless_expressions_stop_no_rank() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("relay.toml");
    std::fs::write(&config, "[park]\nfor = \"5m\"\n").unwrap();
    let scene = Scene::with(&cluster, &["--config", config.to_str().unwrap()]);
    let mut driver = scene.cluster.start_driver("blocking_ranks.py", &[]);
    scene.wait_listed(8);
    eventually("their ranks", TEST_TIMEOUT, || {
        let rows = scene.list();
        rows.iter().all(|row| row["rank"].is_u64()).then_some(())
    });
    snapshots_of_all(&scene);
    expressions(&scene).await;
    let output = scene
        .command(&["release", "--all", "--yes"])
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(stdout.matches("  released").count(), 8, "{stdout}");
    assert_eq!(driver.result(), Value::from_iter(0..8));
    scene.assert_none_paused();
}
