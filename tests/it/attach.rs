//! A debugger in tasks that run and never called `breakpoint()`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::agent::{Agent, linked};
use crate::support::dap_client::{DapClient, Editor};
use crate::support::eventually;
use crate::support::namespaces::{Cluster, Driver};
use crate::support::ray::{NEWEST, OLDEST};
use crate::support::scene::Scene;

/// Where the driver's tasks are told to end, and the hook that their workers have.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let hook = Command::new(env!("CARGO_BIN_EXE_ray-relay"))
            .arg("hook")
            .output()
            .unwrap();
        for folder in ["hook", "stops"] {
            std::fs::create_dir(dir.path().join(folder)).unwrap();
        }
        std::fs::write(dir.path().join("hook/ray_relay_hook.py"), hook.stdout).unwrap();
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

    /// A relay that lets everybody who may debug attach to what runs, and writes a record.
    fn scene<'a>(&self, cluster: &'a Cluster) -> Scene<'a> {
        let config = self.path("relay.toml");
        let text = format!(
            "[dap]\nallow_attach = true\n[audit]\nsink = \"file\"\nfile = \"{}\"\n",
            self.path("audit.log")
        );
        std::fs::write(&config, text).unwrap();
        Scene::with(cluster, &["--config", &config])
    }

    /// What is on record, as far as `of` picks it.
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

fn who_has_the_hook_and_whose_object_is_waited_for(scene: &Scene<'_>) {
    let (code, said) = ran(scene, &["list", "--running", "--hooks", "--json"]);
    let told: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{code:?} {said}"));
    for name in ["spin", "waits", "Fetcher.fetch"] {
        let tasks = told["tasks"].as_array().unwrap();
        let task = tasks.iter().find(|task| task["name"] == name).unwrap();
        assert_eq!(task["hook"], true, "{task}");
    }
    let (_, said) = ran(scene, &["doctor"]);
    assert!(said.contains("that run something have the hook"), "{said}");
    let (code, said) = ran(scene, &["snapshot", "--running", "waits", "--objects"]);
    assert_eq!(code, Some(0), "{said}");
    let line = said.lines().find(|line| line.starts_with("→ waits"));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains(" waits for object "), "{line}");
    assert!(line.contains(" of gate pid "), "{line}");
    assert!(line.contains("it has not ended"), "{line}");
    assert!(line.contains(", owned by driver"), "{line}");
}

