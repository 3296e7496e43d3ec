//! Black boxes: what workers have left of failed tasks, stored for relays to fetch.
//!
//! Bounded by tasks, bytes and age, as relays configure it, and fair between jobs. The job of a worker comes from
//! Ray: the worker's own claims are ignored here. The content is values of users' programs: it stays in memory, none
//! of it is logged, and only linked relays can fetch it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use ray_relay_base::wire::tunnel::messages::{
    FailedTask, FailureId, Failures, MAX_AGENT_FAILURES, Name, Node, PostMortem, Sentence,
};

/// Bytes that an agent stores at most, whatever a relay requests.
const MAX_STORED_BYTES: u64 = 256 << 20;

/// The longest period to store them, whatever a relay requests.
const MAX_KEEP_PERIOD: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// How often Ray is asked for the job of one worker.
const MAX_JOB_REQUESTS: u8 = 4;

/// Workers that Ray is asked about between two pauses.
const MAX_ATTRIBUTIONS_PER_PASS: usize = 32;

/// The stored black box of one task.
#[derive(Debug)]
struct BlackBox {
    /// The task. Its `ago_ms` is computed for each report.
    task: FailedTask,
    /// The job of its worker, as far as Ray has told.
    job: Option<String>,
    /// How often Ray was asked for the job.
    attempts: u8,
    at: Instant,
    /// A snapshot, as JSON.
    snapshot: Arc<[u8]>,
}

#[derive(Debug, Default)]
struct Boxes {
    settings: Option<PostMortem>,
    /// The agent's own nodes, as a relay last sent them.
    nodes: Vec<Node>,
    /// In the order of arrival.
    entries: Vec<BlackBox>,
    trouble: Option<Sentence>,
}

/// All black boxes of an agent.
#[derive(Debug)]
pub(super) struct BlackBoxes {
    boxes: Mutex<Boxes>,
    /// Counts changes.
    changes: watch::Sender<u64>,
}

impl BlackBoxes {
    pub(super) fn new() -> Self {
        Self {
            boxes: Mutex::default(),
            changes: watch::Sender::new(0),
        }
    }

    /// Subscribes to changes of the stored boxes and of the settings.
    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Applies a relay's settings for failed tasks on `nodes`.
    pub(super) fn configure(&self, settings: PostMortem, nodes: &[Node]) {
        let settings = PostMortem {
            most: settings.most.min(MAX_AGENT_FAILURES as u32),
            bytes: settings.bytes.min(MAX_STORED_BYTES),
            keep_ms: settings.keep_ms.min(MAX_KEEP_PERIOD.as_millis() as u64),
        };
        self.change(|boxes| {
            let changed = boxes.settings != Some(settings);
            (boxes.settings, boxes.nodes) = (Some(settings), nodes.to_vec());
            boxes.make_room(Instant::now()) || changed
        });
    }

    /// Whether any relay wants black boxes to be stored.
    pub(super) fn are_enabled(&self) -> bool {
        let boxes = self.boxes.lock();
        boxes.settings.is_some_and(|settings| settings.most > 0)
    }

    /// The nodes whose workers are accepted.
    pub(super) fn nodes(&self) -> Vec<Node> {
        self.boxes.lock().nodes.clone()
    }

    /// Sets why workers do not find the agent.
    pub(super) fn set_trouble(&self, trouble: Option<Sentence>) {
        self.change(|boxes| {
            let changed = boxes.trouble != trouble;
            boxes.trouble = trouble;
            changed
        });
    }

    /// Drops expired boxes.
    pub(super) fn forget(&self) {
        self.change(|boxes| boxes.make_room(Instant::now()));
    }

    /// Stores the snapshot `snapshot` of `task`.
    pub(super) fn put(&self, task: FailedTask, snapshot: Vec<u8>) {
        let at = Instant::now();
        let snapshot = snapshot.into();
        self.change(|boxes| {
            let mut previous = boxes.entries.iter().filter(|entry| entry.is_of(&task));
            let job = previous.find_map(|entry| entry.job.clone());
            boxes.entries.push(BlackBox {
                task,
                job,
                attempts: 0,
                at,
                snapshot,
            });
            boxes.make_room(at);
            true
        });
    }

