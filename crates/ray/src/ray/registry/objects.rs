//! Objects that are waited for: whose they are and what becomes of them, asked of the head when a person wants to know.
//!
//! The id of an object begins with that of the task that makes it or has put it. Its owner, which has submitted that task, is
//! the one process that tells a status of it: those that were only given it say `NIL`.

use std::net::IpAddr;

use crate::ray::head::{HeadClient, HeadError};
use crate::ray::registry::clusters::ClusterHandle;
use crate::ray::registry::query;
use crate::ray::registry::rows::{JobRow, ObjectRow, address};
use crate::ray::registry::running::{self, Running};

/// Hex digits of a task's id.
const TASK: usize = 48;

/// What a process tells of an object that it does not own.
const NOT_ITS: &str = "NIL";

/// One object, as Ray knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectState {
    /// Ray's id of it (hex).
    pub object_id: String,
    /// The task that makes it or has put it, and Ray's word for its state; `None`: Ray lists none, or not any more.
    pub task: Option<(Running, String)>,
    /// Its owner, and Ray's word for the state of the task by the owner's account; `None`: no process says that it is its.
    pub owner: Option<(OwnedBy, String)>,
    /// Ray has told all that there is, so that what is not there is not there.
    pub complete: bool,
}

/// A process that owns objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnedBy {
    /// The address of its node, where Ray says it.
    pub ip: Option<IpAddr>,
    /// Its process id there, where Ray says it.
    pub pid: Option<u32>,
}

/// Asks the head of `cluster`.
pub(super) async fn ask(
    cluster: &ClusterHandle,
    ids: &[String],
) -> Vec<Result<ObjectState, String>> {
    let Some(head) = &cluster.head else {
        return Vec::new();
    };
    // It is never closed.
    let Ok(_turn) = cluster.listings.acquire().await else {
        return Vec::new();
    };
    let jobs = query::jobs(head).await.unwrap_or_default();
    let mut all = Vec::new();
    for id in ids {
        let asked = object(head, cluster, &jobs, id).await;
        all.push(asked.map_err(|error| error.to_string()));
    }
    all
}

async fn object(
    head: &HeadClient,
    cluster: &ClusterHandle,
    jobs: &[JobRow],
    id: &str,
) -> Result<ObjectState, HeadError> {
    let by = id.get(..TASK).unwrap_or(id);
    let (rows, tasks) = tokio::join!(query::object(head, id), query::task(head, by));
    let (rows, tasks) = (rows?, tasks?);
    let complete = !rows.truncated();
    // The last of its attempts.
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
