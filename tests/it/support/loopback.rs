//! A Ray cluster on loopback addresses of this machine, as the demo has one: it needs neither root nor namespaces.
//!
//! A process of its own holds it, and takes it down when its standard input ends: nothing is left whatever way the tests end.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use ray_relay_access::telemetry::progress::PreparationClock;
use ray_relay_cluster::processes::adopt_orphans;
use ray_relay_cluster::{LocalCluster, Plan};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::namespaces::Cluster;
use super::ray;

/// The address of its head; workers have the next ones.
pub(super) const HEAD_IP: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Tells a process that it is to hold a cluster.
const HOLDER_ENV: &str = "RAY_RELAY_TEST_HOLDS_CLUSTER";

/// The way to a cluster, as the process that holds it prints it.
#[derive(Serialize, Deserialize)]
pub(super) struct Loopback {
    pub(super) dir: PathBuf,
    pub(super) dashboard: String,
    pub(super) gcs: String,
    pub(super) token: String,
    /// Variables for all that runs beside it; those without a value are removed.
    environment: Vec<(String, Option<String>)>,
}

impl Loopback {
    pub(super) fn exec(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        for (name, value) in &self.environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.stdin(Stdio::null());
        command
    }
}

/// Starts a cluster that the test `holder` of this binary holds. `None` (and a message) without a Python for it.
pub(crate) fn start(holder: &str) -> Option<Cluster> {
    let venv = ray::environment(ray::NEWEST)?;
    let mut hold = Command::new(std::env::current_exe().unwrap())
        .args([holder, "--exact", "--ignored", "--nocapture"])
        .env(HOLDER_ENV, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let lines = BufReader::new(hold.stdout.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok);
    let loopback = lines.find_map(|line| serde_json::from_str(&line).ok());
    // Its pipe has to stay open and be read.
    std::thread::spawn(move || lines.for_each(drop));
    Some(Cluster::on_loopback(
        loopback.expect("the cluster did not come up"),
        venv,
        hold,
    ))
}

/// Holds a cluster where this process is to, until its standard input ends.
pub(crate) async fn hold() {
    if std::env::var_os(HOLDER_ENV).is_none() {
        return;
    }
    let venv = ray::environment(ray::NEWEST).unwrap();
    adopt_orphans();
    let plan = Plan {
        venv: &venv,
        ray: ray::NEWEST,
        workers: 2,
        env: &[],
    };
    let progress = PreparationClock::new("it: loopback");
    let cluster = LocalCluster::start(plan, &progress).await.unwrap();
    let command = cluster.command("ray");
    let text = |text: &std::ffi::OsStr| text.to_str().unwrap().to_owned();
    let environment = command
        .get_envs()
        .map(|(name, value)| (text(name), value.map(text)));
    let loopback = Loopback {
        dir: cluster.dir().to_path_buf(),
        dashboard: cluster.dashboard().to_owned(),
        gcs: cluster.gcs().to_string(),
        token: std::fs::read_to_string(cluster.token_file().unwrap()).unwrap(),
        environment: environment.collect(),
    };
    let line = serde_json::to_string(&loopback).unwrap();
    // Below the line that libtest begins.
    println!("\n{line}");
    std::io::stdout().flush().unwrap();
    let held = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    _ = held.await;
    assert_eq!(cluster.stop(&CancellationToken::new()), Vec::<i32>::new());
}
