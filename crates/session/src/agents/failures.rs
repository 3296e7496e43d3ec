//! Failed tasks whose stacks agents keep, with their names according to Ray.
//!
//! A worker's own report is not trusted: the policy judges a failed task by the job and name that Ray lists for that
//! worker. Until Ray has listed it, or if it never does, only those who may see everything on its node see the task.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::{Notify, broadcast};
use tokio::time::Instant;
use tracing::warn;

use ray_relay_base::wire::text::base32;
use ray_relay_base::wire::tunnel::messages::{FailedTask, FailureId, MAX_AGENT_FAILURES};
use ray_relay_ray::ray::registry::{Location, Names, RayNode, Running, TaskOf, WorkKind};

/// Largest number of failed tasks, of all agents together.
const MAX_FAILURES: usize = 16_384;

/// Delays before Ray is asked for a task's name, first and again: it lists tasks a second late.
const NAME_QUERY_DELAYS: [Duration; 4] = [
    Duration::from_millis(1500),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];

/// Tasks in one query to Ray.
const MAX_TASKS_PER_QUERY: usize = 32;

/// Older failures are not announced: their agent was linked before.
const MAX_NEWS_AGE: Duration = Duration::from_secs(60);

/// Queue of announced failures for each subscriber.
const MAX_QUEUED_FAILURES: usize = 256;

/// A task that has failed.
#[derive(Debug, Clone)]
pub struct Failed {
    /// The id shown to users.
    pub id: String,
    pub(super) failure: FailureId,
    /// Ray's task id, as reported by the worker.
    task_id: String,
    /// The task, as far as Ray has named it.
    pub task: Running,
    /// Time of the failure, by this machine's clock.
    pub at: SystemTime,
    /// The type of the exception.
    pub exception: String,
    /// Where it was raised.
    pub location: Option<Location>,
}

#[derive(Debug)]
struct FailureEntry {
    link: u64,
    failed: Arc<Failed>,
    /// Attempts so far and when the next is due; `None`: no more.
    ask: Option<(usize, Instant)>,
    is_news: bool,
}

/// All failed tasks of linked agents.
#[derive(Debug)]
pub(super) struct Failures {
    entries: Mutex<HashMap<FailureId, FailureEntry>>,
    /// Signals that a task may need a name.
    unnamed: Notify,
    news: broadcast::Sender<Arc<Failed>>,
}

impl Default for Failures {
    fn default() -> Self {
        Self {
            entries: Mutex::default(),
            unnamed: Notify::new(),
            news: broadcast::Sender::new(MAX_QUEUED_FAILURES),
        }
    }
}

/// Formats an id as users read and type it, like a breakpoint's id.
fn id(failure: FailureId) -> String {
    let bits = failure
        .0
        .iter()
        .fold(0, |bits: u64, byte| bits << 8 | u64::from(*byte));
    let text = base32::<8>(bits);
    std::str::from_utf8(&text).unwrap_or_default().to_owned()
}

impl Failed {
    fn of(report: &FailedTask, node: &RayNode, now: SystemTime) -> Self {
        let ago = Duration::from_millis(report.ago_ms);
        Self {
            id: id(report.id),
            failure: report.id,
            task_id: report.task_id.to_string(),
            task: Running {
                cluster: Arc::clone(&node.cluster),
                what: WorkKind::Task,
                // Reported by the worker, for display only: no rule matches on it.
                group: report.function.to_string(),
                names: Names::default(),
                node_id: node.node_id.to_string(),
                node_ip: Some(node.address),
                worker_id: report.worker_id.to_string(),
                pid: Some(report.pid),
                started: None,
            },
            at: now.checked_sub(ago).unwrap_or(now),
            exception: report.exception.to_string(),
            location: Location::reported(&report.file, report.line.into(), &report.function),
        }
    }
}

impl Failures {
    /// Replaces the tasks of the agent behind `link`, which speaks for `nodes`, with its report.
    pub(super) fn update(&self, link: u64, nodes: &[RayNode], reported: &[FailedTask]) {
        let (now, at) = (Instant::now(), SystemTime::now());
        let current: HashSet<FailureId> = reported.iter().map(|task| task.id).collect();
        let mut entries = self.entries.lock();
        entries.retain(|id, entry| entry.link != link || current.contains(id));
        for task in reported.iter().take(MAX_AGENT_FAILURES) {
            let Some(node) = nodes.iter().find(|node| *node.node_id == *task.node_id) else {
                continue;
            };
            if entries.len() >= MAX_FAILURES {
                warn!(
                    most = MAX_FAILURES,
                    "more tasks have failed than are listed"
                );
                break;
            }
            let entry = entries.entry(task.id).or_insert_with(|| FailureEntry {
                link,
                failed: Arc::new(Failed::of(task, node, at)),
                ask: Some((0, now + NAME_QUERY_DELAYS[0])),
                is_news: task.ago_ms < MAX_NEWS_AGE.as_millis() as u64,
            });
            // The agent may have a newer link.
            entry.link = link;
        }
        drop(entries);
        self.unnamed.notify_one();
    }

