//! `ray-relay deploy` on real clusters that are reached by their dashboard alone.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;

use crate::support::eventually;
use crate::support::namespaces::Cluster;
use crate::support::ray::{NEWEST, OLDEST};

const TOKEN: &str = "a-t0ken-that-nobody-may-see";
const AGENT_PROCESS: &str = "ray-relay node .*";
const ACTOR_PROCESS: &str = "ray::RayRelay.*";

/// A directory with the program, whose debugging information would be most of the package, and the agents' token.
struct Deployer<'a> {
    cluster: &'a Cluster,
    dir: tempfile::TempDir,
    program: PathBuf,
}

impl<'a> Deployer<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let built = Path::new(env!("CARGO_BIN_EXE_ray-relay"));
        let program = dir.path().join("ray-relay");
        let mut strip = Command::new("strip");
        let stripped = strip.arg("-o").arg(&program).arg(built).status();
        if !stripped.is_ok_and(|status| status.success()) {
            std::fs::copy(built, &program).unwrap();
        }
        std::fs::write(dir.path().join("token"), TOKEN).unwrap();
        Self {
            cluster,
            dir,
            program,
        }
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = self.cluster.exec("relay", &self.program);
        command
            .args(["deploy", "--ray-address", &self.cluster.dashboard()])
            .args(args)
            .env("HOME", self.dir.path());
        command.output().unwrap()
    }

    fn deploy(&self, more: &[&str]) -> Output {
        let token = self.dir.path().join("token").display().to_string();
        // The address has no listener: an agent does not give up on a relay.
        let pin = format!("sha256:{}", "0".repeat(64));
        let url = ["--relay-url", "https://10.88.0.200:1", "--pin", &pin];
        self.run(&[&url[..], &["--token-file", &token], more].concat())
    }

    /// Each node's address with the state of its agent and the number of its restarts.
    fn status(&self) -> Vec<(String, String, u64)> {
        let output = self.run(&["--status", "--json"]);
        let status: Value = serde_json::from_slice(&output.stdout).unwrap();
        let row = |node: &Value| {
            let agent = &node["agent"];
            (
                node["address"].as_str().unwrap().to_owned(),
                agent["state"].as_str().unwrap_or("none").to_owned(),
                agent["restarts"].as_u64().unwrap_or(0),
            )
        };
        status["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .map(row)
            .collect()
    }

    /// Waits until exactly one agent's process is on `node`: it is counted from its start, when it has yet to be given the
    /// token, and becomes `ray-relay node` then.
    fn wait_one(&self, node: &str) {
        eventually(node, Duration::from_secs(30), || {
            (self.cluster.processes(node, AGENT_PROCESS).len() == 1).then_some(())
        });
    }

    /// Waits until the agents of `nodes` nodes run, and that many restarts were counted.
    fn wait_running(&self, nodes: usize, restarts: u64) {
        let what = format!("{nodes} agents, {restarts} restarts");
        eventually(&what, Duration::from_secs(90), || {
            let rows = self.status();
            let running = rows.iter().filter(|(_, state, _)| state == "running");
            let counted: u64 = rows.iter().map(|(_, _, restarts)| restarts).sum();
            (rows.len() == nodes && running.count() == nodes && counted == restarts).then_some(())
        });
    }
}

fn text_of(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    String::from_utf8_lossy(out).into_owned() + &String::from_utf8_lossy(err)
}

fn agents_come_and_go(version: &str) {
    let Some(cluster) = Cluster::up(version, 3, &[]) else {
        return;
    };
    // The fourth node joins later.
    cluster.kill_node("w3");
    eventually("three nodes", Duration::from_secs(60), || {
        let rows = cluster.rows("nodes?detail=1");
        let alive = rows.iter().filter(|row| row["state"] == "ALIVE");
        (alive.count() == 3).then_some(())
    });
    let deployer = Deployer::new(&cluster);
    let output = deployer.run(&["--status"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text_of(&output).contains("nothing is deployed"),
        "{}",
        text_of(&output)
    );

    let output = deployer.deploy(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", text_of(&output));
    for node in ["head", "w1", "w2"] {
        deployer.wait_one(node);
    }
    token_is_not_visible(&cluster);

    cluster.signal("w1", cluster.processes("w1", AGENT_PROCESS)[0], "KILL");
    deployer.wait_running(3, 1);
    // Ray restarts the actor, and the agent ends with it.
    cluster.signal("w2", cluster.processes("w2", ACTOR_PROCESS)[0], "KILL");
    deployer.wait_running(3, 2);
    deployer.wait_one("w2");
    cluster.start_node("w3");
    deployer.wait_running(4, 2);
    deployer.wait_one("w3");

    // Another does not take its place unasked.
    let output = deployer.deploy(&[]);
    assert_eq!(output.status.code(), Some(1), "{}", text_of(&output));
    assert!(
        text_of(&output).contains("agents runs already (job ray-relay-agents-"),
        "{}",
        text_of(&output)
    );
    deployer.wait_running(4, 2);
    let output = deployer.deploy(&["--replace"]);
    assert_eq!(output.status.code(), Some(0), "{}", text_of(&output));
    let output = deployer.run(&["--remove"]);
    assert_eq!(output.status.code(), Some(0), "{}", text_of(&output));
    for node in ["head", "w1", "w2", "w3"] {
        for pattern in [
            AGENT_PROCESS,
            ACTOR_PROCESS,
            ".*ray_relay_driver.*",
            ".*ray-relay deployed.*",
        ] {
            let remaining = cluster.processes(node, pattern);
            assert!(remaining.is_empty(), "{pattern} on {node}: {remaining:?}");
        }
    }
    let output = deployer.run(&["--remove"]);
    assert_eq!(output.status.code(), Some(0), "{}", text_of(&output));
    assert!(
        text_of(&output).contains("Nothing to remove"),
        "{}",
        text_of(&output)
    );
    token_is_not_visible(&cluster);
}

/// Checks that the token is in nothing that the dashboard shows and in no file of Ray's, including logs and packages.
fn token_is_not_visible(cluster: &Cluster) {
    let jobs = get(cluster, "/api/jobs/");
    let jobs: Vec<Value> = serde_json::from_str(&jobs).unwrap();
    assert!(!jobs.is_empty());
    let logs = jobs
        .iter()
        .map(|job| job["submission_id"].as_str().unwrap());
    let logs = logs.map(|id| format!("/api/jobs/{id}/logs"));
    let lists = [
        "actors",
        "tasks",
        "workers",
        "objects",
        "runtime_envs",
        "jobs",
    ];
    let lists = lists.map(|list| format!("/api/v0/{list}?detail=1&limit=1000"));
    for path in logs.chain(lists).chain(["/api/jobs/".to_owned()]) {
        assert!(!get(cluster, &path).contains(TOKEN), "{path}");
    }
    let found = Command::new("grep")
        .args([
            "--recursive",
            "--devices=skip",
            "--files-with-matches",
            "--no-messages",
        ])
        .args(["--fixed-strings", TOKEN])
        .arg(cluster.state())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(found.stdout).unwrap(), "");
}

fn get(cluster: &Cluster, path: &str) -> String {
    let url = format!("{}{path}", cluster.dashboard());
    let (_, body) = cluster.get("relay", &url, Duration::from_secs(30)).unwrap();
    String::from_utf8(body).unwrap()
}

#[test]
fn agents_come_and_go_on_the_newest() {
    agents_come_and_go(NEWEST);
}

#[test]
fn agents_come_and_go_on_the_oldest() {
    agents_come_and_go(OLDEST);
}
