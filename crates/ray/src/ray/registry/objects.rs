//! Objects that tasks wait for: their owners and their state, queried from the head on demand.
//!
//! The id of an object begins with that of the task that creates it or has put it. Its owner, which has submitted that
//! task, is the only process that reports its status: borrowers report `NIL`.

use std::net::IpAddr;

use crate::ray::head::{HeadClient, HeadError};
use crate::ray::registry::clusters::ClusterHandle;
use crate::ray::registry::query;
use crate::ray::registry::rows::{JobRow, ObjectRow, address};
use crate::ray::registry::running::{self, Running};

/// Hex digits of a task's id.
const TASK_ID_DIGITS: usize = 48;

/// Status from a process that does not own the object.
const NOT_ITS: &str = "NIL";

/// One object, according to Ray.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectState {
    /// Ray's id of the object (hex).
    pub object_id: String,
    /// The task that creates it or has put it, and its state in Ray's terms; `None`: Ray lists none, or no longer.
    pub task: Option<(Running, String)>,
    /// Its owner, and the state of the task according to the owner, in Ray's terms; `None`: no process reports itself
    /// as owner.
    pub owner: Option<(OwnedBy, String)>,
    /// Whether Ray's response was complete, so that absence is meaningful.
    pub complete: bool,
}

/// A process that owns objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnedBy {
    /// The address of its node, if Ray reports it.
    pub ip: Option<IpAddr>,
    /// Its process id there, if Ray reports it.
    pub pid: Option<u32>,
}

/// Queries the head of `cluster`.
pub(super) async fn ask(
    cluster: &ClusterHandle,
    ids: &[String],
) -> Vec<Result<ObjectState, String>> {
    let Some(head) = &cluster.head else {
        return Vec::new();
    };
    // The semaphore is never closed.
    let Ok(_turn) = cluster.listings.acquire().await else {
        return Vec::new();
    };
    let jobs = query::jobs(head).await.unwrap_or_default();
    let mut all = Vec::new();
    for id in ids {
        let held = object(head, cluster, &jobs, id).await;
        all.push(held.map_err(|error| error.to_string()));
    }
    all
}

async fn object(
    head: &HeadClient,
    cluster: &ClusterHandle,
    jobs: &[JobRow],
    id: &str,
) -> Result<ObjectState, HeadError> {
    let by = id.get(..TASK_ID_DIGITS).unwrap_or(id);
    let (rows, tasks) = tokio::join!(query::object(head, id), query::task(head, by));
    let (rows, tasks) = (rows?, tasks?);
    let complete = !rows.truncated();
    // The last attempt.
    let tasks = tasks.into_rows();
    let row = tasks.iter().rfind(|row| row.task_id == by);
    let task = match row {
        Some(row) => {
            let task = running::of_row(head, &cluster.name, jobs, row).await;
            task.map(|task| (task, row.state.clone()))
        }
        None => None,
    };
    let is_owner = |row: &&ObjectRow| {
        row.object_id == id && !row.task_status.is_empty() && row.task_status != NOT_ITS
    };
    let rows = rows.into_rows();
    let owner = rows.iter().find(is_owner).map(|row| {
        let owner = OwnedBy {
            ip: address(&row.ip),
            pid: row.pid.and_then(|pid| u32::try_from(pid).ok()),
        };
        (owner, row.task_status.clone())
    });
    Ok(ObjectState {
        object_id: id.to_owned(),
        task,
        owner,
        complete,
    })
}
