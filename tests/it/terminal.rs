//! The client commands of a terminal, from the client's namespace: `debug` on a pseudo-terminal, `exec`, `snapshot`,
//! `dap`.

use std::io::Write;
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::namespaces::Cluster;
use crate::support::ray::{self, NEWEST};
use crate::support::scene::Scene;
use crate::support::screen::{RELAY, Screen};

fn run(scene: &Scene<'_>, args: &[&str]) -> Output {
    scene.command(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn a_script_looks_and_changes_a_result(scene: &Scene<'_>) {
    let mut driver = scene.cluster.start_driver("tasks.py", &[]);
    let rows = scene.wait_listed(3);
    let ids: Vec<&str> = rows.iter().map(|row| row["id"].as_str().unwrap()).collect();
    let file = ray::job("tasks.py");
    let file = file.to_str().unwrap();

    // A snapshot releases no task.
    let output = run(scene, &["snapshot", "--all", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shots: Value = serde_json::from_slice(&output.stdout).unwrap();
    for shot in shots["snapshots"].as_array().unwrap() {
        let frames = shot["threads"][0]["frames"].as_array().unwrap();
        let own = frames.last().unwrap();
        assert_eq!(
            (own["file"].as_str(), own["function"].as_str()),
            (Some(file), Some("square")),
            "{shot}"
        );
        assert_eq!(
            (&own["line"], &own["source"]),
            (&json!(9), &json!("breakpoint()")),
            "{shot}"
        );
        let x: u32 = own["locals"]["x"].as_str().unwrap().parse().unwrap();
        assert_eq!(own["locals"]["y"], (x * x).to_string());
    }
    assert_eq!(shots["snapshots"].as_array().unwrap().len(), 3);
    let output = run(scene, &["snapshot", ids[0], "--no-locals"]);
    assert!(text(&output.stdout).contains(&format!("{file}(9)square()\n    -> breakpoint()\n")));
    assert_eq!(scene.paused_workers().len(), 3);
    let rows = scene.wait_listed(3);
    assert_eq!(rows.len(), 3);

    let output = run(
        scene,
        &[
            "exec",
            "--continue",
            ids[0],
            "--",
            "p y == x * x",
            "list 8, 10",
            "n",
            "y = -1",
            "p y",
        ],
    );
    let expected = format!(
        "True\n  8  \t    y = x * x\n  9  ->\t    breakpoint()\n 10  \t    y = y + 0\n> {file}(10)square()\n-> y = y + 0\n-1\n"
    );
    assert_eq!(text(&output.stdout), expected, "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(0));

    // Without parks a typo resumes the task, and the output says so.
    let output = run(
        scene,
        &["exec", "--continue", ids[1], "--", "p nope", "y = -2"],
    );
    assert_eq!(
        text(&output.stdout),
        "*** NameError: name 'nope' is not defined\n"
    );
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("it cannot be parked"), "{stderr}");

    // The list on standard input, from a pipe.
    let mut child = scene
        .command(&["exec", "--continue", ids[2]])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"y = -3\nc\n")
        .unwrap();
    assert!(child.wait().unwrap().success());

    let mut results: Vec<i64> = driver
        .result()
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row[1].as_i64().unwrap())
        .collect();
    results.sort_unstable();
    assert_eq!(results.len(), 3);
    assert_eq!((results[0], results[1]), (-3, -1), "{results:?}");
    assert!(results[2] > 0, "what failed changed nothing");

    let output = run(scene, &["exec", "0123abcd", "--", "where"]);
    assert_eq!(output.status.code(), Some(66), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("0123abcd"),
        "{}",
        text(&output.stderr)
    );
    let nobody = scene
        .cluster
        .exec("client", RELAY)
        .args(["exec", "x", "--relay", "http://127.0.0.1:9", "--", "w"])
        .output()
        .unwrap();
    assert_eq!(nobody.status.code(), Some(69));
}

#[tokio::test]
async fn script_inspects_and_changes_a_result_on_the_newest_ray() {
    if let Some(cluster) = Cluster::shared(NEWEST) {
        a_script_looks_and_changes_a_result(&Scene::new(&cluster));
    }
}

/// A failing script leaves the task paused as it was.
#[tokio::test]
async fn failing_or_staying_script_leaves_the_task_paused() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("relay.toml");
    std::fs::write(&file, "[park]\nfor = \"10m\"\n").unwrap();
    let scene = Scene::with(&cluster, &["--config", file.to_str().unwrap()]);
    let mut driver = cluster.start_driver("tasks.py", &[]);
    let rows = scene.wait_listed(3);
    let ids: Vec<&str> = rows.iter().map(|row| row["id"].as_str().unwrap()).collect();
    let state = |id: &str| {
        let rows = scene.list();
        let row = rows.iter().find(|row| row["id"] == id);
        row.map(|row| row["state"].as_str().unwrap().to_owned())
    };
    let parked = Some("parked".to_owned());

    // Commands after a typo are not run, and the task stays paused.
    let output = run(
        &scene,
        &[
            "exec",
            "--continue",
            ids[0],
            "--",
            "y = -1",
            "p nope",
            "y = -2",
        ],
    );
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("stays where it is, parked for you"),
        "{stderr}"
    );
    assert_eq!(state(ids[0]), parked);
    let output = run(
        &scene,
        &["exec", "--continue", ids[0], "--", "where", "p y"],
    );
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(printed.contains("tasks.py(9)square()"), "{printed}");
    assert!(printed.ends_with("-1\n"), "{printed}");

    let output = run(&scene, &["exec", ids[1], "--", "y = -5", "p y"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "-5\n");
    assert_eq!(state(ids[1]), parked);
    // Older scripts say so, and get the same.
    let output = run(&scene, &["exec", "--stay", ids[1], "--", "p y"]);
    assert_eq!(text(&output.stdout), "-5\n");
    assert_eq!(state(ids[1]), parked);
    assert!(
        run(&scene, &["exec", "--continue", ids[2], "--", "y = -7"])
            .status
            .success()
    );
    let released = run(&scene, &["release", ids[1]]);
    assert!(released.status.success(), "{}", text(&released.stderr));
    let mut results: Vec<i64> = driver
        .result()
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row[1].as_i64().unwrap())
        .collect();
    results.sort_unstable();
    assert_eq!(results, [-7, -5, -1]);
}