    /// Forgets the tasks of the agent behind `link`.
    pub(super) fn lose(&self, link: u64) {
        self.entries.lock().retain(|_, entry| entry.link != link);
    }

    /// All, the latest first.
    pub(super) fn all(&self) -> Vec<Arc<Failed>> {
        let entries = self.entries.lock();
        let all = entries.values().map(|entry| Arc::clone(&entry.failed));
        let mut all: Vec<_> = all.collect();
        drop(entries);
        all.sort_by(|a, b| (b.at, &b.id).cmp(&(a.at, &a.id)));
        all
    }

    pub(super) fn failing(&self) -> broadcast::Receiver<Arc<Failed>> {
        self.news.subscribe()
    }

    /// Resolves when a task may need a name. Cancel safe.
    pub(super) async fn changed(&self) {
        self.unnamed.notified().await;
    }

    /// Number of failed tasks kept by the agent of `link`.
    pub(super) fn of(&self, link: u64) -> usize {
        let entries = self.entries.lock();
        entries.values().filter(|entry| entry.link == link).count()
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        let entries = self.entries.lock();
        entries
            .values()
            .filter_map(|entry| Some(entry.ask?.1))
            .min()
    }

    /// The tasks that are due, with the query to Ray for each.
    pub(super) fn take_due(&self, now: Instant) -> Vec<(FailureId, Arc<str>, TaskOf)> {
        let entries = self.entries.lock();
        let due = entries
            .iter()
            .filter(|(_, entry)| entry.ask.is_some_and(|(_, at)| at <= now));
        due.take(MAX_TASKS_PER_QUERY)
            .map(|(id, entry)| {
                let task = &entry.failed.task;
                let query = TaskOf {
                    task_id: entry.failed.task_id.clone(),
                    worker_id: task.worker_id.clone(),
                    node_id: task.node_id.clone(),
                };
                (*id, Arc::clone(&task.cluster), query)
            })
            .collect()
    }

    /// Stores Ray's answer for one task; `None`: Ray does not list it yet.
    pub(super) fn named(&self, id: FailureId, found: Option<Running>) {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(&id) else {
            return;
        };
        let (times, _) = entry
            .ask
            .unwrap_or((NAME_QUERY_DELAYS.len(), Instant::now()));
        let next = NAME_QUERY_DELAYS
            .get(times + 1)
            .map(|pause| (times + 1, Instant::now() + *pause));
        let is_named = found.is_some();
        if let Some(found) = found {
            let task = &entry.failed.task;
            let task = Running {
                node_ip: task.node_ip,
                pid: task.pid,
                node_id: task.node_id.clone(),
                ..found
            };
            entry.failed = Arc::new(Failed {
                task,
                ..Failed::clone(&entry.failed)
            });
        }
        entry.ask = next.filter(|_| !is_named);
        if entry.ask.is_none() && std::mem::take(&mut entry.is_news) {
            // Fails only without a listener.
            _ = self.news.send(Arc::clone(&entry.failed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::testing::node;
    use ray_relay_base::wire::tunnel::text::Hex;

    #[test]
    fn failed_tasks_of_other_nodes_are_ignored() {
        let failed_task = |id: u8, node_id: &str| FailedTask {
            id: Hex([id; 5]),
            node_id: node_id.into(),
            worker_id: "beef".into(),
            task_id: "cafe".into(),
            pid: 7,
            ago_ms: 0,
            exception: "ValueError".into(),
            file: "/job/a.py".into(),
            line: 3,
            function: "step".into(),
        };
        let failures = Failures::default();
        let own_nodes = [node("a1", "10.0.0.1")];
        failures.update(1, &own_nodes, &[failed_task(1, "b2"), failed_task(2, "a1")]);
        let all = failures.all();
        let listed: Vec<_> = all.iter().map(|failed| &*failed.task.node_id).collect();
        assert_eq!(listed, ["a1"]);
    }
}
