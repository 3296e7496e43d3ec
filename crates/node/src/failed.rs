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
const MAX_KEPT_BYTES: u64 = 256 << 20;

/// The longest period to store them, whatever a relay requests.
const MAX_KEEP_PERIOD: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// How often Ray is asked for the job of one worker.
const MAX_JOB_QUESTIONS: u8 = 4;

/// Workers that Ray is asked about between two pauses.
const MAX_WORKERS_ASKED: usize = 32;

/// The stored black box of one task.
#[derive(Debug)]
struct Kept {
    /// The task. Its `ago_ms` is computed for each report.
    task: FailedTask,
    /// The job of its worker, as far as Ray has told.
    job: Option<String>,
    /// How often Ray was asked for the job.
    questions: u8,
    at: Instant,
    /// A snapshot, as JSON.
    look: Arc<[u8]>,
}

#[derive(Debug, Default)]
struct Boxes {
    wanted: Option<PostMortem>,
    /// The agent's own nodes, as a relay last sent them.
    nodes: Vec<Node>,
    /// In the order of arrival.
    kept: Vec<Kept>,
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
    pub(super) fn want(&self, wanted: PostMortem, nodes: &[Node]) {
        let wanted = PostMortem {
            most: wanted.most.min(MAX_AGENT_FAILURES as u32),
            bytes: wanted.bytes.min(MAX_KEPT_BYTES),
            keep_ms: wanted.keep_ms.min(MAX_KEEP_PERIOD.as_millis() as u64),
        };
        self.change(|boxes| {
            let changed = boxes.wanted != Some(wanted);
            (boxes.wanted, boxes.nodes) = (Some(wanted), nodes.to_vec());
            boxes.make_room(Instant::now()) || changed
        });
    }

    /// Whether any relay wants black boxes to be stored.
    pub(super) fn are_wanted(&self) -> bool {
        let boxes = self.boxes.lock();
        boxes.wanted.is_some_and(|wanted| wanted.most > 0)
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

    /// Stores the snapshot `look` of `task`.
    pub(super) fn put(&self, task: FailedTask, look: Vec<u8>) {
        let at = Instant::now();
        let look = look.into();
        self.change(|boxes| {
            let mut before = boxes.kept.iter().filter(|kept| kept.is_of(&task));
            let job = before.find_map(|kept| kept.job.clone());
            boxes.kept.push(Kept {
                task,
                job,
                questions: 0,
                at,
                look,
            });
            boxes.make_room(at);
            true
        });
    }

    /// Returns all rows with their current age. `None`: no relay has sent settings.
    pub(super) fn told(&self) -> Option<Failures> {
        let boxes = self.boxes.lock();
        boxes.wanted?;
        let row = |kept: &Kept| FailedTask {
            ago_ms: kept.at.elapsed().as_millis().try_into().unwrap_or(u64::MAX),
            ..kept.task.clone()
        };
        Some(Failures {
            tasks: boxes.kept.iter().map(row).collect(),
            trouble: boxes.trouble.clone(),
        })
    }

    /// Returns the snapshot stored as `id` of the worker `worker_id`.
    pub(super) fn look(&self, id: FailureId, worker_id: &Name) -> Option<Arc<[u8]>> {
        let boxes = self.boxes.lock();
        let mut kept = boxes.kept.iter();
        let kept = kept.find(|kept| kept.task.id == id && kept.task.worker_id == *worker_id)?;
        Some(Arc::clone(&kept.look))
    }

    /// Returns one task of each worker whose job is unknown, the latest first.
    pub(super) fn unattributed(&self) -> Vec<FailedTask> {
        let boxes = self.boxes.lock();
        let unknown = |kept: &&Kept| kept.job.is_none() && kept.questions < MAX_JOB_QUESTIONS;
        let mut tasks: Vec<FailedTask> = Vec::new();
        for kept in boxes.kept.iter().rev().filter(unknown) {
            if tasks.len() < MAX_WORKERS_ASKED && !tasks.iter().any(|task| kept.is_of(task)) {
                tasks.push(kept.task.clone());
            }
        }
        tasks
    }

    /// Records the job of the worker of `task`, as Ray reports it.
    pub(super) fn attribute(&self, task: &FailedTask, job: Option<&str>) {
        let mut boxes = self.boxes.lock();
        for kept in boxes.kept.iter_mut().filter(|kept| kept.is_of(task)) {
            kept.questions = kept.questions.saturating_add(1);
            kept.job = kept.job.take().or(job.map(str::to_owned));
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
        let before = self.kept.len();
        let Some(wanted) = self.wanted else {
            self.kept.clear();
            return before > 0;
        };
        let keep = Duration::from_millis(wanted.keep_ms);
        self.kept
            .retain(|kept| now.saturating_duration_since(kept.at) < keep);
        let bytes = |kept: &[Kept]| kept.iter().map(|one| one.look.len() as u64).sum::<u64>();
        while self.kept.len() > wanted.most as usize || bytes(&self.kept) > wanted.bytes {
            let of_job = fullest(self.kept.iter().map(|kept| kept.job.as_deref()));
            let in_job = |kept: &&Kept| Some(kept.job.as_deref()) == of_job;
            let pid = fullest(self.kept.iter().filter(in_job).map(|kept| kept.task.pid));
            let oldest = self
                .kept
                .iter()
                .position(|kept| in_job(&kept) && Some(kept.task.pid) == pid);
            let Some(oldest) = oldest else { break };
            self.kept.remove(oldest);
        }
        self.kept.len() != before
    }
}

impl Kept {
    /// Whether it is of the same worker as `task`.
    fn is_of(&self, task: &FailedTask) -> bool {
        (self.task.pid, &self.task.worker_id) == (task.pid, &task.worker_id)
    }
}

/// Returns the most frequent of `all`. Of several, the one that comes first.
fn fullest<T: Copy + Eq + Hash>(all: impl Iterator<Item = T> + Clone) -> Option<T> {
    let mut counts: HashMap<T, usize> = HashMap::new();
    for one in all.clone() {
        *counts.entry(one).or_default() += 1;
    }
    let most = counts.values().max().copied();
    all.into_iter().find(|one| counts.get(one).copied() == most)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests;
