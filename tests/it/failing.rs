//! Tasks that raise: what is kept of them by the agent of their node, and that they fail as without.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::page;
use crate::support::agent::{Agent, linked};
use crate::support::namespaces::Cluster;
use crate::support::ray::{NEWEST, OLDEST, write_hook};
use crate::support::scene::Scene;
use crate::support::{eventually, say};

fn raising_values_are_opaque(version: &str) {
    let Some(cluster) = Cluster::up(version, 0, &[]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("hook")).unwrap();
    write_hook(&dir.path().join("hook"));
    let config = dir.path().join("relay.toml");
    std::fs::write(&config, "[post_mortem]\nenabled = true\n").unwrap();
    let scene = Scene::with(&cluster, &["--config", config.to_str().unwrap()]);
    let run = |args: &[&str]| {
        let output = scene
            .command(args)
            .current_dir(dir.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), text, complaint)
    };
    // Without an agent nothing is kept, and `doctor` says so.
    let (_, output, _) = run(&["doctor"]);
    assert!(
        output.contains("nothing is kept ([post_mortem]): it has no agent"),
        "{output}"
    );
    let _agent = Agent::on(&scene, "head", &["--allow-plaintext"]);
    linked(&scene, 1);
    eventually("an agent that keeps", Duration::from_secs(30), || {
        let (_, output, _) = run(&["doctor"]);
        output
            .contains("stack and variables are kept on 1 of the nodes")
            .then_some(())
    });

    let hook = dir.path().join("hook");
    let mut driver = cluster.start_driver("fails.py", &[("HOOK_DIR", hook.to_str().unwrap())]);
    driver.line("READY");
    let rows = eventually(
        "two failed tasks with their names",
        Duration::from_secs(90),
        || {
            let (_, output, _) = run(&["list", "--failed", "--json"]);
            let report: Value = serde_json::from_str(&output).ok()?;
            let rows = report["tasks"].as_array()?.clone();
            (rows.len() == 2 && rows.iter().all(|row| row["job_id"].is_string())).then_some(rows)
        },
    );
    let named = |name: &str| rows.iter().find(|row| row["name"] == name);
    let train = named("train").unwrap_or_else(|| panic!("{rows:?}"));
    assert_eq!(train["exception"], "KeyError", "{train}");
    assert_eq!(train["location"]["function"], "load", "{train}");
    let add = named("Counter.add").unwrap_or_else(|| panic!("{rows:?}"));
    assert_eq!(add["exception"], "ValueError", "{add}");
    let (_, text, _) = run(&["list", "--failed"]);
    say(&text);
    assert!(
        text.contains("KeyError") && text.contains("fails.py:"),
        "{text}"
    );

    // The stack as it was left, with the variables of every call; a secret is masked only for who may not run code, and
    // nobody is authenticated here.
    let id = train["id"].as_str().unwrap();
    let (code, text, complaint) = run(&["snapshot", id, "--save", "failed.json"]);
    assert_eq!(code, Some(0), "{text}{complaint}");
    say(&text);
    assert!(text.starts_with("train ("), "{text}");
    for part in [
        "raised KeyError('shard-7') in load (",
        "step = 7",
        "shard = 'shard-7'",
        "train (",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    // A notice's link to it opens it in the page.
    let link = format!("{}/relay/#{id}", scene.relay.url());
    page::browsed(&cluster, "failed_page.py", &link);

    // The file is one that is read without a relay.
    let mut again = Command::new(env!("CARGO_BIN_EXE_ray-relay"));
    let again = again
        .args(["snapshot", "failed.json"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(
        String::from_utf8_lossy(&again.stdout).contains("KeyError('shard-7')"),
        "{again:?}"
    );
    let (code, _, complaint) = run(&["snapshot", "relay.toml"]);
    assert_eq!(code, Some(1), "{complaint}");
    assert!(
        complaint.contains("is a file, and not one of"),
        "{complaint}"
    );
    // The tasks have failed as they would have without.
    let output = driver.output();
    assert!(
        output.contains("RayTaskError(KeyError)") && output.contains("RayTaskError(ValueError)"),
        "{output}"
    );
}

#[tokio::test]
async fn raising_values_are_opaque_on_the_newest_ray() {
    raising_values_are_opaque(NEWEST);
}

#[tokio::test]
async fn raising_values_are_opaque_on_the_oldest_ray() {
    raising_values_are_opaque(OLDEST);
}
