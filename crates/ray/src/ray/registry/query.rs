//! The queries that the registry sends to a head, one function each, with the recorded quirks of
//! Ray 2.9 to 2.60 in one place.
//!
//! Filters that the GCS itself evaluates (from 2.38: exactly `num_paused_threads != 0` and
//! `is_alive = True`; for tasks `state` and `job_id`) keep a response cheap and right beyond
//! 10,000 rows; all others are applied by the dashboard after a cut at 10,000.

use std::fmt::Write;
use std::hash::{DefaultHasher, Hasher};
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::ray::head::{HeadAnswer as Body, HeadClient, HeadError};
use crate::ray::registry::bounded::FirstRows;
use crate::ray::registry::rows::{
    ActorRow, Envelope, JobRow, MAX_QUERY_ROWS, NodeRow, ObjectRow, QueryResult, TaskRow,
    TrainRunRow, TrainRuns, Version, WorkerRow,
};
use ray_relay_base::wire::text::{one_line, percent_encoded};

type Answer<T> = Result<QueryResult<T>, HeadError>;

/// Live workers with waiting threads; older Ray also returns ones with none. To be parsed with [`read`].
pub(super) async fn paused_workers(head: &HeadClient) -> Result<Body, HeadError> {
    let filters = [
        ("num_paused_threads", "%21%3D", "0"),
        ("is_alive", "%3D", "True"),
    ];
    head.get(&path("workers", &filters)).await
}

/// Every worker that ever stopped, including dead ones.
pub(super) async fn stopped_workers(head: &HeadClient) -> Answer<WorkerRow> {
    list(head, "workers", &[("debugger_port", "%21%3D", "0")]).await
}

/// One worker, dead or alive.
pub(super) async fn worker(head: &HeadClient, worker_id: &str) -> Answer<WorkerRow> {
    list(head, "workers", &[("worker_id", "%3D", worker_id)]).await
}

/// The live workers with that process id, of every node.
pub(super) async fn workers_of_process(head: &HeadClient, pid: u32) -> Answer<WorkerRow> {
    let pid = pid.to_string();
    let filters = [("is_alive", "%3D", "True"), ("pid", "%3D", pid.as_str())];
    list(head, "workers", &filters).await
}

/// All live workers.
pub(super) async fn live_workers(head: &HeadClient) -> Answer<WorkerRow> {
    list(head, "workers", &[("is_alive", "%3D", "True")]).await
}

/// All dead workers that Ray still lists.
pub(super) async fn dead_workers(head: &HeadClient) -> Answer<WorkerRow> {
    list(head, "workers", &[("is_alive", "%3D", "False")]).await
}

/// The last `lines` of a worker's standard error.
pub(super) async fn errors_of_worker(
    head: &HeadClient,
    worker: &WorkerRow,
    lines: usize,
) -> Result<String, HeadError> {
    let (node, pid) = (
        percent_encoded(&worker.node_id),
        worker.pid.unwrap_or_default(),
    );
    let path = format!("/api/v0/logs/file?node_id={node}&pid={pid}&suffix=err&lines={lines}");
    head.get_text(&path).await
}

/// All nodes, including dead ones.
pub(super) async fn nodes(head: &HeadClient) -> Answer<NodeRow> {
    list(head, "nodes", &[]).await
}

/// The running tasks of one worker. Both filters are needed: `worker_id` alone silently finds
/// nothing beyond 10,000 tasks.
pub(super) async fn tasks_of_worker(head: &HeadClient, worker_id: &str) -> Answer<TaskRow> {
    let filters = [("worker_id", "%3D", worker_id), ("state", "%3D", "RUNNING")];
    list(head, "tasks", &filters).await
}

/// One task, every attempt. The GCS itself filters by the id (2.9 to 2.60).
pub(super) async fn task(head: &HeadClient, task_id: &str) -> Answer<TaskRow> {
    list(head, "tasks", &[("task_id", "%3D", task_id)]).await
}

