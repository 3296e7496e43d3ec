//! Rows of Ray's State API, Ray 2.9 to 2.60: only the columns that the relay uses.
//!
//! Every column may be missing, null or, for numbers, a numeric string: versions differ, and a
//! row with less data must not cost the rest of the list. Nor may one with more: everything stored is bounded
//! ([`crate::ray::registry::bounded`]). Times are milliseconds since 1970;
//! `worker_launch_time_ms` of a driver is `u64::MAX`, so that column is not used.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::ray::registry::bounded::{
    FirstRows, amounts, end, id, lenient, long, millis, number, text, truth,
};
use ray_relay_base::config::collective_timeout_of_job;

/// `{"result": bool, "msg": str, "data": {"result": {…, "result": [row]}}}`
#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "T: DeserializeOwned"))]
pub(super) struct Envelope<T> {
    #[serde(default)]
    pub(super) result: bool,
    #[serde(default, deserialize_with = "text")]
    pub(super) msg: String,
    #[serde(default)]
    data: RowsData<T>,
}

#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "T: DeserializeOwned"))]
struct RowsData<T> {
    #[serde(default)]
    result: Option<QueryResult<T>>,
}

impl<T> Default for RowsData<T> {
    fn default() -> Self {
        Self { result: None }
    }
}

/// The result of one State API query.
#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "T: DeserializeOwned"))]
pub(super) struct QueryResult<T> {
    /// Rows before any limit.
    #[serde(default, deserialize_with = "number")]
    pub(super) total: Option<u64>,
    /// Rows that were left for the filters of the dashboard.
    #[serde(default, deserialize_with = "number")]
    pub(super) num_after_truncation: Option<u64>,
    /// At most [`MAX_QUERY_ROWS`], however many were sent.
    #[serde(default, rename = "result")]
    rows: FirstRows<T, { MAX_QUERY_ROWS as usize }>,
}

impl<T> QueryResult<T> {
    /// Whether absence proves nothing: Ray searched `num_after_truncation` rows of `total` only, or sent more than
    /// were accepted.
    pub(super) fn truncated(&self) -> bool {
        self.is_cut() || self.left_out() > 0
    }

    /// Whether Ray searched `num_after_truncation` rows of `total` only.
    pub(super) fn is_cut(&self) -> bool {
        match (self.total, self.num_after_truncation) {
            (Some(total), Some(seen)) => seen < total && seen >= MAX_QUERY_ROWS,
            _ => false,
        }
    }

    /// Number of rows that were sent and not accepted: beyond [`MAX_QUERY_ROWS`], or too long.
    pub(super) fn left_out(&self) -> usize {
        self.rows.left_out
    }

    /// The valid rows.
    pub(super) fn into_rows(self) -> Vec<T> {
        self.rows.read
    }
}

impl<T> Envelope<T> {
    /// The list, or Ray's message.
    pub(super) fn into_list(self) -> Result<QueryResult<T>, String> {
        match self.data.result {
            Some(list) if self.result => Ok(list),
            _ => Err(self.msg),
        }
    }
}

/// Largest `limit` that the State API accepts (`RAY_MAX_LIMIT_FROM_API_SERVER`), and the number of rows to which the
/// GCS itself cuts a table before filters that it does not know.
pub(super) const MAX_QUERY_ROWS: u64 = 10_000;

/// Most profiling events of one task that are parsed: it has about five.
const MAX_EVENTS: usize = 64;

/// Parses `ip` as written by Ray: IPv6 is bare; brackets are tolerated.
pub(super) fn address(ip: &str) -> Option<IpAddr> {
    let bare = ip.trim_start_matches('[').trim_end_matches(']');
    bare.parse().ok()
}

/// A row of `/api/v0/workers?detail=1`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct WorkerRow {
    #[serde(default, deserialize_with = "id")]
    pub(super) worker_id: String,
    /// Absence counts as alive: only an explicit value makes a worker dead.
    #[serde(default = "yes", deserialize_with = "truth")]
    pub(super) is_alive: bool,
    #[serde(default, deserialize_with = "text")]
    pub(super) worker_type: String,
    #[serde(default, deserialize_with = "text")]
    pub(super) exit_type: String,
    #[serde(default, deserialize_with = "text")]
    pub(super) exit_detail: String,
    #[serde(default, deserialize_with = "id")]
    pub(super) node_id: String,
    #[serde(default, deserialize_with = "text")]
    pub(super) ip: String,
    #[serde(default, deserialize_with = "number")]
    pub(super) pid: Option<u64>,
    #[serde(default, deserialize_with = "number")]
    pub(super) debugger_port: Option<u64>,
    #[serde(default, deserialize_with = "number")]
    pub(super) num_paused_threads: Option<u64>,
    /// When it ended, in milliseconds since 1970.
    #[serde(default, deserialize_with = "millis")]
    pub(super) end_time_ms: Option<u64>,
}

