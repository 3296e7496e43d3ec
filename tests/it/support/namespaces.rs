//! A Ray cluster in network namespaces (`tests/cluster/cluster.sh`): head, workers, a relay
//! namespace that reaches them, and a client namespace that reaches nothing but the relay's. Or one on
//! [loopback addresses](super::loopback), which needs no root.
//!
//! The script holds the cluster for as long as this process holds its standard input, so nothing
//! is left whatever way the tests end.

mod faults;
mod state_api;

use std::fs::File;
use std::hash::BuildHasher as _;
use std::io::{BufRead as _, BufReader};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use ray_relay_cluster::venv::{Venv, major_minor};

use super::driver::Driver;
use super::loopback::{self, Loopback};
use super::turn::Turn;
use super::{ray, say, skip};

/// The relay's address as the client sees it.
pub(crate) const RELAY_IP: Ipv4Addr = Ipv4Addr::new(10, 88, 1, 1);
/// The head's address as the relay sees it.
pub(crate) const HEAD_IP: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 10);

/// A running cluster. Dropping it takes it down and waits for that.
pub(crate) struct Cluster {
    ground: Ground,
    state: PathBuf,
    version: String,
    venv: Venv,
    workers: usize,
    hold: Child,
    drivers: AtomicU32,
    /// Of a cluster of a test's own.
    turn: Option<Turn>,
}

/// The place of a cluster's nodes.
enum Ground {
    /// Network namespaces with this prefix.
    Namespaces(String),
    Loopback(Loopback),
}

/// Limits a driver to the head and `w1`, for tests with agents on these two.
pub(crate) const ON_TWO_NODES: [(&str, &str); 1] = [("WORKERS", "1")];

static NEXT_ID: AtomicU32 = AtomicU32::new(0);
/// Six hex digits that no other run has: process ids repeat where a run has a pid namespace of its own, and names of
/// network namespaces outlive a run that was killed.
static RUN_ID: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
    let random = std::hash::RandomState::new().hash_one(std::process::id());
    format!("{:06x}", random & 0xff_ffff)
});

impl Cluster {
    /// A cluster of one's own; `env` goes to the Ray processes (and `HEAD_ARGS`, `WORKER_ARGS` to
    /// the script). Never call it while holding a [`Shared`](super::shared::Shared) of the same version needlessly: each
    /// costs two cores about 10 s. `None` (said aloud) where this machine cannot.
    pub(crate) fn up(version: &str, workers: usize, env: &[(&str, &str)]) -> Option<Self> {
        let turn = Turn::take();
        let mut cluster = Self::bring_up(version, workers, env)?;
        cluster.turn = Some(turn);
        Some(cluster)
    }

