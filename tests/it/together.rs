//! Ranks in a collective: the timeout of those that wait for a paused one, and stopping all of them with it.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::agent::{Agent, linked};
use crate::support::dap_client::{DapClient, Editor};
use crate::support::eventually;
use crate::support::namespaces::Cluster;
use crate::support::ray::{NEWEST, write_hook};
use crate::support::say;
use crate::support::scene::Scene;

/// The files of a test: the hook, the signals to the ranks, and the audit log.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        for folder in ["hook", "stops"] {
            std::fs::create_dir(place.path(folder)).unwrap();
        }
        write_hook(&place.0.path().join("hook"));
        let config = format!(
            "[dap]\nallow_attach = true\n[audit]\nsink = \"file\"\nfile = \"{}\"\n",
            place.path("audit.log")
        );
        std::fs::write(place.path("relay.toml"), config).unwrap();
        place
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Tells the ranks to do what is called `name`.
    fn tell(&self, name: &str) {
        std::fs::write(Path::new(&self.path("stops")).join(name), "").unwrap();
    }

    /// Waits until the three others were asked so often to stop with the fourth.
    fn assert_pause_requests(&self, times: usize) {
        eventually("they are asked", Duration::from_secs(30), || {
            let pauses =
                |line: &Value| line["details"]["asks"] == "pause" && line["details"]["tasks"] == 3;
            let group = self.record("group");
            (group.iter().filter(|line| pauses(line)).count() >= times).then_some(())
        });
    }

    fn record(&self, command: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path("audit.log")).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let is_it = |line: &Value| line["details"]["command"] == command;
        lines.filter(is_it).collect()
    }
}

