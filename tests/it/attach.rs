//! A debugger in tasks that run and never called `breakpoint()`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::nc::Person;
use crate::page;
use crate::support::agent::{Agent, linked};
use crate::support::dap_client::{DapClient, Editor};
use crate::support::driver::Driver;
use crate::support::eventually;
use crate::support::namespaces::Cluster;
use crate::support::ray::{NEWEST, OLDEST, write_hook};
use crate::support::scene::Scene;

mod kinds;
mod two_relays;

/// The directory with the flag that ends the driver's tasks, and their hook.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["hook", "stops"] {
            std::fs::create_dir(dir.path().join(folder)).unwrap();
        }
        write_hook(&dir.path().join("hook"));
        Self(dir)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// A driver of `tasks`, with `env`.
    fn driver(&self, cluster: &Cluster, tasks: &str, env: &[(&str, &str)]) -> Driver {
        let stops = self.path("stops");
        let own = [("STOPS", &*stops), ("TASKS", tasks)];
        let env: Vec<_> = own.into_iter().chain(env.iter().copied()).collect();
        let mut driver = cluster.start_driver("running.py", &env);
        driver.line("READY");
        driver
    }

    fn end(&self, name: &str) {
        std::fs::write(Path::new(&self.path("stops")).join(name), "").unwrap();
    }

    /// A relay whose debug users may attach to running tasks, with an audit log.
    fn scene<'a>(&self, cluster: &'a Cluster) -> Scene<'a> {
        Scene::with(cluster, &["--config", &self.config("audit")])
    }

    /// Returns the relay's settings that permit it, with the audit log `name`.
    fn config(&self, name: &str) -> String {
        let config = self.path(&format!("{name}.toml"));
        let text = format!(
            "[dap]\nallow_attach = true\n[audit]\nsink = \"file\"\nfile = \"{}\"\n",
            self.path(&format!("{name}.log"))
        );
        std::fs::write(&config, text).unwrap();
        config
    }

    /// Returns the audit events that `of` selects.
    fn record(&self, of: impl Fn(&Value) -> bool) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path("audit.log")).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.filter(of).collect()
    }
}

fn opens(line: &Value) -> bool {
    line.to_string().contains("\"open_debugger\"")
}

/// `ray-relay ARGS`: its exit code, and all that it wrote.
fn ran(scene: &Scene<'_>, args: &[&str]) -> (Option<i32>, String) {
    let output = scene.command(args).output().unwrap();
    let both = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&both).into_owned(),
    )
}

/// Whether that says that no hook can be put there for want of gdb.
fn lacks_gdb(text: &str) -> bool {
    text.contains("gdb, which is not installed")
}

/// Waits until Ray says that so many run what is called `name`.
fn runs(scene: &Scene<'_>, name: &str) -> Vec<Value> {
    eventually(name, Duration::from_secs(60), || {
        let tasks = scene.get(&format!("/relay/v1/tasks?name={name}"))["tasks"].take();
        let tasks: Vec<Value> = serde_json::from_value(tasks).unwrap();
        (!tasks.is_empty()).then_some(tasks)
    })
}

/// Ports that Ray lists of workers' debuggers.
fn ports(scene: &Scene<'_>) -> usize {
    let rows = scene.workers();
    let open = |row: &&Value| row["is_alive"] == true && row["debugger_port"].as_u64() > Some(0);
    rows.iter().filter(open).count()
}

/// An editor that has asked for what runs and is called `name`.
async fn attached(scene: &Scene<'_>, name: &str) -> DapClient {
    let mut client = scene.connect(Editor::VsCode).await;
    let selector = json!({"task": name, "running": true, "reason": "a test"});
    client
        .start(scene.arguments(Editor::VsCode, "", selector), None)
        .await;
    client
}

/// Attaches to what is called `name`, and has it stop in `function`, whose variable `counts` is a number above 0 then.
async fn stops_in(scene: &Scene<'_>, name: &str, function: &str, counts: &str) {
    let mut client = attached(scene, name).await;
    let (thread, reason) = client.stopped().await;
    assert_eq!(reason, "pause");
    let frames = client.frames(thread).await;
    let frame = frames.iter().find(|frame| frame.name == function);
    let frame = frame.unwrap_or_else(|| panic!("{function} is not in {frames:?}"));
    let counted = client.evaluate(frame.id, counts).await;
    assert!(counted.parse::<u64>().unwrap() > 0, "{name}: {counted}");
    client.disconnect().await;
}

/// Opens the prompt of `worker` over a plain connection.
async fn by_plain_lines(scene: &Scene<'_>, worker: &str) {
    let mut user = Person::connect(scene);
    user.list().await;
    let line = format!("running {worker} by plain lines");
    let reply = user.line(&line, "(Pdb) ").await;
    assert!(
        reply.contains("opens a debugger") || reply.contains("spin"),
        "{reply}"
    );
    let reply = user.line("p steps > 0", "(Pdb) ").await;
    assert!(reply.contains("True"), "{reply}");
    user.line("quit", "runs on without a debugger").await;
}

