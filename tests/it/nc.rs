//! A person with nothing but a plain connection, from the client's namespace: breakpoints of both debuggers.

use std::process::Stdio;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::timeout;

use crate::support::eventually;
use crate::support::namespaces::Cluster;
use crate::support::ray::NEWEST;
use crate::support::scene::Scene;

const PATIENCE: Duration = Duration::from_secs(90);

/// `nc RELAY 5678`.
pub(crate) struct Person {
    typing: ChildStdin,
    screen: ChildStdout,
    seen: String,
    token: Option<String>,
    _nc: Child,
}

impl Person {
    pub(crate) fn connect(scene: &Scene<'_>) -> Self {
        Self::connect_with(scene, &[])
    }

    /// The same with these variables in the environment of the bridge.
    pub(crate) fn connect_with(scene: &Scene<'_>, env: &[(&str, &str)]) -> Self {
        let bridge = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/bridge.py");
        let to = scene.relay.address();
        let mut command = scene.cluster.exec("client", scene.cluster.venv().python());
        command
            .arg(bridge)
            .args([to.ip().to_string(), to.port().to_string()])
            .envs(scene.settings())
            .envs(env.iter().copied());
        let mut nc = tokio::process::Command::from(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self {
            typing: nc.stdin.take().unwrap(),
            screen: nc.stdout.take().unwrap(),
            seen: String::new(),
            token: scene.token.clone(),
            _nc: nc,
        }
    }

    /// The list, which comes on Enter, where need be after a token.
    pub(crate) async fn list(&mut self) -> String {
        let Some(token) = self.token.take() else {
            return self.line("", "q leaves): ").await;
        };
        self.line("", "token: ").await;
        self.line(&token, "q leaves): ").await
    }

    /// Says no more, and everything that is shown then.
    pub(crate) async fn close(mut self) -> String {
        drop(self.typing);
        let mut rest = Vec::new();
        let read = timeout(PATIENCE, self.screen.read_to_end(&mut rest)).await;
        read.expect("the relay closes").unwrap();
        self.seen + &String::from_utf8_lossy(&rest)
    }

    pub(crate) async fn until(&mut self, wanted: &str) -> String {
        loop {
            if let Some(at) = self.seen.find(wanted) {
                let rest = self.seen.split_off(at + wanted.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            let mut bytes = [0; 4096];
            let read = timeout(PATIENCE, self.screen.read(&mut bytes)).await;
            let read = read
                .unwrap_or_else(|_| panic!("no {wanted:?} in {:?}", self.seen))
                .unwrap();
            assert!(read > 0, "closed without {wanted:?}: {:?}", self.seen);
            self.seen += &String::from_utf8_lossy(&bytes[..read]);
        }
    }

    /// Types a line, and what is shown up to `wanted`.
    pub(crate) async fn line(&mut self, line: &str, wanted: &str) -> String {
        self.typing
            .write_all(format!("{line}\n").as_bytes())
            .await
            .unwrap();
        self.until(wanted).await
    }
}

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
    let mut person = Person::connect(scene);
    let list = person.list().await;
    assert_eq!(list.matches("outer").count(), 2, "{list}");
    assert!(list.contains("legacy.py:") && list.contains(node), "{list}");
    // As `ray-relay debug` shows it.
    assert!(
        list.contains("INDEX  ID ") && list.contains("KIND"),
        "{list}"
    );
    person.line(on_head, "-> x = x + 0").await;
    person.until("(Pdb) ").await;
    assert!(person.line("p x", "(Pdb) ").await.starts_with("1\r\n"));
    person.line("n", "(Pdb) ").await;
    person.line("!x = 40", "(Pdb) ").await;
    // Into the task that it calls, which registers as the same breakpoint.
    person.line("remote", "Waiting for the session").await;
    let there = person.until("(Pdb) ").await;
    assert!(there.contains("double()"), "{there}");
    assert!(person.line("p x", "(Pdb) ").await.starts_with("40\r\n"));
    person.line("!x = 21", "(Pdb) ").await;
    person.line("c", "q leaves): ").await;
    // Another one, and a connection that just goes, to a relay that keeps none.
    let mut second = Person::connect(scene);
    second.list().await;
    second.line(on_worker, "(Pdb) ").await;
    assert!(second.line("p x", "(Pdb) ").await.starts_with("2\r\n"));
    drop(second);
    assert_eq!(driver.result(), json!([[40, 42], [2, 4]]));
    scene.gone();
    person.line("q", "").await;
}

pub(crate) async fn debugpy(scene: &Scene<'_>) {
    let mut driver = scene.cluster.start_driver("actor.py", &[]);
    scene.listed("Counter.add", &driver);
    let mut person = Person::connect(scene);
    person.list().await;
    let stop = person.line("0", "(Pdb) ").await;
    assert!(stop.contains("actor.py"), "{stop}");
    assert!(
        person
            .line("p self.total", "(Pdb) ")
            .await
            .starts_with("5\n")
    );
    person.line("!self.total = 40", "(Pdb) ").await;
    person.line("p undefined", "*** NameError").await;
    person.line("c", "").await;
    assert_eq!(driver.result(), json!(40));
    drop(person);
    scene.gone();
}

/// A task that comes to its end while its driver goes on: the worker stays, and debugpy says nothing.
pub(crate) async fn task_end(scene: &Scene<'_>) {
    let mut driver = scene.cluster.start_driver("tasks.py", &[]);
    let rows = scene.wait_listed(3);
    let mut person = Person::connect(scene);
    person.list().await;
    let ids: Vec<_> = rows.iter().map(|row| row["id"].as_str().unwrap()).collect();
    person.line(ids[0], "(Pdb) ").await;
    person.line("c", "The task has ended.").await;
    person.until("q leaves): ").await;
    let (code, said) = attempt(
        scene,
        &["exec", "--continue", ids[1], "--", "c", "p 'never'"],
        "",
    );
    assert_eq!(code, 1, "{said}");
    let told = "the task has ended, and there are commands left";
    assert!(said.contains(told) && !said.contains("never"), "{said}");
    person.line(ids[2], "(Pdb) ").await;
    person.line("q", "The task runs on").await;
    assert_eq!(driver.result().as_array().unwrap().len(), 3);
    scene.gone();
}

/// `ray-relay ARGS` in the client's namespace, with `typed` as its input: its exit code and what it printed.
pub(crate) fn attempt(scene: &Scene<'_>, args: &[&str], typed: &str) -> (i32, String) {
    let mut child = scene
        .command(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut typing = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut typing, typed.as_bytes()).unwrap();
    drop(typing);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.code().unwrap(), text)
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
    let said = run(&["debug", id], "p 'seen', x\n!x = 7\nc\n");
    assert!(said.contains("(Pdb) ('seen', 1)"), "{said}");
    let said = run(&["release", "--all"], "");
    assert_eq!(said.matches("  released").count(), 1, "{said}");
    assert_eq!(driver.result(), json!([[7, 14], [2, 4]]));
    scene.gone();

    let mut driver = scene.cluster.start_driver("threaded_actor.py", &[]);
    let row = scene.listed("Pool.work", &driver);
    let said = run(&["release", row["id"].as_str().unwrap()], "");
    assert_eq!(said.matches("  released").count(), 1, "{said}");
    // Those that waited are detached together. A thread that stops only then is listed again and takes another release.
    eventually("every thread is let go", Duration::from_secs(120), || {
        attempt(&["release", "--older-than", "1ms"], "");
        (!driver.is_waiting()).then_some(())
    });
    assert_eq!(driver.result(), json!([1, 4]));
    scene.gone();
}