#[tokio::test]
async fn a_post_mortem_shows_its_exception_and_the_frame_that_raised() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let scene = Scene::new(&cluster);
    let mut driver = cluster.start_driver("post_mortem.py", &[("RAY_DEBUG_POST_MORTEM", "1")]);
    let row = scene.listed("divide", &driver);
    let id = row["id"].as_str().unwrap();
    let shown = text(&run(&scene, &["list"]).stdout);
    let task = "divide (ZeroDivisionError)";
    assert!(shown.contains(task), "{shown}");
    let output = run(&scene, &["snapshot", id]);
    let shown = text(&output.stdout);
    assert!(
        shown.contains("raised ZeroDivisionError") && shown.contains("zero = 0"),
        "{shown}"
    );
    let output = run(
        &scene,
        &[
            "exec",
            "--continue",
            id,
            "--",
            "exceptions",
            "p zero",
            "where",
        ],
    );
    let shown = text(&output.stdout);
    assert!(
        shown.starts_with("ZeroDivisionError: division by zero\n0\n"),
        "{shown}\n{}",
        text(&output.stderr)
    );
    assert!(
        shown.ends_with("post_mortem.py(9)divide()\n-> return x / zero\n"),
        "{shown}"
    );
    assert_eq!(driver.result(), "RayTaskError(ZeroDivisionError)");
}