fn hooks_and_awaited_objects_are_listed(scene: &Scene<'_>) {
    let (code, output) = ran(scene, &["list", "--running", "--hooks", "--json"]);
    let report: Value =
        serde_json::from_str(&output).unwrap_or_else(|_| panic!("{code:?} {output}"));
    for name in ["spin", "waits", "Fetcher.fetch"] {
        let tasks = report["tasks"].as_array().unwrap();
        let task = tasks.iter().find(|task| task["name"] == name).unwrap();
        assert_eq!(task["hook"], true, "{task}");
    }
    let (_, output) = ran(scene, &["doctor"]);
    assert!(
        output.contains("that run something have the hook"),
        "{output}"
    );
    let (code, output) = ran(scene, &["snapshot", "--running", "waits", "--objects"]);
    assert_eq!(code, Some(0), "{output}");
    let line = output.lines().find(|line| line.starts_with("→ waits"));
    let line = line.unwrap_or_else(|| panic!("{output}"));
    assert!(line.contains(" waits for object "), "{line}");
    assert!(line.contains(" of gate pid "), "{line}");
    assert!(line.contains("it has not ended"), "{line}");
    assert!(line.contains(", owned by driver"), "{line}");
}

#[tokio::test]
async fn running_task_is_stopped_on_the_oldest_ray() {
    let Some(cluster) = Cluster::up(OLDEST, 0, &[]) else {
        return;
    };
    let place = Place::new();
    let scene = place.scene(&cluster);
    let hook = place.path("hook");
    let mut driver = place.driver(&cluster, "spin,waits,fetch", &[("HOOK_DIR", &hook)]);
    let _agent = Agent::on(&scene, "head", &["--allow-plaintext"]);
    linked(&scene, 1);
    for name in ["spin", "waits", "Fetcher.fetch"] {
        runs(&scene, name);
    }
    hooks_and_awaited_objects_are_listed(&scene);
    let worker = runs(&scene, "spin")[0]["worker_id"]
        .as_str()
        .unwrap()
        .to_owned();
    by_plain_lines(&scene, &worker).await;
    page::browsed(
        &cluster,
        "running_page.py",
        &format!("{}/relay/", scene.relay.url()),
    );
    stops_in(&scene, "spin", "spin", "steps").await;
    stops_in(&scene, "Fetcher.fetch", "fetch", "rounds").await;
    for name in ["spin", "gate", "fetch"] {
        place.end(name);
    }
    assert_eq!(
        driver.result(),
        json!(["fetch 7", "spin", "waits after gate"])
    );
}

/// `ray-relay debug --running spin` at `scene` is refused with `code` and a sentence that has `words`, and nothing is opened.
fn is_refused(scene: &Scene<'_>, code: i32, words: &str) {
    let (exit, output) = ran(scene, &["debug", "--running", "spin"]);
    assert_eq!(exit, Some(code), "{output}");
    assert!(output.contains(words), "{output}");
    assert_eq!(ports(scene), 0, "{output}");
}

#[tokio::test]
async fn doctor_names_ptrace_limits_and_how_to_install_the_hook() {
    let Some(cluster) = Cluster::up(NEWEST, 0, &[]) else {
        return;
    };
    let place = Place::new();
    {
        // All users may debug, but not attach to running tasks.
        let scene = Scene::new(&cluster);
        let _agent = Agent::on(&scene, "head", &["--allow-plaintext"]);
        linked(&scene, 1);
        let _driver = place.driver(&cluster, "spin", &[("HOOK_DIR", &place.path("hook"))]);
        runs(&scene, "spin");
        is_refused(&scene, 77, "the permission `attach` besides `debug`");
    }
    let scene = place.scene(&cluster);
    let _agent = Agent::on(&scene, "head", &["--allow-plaintext"]);
    linked(&scene, 1);
    let wait_removed = || {
        eventually("no task", Duration::from_secs(60), || {
            let tasks = scene.get("/relay/v1/tasks?name=spin")["tasks"].take();
            (tasks == json!([])).then_some(())
        });
    };
    // The job says so, by its hook and without it.
    for (value, hook) in [("look", true), ("off", true), ("look", false)] {
        wait_removed();
        let path = place.path("hook");
        let mut env = vec![("RAY_RELAY_HOOK", value)];
        env.extend(hook.then_some(("HOOK_DIR", &*path)));
        let _driver = place.driver(&cluster, "spin", &env);
        runs(&scene, "spin");
        is_refused(&scene, 77, &format!("(RAY_RELAY_HOOK={value})"));
    }
    wait_removed();

    // Without a hook and without a word, it comes from outside.
    let mut driver = place.driver(&cluster, "spin", &[]);
    runs(&scene, "spin");
    let (code, output) = ran(
        &scene,
        &[
            "exec",
            "--continue",
            "--running",
            "spin",
            "--",
            "p steps > 0",
            "p 6 * 7",
        ],
    );
    if lacks_gdb(&output) {
        return crate::support::skip(output);
    }
    assert!(
        code == Some(0) && output.starts_with("True\n42\n"),
        "{output}"
    );
    stops_in(&scene, "spin", "spin", "steps").await;
    place.end("spin");
    assert_eq!(driver.result(), json!(["spin"]));
}
