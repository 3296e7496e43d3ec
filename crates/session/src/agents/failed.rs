//! The failed tasks that agents keep, and what Ray knows of them ([`failures`](super::failures) stores them).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::broadcast;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::Agents;
use super::failures::Failed;
use super::link::Link;
use ray_relay_base::wire::tunnel::messages::{self, FailureId};
use ray_relay_ray::ray::registry::TaskOf;

/// Deadline of one head for the names of tasks.
const NAMES_TIMEOUT: Duration = Duration::from_secs(20);

impl Agents {
    /// Replaces the failed tasks kept by the agent of `link` with its latest report.
    pub(super) fn update_failures(&self, link: &Arc<Link>, report: messages::Failures) {
        let nodes = link.nodes().clone();
        self.failures.update(link.id, &nodes, &report.tasks);
        link.state.lock().keeps_failures = Some(report.trouble);
    }

    /// Forgets the failed tasks of a link that has ended.
    pub(super) fn lose_failures(&self, link: u64) {
        self.failures.lose(link);
    }

    /// All failed tasks that agents keep, the latest first.
    pub fn failures(&self) -> Vec<Arc<Failed>> {
        self.failures.all()
    }

    /// Subscribes to new failures. Each is sent once Ray has named the task, or will not.
    pub fn failing(&self) -> broadcast::Receiver<Arc<Failed>> {
        self.failures.failing()
    }

    /// Asks Ray to name failed tasks, until `shutdown`.
    pub(super) async fn name_failures(&self, shutdown: CancellationToken) {
        loop {
            let due = self.failures.next_due();
            let wait = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = self.failures.changed() => {}
                () = wait => {
                    let naming = self.name_due();
                    tokio::select! {
                        () = shutdown.cancelled() => return,
                        () = naming => {}
                    }
                }
            }
        }
    }

    async fn name_due(&self) {
        let due = self.failures.take_due(Instant::now());
        let mut by_cluster: HashMap<Arc<str>, Vec<(FailureId, TaskOf)>> = HashMap::new();
        for (id, cluster, task) in due {
            by_cluster.entry(cluster).or_default().push((id, task));
        }
        let queries = by_cluster.into_iter().map(|(cluster, due)| async move {
            let (ids, tasks): (Vec<_>, Vec<_>) = due.into_iter().unzip();
            let found = timeout(NAMES_TIMEOUT, self.registry.tasks_of(&cluster, &tasks)).await;
            let found = found.unwrap_or_else(|_| {
                debug!(%cluster, "its head does not say in time what has failed");
                Vec::new()
            });
            let mut found = found.into_iter();
            for id in ids {
                self.failures.named(id, found.next().flatten());
            }
        });
        join_all(queries).await;
    }
}