/// Returns the output of `ray-relay ARGS`.
fn run(scene: &Scene<'_>, args: &[&str]) -> String {
    let output = scene.command(args).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The variable `steps` of the rank of `client`, which is stopped in `thread`.
async fn steps(client: &mut DapClient, thread: u64) -> u64 {
    let frames = client.frames(thread).await;
    let frame = frames.iter().find(|frame| frame.name.contains("train"));
    let frame = frame.unwrap_or_else(|| panic!("not in train: {frames:?}"));
    client.evaluate(frame.id, "steps").await.parse().unwrap()
}

#[tokio::test]
async fn collective_tasks_stop_together_and_resume() {
    let Some(cluster) = Cluster::up(NEWEST, 0, &[]) else {
        return;
    };
    let place = Place::new();
    let scene = Scene::with(&cluster, &["--config", &place.path("relay.toml")]);
    let _agent = Agent::on(&scene, "head", &["--allow-plaintext"]);
    linked(&scene, 1);
    let env = [
        ("STOPS", &*place.path("stops")),
        ("HOOK_DIR", &place.path("hook")),
    ];
    let mut driver = cluster.start_driver("barrier.py", &env);
    driver.line("READY");
    place.tell("stop");

    // Three ranks wait for the fourth, and their timeout is listed.
    scene.wait_paused_named("Rank.train");
    eventually("a time-out", Duration::from_secs(30), || {
        let row = scene.list().pop()?;
        let seconds = row["collective_ends"].as_f64()? - row["first_seen"].as_f64()?;
        assert!((seconds - 1800.0).abs() < 1.0, "{row}");
        Some(())
    });
    let text = run(&scene, &["list"]);
    assert!(text.contains("TIMEOUT") && text.contains(" 29m "), "{text}");
    let text = eventually("the others", Duration::from_secs(30), || {
        let text = run(&scene, &["list", "--running"]);
        text.contains("while others run: Rank ranks 0-2 (for ")
            .then_some(text)
    });
    say(text.clone());
    assert!(text.contains(": 1 task stands, for "), "{text}");
    assert!(text.contains("collectives time out in 29m "), "{text}");

    let mut parent = scene.connect(Editor::VsCode).await;
    let selector = json!({"group": "job"});
    let arguments = scene.arguments(Editor::VsCode, "", selector);
    parent.start(arguments, None).await;
    let (mut others, mut first) = (Vec::new(), None);
    for _ in 0..4 {
        let configuration = parent.child().await;
        let runs = configuration["rayRelay"]["running"] == true;
        let mut child = scene.connect(Editor::VsCode).await;
        child.start(configuration, None).await;
        match runs {
            true => others.push(child),
            false => first = Some(child),
        }
    }
    let mut first = first.unwrap();
    assert_eq!(others.len(), 3);
    first
        .output_with("wait for this one in a collective time out in ")
        .await;
    let (thread, _) = first.stopped().await;
    let at = steps(&mut first, thread).await;
    // The ranks are in the barrier, so they stop when it releases them: in the step in which the fourth was paused.
    for other in &mut others {
        other.output_with("has not stopped").await;
    }
    std::fs::remove_file(Path::new(&place.path("stops")).join("stop")).unwrap();
    first.resume(thread).await;
    let mut stopped_tasks = Vec::new();
    for other in &mut others {
        let (thread, reason) = other.stopped().await;
        assert_eq!(reason, "pause");
        assert_eq!(steps(other, thread).await, at);
        stopped_tasks.push(thread);
    }
    let group = place.record("group");
    assert_eq!(group.len(), 1, "{group:?}");
    assert_eq!(group[0]["details"]["tasks"], 3, "{}", group[0]);
    assert_eq!(place.record("open_debugger").len(), 3);

    // The ranks resume and stop again with the fourth, without opening another debugger.
    for other in &mut others {
        let thread = stopped_tasks.remove(0);
        other.resume(thread).await;
    }
    place.tell("stop");
    let (thread, reason) = first.stopped().await;
    assert_eq!(reason, "breakpoint");
    let at = steps(&mut first, thread).await;
    std::fs::remove_file(Path::new(&place.path("stops")).join("stop")).unwrap();
    place.assert_pause_requests(1);
    first.resume(thread).await;
    for other in &mut others {
        let (thread, reason) = other.stopped().await;
        assert_eq!(reason, "pause");
        assert_eq!(steps(other, thread).await, at);
    }
    assert_eq!(place.record("open_debugger").len(), 3);

    // Resuming all also applies to ranks in the barrier that have not stopped yet. The fourth, which waits for them there,
    // stops again.
    for rounds in 2..4 {
        parent.resume(1).await;
        place.tell("stop");
        let (thread, reason) = first.stopped().await;
        assert_eq!(reason, "breakpoint");
        assert!(steps(&mut first, thread).await > at);
        place.assert_pause_requests(rounds);
        std::fs::remove_file(Path::new(&place.path("stops")).join("stop")).unwrap();
    }

    // Stopped ranks resume with the session that stopped them.
    parent.disconnect().await;
    place.tell("end");
    let done = driver.result();
    let done: Vec<u64> = serde_json::from_value(done).unwrap();
    assert!(
        done.len() == 4 && done.iter().all(|steps| *steps == done[0] && *steps > at),
        "{done:?}"
    );
    drop((first, others));
    scene.assert_none_paused();
}

#[tokio::test]
async fn unpermitted_user_cannot_open_a_debugger() {
    let Some(cluster) = Cluster::up(NEWEST, 0, &[]) else {
        return;
    };
    let place = Place::new();
    // All users may debug, but not attach to running tasks.
    let scene = Scene::new(&cluster);
    let _agent = Agent::on(&scene, "head", &["--allow-plaintext"]);
    linked(&scene, 1);
    let env = [
        ("STOPS", &*place.path("stops")),
        ("HOOK_DIR", &place.path("hook")),
    ];
    let mut driver = cluster.start_driver("barrier.py", &env);
    driver.line("READY");
    place.tell("stop");
    scene.wait_paused_named("Rank.train");
    let mut parent = scene.connect(Editor::VsCode).await;
    let selector = json!({"group": "job"});
    let arguments = scene.arguments(Editor::VsCode, "", selector);
    parent.start(arguments, None).await;
    let configuration = parent.child().await;
    assert!(configuration["rayRelay"]["running"].is_null());
    let message = parent.output_with("3 of its tasks run on").await;
    let message = message["output"].as_str().unwrap();
    assert!(message.contains("the permission `attach`"), "{message}");
    std::fs::remove_file(Path::new(&place.path("stops")).join("stop")).unwrap();
    let mut child = scene.connect(Editor::VsCode).await;
    child.start(configuration, None).await;
    child.stopped().await;
    child.disconnect().await;
    parent.disconnect().await;
    place.tell("end");
    assert_eq!(
        serde_json::from_value::<Vec<u64>>(driver.result())
            .unwrap()
            .len(),
        4
    );
    scene.assert_none_paused();
}
