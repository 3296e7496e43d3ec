//! A real Ray cluster of several nodes on this machine: one address of 127.0.0.0/8 for each.
//!
//! For the demo and for tests. It must not know the relay in front of it. Invariant: everything that it starts or writes is
//! gone when it is stopped or dropped. Processes are found by ancestry and mark ([`processes`]), never with `ray stop`,
//! which would end other clusters too.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod allocation;
mod bounds;
mod error;
mod node;
pub mod processes;
pub mod venv;

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio_util::sync::CancellationToken;

pub use self::allocation::make_short_dir;
use self::allocation::{node_addresses, random_token};
use self::bounds::UP_DEADLINE;
pub use self::error::ClusterError;
use self::node::{RayNode, clean, search_path};
use self::processes::ProcessGroup;
use self::venv::{Venv, major_minor};
use ray_relay_access::telemetry::progress::{PreparationClock, ProgressStep};
use ray_relay_base::wire::tcp::free_port;
use ray_relay_ray::ray::jobs::Jobs;

/// Number of attempts, if Ray gives up on a node.
const MAX_ATTEMPTS: usize = 3;
/// Grace period after TERM. `ray start --block` would drain its node for 30 s; nothing here is worth that.
const GRACE_PERIOD: Duration = Duration::from_secs(2);
/// First version of Ray in which a worker uses its own `--temp-dir`. Older workers share the head's, where two that
/// start together choose the same names for their sockets.
const OWN_TEMP_DIR: (u32, u32) = (2, 60);
/// Marks the environment of every process of one cluster.
const MARKER_VARIABLE: &str = "RAY_RELAY_DEMO_CLUSTER";

/// Parameters of a cluster.
#[derive(Debug, Clone)]
pub struct Plan<'a> {
    /// The environment with Ray.
    pub venv: &'a Venv,
    /// The version of Ray in that environment.
    pub ray: &'a str,
    /// Number of nodes in addition to the head.
    pub workers: usize,
    /// Added to the environment of all nodes, e.g. `RAY_DEBUG_POST_MORTEM=1`.
    pub env: &'a [(&'a str, &'a str)],
}

/// A running cluster. Dropping it ends it, blocking for a few seconds at most.
pub struct LocalCluster {
    dir: PathBuf,
    nodes: Vec<RayNode>,
    family: ProcessGroup,
    dashboard: String,
    gcs: SocketAddr,
    token: Option<String>,
    jobs: Jobs,
    environment: Vec<(String, String)>,
}

impl LocalCluster {
    /// Starts the head, then the workers, and waits until the head lists all as alive. Retries if Ray itself gives up
    /// on a busy machine. Dropping the future ends all processes.
    ///
    /// # Errors
    /// [`ClusterError`].
    pub async fn start(plan: Plan<'_>, progress: &PreparationClock) -> Result<Self, ClusterError> {
        for _ in 1..MAX_ATTEMPTS {
            match Self::attempt(&plan, progress).await {
                Err(error) if error.is_timeout() => progress.say(
                    "Ray gave up on a node that was not up after 30 s, which a busy machine explains; starting anew",
                ),
                done => return done,
            }
        }
        Self::attempt(&plan, progress).await
    }

