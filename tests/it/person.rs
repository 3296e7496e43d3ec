//! A whole session at a pseudo-terminal in the client's namespace: both debuggers, on the newest Ray.
//! `closed_network` has it on the oldest.

use serde_json::{Value, json};

use crate::support::eventually;
use crate::support::namespaces::Cluster;
use crate::support::ray::NEWEST;
use crate::support::scene::Scene;
use crate::support::screen::Screen;

const LIST: &str = "q quits): ";
const PDB: &str = "(Pdb) ";

#[tokio::test]
async fn a_person_debugs_on_the_newest_ray() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let scene = Scene::new(&cluster);
    let before = scene.idle_descriptors();
    legacy(&scene);
    legacy_ends(&scene);
    legacy_post_mortem(&scene);
    debugpy(&scene);
    // No breakpoint, session or connection remains.
    scene.assert_none_paused();
    eventually(
        "the relay is idle",
        std::time::Duration::from_secs(60),
        || (scene.relay.descriptors() <= before).then_some(()),
    );
}

fn id_on(scene: &Scene<'_>, rows: &[Value], node: &str) -> String {
    scene.on(rows, node)["id"].as_str().unwrap().to_owned()
}

/// Two breakpoints on two nodes; the first session follows into the task that it calls, and back.
pub(crate) fn legacy(scene: &Scene<'_>) {
    let mut driver = scene.cluster.start_legacy_driver("legacy.py", &[]);
    let rows = scene.wait_listed(2);
    let (first, second) = (id_on(scene, &rows, "head"), id_on(scene, &rows, "w2"));
    let mut screen = Screen::start(scene, &["debug"]);
    let list = screen.expect(LIST);
    assert!(list.contains("KIND"), "{list}");
    for expected in [&*first, &*second, "pdb", "outer", "legacy.py:14"] {
        assert!(list.contains(expected), "{expected}: {list}");
    }
    let entered = screen.line(&first, "-> x = x + 0");
    assert!(!entered.contains("INDEX"), "{entered}");
    screen.expect(PDB);
    screen.line("p 'seen', x", "('seen', 1)");
    screen.expect(PDB);
    screen.line("where", "outer()");
    screen.expect(PDB);
    // The command would make the task fail, so it needs confirmation.
    screen.line("q", "Say it again");
    screen.expect(PDB);
    screen.line("n", "-> twice = ray.get");
    screen.expect(PDB);
    // Ctrl-C clears the line; the session stays.
    screen.type_("never\u{3}");
    screen.expect(PDB);
    screen.resize(60);
    screen.line("!x = 40", PDB);
    screen.line("remote", "go on in another task");
    screen.expect("double()");
    screen.expect(PDB);
    screen.line("p 'there', x", "('there', 40)");
    screen.expect(PDB);
    screen.line("!x = 21", PDB);
    screen.line("get", "go on in another task");
    screen.expect("outer()");
    screen.expect(PDB);
    screen.line("c", LIST);
    // A client that closes the connection resumes the task.
    screen.line(&second, "-> x = x + 0");
    screen.expect(PDB);
    screen.line("!x = 5", PDB);
    drop(screen);
    assert_eq!(driver.result(), json!([[40, 42], [5, 10]]));
    scene.assert_none_paused();
}

