//! `ray start` for one node, in an environment without variables that redirect Ray or Python.
//!
//! Called by [`LocalCluster::start`]. Invariant: each node belongs to the cluster's process group from the moment it
//! runs.

use ray_relay_base::wire::tcp::free_port;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use super::{ClusterError, LocalCluster, Plan};
use crate::venv::Venv;

/// Size of one node's object store, in bytes: Ray's minimum is 75 MiB.
const OBJECT_STORE_BYTES: u32 = 80 * 1024 * 1024;

/// A running `ray start --block`.
pub(crate) struct RayNode {
    /// `head` or `w1`.
    pub(crate) name: String,
    pub(crate) child: Child,
}

impl LocalCluster {
    pub(crate) fn start_head(
        &mut self,
        plan: &Plan<'_>,
        ip: Ipv4Addr,
        resources: &[&str],
    ) -> Result<(), ClusterError> {
        let dashboard_port = self.dashboard.rsplit(':').next().unwrap_or_default();
        let mut args = vec![
            "--head".to_owned(),
            format!("--port={}", self.gcs.port()),
            "--include-dashboard=true".to_owned(),
            "--dashboard-host=127.0.0.1".to_owned(),
            format!("--dashboard-port={dashboard_port}"),
            format!(
                "--ray-client-server-port={}",
                free_port().ok_or(ClusterError::NoPort)?
            ),
        ];
        if ip != Ipv4Addr::LOCALHOST {
            // Ray reads 127.0.0.1 as "the machine's outward address".
            args.push(format!("--node-ip-address={ip}"));
        }
        self.start_node(plan, "head", args, resources)
    }

    pub(crate) fn start_worker(
        &mut self,
        plan: &Plan<'_>,
        name: &str,
        ip: Ipv4Addr,
    ) -> Result<(), ClusterError> {
        let args = vec![
            format!("--address={}", self.gcs),
            format!("--node-ip-address={ip}"),
        ];
        self.start_node(plan, name, args, &[name])
    }

    fn start_node(
        &mut self,
        plan: &Plan<'_>,
        name: &str,
        args: Vec<String>,
        resources: &[&str],
    ) -> Result<(), ClusterError> {
        let log = fs::File::create(self.log(name)).map_err(|e| self.io("make a log", e))?;
        let log_too = log.try_clone().map_err(|e| self.io("make a log", e))?;
        let resources = resources.iter().map(|name| (*name, 1));
        let resources: serde_json::Value = resources.collect();
        let mut command = Command::new(plan.venv.ray());
        clean(&mut command);
        let child = command
            .args(["start", "--block", "--num-cpus=4", "--disable-usage-stats"])
            .args(args)
            .arg(format!("--object-store-memory={OBJECT_STORE_BYTES}"))
            .arg(format!(
                "--dashboard-agent-listen-port={}",
                free_port().ok_or(ClusterError::NoPort)?
            ))
            // Its sockets are below it: the system limits their paths to 107 bytes.
            .arg(format!("--temp-dir={}", self.dir.join(name).display()))
            // Any free port: with several nodes on one machine Ray's fixed ranges would collide.
            .args(["--min-worker-port=0", "--max-worker-port=0"])
            .arg(format!("--resources={resources}"))
            .envs(self.environment.iter().map(|(k, v)| (k, v)))
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(log_too)
            // Not the terminal's group: its Ctrl-C is for this process alone.
            .process_group(0)
            .spawn()
            .map_err(|e| self.io("run `ray start`", e))?;
        self.family.add(child.id());
        self.nodes.push(RayNode {
            name: name.to_owned(),
            child,
        });
        Ok(())
    }
}

/// Removes variables that would redirect Ray or Python.
pub(crate) fn clean(command: &mut Command) {
    let misleading = |name: &str| {
        name.starts_with("RAY_")
            || name.starts_with("PYTHON")
            || name == "VIRTUAL_ENV"
            || name.to_ascii_lowercase().ends_with("_proxy")
    };
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(misleading) {
            command.env_remove(name);
        }
    }
}

pub(crate) fn search_path(venv: &Venv) -> String {
    let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned());
    format!("{}:{path}", venv.dir().join("bin").display())
}
