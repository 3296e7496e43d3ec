//! Additional queries of a head for a diagnosis: more than polls send, and once.
//!
//! Every request has the deadline of the registry's, and the search through logs one of its own. It connects to no
//! debugger.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::timeout;

use crate::ray::head::{HeadClient, HeadError};
use crate::ray::registry::clusters::ClusterHandle;
use crate::ray::registry::query;
use crate::ray::registry::rows::WorkerRow;
use ray_relay_base::wire::text::one_line;

/// Printed by a worker that cannot stop at a breakpoint, on every Ray from 2.9 to 2.60 (`ray/util/debugpy.py`).
const WITHOUT_DEBUGPY: &str = "debugpy>=1.8.0' cannot be loaded";

/// Workers per node whose logs are searched, and workers of all nodes together.
const MAX_WORKERS_PER_NODE: usize = 4;
const MAX_WORKERS: usize = 64;

/// Concurrent reads of logs, the number of last lines of each, and the deadline of all.
const MAX_LOG_READS: usize = 4;
const LOG_LINES: usize = 200;
const SEARCH_TIMEOUT: Duration = Duration::from_secs(4);

/// Jobs whose environment is checked.
const MAX_JOBS: usize = 1000;

/// One cluster's head, with its responses.
#[derive(Debug)]
pub struct Examined {
    /// Name of the cluster in the configuration.
    pub cluster: Arc<str>,
    /// The Ray version of the head.
    pub version: Result<String, HeadError>,
    /// `token` or `disabled`; `None` before Ray 2.52, which has no authentication.
    pub authentication: Option<String>,
    /// Whether its State API returns the nodes.
    pub state_api: Result<(), HeadError>,
    /// Whether the GCS responds, and its address; `None` if the relay knows none.
    pub gcs: Option<(String, bool)>,
    /// Running jobs with `RAY_DEBUG` in their environment, and its value.
    pub modes: Vec<(String, String)>,
    /// Nodes whose workers reported skipped breakpoints for lack of debugpy.
    pub without_debugpy: Vec<IpAddr>,
}

/// Queries the head of `cluster`; `None` if there is none.
pub(super) async fn examine(cluster: &ClusterHandle) -> Option<Examined> {
    let head = cluster.head.as_ref()?;
    let gcs = async {
        let gcs = cluster.gcs.as_ref()?;
        Some((gcs.address().to_owned(), gcs.is_there().await))
    };
    let (version, authentication, nodes, gcs, modes, without_debugpy) = tokio::join!(
        query::version(head),
        authentication(head),
        query::nodes(head),
        gcs,
        modes(head),
        without_debugpy(head),
    );
    Some(Examined {
        cluster: Arc::clone(&cluster.name),
        version,
        authentication,
        state_api: nodes.map(|_| ()),
        gcs,
        modes,
        without_debugpy,
    })
}

async fn authentication(head: &HeadClient) -> Option<String> {
    let answer: Value = head.get_json("/api/authentication_mode").await.ok()?;
    Some(one_line(answer.get("authentication_mode")?.as_str()?))
}

async fn modes(head: &HeadClient) -> Vec<(String, String)> {
    let jobs: Vec<Value> = head.get_json("/api/jobs/").await.unwrap_or_default();
    let runs = |job: &&Value| {
        let status = job.get("status").and_then(Value::as_str);
        matches!(status, Some("RUNNING" | "PENDING"))
    };
    let mode = |job: &Value| {
        let mode = job.pointer("/runtime_env/env_vars/RAY_DEBUG")?.as_str()?;
        let ids = ["job_id", "submission_id"].into_iter();
        let id = ids.filter_map(|key| job.get(key)?.as_str()).next()?;
        Some((one_line(id), one_line(mode)))
    };
    jobs.iter()
        .filter(runs)
        .filter_map(mode)
        .take(MAX_JOBS)
        .collect()
}

/// Searches the standard error of live workers: no API of Ray reports a skipped breakpoint.
async fn without_debugpy(head: &HeadClient) -> Vec<IpAddr> {
    let found = Mutex::new(BTreeSet::new());
    let search = async {
        let Ok(workers) = query::live_workers(head).await else {
            return;
        };
        let logs = stream::iter(some_of_each_node(workers.into_rows()));
        logs.for_each_concurrent(MAX_LOG_READS, async |(ip, worker)| {
            let log = query::errors_of_worker(head, &worker, LOG_LINES).await;
            if log.is_ok_and(|log| log.contains(WITHOUT_DEBUGPY)) {
                found.lock().insert(ip);
            }
        })
        .await;
    };
    // Results found before the timeout count.
    let _ = timeout(SEARCH_TIMEOUT, search).await;
    found.into_inner().into_iter().collect()
}

/// The latest processes of each node: an old process shows an old setup.
fn some_of_each_node(workers: Vec<WorkerRow>) -> Vec<(IpAddr, WorkerRow)> {
    let mut nodes: BTreeMap<String, Vec<(IpAddr, WorkerRow)>> = BTreeMap::new();
    for worker in workers {
        let Ok(ip) = worker.ip.parse() else {
            continue;
        };
        // A driver's output is on its terminal; a worker with a port has debugpy.
        if !worker.is_driver() && worker.pid.is_some() && worker.debugger_port.is_none() {
            let of_node = nodes.entry(worker.node_id.clone()).or_default();
            of_node.push((ip, worker));
        }
    }
    let latest = nodes.into_values().flat_map(|mut of_node| {
        of_node.sort_by_key(|(_, worker)| std::cmp::Reverse(worker.pid));
        of_node.truncate(MAX_WORKERS_PER_NODE);
        of_node
    });
    latest.take(MAX_WORKERS).collect()
}
