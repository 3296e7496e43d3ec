//! Tasks that have failed and whose stacks agents keep: which there are, and what they are called by Ray's word.
//!
//! What a worker says of itself is not believed: a task belongs to a job, and is shown by rules about jobs and names, as Ray
//! lists that task for that worker. Until Ray has said so, and where it does not, nothing is known of it, and only who may
//! see everything on its node sees it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::{Notify, broadcast};
use tokio::time::Instant;
use tracing::warn;

use ray_relay_base::wire::text::base32;
use ray_relay_base::wire::tunnel::messages::{FailedTask, FailureId, MAX_AGENT_FAILURES};
use ray_relay_ray::ray::registry::{Location, Names, RayNode, Running, TaskOf, What};

/// Of all agents together.
const MAX_FAILURES: usize = 16_384;

/// After how long Ray is asked what a task is called, and asked again: it lists tasks a second late.
const ASKED: [Duration; 4] = [
    Duration::from_millis(1500),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];

/// Tasks that Ray is asked about at a time.
const AT_A_TIME: usize = 32;

/// What failed longer ago is no news: its agent was linked before.
const NEWS: Duration = Duration::from_secs(60);

/// News that wait for who tells them.
const MAX_QUEUED_FAILURES: usize = 256;

/// A task that has failed.
#[derive(Debug, Clone)]
pub struct Failed {
    /// What people call it.
    pub id: String,
    pub(super) failure: FailureId,
    /// Ray's id of it, as its worker says.
    task_id: String,
    /// What it was, as far as Ray has said.
    pub task: Running,
    /// When, by the clock of this machine.
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
    /// How often Ray was asked for it, and when it is asked again; `None`: nothing more is to be learnt.
    ask: Option<(usize, Instant)>,
    is_news: bool,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Failures {
    entries: Mutex<HashMap<FailureId, FailureEntry>>,
    /// There is one that Ray is to be asked about.
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

/// As people read and type it, like the id of a breakpoint.
fn id(failure: FailureId) -> String {
    let bits = failure
        .0
        .iter()
        .fold(0, |bits: u64, byte| bits << 8 | u64::from(*byte));
    let text = base32::<8>(bits);
    std::str::from_utf8(&text).unwrap_or_default().to_owned()
}

impl Failed {
    fn of(told: &FailedTask, node: &RayNode, now: SystemTime) -> Self {
        let ago = Duration::from_millis(told.ago_ms);
        Self {
            id: id(told.id),
            failure: told.id,
            task_id: told.task_id.to_string(),
            task: Running {
                cluster: Arc::clone(&node.cluster),
                what: What::Task,
                // Its worker's word, for people: no rule is about it.
                group: told.function.to_string(),
                names: Names::default(),
                node_id: node.node_id.to_string(),
                node_ip: Some(node.address),
                worker_id: told.worker_id.to_string(),
                pid: Some(told.pid),
                started: None,
            },
            at: now.checked_sub(ago).unwrap_or(now),
            exception: told.exception.to_string(),
            location: Location::told(&told.file, told.line.into(), &told.function),
        }
    }
}

impl Failures {
    /// What the agent of `link`, which speaks for `nodes`, says is all that it keeps.
    pub(super) fn hear(&self, link: u64, nodes: &[RayNode], told: &[FailedTask]) {
        let (now, at) = (Instant::now(), SystemTime::now());
        let kept: HashSet<FailureId> = told.iter().map(|task| task.id).collect();
        let mut entries = self.entries.lock();
        entries.retain(|id, entry| entry.link != link || kept.contains(id));
        for task in told.iter().take(MAX_AGENT_FAILURES) {
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
                ask: Some((0, now + ASKED[0])),
                is_news: task.ago_ms < NEWS.as_millis() as u64,
            });
            // A newer link of the same agent's.
            entry.link = link;
        }
        drop(entries);
        self.unnamed.notify_one();
    }

    /// What the agent of `link` keeps cannot be had any more.
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

    /// Resolves when there may be one that Ray is to be asked about. Cancel safe.
    pub(super) async fn heard(&self) {
        self.unnamed.notified().await;
    }

    /// How many are kept by the agent of that link.
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

    /// Those that are due, with what Ray is asked about each.
    pub(super) fn take_due(&self, now: Instant) -> Vec<(FailureId, Arc<str>, TaskOf)> {
        let entries = self.entries.lock();
        let due = entries
            .iter()
            .filter(|(_, entry)| entry.ask.is_some_and(|(_, at)| at <= now));
        due.take(AT_A_TIME)
            .map(|(id, entry)| {
                let task = &entry.failed.task;
                let wanted = TaskOf {
                    task_id: entry.failed.task_id.clone(),
                    worker_id: task.worker_id.clone(),
                    node_id: task.node_id.clone(),
                };
                (*id, Arc::clone(&task.cluster), wanted)
            })
            .collect()
    }

    /// Takes in what Ray has said of one; `None`: nothing yet.
    pub(super) fn named(&self, id: FailureId, found: Option<Running>) {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(&id) else {
            return;
        };
        let (times, _) = entry.ask.unwrap_or((ASKED.len(), Instant::now()));
        let next = ASKED
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
        let told = |id: u8, node_id: &str| FailedTask {
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
        let own = [node("a1", "10.0.0.1")];
        failures.hear(1, &own, &[told(1, "b2"), told(2, "a1")]);
        let all = failures.all();
        let listed: Vec<_> = all.iter().map(|failed| &*failed.task.node_id).collect();
        assert_eq!(listed, ["a1"]);
    }
}