impl WorkerRow {
    /// The address of its debugger, if it is alive and has one.
    pub(super) fn debugger(&self) -> Option<(IpAddr, u16)> {
        let port = self.debugger_port.and_then(|port| u16::try_from(port).ok());
        let port = port.filter(|port| *port != 0 && self.is_alive)?;
        Some((self.address()?, port))
    }

    /// The address of its node.
    pub(super) fn address(&self) -> Option<IpAddr> {
        address(&self.ip)
    }

    /// Threads that wait for a client.
    pub(super) fn paused_threads(&self) -> u32 {
        self.num_paused_threads
            .map_or(0, |count| u32::try_from(count).unwrap_or(u32::MAX))
    }

    pub(super) fn is_driver(&self) -> bool {
        self.worker_type.eq_ignore_ascii_case("DRIVER")
    }
}

/// A row of `/api/v0/nodes?detail=1`.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct NodeRow {
    #[serde(default, deserialize_with = "id")]
    pub(super) node_id: String,
    #[serde(default, deserialize_with = "text")]
    pub(super) node_ip: String,
    #[serde(default, deserialize_with = "text")]
    pub(super) state: String,
    #[serde(default, deserialize_with = "text")]
    pub(super) state_message: String,
}

/// A row of `/api/v0/tasks?detail=1`.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct TaskRow {
    #[serde(default, deserialize_with = "id")]
    pub(super) task_id: String,
    #[serde(default, deserialize_with = "text")]
    pub(super) name: String,
    #[serde(default, deserialize_with = "text")]
    pub(super) func_or_class_name: String,
    #[serde(default, deserialize_with = "text")]
    pub(super) state: String,
    #[serde(default, deserialize_with = "id")]
    pub(super) job_id: String,
    #[serde(default, deserialize_with = "id")]
    pub(super) actor_id: String,
    #[serde(default, deserialize_with = "id")]
    pub(super) worker_id: String,
    #[serde(default, deserialize_with = "id")]
    pub(super) node_id: String,
    #[serde(default, deserialize_with = "number")]
    pub(super) worker_pid: Option<u64>,
    #[serde(default, deserialize_with = "millis")]
    pub(super) start_time_ms: Option<u64>,
    #[serde(default, deserialize_with = "amounts")]
    pub(super) required_resources: Option<BTreeMap<String, f64>>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) runtime_env_info: Option<RuntimeEnvInfo>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) profiling_data: Option<ProfilingData>,
}

/// A row of `/api/v0/objects?detail=1`: one process's view of one object.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(super) struct ObjectRow {
    #[serde(default, deserialize_with = "id")]
    pub(super) object_id: String,
    /// `NIL` except in the process that owns it.
    #[serde(default, deserialize_with = "text")]
    pub(super) task_status: String,
    #[serde(default, deserialize_with = "text")]
    pub(super) ip: String,
    #[serde(default, deserialize_with = "number")]
    pub(super) pid: Option<u64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct RuntimeEnvInfo {
    #[serde(default, deserialize_with = "long")]
    pub(super) serialized_runtime_env: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct ProfilingData {
    #[serde(default)]
    pub(super) events: FirstRows<ProfilingEvent, MAX_EVENTS>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct ProfilingEvent {
    #[serde(default, deserialize_with = "text")]
    pub(super) event_name: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) extra_data: Option<ExtraData>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct ExtraData {
    /// Python's traceback of an exception that left the user's function.
    #[serde(default, deserialize_with = "end")]
    pub(super) traceback: String,
}

/// A row of `/api/v0/actors?detail=1`.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ActorRow {
    #[serde(default, deserialize_with = "id")]
    pub(super) actor_id: String,
    #[serde(default, deserialize_with = "text")]
    pub(super) class_name: String,
    #[serde(default, deserialize_with = "text")]
    pub(super) state: String,
    #[serde(default, deserialize_with = "id")]
    pub(super) job_id: String,
    #[serde(default, deserialize_with = "text")]
    pub(super) name: String,
    #[serde(default, deserialize_with = "id")]
    pub(super) node_id: String,
    #[serde(default, deserialize_with = "number")]
    pub(super) pid: Option<u64>,
    #[serde(default, deserialize_with = "id")]
    pub(super) ray_namespace: String,
    #[serde(default, deserialize_with = "amounts")]
    pub(super) required_resources: Option<BTreeMap<String, f64>>,
    #[serde(default, deserialize_with = "text")]
    pub(super) repr_name: String,
    #[serde(default, deserialize_with = "long")]
    pub(super) serialized_runtime_env: String,
}

/// A row of `/api/jobs/`.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct JobRow {
    #[serde(default, deserialize_with = "id")]
    pub(super) job_id: String,
    #[serde(default, deserialize_with = "id")]
    pub(super) submission_id: String,
    #[serde(default, deserialize_with = "text")]
    pub(super) status: String,
    #[serde(default, deserialize_with = "text")]
    pub(super) entrypoint: String,
    #[serde(default, deserialize_with = "millis")]
    pub(super) start_time: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) runtime_env: Option<RuntimeEnv>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) metadata: Option<JobMetadata>,
}