    async fn attempt(plan: &Plan<'_>, progress: &PreparationClock) -> Result<Self, ClusterError> {
        let addresses = node_addresses(plan.workers);
        let [head_ip, worker_ips @ ..] = addresses.as_slice() else {
            return Err(ClusterError::NoPort);
        };
        if worker_ips.len() < plan.workers {
            progress.say(
                "this system has only one loopback address (127.0.0.1), so one Ray node stands for all",
            );
        }
        let mut cluster = Self::prepare(plan, *head_ip)?;
        let mut step = progress.step(format_args!(
            "starting a Ray {} cluster: head {head_ip}, {} worker node(s)",
            plan.ray,
            worker_ips.len()
        ));
        let mut names: Vec<String> = (1..=plan.workers).map(|n| format!("w{n}")).collect();
        // If one node replaces all, it has their resources too.
        let on_head = names.split_off(worker_ips.len());
        let resources: Vec<&str> = std::iter::once("head")
            .chain(on_head.iter().map(String::as_str))
            .collect();
        cluster.start_head(plan, *head_ip, &resources)?;
        let jobs = cluster.jobs();
        cluster.wait(&jobs, 1, &mut step).await?;
        for (started, (name, ip)) in names.iter().zip(worker_ips).enumerate() {
            if major_minor(plan.ray) < OWN_TEMP_DIR {
                cluster.wait(&jobs, 1 + started, &mut step).await?;
            }
            cluster.start_worker(plan, name, *ip)?;
        }
        if !worker_ips.is_empty() {
            cluster.wait(&jobs, 1 + worker_ips.len(), &mut step).await?;
        }
        step.done(format_args!("{} node(s) alive", 1 + worker_ips.len()));
        Ok(cluster)
    }

    /// Base address of the dashboard and its APIs, e.g. `http://127.0.0.1:24711`.
    pub fn dashboard(&self) -> &str {
        &self.dashboard
    }

    /// Ray's address for drivers (`ray.init(address=...)`).
    pub fn gcs(&self) -> SocketAddr {
        self.gcs
    }

    /// Path of the cluster's token, for versions of Ray that support one.
    pub fn token_file(&self) -> Option<PathBuf> {
        self.token.as_ref().map(|_| self.dir.join("token"))
    }

    /// Client for requests to the head.
    pub fn jobs(&self) -> Jobs {
        self.jobs.clone()
    }

