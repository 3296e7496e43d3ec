//! Running tasks without a breakpoint: eight ranks, one of which has left the collective.

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use crate::support::agent::{Agent, linked};
use crate::support::namespaces::Cluster;
use crate::support::ray::{NEWEST, OLDEST, write_hook};
use crate::support::scene::Scene;
use crate::support::{eventually, say};

fn the_odd_rank_is_named(cluster: &Cluster) {
    let scene = Scene::new(cluster);
    let mut driver = cluster.start_driver("ranks.py", &[]);
    driver.line("READY");
    let run = |args: &[&str]| {
        let output = scene.command(args).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), text)
    };
    // Ray lists running tasks a second late.
    eventually("eight ranks that run", Duration::from_secs(60), || {
        let (_, text) = run(&["tasks", "Trainer.train"]);
        (text.matches("Trainer.train").count() == 8).then_some(())
    });
    let (code, text) = run(&["tasks"]);
    assert!(code == Some(0) && text.contains("driver"), "{text}");
    assert!(text.contains("rank-3"), "{text}");

    let began = Instant::now();
    let (code, text) = run(&["snapshot", "--running", "Trainer"]);
    say(format!("the odd rank after {:?}", began.elapsed()));
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("\nTrainer: rank 3 is elsewhere than the other 7 of 8\n"),
        "{text}"
    );
    assert!(text.contains("called by load ("), "{text}");
    assert!(
        text.contains("  ranks 0-2,4-7: all wait outside Python, called by barrier ("),
        "{text}"
    );
    let tree: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("ranks.py"))
        .collect();
    assert!(
        tree.iter()
            .any(|line| line.starts_with("0-7 ") && line.contains("train (")),
        "{text}"
    );
    assert!(
        tree.iter()
            .any(|line| line.starts_with("0-2,4-7 ") && line.contains("barrier (")),
        "{text}"
    );

    // The snapshot is a second old; the driver waits in ray.get.
    let (code, text) = run(&["tasks", "--hung", "1s", "--apart", "1s"]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(text.matches("called by barrier").count(), 7, "{text}");
    assert!(text.contains("waits in ray.get, from <module> ("), "{text}");
}

/// With the hook in the workers, and an agent on each node.
fn the_odd_rank_is_named_within_two_seconds(cluster: &Cluster) {
    let dir = tempfile::tempdir().unwrap();
    write_hook(dir.path());
    let scene = Scene::new(cluster);
    let _agents = ["head", "w1"].map(|node| Agent::on(&scene, node, &["--allow-plaintext"]));
    linked(&scene, 2);
    let path = dir.path().to_str().unwrap();
    let mut driver = cluster.start_driver("ranks.py", &[("HOOK_DIR", path)]);
    driver.line("READY");
    let mut durations = Vec::new();
    eventually("the odd rank in time", Duration::from_secs(60), || {
        let began = Instant::now();
        let output = scene
            .command(&["snapshot", "--running", "Trainer"])
            .output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        // Ray lists running tasks a second late.
        if !text.contains("8 of 8 processes seen") {
            return None;
        }
        durations.push(began.elapsed());
        let odd = "\nTrainer: rank 3 is elsewhere than the other 7 of 8\n";
        assert!(text.contains(odd), "{text}");
        assert!(
            text.contains("  rank 3: waits in time.sleep, from load ("),
            "{text}"
        );
        assert!(
            text.contains("  ranks 0-2,4-7: all wait in socket.recv, from barrier ("),
            "{text}"
        );
        // The arguments of the workers are listed too.
        assert!(text.contains("shard = 9"), "{text}");
        (durations.last()? < &Duration::from_secs(2)).then_some(())
    });
    say(format!("the odd rank by the hooks after {durations:?}"));
    drop(driver);
    kinds_of_waits_are_distinguished(&scene, path);
}

/// Waiting, computing and returned tasks are distinguished, with the hook in the workers.
fn kinds_of_waits_are_distinguished(scene: &Scene<'_>, hook: &str) {
    let mut driver = scene
        .cluster
        .start_driver("ranks.py", &[("HOOK_DIR", hook), ("ODD", "1")]);
    driver.line("READY");
    let text = eventually("seven that run", Duration::from_secs(60), || {
        let output = scene
            .command(&["snapshot", "--running", "Trainer"])
            .output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        text.contains("7 of 7 processes seen").then_some(text)
    });
    say(format!("what waits, computes and has returned:\n{text}"));
    for expected in [
        "  ranks 0-4: all wait in socket.recv, from barrier (",
        "  rank 5: waits in a lock, from locks (",
        "  rank 6: is in spins (",
    ] {
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
    let idle = "→ Trainer, rank 7 is idle: Trainer.odd returned\n";
    assert!(text.contains(idle), "{text}");
}

#[tokio::test]
async fn the_odd_rank_is_named_on_the_newest_ray() {
    let let_look = [("RAY_DASHBOARD_ENABLE_PROFILING", "1")];
    let Some(cluster) = Cluster::up(NEWEST, 1, &let_look) else {
        return;
    };
    the_odd_rank_is_named(&cluster);
    the_odd_rank_is_named_within_two_seconds(&cluster);
}

#[tokio::test]
async fn the_odd_rank_is_named_on_the_oldest_ray() {
    // Ray 2.9 tries `sudo` before it runs py-spy, and fails where there is none; that it refuses is enough.
    let bin = tempfile::tempdir().unwrap();
    let sudo = bin.path().join("sudo");
    std::fs::write(&sudo, "#!/bin/sh\nexit 1\n").unwrap();
    std::fs::set_permissions(&sudo, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", bin.path().display());
    let Some(cluster) = Cluster::up(OLDEST, 1, &[("PATH", &path)]) else {
        return;
    };
    the_odd_rank_is_named(&cluster);
}