/// Each process's view of one object: the head queries every worker of the cluster for it.
pub(super) async fn object(head: &HeadClient, object_id: &str) -> Answer<ObjectRow> {
    list(head, "objects", &[("object_id", "%3D", object_id)]).await
}

/// The rows of all running tasks.
pub(super) async fn running_tasks(head: &HeadClient) -> Answer<TaskRow> {
    list(head, "tasks", &[("state", "%3D", "RUNNING")]).await
}

/// The running tasks of one job, for when all together exceed one response.
pub(super) async fn running_tasks_of_job(head: &HeadClient, job_id: &str) -> Answer<TaskRow> {
    let filters = [("job_id", "%3D", job_id), ("state", "%3D", "RUNNING")];
    list(head, "tasks", &filters).await
}

/// The running tasks of one worker, where the job is known: the only way beyond 10,000 tasks
/// before Ray 2.38.
pub(super) async fn tasks_of_job(
    head: &HeadClient,
    job_id: &str,
    worker_id: &str,
) -> Answer<TaskRow> {
    let filters = [
        ("job_id", "%3D", job_id),
        ("worker_id", "%3D", worker_id),
        ("state", "%3D", "RUNNING"),
    ];
    list(head, "tasks", &filters).await
}

/// The tasks of one actor, in any state.
pub(super) async fn tasks_of_actor(
    head: &HeadClient,
    job_id: &str,
    actor_id: &str,
) -> Answer<TaskRow> {
    let filters = [("job_id", "%3D", job_id), ("actor_id", "%3D", actor_id)];
    list(head, "tasks", &filters).await
}

/// The live actor of a process.
pub(super) async fn actor_of_process(
    head: &HeadClient,
    node_id: &str,
    pid: u32,
) -> Answer<ActorRow> {
    let pid = pid.to_string();
    let filters = [("pid", "%3D", pid.as_str()), ("node_id", "%3D", node_id)];
    list(head, "actors", &filters).await
}

/// The row of one actor.
pub(super) async fn actor(head: &HeadClient, actor_id: &str) -> Answer<ActorRow> {
    list(head, "actors", &[("actor_id", "%3D", actor_id)]).await
}

/// All live actors.
pub(super) async fn actors(head: &HeadClient) -> Answer<ActorRow> {
    list(head, "actors", &[("state", "%3D", "ALIVE")]).await
}

/// The dead actors of a job that Ray still lists.
pub(super) async fn dead_actors(head: &HeadClient, job_id: &str) -> Answer<ActorRow> {
    let filters = [("job_id", "%3D", job_id), ("state", "%3D", "DEAD")];
    list(head, "actors", &filters).await
}

/// All jobs. `/api/jobs/` rather than `/api/v0/jobs`: that one has no `runtime_env` before 2.38.
pub(super) async fn jobs(head: &HeadClient) -> Result<Vec<JobRow>, HeadError> {
    let jobs: FirstRows<JobRow, { MAX_QUERY_ROWS as usize }> = head.get_json("/api/jobs/").await?;
    Ok(jobs.read)
}

