//! Debuggers that listen: real pydevd-pycharm and debugpy dial out of tasks, and come out on the right laptop.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::driver::Driver;
use crate::support::namespaces::{Cluster, RELAY_IP};
use crate::support::ray::{NEWEST, OLDEST};
use crate::support::relay::{PORT, Relay};
use crate::support::shared::Shared;
use crate::support::{eventually, say};

/// The relay's address on the cluster's network.
const RELAY_AMONG_NODES: &str = "10.88.0.200";

/// The range of the agents.
const PORTS: &str = "7700-7719";

const POLICY: &str = r#"
[[rule]]
subjects = ["ada", "bob"]
scopes = ["list", "debug"]

[[rule]]
subjects = ["eve"]
jobs = ["ff000000"]
scopes = ["list", "debug"]

[[rule]]
subjects = ["rec"]
scopes = ["list", "debug"]
record = true

[[rule]]
subjects = ["vera"]
scopes = ["list", "view"]

[[rule]]
subjects = ["agent"]
scopes = ["node"]
"#;

/// A process with its output in a file. Killed when dropped.
struct Process {
    child: Child,
    output: PathBuf,
}

impl Process {
    fn start(mut command: Command, output: PathBuf) -> Self {
        let file = File::create(&output).unwrap();
        let child = command
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Self { child, output }
    }

    fn output(&self) -> String {
        std::fs::read_to_string(&self.output).unwrap()
    }

    /// Waits until it prints `what`.
    fn says(&self, what: &str) {
        let max_wait = Duration::from_secs(60);
        let found = std::panic::catch_unwind(|| {
            eventually(what, max_wait, || {
                self.output().contains(what).then_some(())
            });
        });
        assert!(found.is_ok(), "not {what:?} but: {}", self.output());
    }

    fn interrupt(&mut self, signal: Signal) -> Option<i32> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.unwrap(), signal).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A cluster with a relay that wants tokens, and pydevd-pycharm for its tasks.
struct Scene {
    relay: Relay,
    dir: tempfile::TempDir,
    tools: PathBuf,
    /// Dropped last: the next test must not reach this relay.
    cluster: Shared,
}