/// The part of a job's metadata that the relay has written.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct JobMetadata {
    #[serde(default, rename = "ray_relay_submitter", deserialize_with = "text")]
    pub(super) submitter: String,
}

impl JobRow {
    /// Whether it has reached a final state.
    pub(super) fn ended(&self) -> bool {
        matches!(self.status.as_str(), "SUCCEEDED" | "FAILED" | "STOPPED")
    }
}

/// The response of `/api/train/v2/runs/v1`.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct TrainRuns {
    #[serde(default)]
    pub(super) train_runs: FirstRows<TrainRunRow, { MAX_QUERY_ROWS as usize }>,
}

/// Largest number of attempts of one run that are parsed, and of workers of one attempt.
const MAX_TRAIN_ROWS: usize = MAX_QUERY_ROWS as usize;

/// A run of Ray Train.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct TrainRunRow {
    #[serde(default, deserialize_with = "text")]
    pub(super) name: String,
    #[serde(default, deserialize_with = "id")]
    pub(super) job_id: String,
    #[serde(default, deserialize_with = "id")]
    pub(super) controller_actor_id: String,
    #[serde(default)]
    pub(super) attempts: FirstRows<TrainAttemptRow, MAX_TRAIN_ROWS>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct TrainAttemptRow {
    #[serde(default)]
    pub(super) workers: FirstRows<TrainWorkerRow, MAX_TRAIN_ROWS>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(super) struct TrainWorkerRow {
    #[serde(default, deserialize_with = "id")]
    pub(super) actor_id: String,
}

/// Jobs to query one by one if a head has more tasks than one response.
const MAX_JOBS: usize = 20;

/// The running ones of `jobs`, the newest first, as many as may be queried one by one; and whether those are all.
pub(super) fn newest_running(jobs: &[JobRow]) -> (Vec<JobRow>, bool) {
    let runs = |job: &&JobRow| job.status == "RUNNING" && !job.job_id.is_empty();
    let mut running: Vec<&JobRow> = jobs.iter().filter(runs).collect();
    // Job ids count up.
    running.sort_by(|a, b| b.job_id.cmp(&a.job_id));
    let all = running.len() <= MAX_JOBS;
    (running.into_iter().take(MAX_JOBS).cloned().collect(), all)
}

/// The relevant part of a runtime environment: for finding source files, for ranks, and for the relay's own variables.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct RuntimeEnv {
    #[serde(default, deserialize_with = "text")]
    pub(super) working_dir: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) env_vars: Option<EnvVars>,
}

/// The variables of a runtime environment that are used: ranks and group sizes, as named by torch and its launchers,
/// and the relay's own. No other is stored.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct EnvVars {
    #[serde(rename = "RANK", default, deserialize_with = "text")]
    pub(super) rank: String,
    #[serde(rename = "LOCAL_RANK", default, deserialize_with = "text")]
    pub(super) local_rank: String,
    #[serde(rename = "WORLD_SIZE", default, deserialize_with = "text")]
    pub(super) world_size: String,
    #[serde(
        default,
        rename = "RAY_RELAY_COLLECTIVE_TIMEOUT",
        deserialize_with = "text"
    )]
    pub(super) collective_timeout: String,
}

impl RuntimeEnv {
    /// Parses a runtime environment as written into rows by Ray; empty if it is invalid.
    pub(super) fn read(serialized: &str) -> Self {
        serde_json::from_str(serialized).unwrap_or_default()
    }

    /// Whether `working_dir` is a URI: then it is unpacked on the node, and the worker runs inside of it.
    pub(super) fn unpacks(&self) -> bool {
        self.working_dir.contains("://")
    }

    /// The timeout of collectives that the job sets.
    pub(super) fn collective_timeout(&self) -> Option<Duration> {
        collective_timeout_of_job(&self.env_vars.as_ref()?.collective_timeout)
    }
}

/// The response of `/api/version`.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Version {
    #[serde(default, deserialize_with = "text")]
    pub(super) ray_version: String,
}

fn yes() -> bool {
    true
}