    /// Returns all rows with their current age. `None`: no relay has sent settings.
    pub(super) fn report(&self) -> Option<Failures> {
        let boxes = self.boxes.lock();
        boxes.settings?;
        let row = |entry: &BlackBox| FailedTask {
            ago_ms: entry
                .at
                .elapsed()
                .as_millis()
                .try_into()
                .unwrap_or(u64::MAX),
            ..entry.task.clone()
        };
        Some(Failures {
            tasks: boxes.entries.iter().map(row).collect(),
            trouble: boxes.trouble.clone(),
        })
    }

    /// Returns the snapshot stored as `id` of the worker `worker_id`.
    pub(super) fn snapshot(&self, id: FailureId, worker_id: &Name) -> Option<Arc<[u8]>> {
        let boxes = self.boxes.lock();
        let mut entry = boxes.entries.iter();
        let entry =
            entry.find(|entry| entry.task.id == id && entry.task.worker_id == *worker_id)?;
        Some(Arc::clone(&entry.snapshot))
    }

    /// Returns one task of each worker whose job is unknown, the latest first.
    pub(super) fn unattributed(&self) -> Vec<FailedTask> {
        let boxes = self.boxes.lock();
        let unknown = |entry: &&BlackBox| entry.job.is_none() && entry.attempts < MAX_JOB_REQUESTS;
        let mut tasks: Vec<FailedTask> = Vec::new();
        for entry in boxes.entries.iter().rev().filter(unknown) {
            if tasks.len() < MAX_ATTRIBUTIONS_PER_PASS
                && !tasks.iter().any(|task| entry.is_of(task))
            {
                tasks.push(entry.task.clone());
            }
        }
        tasks
    }

    /// Records the job of the worker of `task`, as Ray reports it.
    pub(super) fn attribute(&self, task: &FailedTask, job: Option<&str>) {
        let mut boxes = self.boxes.lock();
        for entry in boxes.entries.iter_mut().filter(|entry| entry.is_of(task)) {
            entry.attempts = entry.attempts.saturating_add(1);
            entry.job = entry.job.take().or(job.map(str::to_owned));
        }
    }

    /// Changes the boxes. If `change` returns true, all links are notified.
    fn change(&self, change: impl FnOnce(&mut Boxes) -> bool) {
        if change(&mut self.boxes.lock()) {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }
}

impl Boxes {
    /// Drops expired boxes, then the oldest of the job that has most, until the rest fits. Returns whether any was
    /// dropped. So a job that fails again and again does not displace others. Workers of unknown jobs count as one
    /// job, and within a job the process that has most gives way first.
    fn make_room(&mut self, now: Instant) -> bool {
        let previous = self.entries.len();
        let Some(settings) = self.settings else {
            self.entries.clear();
            return previous > 0;
        };
        let keep = Duration::from_millis(settings.keep_ms);
        self.entries
            .retain(|entry| now.saturating_duration_since(entry.at) < keep);
        let bytes = |entries: &[BlackBox]| {
            entries
                .iter()
                .map(|one| one.snapshot.len() as u64)
                .sum::<u64>()
        };
        while self.entries.len() > settings.most as usize || bytes(&self.entries) > settings.bytes {
            let of_job = most_frequent(self.entries.iter().map(|entry| entry.job.as_deref()));
            let in_job = |entry: &&BlackBox| Some(entry.job.as_deref()) == of_job;
            let pid = most_frequent(
                self.entries
                    .iter()
                    .filter(in_job)
                    .map(|entry| entry.task.pid),
            );
            let oldest = self
                .entries
                .iter()
                .position(|entry| in_job(&entry) && Some(entry.task.pid) == pid);
            let Some(oldest) = oldest else { break };
            self.entries.remove(oldest);
        }
        self.entries.len() != previous
    }
}

impl BlackBox {
    /// Whether it is of the same worker as `task`.
    fn is_of(&self, task: &FailedTask) -> bool {
        (self.task.pid, &self.task.worker_id) == (task.pid, &task.worker_id)
    }
}

/// Returns the most frequent of `all`. Of several, the one that comes first.
fn most_frequent<T: Copy + Eq + Hash>(all: impl Iterator<Item = T> + Clone) -> Option<T> {
    let mut counts: HashMap<T, usize> = HashMap::new();
    for one in all.clone() {
        *counts.entry(one).or_default() += 1;
    }
    let highest = counts.values().max().copied();
    all.into_iter()
        .find(|one| counts.get(one).copied() == highest)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests;