/// The runs of Ray Train, the latest first; none if it is not used, or is Train v1. The first such query makes the head
/// start a driver of its own, so send it only where Ray Train runs, or for a name that nothing else has.
pub(super) async fn train_runs(head: &HeadClient) -> Result<Vec<TrainRunRow>, HeadError> {
    match head.get_json::<TrainRuns>("/api/train/v2/runs/v1").await {
        Ok(runs) => Ok(runs.train_runs.read),
        Err(HeadError::Status { status, words, .. }) if has_no_train(status, &words) => {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

/// Whether a head answers a query for runs so because Ray Train is not used: old ones with 404, others with 500 and
/// "Train is not installed" or "Train state data is not available".
fn has_no_train(status: u16, words: &str) -> bool {
    status == 404
        || ["Train is not", "Train state data is not"]
            .iter()
            .any(|known| words.contains(known))
}

/// The runs of Ray Train, as far as the head tells: for names, which are optional.
pub(super) async fn known_train_runs(head: &HeadClient) -> Vec<TrainRunRow> {
    train_runs(head).await.unwrap_or_else(|error| {
        tracing::debug!(%error, "the head lists no runs of Ray Train");
        Vec::new()
    })
}

/// The Ray version of the head.
pub(super) async fn version(head: &HeadClient) -> Result<String, HeadError> {
    let version: Version = head.get_json("/api/version").await?;
    Ok(one_line(&version.ray_version))
}

/// py-spy's dump of a worker. Needs no attach and opens no debugger port.
pub(super) async fn traceback(
    head: &HeadClient,
    ip: std::net::IpAddr,
    pid: u32,
) -> Result<String, HeadError> {
    head.get_text(&format!(
        "/worker/traceback?pid={pid}&ip={}",
        percent_encoded(&ip.to_string())
    ))
    .await
}

/// The last `lines` of the error log of an actor's worker, dead or alive. Ray waits for its node for `patience`.
pub(super) async fn error_log(
    head: &HeadClient,
    actor_id: &str,
    lines: u32,
    patience: Duration,
) -> Result<String, HeadError> {
    let seconds = patience.as_secs();
    head.get_text(&format!(
        "/api/v0/logs/file?actor_id={}&suffix=err&lines={lines}&timeout={seconds}",
        percent_encoded(actor_id)
    ))
    .await
}

async fn list<T>(head: &HeadClient, table: &str, filters: &[(&str, &str, &str)]) -> Answer<T>
where
    T: DeserializeOwned + Send + 'static,
{
    let body = head.get(&path(table, filters)).await?;
    read(head, body).await
}

fn path(table: &str, filters: &[(&str, &str, &str)]) -> String {
    let mut path = format!("/api/v0/{table}?detail=1&limit={MAX_QUERY_ROWS}");
    for (key, predicate, value) in filters {
        // Writing to a String cannot fail.
        let _ = write!(
            path,
            "&filter_keys={key}&filter_predicates={predicate}&filter_values={}",
            percent_encoded(value)
        );
    }
    path
}

/// Parses the list in `body`, a response of the State API.
async fn read<T>(head: &HeadClient, body: Body) -> Answer<T>
where
    T: DeserializeOwned + Send + 'static,
{
    let envelope: Envelope<T> = head.parse(body).await?;
    listed(head, envelope)
}

/// Parses the list in `body`, and computes its digest; `None` if that equals `known`.
pub(super) async fn news<T>(
    head: &HeadClient,
    body: Body,
    known: Option<AnswerDigest>,
) -> Result<Option<(QueryResult<T>, AnswerDigest)>, HeadError>
where
    T: DeserializeOwned + Send + 'static,
{
    let read = move |body: &[u8]| {
        let digest = AnswerDigest::of(body);
        if known == Some(digest) {
            return Ok(None);
        }
        let envelope = serde_json::from_slice::<Envelope<T>>(body);
        let envelope = envelope.map_err(|error| error.to_string())?;
        Ok(Some((envelope, digest)))
    };
    match head.read(body, read).await? {
        Some((envelope, digest)) => Ok(Some((listed(head, envelope)?, digest))),
        None => Ok(None),
    }
}

fn listed<T>(head: &HeadClient, envelope: Envelope<T>) -> Answer<T> {
    envelope.into_list().map_err(|msg| HeadError::Status {
        address: head.address().to_owned(),
        status: 200,
        words: one_line(&msg),
    })
}

/// A digest of a response: storing the response would take as much memory as it has bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AnswerDigest(usize, u64);

impl AnswerDigest {
    fn of(body: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write(body);
        Self(body.len(), hasher.finish())
    }
}