    /// The same, for a test that already has its turn.
    pub(super) fn bring_up(version: &str, workers: usize, env: &[(&str, &str)]) -> Option<Self> {
        // Asked once: two probes at the same time would be in each other's way.
        static MISSING: std::sync::LazyLock<Option<String>> = std::sync::LazyLock::new(lacking);
        if let Some(lacking) = &*MISSING {
            skip(lacking);
            return None;
        }
        let venv = ray::environment(version)?;
        let began = Instant::now();
        say(format_args!(
            "bringing up Ray {version} in namespaces: head and {workers} worker node(s) ..."
        ));
        let number = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("rrt{}-{number}", *RUN_ID);
        // Short: Ray's socket paths below it may have 107 bytes.
        let state = PathBuf::from(format!("/tmp/{prefix}"));
        let mut hold = script(&prefix, &state, &venv, workers)
            .arg("hold")
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(hold.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n", "the cluster did not come up");
        say(format_args!(
            "Ray {version} is up ({:.1} s)",
            began.elapsed().as_secs_f64()
        ));
        let ground = Ground::Namespaces(prefix);
        Some(Self::held(ground, state, version, venv, workers, hold))
    }

    /// One on loopback addresses, with two workers.
    pub(super) fn on_loopback(loopback: Loopback, venv: Venv, hold: Child) -> Self {
        let state = loopback.dir.clone();
        Self::held(
            Ground::Loopback(loopback),
            state,
            ray::NEWEST,
            venv,
            2,
            hold,
        )
    }

    fn held(
        ground: Ground,
        state: PathBuf,
        version: &str,
        venv: Venv,
        workers: usize,
        hold: Child,
    ) -> Self {
        Self {
            ground,
            state,
            version: version.to_owned(),
            venv,
            workers,
            hold,
            drivers: AtomicU32::new(0),
            turn: None,
        }
    }

    /// The directory of the Ray installation.
    pub(crate) fn venv(&self) -> &Venv {
        &self.venv
    }

    /// The directory of each node's files, including Ray's session.
    pub(crate) fn state(&self) -> &Path {
        &self.state
    }

    /// Pids, inside of `node`, of the processes whose whole command line fits `pattern`.
    pub(crate) fn processes(&self, node: &str, pattern: &str) -> Vec<u32> {
        let output = self.exec(node, "pgrep").args(["-xf", pattern]).output();
        let pids = String::from_utf8(output.unwrap().stdout).unwrap();
        pids.lines().map(|pid| pid.parse().unwrap()).collect()
    }

    /// Address of `head`, `w1`, ... on the cluster's network.
    pub(crate) fn address(&self, node: &str) -> Ipv4Addr {
        let number: Option<u32> = node
            .strip_prefix('w')
            .and_then(|number| number.parse().ok());
        let head = match &self.ground {
            Ground::Namespaces(_) => HEAD_IP,
            Ground::Loopback(_) => loopback::HEAD_IP,
        };
        Ipv4Addr::from_bits(head.to_bits() + number.unwrap_or(0))
    }

    /// The head's dashboard as the relay reaches it.
    pub(crate) fn dashboard(&self) -> String {
        match &self.ground {
            Ground::Namespaces(_) => format!("http://{HEAD_IP}:8265"),
            Ground::Loopback(loopback) => loopback.dashboard.clone(),
        }
    }

    /// The address of its GCS, if its port is not the default.
    pub(crate) fn gcs(&self) -> Option<&str> {
        match &self.ground {
            Ground::Namespaces(_) => None,
            Ground::Loopback(loopback) => Some(&loopback.gcs),
        }
    }

    /// The address at which a relay listens, and the one by which clients and agents reach it.
    pub(crate) fn relay_at(&self, port: u16) -> (String, Ipv4Addr) {
        match &self.ground {
            Ground::Namespaces(_) => (format!("{RELAY_IP}:{port}"), RELAY_IP),
            Ground::Loopback(_) => ("127.0.0.1:0".to_owned(), Ipv4Addr::LOCALHOST),
        }
    }

    /// A command inside `head`, `w1`, ..., `relay` or `client`. In the last two the child's pid is
    /// the program's own. In a node it is that of its `nsenter`; killing that kills the program.
    pub(crate) fn exec(&self, node: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
        if let Ground::Loopback(loopback) = &self.ground {
            return loopback.exec(program);
        }
        if matches!(node, "relay" | "client") {
            return self.on_network_of(node, program);
        }
        let pid = std::fs::read_to_string(self.state.join(node).join("pid")).unwrap();
        let mut command = Command::new("nsenter");
        command
            .args(["--target", pid.trim()])
            .args(["--net", "--mount", "--uts", "--pid", "--wd=/", "--"])
            // The program would otherwise outlive its nsenter.
            .args(["setpriv", "--pdeathsig", "KILL", "--"])
            .env("HOME", self.state.join(node).join("home"))
            .env("RAY_ADDRESS", format!("{HEAD_IP}:6379"))
            .env("RAY_USAGE_STATS_ENABLED", "0")
            .arg(program)
            .stdin(Stdio::null());
        command
    }

    /// Runs the driver `tests/jobs/SCRIPT` on the head with debugpy as its debugger; tasks see `env` too.
    pub(crate) fn start_driver(&self, script: &str, env: &[(&str, &str)]) -> Driver {
        // Up to 2.38 the debugger is pdb without it.
        self.driver(script, self.needs_ray_debug().then_some("1"), env)
    }

    /// The same with the legacy debugger.
    pub(crate) fn start_legacy_driver(&self, script: &str, env: &[(&str, &str)]) -> Driver {
        let setting = (!self.needs_ray_debug()).then_some("legacy");
        self.driver(script, setting, env)
    }

    fn driver(&self, script: &str, debugger: Option<&str>, env: &[(&str, &str)]) -> Driver {
        let number = self.drivers.fetch_add(1, Ordering::Relaxed);
        let log = self.state.join(format!("driver-{number}.log"));
        let file = File::create(&log).unwrap();
        let child = self
            .exec("head", self.venv.python())
            .arg("-u")
            .arg(ray::job(script))
            .env("WORKERS", self.workers.to_string())
            .env_remove("RAY_DEBUG")
            .envs(debugger.map(|setting| ("RAY_DEBUG", setting)))
            .envs(env.iter().copied())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Driver::new(child, log)
    }

    fn needs_ray_debug(&self) -> bool {
        major_minor(&self.version) <= (2, 38)
    }

    /// A command that shares the network with `node`, and nothing else.
    pub(crate) fn on_network_of(
        &self,
        node: &str,
        program: impl AsRef<std::ffi::OsStr>,
    ) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.namespace(node)])
            .arg(program)
            .stdin(Stdio::null());
        command
    }

    /// Returns the name of the network of `node`.
    fn namespace(&self, node: &str) -> String {
        format!("{}-{node}", self.prefix())
    }

    fn prefix(&self) -> &str {
        match &self.ground {
            Ground::Namespaces(prefix) => prefix,
            Ground::Loopback(_) => panic!("only a cluster in namespaces can do that"),
        }
    }

    fn run(&self, args: &[&str]) {
        let mut command = script(self.prefix(), &self.state, &self.venv, self.workers);
        let status = command.args(args).status().unwrap();
        assert!(status.success(), "cluster.sh {args:?}");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.hold.stdin.take());
        let _ = self.hold.wait();
    }
}

