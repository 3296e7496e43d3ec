//! Stacks and variables without a debugger session.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Tokens, cluster, configuration, id, ray_relay, release_all};
use crate::support::agent::{Agent, linked};
use crate::support::eventually;
use crate::support::ray::write_hook;
use crate::support::scene::Scene;

#[tokio::test]
async fn snapshot_shows_stack_and_variables_of_paused_tasks() {
    let Some(cluster) = cluster() else {
        return;
    };
    let scene = Scene::new(&cluster);
    let mut driver = cluster.start_driver("tasks.py", &[]);
    scene.wait_listed(3);
    let output = scene.command(&["snapshot", "--all", "--json"]).output();
    let shots: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    let shots = shots["snapshots"].as_array().unwrap();
    assert_eq!(shots.len(), 3, "{shots:?}");
    for shot in shots {
        let frames = shot["threads"][0]["frames"].as_array().unwrap();
        let own = frames.last().unwrap();
        assert_eq!(
            (&own["function"], &own["line"]),
            (&json!("square"), &json!(9))
        );
        let x: u32 = own["locals"]["x"].as_str().unwrap().parse().unwrap();
        assert_eq!(own["locals"]["y"], (x * x).to_string());
    }
    assert_eq!(scene.paused_workers().len(), 3, "they stay paused");
    release_all(&scene);
    assert_eq!(driver.result(), json!([["head", 4], ["w1", 9], ["w2", 16]]));
    scene.assert_none_paused();
}

#[tokio::test]
async fn group_names_the_odd_rank_and_answers_as_one() {
    let Some(cluster) = cluster() else {
        return;
    };
    let scene = Scene::new(&cluster);
    let mut driver = cluster.start_driver("paused_ranks.py", &[]);
    scene.wait_listed(8);
    eventually("the names of all ranks", Duration::from_secs(30), || {
        let rows = scene.list();
        let has_name = |row: &Value| row["rank"].is_u64() && row["name"] == "Trainer.step";
        rows.iter().all(has_name).then_some(())
    });
    let (code, text) = ray_relay(&scene, &["diff"]);
    assert_eq!(code, Some(0), "{text}");
    let odd = "\nloss, in step (";
    assert!(
        text.contains(odd) && text.contains("\n  3:       nan  ← odd\n  0-2,4-7: 0.6931\n"),
        "{text}"
    );
    let commands = [
        "exec",
        "--all",
        "--continue",
        "Trainer",
        "--",
        "p len(batch)",
        "batch = [0]",
        "c",
    ];
    let (code, text) = ray_relay(&scene, &commands);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("3:       0  ← odd\n0-2,4-7: 10\n"), "{text}");
    let result = driver.result();
    let results = result.as_array().unwrap();
    assert!(results.iter().all(|result| result[2] == 1), "{result}");
    scene.assert_none_paused();
}

#[tokio::test]
async fn failed_task_keeps_its_stack_and_variables() {
    let Some(cluster) = cluster() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let hooks = folder.path().join("hook");
    std::fs::create_dir(&hooks).unwrap();
    write_hook(&hooks);
    let tokens = Tokens::new();
    let text = format!("{}[post_mortem]\nenabled = true\n", tokens.section());
    let config = configuration(&folder, &cluster, &text);
    let scene = tokens.scene(&cluster, &["--config", &config]);
    let token = tokens.of_agent();
    let _agent = Agent::on(&scene, "head", &["--allow-plaintext", &token]);
    linked(&scene, 3);
    eventually("an agent that keeps", Duration::from_secs(30), || {
        let (_, text) = ray_relay(&scene, &["doctor"]);
        text.contains("stack and variables are kept on")
            .then_some(())
    });
    let hooks = hooks.to_str().unwrap();
    let mut driver = cluster.start_driver("fails.py", &[("HOOK_DIR", hooks)]);
    driver.line("READY");
    let failed = || {
        let output = scene.command(&["list", "--failed", "--json"]).output();
        let list: Value = serde_json::from_slice(&output.ok()?.stdout).ok()?;
        let mut rows = list["tasks"].as_array()?.iter();
        rows.find(|row| row["name"] == "train").cloned()
    };
    let row = eventually("the failed task", Duration::from_secs(90), failed);
    assert_eq!(row["exception"], "KeyError", "{row}");
    let (code, text) = ray_relay(&scene, &["snapshot", id(&row)]);
    assert_eq!(code, Some(0), "{text}");
    for part in [
        "raised KeyError('shard-7') in load (",
        "step = 7",
        "train (",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert_eq!(driver.line("RayTaskError"), "(KeyError)");
}