impl Scene {
    fn new(version: &str) -> Option<Self> {
        let cluster = Cluster::shared(version)?;
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let keys = Command::new(env!("CARGO_BIN_EXE_ray-relay"))
            .args(["token", "keygen", dir.path().to_str().unwrap()])
            .output();
        assert!(keys.unwrap().status.success());
        std::fs::write(path("policy.toml"), POLICY).unwrap();
        let config = format!(
            "[audit]\nsink = \"file\"\nfile = {:?}\n[auth]\nkeys = [{:?}]\npolicy_file = {:?}\n[recording]\ndir = {:?}\n",
            path("audit.jsonl"),
            path("relay.pub"),
            path("policy.toml"),
            path("recordings"),
        );
        std::fs::write(path("relay.toml"), config).unwrap();
        let relay = Relay::guarded(&cluster, &["--config", &path("relay.toml")]);
        let tools = pydevd_pycharm(&cluster, version);
        Some(Self {
            cluster,
            relay,
            dir,
            tools,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A file with a token of `subject`.
    fn token(&self, subject: &str) -> String {
        let path = self.path(&format!("{subject}.token"));
        let minted = Command::new(env!("CARGO_BIN_EXE_ray-relay"))
            .args(["token", "mint", "--sub", subject, "--ttl", "1h", "--key"])
            .arg(self.path("relay.key"))
            .args(["--scope", "list,debug,node"])
            .output()
            .unwrap();
        assert!(minted.status.success(), "{minted:?}");
        std::fs::write(&path, minted.stdout).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// `ray-relay` inside `node`, with the token of `subject`.
    fn command(&self, node: &str, subject: &str, args: &[&str]) -> Command {
        let mut command = self.cluster.exec(node, env!("CARGO_BIN_EXE_ray-relay"));
        command
            .args(args)
            .args(["--relay", &format!("http://{RELAY_IP}:{PORT}")])
            .args(["--token-file", &self.token(subject)]);
        command
    }

    /// `ray-relay reverse` on a user's laptop.
    fn reverse(&self, subject: &str, to: u16, more: &[&str]) -> Process {
        let to = to.to_string();
        let mut args = vec!["reverse", subject, "--to", &to, "--insecure-send-token"];
        args.extend(more);
        let command = self.command("client", subject, &args);
        Process::start(command, self.path(&format!("{subject}-{to}.out")))
    }

    /// The same until it ends; returns the exit code and output.
    fn refused(&self, subject: &str, more: &[&str]) -> (Option<i32>, String) {
        let mut process = self.reverse(subject, 1, more);
        let code = process.child.wait().unwrap().code();
        (code, process.output())
    }

    /// The agent of `node`.
    fn agent(&self, node: &str, more: &[&str]) -> Process {
        let routed = self
            .cluster
            .exec(node, "ip")
            .args(["route", "replace", &format!("{RELAY_IP}/32")])
            .args(["via", RELAY_AMONG_NODES])
            .status();
        assert!(routed.unwrap().success());
        let dashboard = self.cluster.dashboard();
        let mut args = vec!["node", "--allow-plaintext", "--ray-address", &dashboard];
        args.extend(more);
        let command = self.command(node, "agent", &args);
        Process::start(command, self.path(&format!("agent-{node}.out")))
    }

    /// A debugger on a user's laptop.
    fn laptop(&self, tool: &str, port: u16, value: &str) -> Process {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/laptop.py");
        let mut command = self.cluster.exec("client", self.cluster.venv().python());
        command.args([script, tool, &port.to_string(), value]);
        let laptop = Process::start(command, self.path(&format!("laptop-{port}.out")));
        laptop.says("listening");
        laptop
    }

    /// Tasks that dial.
    fn dials(&self, dials: &Value) -> Driver {
        let tools = self.tools.to_str().unwrap();
        let env = [("DIALS", &*dials.to_string()), ("TOOLS", tools)];
        self.cluster.start_driver("dials.py", &env)
    }

    /// The audit events whose `protocol` is `reverse`.
    fn record(&self) -> Vec<Value> {
        let record = std::fs::read_to_string(self.path("audit.jsonl")).unwrap();
        let lines = record
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        lines
            .filter(|line: &Value| line.to_string().contains(r#""reverse""#))
            .collect()
    }
}

/// The newest pydevd-pycharm, in a directory next to the environments of Ray.
fn pydevd_pycharm(cluster: &Cluster, version: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let dir = dir.join(format!("pydevd-pycharm-{version}"));
    if !dir.join("pydevd_pycharm.py").exists() {
        let installed = Command::new(cluster.venv().python())
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "pydevd-pycharm",
                "--target",
            ])
            .arg(&dir)
            .stdin(Stdio::null())
            .status();
        assert!(installed.unwrap().success());
    }
    dir
}

/// Returns the port in a printed line.
fn port_of(command: &Process) -> u16 {
    command.says("settrace");
    let output = command.output();
    let after = output.split("port=").nth(1).unwrap();
    after.split(',').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn reverse_ports_reach_only_the_owners_laptop() {
    let Some(scene) = Scene::new(NEWEST) else {
        return;
    };

    say("nobody listens for workers yet");
    let (code, output) = scene.refused("ada", &[]);
    assert!(
        code == Some(1) && output.contains("--reverse-ports"),
        "{output}"
    );
    {
        let mut agent = scene.agent("w1", &[]);
        agent.says("linked");
        let (code, output) = scene.refused("ada", &[]);
        assert!(
            code == Some(1) && output.contains("--reverse-ports"),
            "{output}"
        );
        agent.interrupt(Signal::TERM);
    }
    let agents = ["head", "w1"].map(|node| scene.agent(node, &["--reverse-ports", PORTS]));
    for agent in &agents {
        agent.says("linked");
    }

    say("two people at once");
    let (ada, bob) = (
        scene.reverse("ada", 7701, &[]),
        scene.reverse("bob", 9001, &[]),
    );
    let (of_ada, of_bob) = (port_of(&ada), port_of(&bob));
    assert_eq!(of_ada, 7701, "the port of --to lies in the range");
    ada.says("listens on 2 nodes");
    bob.says("listens on 2 nodes");
    {
        let a = scene.laptop("pydevd", 7701, "1001");
        let b = scene.laptop("pydevd", 9001, "2002");
        let mut driver = scene.dials(&json!([
            ["head", "pydevd", of_ada],
            ["w1", "pydevd", of_bob],
            ["w1", "pydevd", of_ada],
            ["head", "pydevd", of_bob]
        ]));
        assert_eq!(driver.result(), json!([1001, 2002, 1001, 2002]));
        for laptop in [&a, &b] {
            laptop.says("stopped dials");
            assert_eq!(laptop.output().matches("stopped").count(), 2);
        }
        ada.says("has dialled");
        ada.says("has ended after");
        assert!(ada.output().contains("dials · pid"), "{}", ada.output());
    }

    say("debugpy's own way");
    {
        let laptop = scene.laptop("debugpy", 7701, "3003");
        let mut driver = scene.dials(&json!([["w1", "debugpy", of_ada]]));
        assert_eq!(driver.result(), json!([3003]));
        laptop.says("stopped dials");
    }

    say("a debugger that is not there: the worker runs on");
    let mut driver = scene.dials(&json!([
        ["w1", "pydevd", of_ada],
        ["head", "debugpy", of_ada]
    ]));
    assert_eq!(driver.result(), json!([20, 20]));
    ada.says("is the debugger listening there?");

    say("who is no worker is not heard");
    let dial = format!(
        "import socket; s = socket.create_connection(('127.0.0.1', {of_ada})); s.sendall(b'hello'); print(len(s.recv(99)))"
    );
    let stranger = scene
        .cluster
        .exec("w1", scene.cluster.venv().python())
        .args(["-c", &dial])
        .output()
        .unwrap();
    let received = String::from_utf8_lossy(&stranger.stdout).into_owned();
    assert!(
        !stranger.status.success() || received == "0\n",
        "{received}"
    );
    agents[1].says("closed unheard");

    say("who may not debug that job gets nothing");
    {
        let laptop = scene.laptop("pydevd", 7703, "4004");
        let eve = scene.reverse("eve", 7703, &[]);
        let port = port_of(&eve);
        let mut driver = scene.dials(&json!([["w1", "pydevd", port]]));
        assert_eq!(driver.result(), json!([20]));
        eve.says("may not debug");
        assert_eq!(laptop.output(), "listening\n");
        assert!(!eve.output().contains("dials"), "{}", eve.output());
    }

    say("who is refused, and why");
    let (code, output) = scene.refused("vera", &[]);
    assert!(code == Some(77) && output.contains("debug"), "{output}");
    let (code, output) = scene.refused("rec", &[]);
    assert!(code == Some(1) && output.contains("recorded"), "{output}");
    let (code, output) = scene.refused("eve", &["--port", "7701"]);
    assert!(code == Some(1) && output.contains("7701"), "{output}");
    let (code, output) = scene.refused("eve", &["--port", "7999"]);
    assert!(code == Some(1) && output.contains("7700-7719"), "{output}");

    say("a command that is killed frees the worker");
    {
        let laptop = scene.laptop("pydevd", 9001, "hold");
        let mut driver = scene.dials(&json!([["w1", "pydevd", of_bob]]));
        laptop.says("stopped dials");
        assert!(driver.is_waiting());
        let mut bob = bob;
        bob.interrupt(Signal::KILL);
        assert_eq!(driver.result(), json!([20]));
    }

    say("what is on record");
    let mut ada = ada;
    assert_eq!(ada.interrupt(Signal::INT), Some(0));
    let record = scene.record();
    let with = |action: &str, subject: &str| {
        let fits = |line: &&Value| {
            let text = line.to_string();
            text.contains(&format!(r#""{action}""#)) && text.contains(&format!(r#""{subject}""#))
        };
        record.iter().filter(fits).count()
    };
    for (action, subject) in [
        ("session_began", "ada"),
        ("session_ended", "bob"),
        ("denied", "eve"),
    ] {
        assert!(with(action, subject) > 0, "{action} {subject}: {record:#?}");
    }
    assert_eq!(with("session_began", "eve"), 0);
    drop(scene.relay);
}

/// The same queries of Ray and of processes.
#[tokio::test]
async fn workers_of_the_oldest_ray_are_listed() {
    let Some(mut scene) = Scene::new(OLDEST) else {
        return;
    };
    let agent = scene.agent("w1", &["--reverse-ports", PORTS]);
    agent.says("linked");
    let ada = scene.reverse("ada", 9001, &["--port", "7710", "--json"]);
    ada.says(r#""nodes":1"#);
    let _laptop = scene.laptop("pydevd", 9001, "5005");
    let mut driver = scene.dials(&json!([["w1", "pydevd", 7710]]));
    assert_eq!(driver.result(), json!([5005]));
    ada.says(r#""event":"ended""#);
    let output = ada.output();
    let mut events = output
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    // The job's number in hexadecimal, its lowest byte first: the sixteenth job of a shared cluster is 10000000.
    let of_job = |event: &Value| {
        event["event"] == "arrived"
            && event["job_id"]
                .as_str()
                .is_some_and(|id| id.len() == 8 && id != "00000000")
    };
    assert!(events.any(|event| of_job(&event)), "{output}");

    say("a relay that is lost comes back");
    scene.relay.signal(Signal::KILL);
    scene.relay.wait_exit(Duration::from_secs(10));
    ada.says(r#""event":"lost""#);
    let config = scene.path("relay.toml");
    scene.relay = Relay::guarded(&scene.cluster, &["--config", config.to_str().unwrap()]);
    eventually("the port again", Duration::from_secs(60), || {
        let output = ada.output();
        let (_, since) = output.rsplit_once(r#""event":"lost""#)?;
        since.contains(r#""port":7710,"nodes":1"#).then_some(())
    });
    let mut driver = scene.dials(&json!([["w1", "pydevd", 7710]]));
    assert_eq!(driver.result(), json!([5005]));
}