/// A session without a next task, and a worker that dies at the prompt.
fn legacy_ends(scene: &Scene<'_>) {
    let driver = scene.cluster.start_legacy_driver("legacy.py", &[]);
    let rows = scene.wait_listed(2);
    let mut screen = Screen::start(scene, &["debug"]);
    screen.expect(LIST);
    screen.line(&id_on(scene, &rows, "head"), PDB);
    screen.line("p 'seen', x", "('seen', 1)");
    screen.expect(PDB);
    drop(driver);
    screen.expect("the session is over");
    screen.line("", LIST);
    screen.line("q", "");
    assert_eq!(screen.exit(), Some(0));
    scene.assert_none_paused();

    // A client that waits for the next stop gets it, whatever the debugger.
    let mut screen = Screen::start(scene, &["debug", "--next", "out*"]);
    screen.expect("Waiting for the next task");
    let mut driver = scene.cluster.start_legacy_driver("legacy.py", &[]);
    screen.expect("-> x = x + 0");
    screen.expect(PDB);
    // No other task runs: the prompt reports that instead of waiting.
    screen.line("n", PDB);
    screen.line("n", PDB);
    screen.line("remote", "goes on in no other task");
    assert_eq!(screen.exit(), Some(0));
    let rows = scene.wait_listed(1);
    let mut screen = Screen::start(scene, &["debug", rows[0]["id"].as_str().unwrap()]);
    screen.expect(PDB);
    // Output that is no text, and a lot of it.
    screen.line("p '\\udcff\\x1b[31m', 1", "1)");
    screen.expect(PDB);
    screen.line("c", "");
    assert_eq!(screen.exit(), Some(0));
    assert_eq!(driver.result(), json!([[1, 2], [2, 4]]));
    scene.assert_none_paused();
}

/// An exception in the legacy debugger: listed without its message, and inspected.
fn legacy_post_mortem(scene: &Scene<'_>) {
    let settings = [("RAY_DEBUG_POST_MORTEM", "1")];
    let mut driver = scene
        .cluster
        .start_legacy_driver("post_mortem.py", &settings);
    scene.wait_listed(1);
    let mut screen = Screen::start(scene, &["debug"]);
    screen.expect(LIST);
    screen.resize(200);
    let list = screen.line("", LIST);
    let task = "divide (ZeroDivisionError)";
    assert!(
        list.contains(task) && list.contains("/post_mortem.py:9 "),
        "{list}"
    );
    screen.line("divide", "-> return x / zero");
    screen.expect(PDB);
    screen.line("p 'seen', zero", "('seen', 0)");
    screen.expect(PDB);
    screen.line("c", LIST);
    screen.line("q", "");
    assert_eq!(screen.exit(), Some(0));
    assert_eq!(driver.result(), "RayTaskError(ZeroDivisionError)");
    scene.assert_none_paused();
}

pub(crate) fn debugpy(scene: &Scene<'_>) {
    let mut driver = scene.cluster.start_driver("tasks.py", &[]);
    let rows = scene.wait_listed(3);
    let mut screen = Screen::start(scene, &["debug", "-v"]);
    let list = screen.expect(LIST);
    assert!(!list.contains("KIND"), "{list}");
    for row in &rows {
        // The name of a task arrives a moment after the event that it waits.
        let ids = ["id", "worker_id", "job_id", "task_id"].map(|key| row[key].as_str());
        assert!(ids[0].is_some() && ids[1].is_some(), "{row}");
        for id in ids.into_iter().flatten() {
            assert!(list.contains(id), "{id}: {list}");
        }
    }
    screen.line("1", "square()");
    screen.expect(PDB);
    screen.line("p 'seen', y == x * x", "('seen', True)");
    screen.expect(PDB);
    screen.line("n", "-> y = y + ");
    screen.expect(PDB);
    screen.line("y = -7", PDB);
    // The task comes to its end, which a debugger does not see.
    let reply = screen.line("c", "The task has ended.");
    assert!(
        !reply.contains("this session stays"),
        "for editors: {reply}"
    );
    screen.expect(LIST);
    // With a breakpoint left, the session waits for the worker's next task; Ctrl-C twice leaves.
    screen.line(rows[0]["id"].as_str().unwrap(), "square()");
    screen.expect(PDB);
    screen.line("b 7", "Breakpoint 1 at ");
    screen.expect(PDB);
    screen.line("c", "[the task has ended; ");
    screen.type_("\u{3}");
    screen.expect("[interrupting: ");
    screen.type_("\u{3}");
    screen.expect(LIST);
    screen.line(rows[2]["id"].as_str().unwrap(), "square()");
    screen.expect(PDB);
    screen.line("q", "The task runs on");
    screen.expect(LIST);
    screen.type_("\u{3}");
    assert_eq!(screen.exit(), Some(0));
    let result = driver.result();
    let changed = result.as_array().unwrap();
    assert_eq!(
        changed.iter().filter(|row| row[1] == -7).count(),
        1,
        "{result}"
    );
}
