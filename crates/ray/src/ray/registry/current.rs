//! The current task of a worker that a session holds. A debugger cannot tell an ended task from a busy one, and
//! neither can the row of a worker; the rows of tasks can.

use std::sync::Arc;

use ray_relay_base::timestamp::Timestamp;

use crate::ray::registry::breakpoint::{Breakpoint, Kind};
use crate::ray::registry::clusters::ClusterHandle;
use crate::ray::registry::lookup::of_worker;
use crate::ray::registry::query;
use crate::ray::registry::rows::TaskRow;
use crate::ray::registry::shared::Shared;

/// Queries the state of the task in which a session began. Sends nothing by itself.
#[derive(Clone)]
pub struct CurrentTask {
    shared: Arc<Shared>,
    cluster: Arc<ClusterHandle>,
    breakpoint: Arc<Breakpoint>,
    claim: u64,
    /// A later one of the same worker.
    later: Option<String>,
}

impl CurrentTask {
    pub(super) fn new(
        shared: Arc<Shared>,
        cluster: Arc<ClusterHandle>,
        breakpoint: Arc<Breakpoint>,
        claim: u64,
    ) -> Self {
        Self {
            shared,
            cluster,
            breakpoint,
            claim,
            later: None,
        }
    }

    /// Whether the task has ended and its worker runs no other. Also `false` if the head does not tell: a driver and a
    /// Serve replica have no task, and an overflowing GCS forgets some. Costs one request that the GCS answers from
    /// its index (all versions), and one more if that task has ended. As late as Ray's reports: workers and owners
    /// send theirs once a second each, so one response may come between them.
    pub async fn has_ended(&mut self) -> bool {
        let Some(head) = &self.cluster.head else {
            return false;
        };
        let worker = &self.breakpoint.worker_id;
        let Some(task) = self.id() else {
            return false;
        };
        let mut attempts = match query::task(head, &task).await {
            Ok(list) => of_worker(list.into_rows(), worker),
            Err(error) => {
                tracing::debug!(%error, breakpoint = %self.breakpoint.id, "cannot ask after a task");
                return false;
            }
        };
        attempts.retain(|row| row.task_id == task);
        // Earlier attempts may have failed on this worker as well.
        if attempts.is_empty() || !attempts.iter().all(is_over) {
            return false;
        }
        match query::tasks_of_worker(head, worker).await {
            Ok(list) => {
                let mut rows = of_worker(list.into_rows(), worker).into_iter();
                let next = rows.find(|row| row.state == "RUNNING" && row.task_id != task);
                let ended = next.is_none();
                if !ended {
                    self.over();
                }
                self.later = next.map(|row| row.task_id).or(self.later.take());
                ended
            }
            Err(_) => false,
        }
    }

    /// Marks in the list that the task has ended, while its session has not.
    pub fn over(&self) {
        let (key, claim) = (self.breakpoint.key(), self.claim);
        self.shared
            .change(|state, now| (state.task_ended(self.cluster.slot, key, claim, now), ()));
    }

    /// Whether the stop of `at` is in a task other than the listed one; if so, lists that task. `None` if Ray has
    /// reported neither yet. Costs one request.
    pub(crate) async fn stopped_in_another(&mut self, at: Timestamp) -> Option<bool> {
        let head = self.cluster.head.as_ref()?;
        let snapshot = self.shared.snapshot();
        let listed = snapshot.find(self.breakpoint.id)?.names.task_id.clone()?;
        let worker = &self.breakpoint.worker_id;
        let rows = match query::tasks_of_worker(head, worker).await {
            Ok(list) => of_worker(list.into_rows(), worker),
            Err(error) => {
                tracing::debug!(%error, breakpoint = %self.breakpoint.id, "cannot ask for the task of a stop");
                return None;
            }
        };
        let mut running = rows.iter().filter(|row| row.state == "RUNNING").peekable();
        running.peek()?;
        if running.any(|row| row.task_id == listed) {
            return Some(false);
        }
        let (key, claim) = (self.breakpoint.key(), self.claim);
        self.shared
            .change(|state, now| (state.next_task(self.cluster.slot, key, claim, at, now), ()));
        self.cluster.lookup_now.notify_one();
        self.later = None;
        Some(true)
    }

    /// The task to query. Its id may have become known since the session began.
    fn id(&self) -> Option<String> {
        match self.breakpoint.kind {
            Kind::Debugpy => {}
            // Its session ends when the task continues.
            Kind::Pdb => return None,
        }
        let known = || {
            let snapshot = self.shared.snapshot();
            let breakpoint = snapshot.find(self.breakpoint.id)?;
            breakpoint.names.task_id.clone()
        };
        self.later.clone().or_else(known)
    }
}

impl std::fmt::Debug for CurrentTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CurrentTask")
            .field("breakpoint", &self.breakpoint.id)
            .field("later", &self.later)
            .finish_non_exhaustive()
    }
}

fn is_over(row: &TaskRow) -> bool {
    matches!(row.state.as_str(), "FINISHED" | "FAILED")
}
