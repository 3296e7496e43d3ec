//! Black boxes: what workers have left of tasks that failed, kept for relays to fetch.
//!
//! Bounded by tasks, bytes and age, as relays want it. What is kept is values of people's programs: it is in memory alone,
//! no word of it is logged, and only a relay that the agent is linked with gets it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::wire::tunnel::messages::{
    FailedTask, FailureId, Failures, MOST_FAILED, Name, Node, PostMortem, Sentence,
};

/// Bytes that an agent keeps at most, whatever a relay says.
const MOST_BYTES: u64 = 256 << 20;

/// For how long at most.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// What is kept of one task.
#[derive(Debug)]
struct Kept {
    /// Of which `ago_ms` is told anew each time.
    task: FailedTask,
    at: Instant,
    /// A look, as JSON.
    look: Arc<[u8]>,
}

#[derive(Debug, Default)]
struct Boxes {
    wanted: Option<PostMortem>,
    /// The agent's own, by the last word of a relay.
    nodes: Vec<Node>,
    /// In the order in which they came.
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

    /// Wakes whenever something else is kept or wanted.
    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// What a relay has said is to be kept, of tasks on `nodes`.
    pub(super) fn want(&self, wanted: PostMortem, nodes: &[Node]) {
        let wanted = PostMortem {
            most: wanted.most.min(MOST_FAILED as u32),
            bytes: wanted.bytes.min(MOST_BYTES),
            keep_ms: wanted.keep_ms.min(LONGEST.as_millis() as u64),
        };
        self.change(|boxes| {
            let changed = boxes.wanted != Some(wanted);
            (boxes.wanted, boxes.nodes) = (Some(wanted), nodes.to_vec());
            boxes.make_room(Instant::now()) || changed
        });
    }

    /// Whether any relay wants something to be kept.
    pub(super) fn are_wanted(&self) -> bool {
        let boxes = self.boxes.lock();
        boxes.wanted.is_some_and(|wanted| wanted.most > 0)
    }

    /// The nodes whose workers are heard.
    pub(super) fn nodes(&self) -> Vec<Node> {
        self.boxes.lock().nodes.clone()
    }

    /// Why workers do not find the agent.
    pub(super) fn set_trouble(&self, trouble: Option<Sentence>) {
        self.change(|boxes| {
            let changed = boxes.trouble != trouble;
            boxes.trouble = trouble;
            changed
        });
    }

    /// Forgets what is too old.
    pub(super) fn forget(&self) {
        self.change(|boxes| boxes.make_room(Instant::now()));
    }

    /// Keeps `look` of `task`.
    pub(super) fn put(&self, task: FailedTask, look: Vec<u8>) {
        let at = Instant::now();
        let look = look.into();
        self.change(|boxes| {
            boxes.kept.push(Kept { task, at, look });
            boxes.make_room(at);
            true
        });
    }

    /// All rows, as they are told now; `None`: no relay has said what is to be kept.
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

    /// The look that is kept as `id` of a worker of that id.
    pub(super) fn look(&self, id: FailureId, worker_id: &Name) -> Option<Arc<[u8]>> {
        let boxes = self.boxes.lock();
        let mut kept = boxes.kept.iter();
        let kept = kept.find(|kept| kept.task.id == id && kept.task.worker_id == *worker_id)?;
        Some(Arc::clone(&kept.look))
    }

    /// Changes what is kept; where `change` says that it did, all links are woken.
    fn change(&self, change: impl FnOnce(&mut Boxes) -> bool) {
        if change(&mut self.boxes.lock()) {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }
}

impl Boxes {
    /// Takes out what is too old, and then the oldest of the job that has most until the rest has room; whether it took
    /// anything. So a job that fails again and again leaves those of others.
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
            let mut by_job: HashMap<&str, usize> = HashMap::new();
            for kept in &self.kept {
                *by_job.entry(job_of(&kept.task)).or_default() += 1;
            }
            let Some(most) = by_job.values().max().copied() else {
                break;
            };
            let oldest = self
                .kept
                .iter()
                .position(|kept| by_job.get(job_of(&kept.task)) == Some(&most));
            let Some(oldest) = oldest else { break };
            self.kept.remove(oldest);
        }
        self.kept.len() != before
    }
}

/// The job of a task, which is the end of its id.
fn job_of(task: &FailedTask) -> &str {
    let id = &*task.task_id;
    id.get(id.len().saturating_sub(8)..).unwrap_or(id)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests;