    /// Directory for the caller's files, removed with the cluster.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Prepares a command in the cluster's environment, e.g. a driver: `RAY_ADDRESS` is set. Its process and all
    /// descendants end with the cluster, if they are registered with [`LocalCluster::own`].
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        clean(&mut command);
        command
            .envs(self.environment.iter().map(|(k, v)| (k, v)))
            .env("RAY_ADDRESS", self.gcs.to_string());
        command
    }

    /// Registers the process `pid` (a child of this one), so that it ends with the cluster.
    pub fn own(&mut self, pid: u32) {
        self.family.add(pid);
    }

    /// Ends everything and removes the files. Skips the grace period if `hurry` is cancelled, before or meanwhile.
    /// Returns the pids of processes that would not die. Blocks for seven seconds at most.
    pub fn stop(mut self, hurry: &CancellationToken) -> Vec<i32> {
        self.end(hurry)
    }

    fn end(&mut self, hurry: &CancellationToken) -> Vec<i32> {
        let nodes = &mut self.nodes;
        for node in nodes.iter() {
            // Without /proc only the groups are known.
            if !cfg!(target_os = "linux") {
                let group = Pid::from_child(&node.child);
                let _ = rustix::process::kill_process_group(group, Signal::KILL);
            }
        }
        let survivors = self.family.end(GRACE_PERIOD, hurry, || {
            for node in nodes.iter_mut() {
                let _ = node.child.try_wait();
            }
        });
        self.nodes.clear();
        let _ = fs::remove_dir_all(&self.dir);
        survivors
    }

    fn prepare(plan: &Plan<'_>, head_ip: Ipv4Addr) -> Result<Self, ClusterError> {
        let dir = make_short_dir()?;
        let id = dir.file_name().unwrap_or_default().to_string_lossy();
        let mut environment: Vec<(String, String)> = vec![
            (MARKER_VARIABLE.into(), id.clone().into_owned()),
            ("HOME".into(), dir.join("home").display().to_string()),
            ("PATH".into(), search_path(plan.venv)),
            ("RAY_USAGE_STATS_ENABLED".into(), "0".into()),
            // Reveals where a task stopped without attaching (off by default since 2.56).
            ("RAY_DASHBOARD_ENABLE_PROFILING".into(), "1".into()),
            // debugpy would print four lines of advice about Python's own modules in each worker.
            ("PYDEVD_DISABLE_FILE_VALIDATION".into(), "1".into()),
            // The demo must not lose a task because the rest of the machine uses much memory.
            ("RAY_memory_monitor_refresh_ms".into(), "0".into()),
        ];
        // Ray listens on all addresses of the machine regardless of its settings. A token keeps others out, if this
        // version supports one.
        let token = (major_minor(plan.ray) >= (2, 52)).then(random_token);
        if token.is_some() {
            let path = dir.join("token").display().to_string();
            environment.push(("RAY_AUTH_MODE".into(), "token".into()));
            environment.push(("RAY_AUTH_TOKEN_PATH".into(), path));
        } else {
            environment.push(("RAY_AUTH_MODE".into(), "disabled".into()));
        }
        environment.extend(plan.env.iter().map(|(k, v)| ((*k).into(), (*v).into())));
        let dashboard = format!(
            "http://127.0.0.1:{}",
            free_port().ok_or(ClusterError::NoPort)?
        );
        let token_file = token.as_ref().map(|_| dir.join("token"));
        let cluster = Self {
            jobs: Jobs::new(&*dashboard, token_file, false)?,
            nodes: Vec::new(),
            family: ProcessGroup::marked(format!("{MARKER_VARIABLE}={id}")),
            dashboard,
            gcs: SocketAddr::new(
                IpAddr::V4(head_ip),
                free_port().ok_or(ClusterError::NoPort)?,
            ),
            token,
            environment,
            dir: dir.clone(),
        };
        cluster.write_files()?;
        Ok(cluster)
    }

    fn write_files(&self) -> Result<(), ClusterError> {
        fs::create_dir(self.dir.join("home")).map_err(|e| self.io("make a home", e))?;
        if let Some(token) = &self.token {
            use io::Write as _;
            fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(self.dir.join("token"))
                .and_then(|mut file| file.write_all(token.as_bytes()))
                .map_err(|e| self.io("write the token", e))?;
        }
        Ok(())
    }

    async fn wait(
        &mut self,
        jobs: &Jobs,
        expected: usize,
        step: &mut ProgressStep<'_>,
    ) -> Result<(), ClusterError> {
        let end = tokio::time::Instant::now() + UP_DEADLINE;
        let mut before = expected.saturating_sub(1).min(1);
        loop {
            let ended = self.nodes.iter_mut().find_map(|node| {
                let status = node.child.try_wait().ok()??;
                Some((node.name.clone(), status.to_string()))
            });
            if let Some((node, status)) = ended {
                let output = self.tail(&node);
                return Err(ClusterError::Exited {
                    node,
                    status,
                    output,
                });
            }
            let alive = jobs.nodes_alive().await.map_or(0, |nodes| nodes.len());
            if alive > before {
                before = alive;
                step.note(format_args!("node {alive} is alive"));
            }
            if alive >= expected {
                return Ok(());
            }
            if tokio::time::Instant::now() > end {
                return Err(ClusterError::Late {
                    alive,
                    expected,
                    output: self.tail("head"),
                });
            }
            let seconds = step.elapsed().as_secs();
            step.pulse(|| format!("{alive} of {expected} nodes after {seconds} s"));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    fn log(&self, node: &str) -> PathBuf {
        self.dir.join(format!("{node}.log"))
    }

    fn tail(&self, node: &str) -> String {
        let text = fs::read(self.log(node)).unwrap_or_default();
        last_lines(&String::from_utf8_lossy(&text), 12)
    }

    fn io(&self, what: &'static str, source: io::Error) -> ClusterError {
        ClusterError::Io {
            what,
            dir: self.dir.display().to_string(),
            source,
        }
    }
}

/// The last `most` lines of `text`.
pub fn last_lines(text: &str, most: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(most)..].join("\n")
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        self.end(&CancellationToken::new());
    }
}