pub(super) fn tool(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/cluster")
        .join(name)
}

fn script(prefix: &str, state: &Path, venv: &Venv, workers: usize) -> Command {
    let mut command = Command::new("bash");
    // RAY_* variables of the test process must not affect this cluster.
    for (name, _) in std::env::vars() {
        if name.starts_with("RAY_") {
            command.env_remove(name);
        }
    }
    command
        .arg(tool("cluster.sh"))
        .env("NS", prefix)
        .env("STATE", state)
        .env("RAY_VENV", venv.dir())
        .env("WORKERS", workers.to_string());
    command
}

/// Whether this machine has `tool`.
fn has(tool: &&str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(tool).exists())
}

/// Returns the missing requirement for namespaces on this machine.
fn lacking() -> Option<String> {
    if !cfg!(target_os = "linux") || !rustix::process::geteuid().is_root() {
        return Some("a cluster in network namespaces needs Linux and root".to_owned());
    }
    let tools = ["bash", "ip", "unshare", "nsenter", "setpriv"];
    let missing: Vec<_> = tools.into_iter().filter(|tool| !has(tool)).collect();
    if !missing.is_empty() {
        return Some(format!(
            "{} missing; apt install iproute2 util-linux",
            missing.join(", ")
        ));
    }
    let probe = format!("rrt{}-probe", *RUN_ID);
    let netns = |verb: &str| {
        let mut command = Command::new("ip");
        command.args(["netns", verb, &probe]).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let allowed = netns("add");
    if allowed {
        netns("delete");
    }
    (!allowed).then(|| "this container may not make network namespaces".to_owned())
}