#[tokio::test]
async fn what_runs_is_stopped_by_a_debugger_that_its_hook_opens() {
    let Some(cluster) = Cluster::up(NEWEST, 0, &[]) else {
        return;
    };
    let place = Place::new();
    let scene = place.scene(&cluster);
    let tasks = "spin,nap,waits,fetch,pool,sleeps,serve,driver";
    let hook = place.path("hook");
    let mut driver = place.driver(&cluster, tasks, &[("HOOK_DIR", &hook)]);
    for name in [
        "spin",
        "nap",
        "waits",
        "Fetcher.fetch",
        "pool",
        "sleeps",
        "driver*",
    ] {
        runs(&scene, name);
    }

    // Without an agent nothing is opened, and who asked is on record.
    let (code, said) = ran(
        &scene,
        &["debug", "--running", "spin", "--reason", "none there"],
    );
    assert_eq!(code, Some(69), "{said}");
    assert!(said.contains("ray-relay deploy"), "{said}");
    let asked = place.record(opens);
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0]["details"]["reason"], "none there", "{}", asked[0]);
    assert_eq!(ports(&scene), 0);

    let _agent = Agent::on(&scene, "head", &["--allow-plaintext"]);
    linked(&scene, 1);
    who_has_the_hook_and_whose_object_is_waited_for(&scene);
    let (code, said) = ran(
        &scene,
        &[
            "exec",
            "--running",
            "spin",
            "--reason",
            "why",
            "--",
            "p steps > 0",
            "p 6 * 7",
        ],
    );
    assert_eq!((code, &*said), (Some(0), "True\n42\n"));
    // Again, with the debugger that is open: by its worker id too.
    let worker = runs(&scene, "spin")[0]["worker_id"].as_str().unwrap()[..12].to_owned();
    let (code, said) = ran(&scene, &["exec", "--running", &worker, "--", "p steps > 0"]);
    assert_eq!((code, &*said), (Some(0), "True\n"));
    stops_in(&scene, "spin", "spin", "steps").await;
    stops_in(&scene, "Fetcher.fetch", "fetch", "rounds").await;
    stops_in(&scene, "pool", "crunch", "done").await;
    stops_in(&scene, "driver*", "<module>", "turns").await;

    // Inside a call that runs no Python: where that is, and a stop when it returns.
    let mut client = attached(&scene, "nap").await;
    let told = client.output_with("has not stopped").await;
    let told = told["output"].as_str().unwrap();
    assert!(
        told.contains("nap (") && told.contains("running.py:"),
        "{told}"
    );
    let (thread, reason) = client.stopped().await;
    assert_eq!(reason, "pause");
    let frames = client.frames(thread).await;
    let nap = frames.iter().find(|frame| frame.name == "nap").unwrap();
    assert!(
        client
            .evaluate(nap.id, "naps")
            .await
            .parse::<u64>()
            .unwrap()
            > 0
    );
    client.disconnect().await;

    // One that leaves before that: the task runs on, and does not stop later.
    let mut client = attached(&scene, "waits").await;
    let told = client.output_with("has not stopped").await;
    let told = told["output"].as_str().unwrap();
    assert!(told.contains("waits ("), "{told}");
    client.disconnect().await;

    let mut client = attached(&scene, "waits").await;
    client.output_with("has not stopped").await;
    place.end("gate");
    let (thread, _) = client.stopped().await;
    let frames = client.frames(thread).await;
    assert!(
        frames.iter().any(|frame| frame.name == "waits"),
        "{frames:?}"
    );
    client.disconnect().await;

    // Two at once: one has it, and the other is told who.
    let client = attached(&scene, "spin").await;
    let refusal = scene
        .refusal(json!({"task": "spin", "running": true}))
        .await;
    assert!(refusal.contains("is being debugged by"), "{refusal}");
    client.disconnect().await;

    // One whose process ends in the middle.
    let mut client = attached(&scene, "sleeps").await;
    client.output_with("has not stopped").await;
    let pid = runs(&scene, "sleeps")[0]["pid"].as_u64().unwrap();
    cluster.signal("head", u32::try_from(pid).unwrap(), "KILL");
    client.event("terminated").await;
    client.disconnect().await;
    // By Ray's last word, which is a second old, it may run still; by the agent's it does not.
    let (code, said) = ran(&scene, &["debug", "--running", "sleeps"]);
    assert_eq!(code, Some(66), "{said}");
    let words = [
        "nothing that runs is called \"sleeps\"",
        "no worker on its node has that process any more",
    ];
    assert!(words.iter().any(|words| said.contains(words)), "{said}");

    stops_in(&scene, "*Echo*", "__call__", "beats").await;

    for name in ["spin", "nap", "fetch", "pool", "serve", "driver"] {
        place.end(name);
    }
    let done = json!([
        "fetch 7",
        "nap",
        "pool",
        "spin",
        "waits after gate",
        "served"
    ]);
    assert_eq!(driver.result(), done);
    scene.gone();
}

#[tokio::test]
async fn what_runs_is_stopped_on_the_oldest_ray_too() {
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
    who_has_the_hook_and_whose_object_is_waited_for(&scene);
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
    let (exit, said) = ran(scene, &["debug", "--running", "spin"]);
    assert_eq!(exit, Some(code), "{said}");
    assert!(said.contains(words), "{said}");
    assert_eq!(ports(scene), 0, "{said}");
}

#[tokio::test]
async fn what_forbids_a_debugger_and_what_puts_the_hook_there() {
    let Some(cluster) = Cluster::up(NEWEST, 0, &[]) else {
        return;
    };
    let place = Place::new();
    {
        // Everybody may debug, and nobody attach to what runs.
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
    let gone = || {
        eventually("no task", Duration::from_secs(60), || {
            let tasks = scene.get("/relay/v1/tasks?name=spin")["tasks"].take();
            (tasks == json!([])).then_some(())
        });
    };
    // The job says so, by its hook and without it.
    for (value, hook) in [("look", true), ("off", true), ("look", false)] {
        gone();
        let path = place.path("hook");
        let mut env = vec![("RAY_RELAY_HOOK", value)];
        env.extend(hook.then_some(("HOOK_DIR", &*path)));
        let _driver = place.driver(&cluster, "spin", &env);
        runs(&scene, "spin");
        is_refused(&scene, 77, &format!("(RAY_RELAY_HOOK={value})"));
    }
    gone();

    // Without a hook and without a word, it comes from outside.
    let mut driver = place.driver(&cluster, "spin", &[]);
    runs(&scene, "spin");
    let (code, said) = ran(
        &scene,
        &["exec", "--running", "spin", "--", "p steps > 0", "p 6 * 7"],
    );
    if said.contains("gdb") {
        return crate::support::skip(said);
    }
    assert_eq!((code, &*said), (Some(0), "True\n42\n"));
    stops_in(&scene, "spin", "spin", "steps").await;
    place.end("spin");
    assert_eq!(driver.result(), json!(["spin"]));
}