#[tokio::test]
async fn a_person_picks_a_task_steps_and_changes_its_result() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let scene = Scene::new(&cluster);
    let mut screen = Screen::start(&scene, &["debug"]);
    screen.expect("No task waits at a breakpoint");
    screen.expect("q quits): ");
    // New stops appear without a refresh.
    let mut driver = cluster.start_driver("tasks.py", &[]);
    let rows = scene.wait_listed(3);
    let id = rows[1]["id"].as_str().unwrap();
    screen.expect(id);
    screen.type_(&format!("{id}\r"));
    screen.expect("square()\r\n-> ");
    screen.expect("(Pdb) ");
    screen.type_("ll\r");
    // Source in colours.
    screen.expect("\u{1b}[35mreturn\u{1b}[0m");
    screen.expect("(Pdb) ");
    screen.resize(60);
    // Ctrl-C clears the line; the session continues.
    screen.type_("p 1 +\u{3}");
    screen.expect("(Pdb) ");
    // Tab asks the worker.
    screen.type_("p nod\t");
    screen.expect("p node");
    screen.type_("\r");
    screen.expect("(Pdb) ");
    screen.type_("print('\\x1b[31mred')\r");
    screen.expect("\\x1b[31mred\r\n");
    screen.expect("(Pdb) ");
    screen.type_("n\r");
    screen.expect("-> y = y + ");
    screen.expect("(Pdb) ");
    screen.type_("y = -5\r");
    screen.expect("(Pdb) ");
    // A long expression is interrupted, and the session continues.
    screen.type_("!import time; time.sleep(3)\r");
    screen.expect("sleep(3)");
    std::thread::sleep(Duration::from_millis(300));
    screen.type_("\u{3}");
    screen.expect("*** KeyboardInterrupt");
    screen.expect("(Pdb) ");
    assert!(driver.is_waiting());
    screen.type_("q\r");
    screen.expect("The task runs on");
    screen.expect("q quits): ");
    screen.type_("q\r");
    assert_eq!(screen.exit(), Some(0));
    for row in [&rows[0], &rows[2]] {
        let id = row["id"].as_str().unwrap();
        assert!(
            run(&scene, &["exec", "--continue", id, "--", "c"])
                .status
                .success()
        );
    }
    let result = driver.result();
    let changed = result
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row[1] == -5)
        .count();
    assert_eq!(changed, 1, "{result}");
}

#[tokio::test]
async fn next_waits_and_control_d_leaves_the_task_running() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let scene = Scene::new(&cluster);
    let mut screen = Screen::start(&scene, &["debug", "--next", "nes*"]);
    screen.expect("Waiting for the next task");
    let mut driver = cluster.start_driver("tasks.py", &[]);
    for row in scene.wait_listed(3) {
        assert!(
            run(
                &scene,
                &["exec", "--continue", row["id"].as_str().unwrap(), "--", "c"]
            )
            .status
            .success()
        );
    }
    driver.result();
    screen.type_("\u{3}");
    assert_eq!(screen.exit(), Some(0));

    let mut screen = Screen::start(&scene, &["debug", "--next", "squ*"]);
    screen.expect("Waiting for the next task");
    let mut driver = cluster.start_driver("tasks.py", &[]);
    screen.expect("square()\r\n-> ");
    screen.expect("(Pdb) ");
    screen.type_("\u{4}");
    screen.expect("The task runs on");
    assert_eq!(screen.exit(), Some(0));
    for row in scene.wait_listed(2) {
        assert!(
            run(
                &scene,
                &["exec", "--continue", row["id"].as_str().unwrap(), "--", "q"]
            )
            .status
            .success()
        );
    }
    driver.result();
}

#[tokio::test]
async fn worker_death_at_the_prompt_is_reported() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let scene = Scene::new(&cluster);
    let driver = cluster.start_driver("tasks.py", &[]);
    let rows = scene.wait_listed(3);
    let mut screen = Screen::start(&scene, &["debug", rows[0]["id"].as_str().unwrap()]);
    screen.expect("(Pdb) ");
    drop(driver);
    screen.expect("the session is over");
    screen.type_("\r");
    assert_eq!(screen.exit(), Some(1));
    scene.assert_none_paused();
}
