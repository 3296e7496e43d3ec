//! Where the lines of a cluster session are armed, and the sentence about each that an editor shows.
//!
//! Pure.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::cluster::JobName;
use ray_relay_base::wire::text::one_line;
use ray_relay_base::wire::tunnel::messages::{ArmReport, LineState, LineStatus, WorkerReport};
use ray_relay_ray::ray::registry::RayNode;

/// Workers whose state is shown.
const MAX_WORKERS: usize = 1 << 14;

/// A worker: its job, node and process.
type WorkerKey = (JobName, Arc<str>, u32);

#[derive(Debug, Clone, PartialEq, Eq)]
enum LineIn {
    Armed(Vec<u32>),
    NotLoaded,
    Ended(String),
}

enum WorkerLines {
    Lines(HashMap<u32, LineIn>),
    Refused(String),
}

/// How far lines are armed.
#[derive(Default)]
pub(super) struct Progress {
    workers: HashMap<WorkerKey, WorkerLines>,
    /// Nodes where no line is armed, with the reason.
    nodes: HashMap<(JobName, Arc<str>), String>,
    /// Messages of each worker and line that were dropped.
    dropped: HashMap<(WorkerKey, u32), u64>,
}

/// What an editor shows of one breakpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) is_verified: bool,
    /// Where it is armed.
    pub(super) line: u32,
    pub(super) message: String,
}

impl Progress {
    /// Takes a report from a worker of `job`.
    pub(super) fn report(&mut self, job: &JobName, node: &RayNode, report: &ArmReport) {
        let node_id = Arc::clone(&node.node_id);
        self.nodes.remove(&(job.clone(), Arc::clone(&node_id)));
        let key = (job.clone(), node_id, report.pid);
        if self.workers.len() >= MAX_WORKERS && !self.workers.contains_key(&key) {
            return;
        }
        match &report.report {
            WorkerReport::Status { lines } => {
                for line in lines.iter().filter(|line| line.dropped > 0) {
                    self.dropped.insert((key.clone(), line.id), line.dropped);
                }
                let lines = lines.iter().map(|line| (line.id, line_in(line)));
                self.workers
                    .insert(key, WorkerLines::Lines(lines.collect()));
            }
            WorkerReport::Refused { reason } => {
                let reason = one_line(reason);
                self.workers.insert(key, WorkerLines::Refused(reason));
            }
            WorkerReport::Gone => {
                self.workers.remove(&key);
                self.dropped.retain(|(worker, _), _| *worker != key);
            }
            WorkerReport::Hit { .. } | WorkerReport::Stop { .. } | WorkerReport::Unknown => {}
        }
    }

    /// Nothing is armed at the node, for this reason.
    pub(super) fn not_armed(&mut self, job: &JobName, node: &RayNode, reason: &str) {
        let node_id = Arc::clone(&node.node_id);
        let is_of_node = |key: &WorkerKey| key.0 == *job && key.1 == node_id;
        self.workers.retain(|key, _| !is_of_node(key));
        self.dropped.retain(|(key, _), _| !is_of_node(key));
        self.nodes
            .insert((job.clone(), Arc::clone(&node_id)), one_line(reason));
    }

    /// Forgets a job.
    pub(super) fn ended(&mut self, job: &JobName) {
        self.workers.retain(|key, _| key.0 != *job);
        self.nodes.retain(|key, _| key.0 != *job);
        self.dropped.retain(|(key, _), _| key.0 != *job);
    }

    /// Messages of the line `id` that were dropped.
    pub(super) fn dropped(&self, id: u32) -> u64 {
        let of_line = self.dropped.iter().filter(|((_, line), _)| *line == id);
        of_line.map(|(_, dropped)| dropped).sum()
    }

    /// How the breakpoint `id` on `line` is shown; `None`: nothing is known of it yet.
    pub(super) fn shown(&self, id: u32, line: u32) -> Option<Shown> {
        let (mut armed, mut not_loaded, mut at) = (0, 0, Vec::new());
        let mut reasons = BTreeMap::<&str, usize>::new();
        for worker in self.workers.values() {
            match worker {
                WorkerLines::Lines(lines) => match lines.get(&id) {
                    Some(LineIn::Armed(lines)) => {
                        armed += 1;
                        at.extend(lines);
                    }
                    Some(LineIn::NotLoaded) => not_loaded += 1,
                    Some(LineIn::Ended(error)) => *reasons.entry(error).or_default() += 1,
                    None => {}
                },
                WorkerLines::Refused(reason) => *reasons.entry(reason).or_default() += 1,
            }
        }
        for reason in self.nodes.values() {
            *reasons.entry(reason).or_default() += 1;
        }
        let most = reasons.iter().max_by_key(|(_, count)| **count);
        let reason = most.map(|(reason, _)| *reason);
        let has = if not_loaded == 1 { "has" } else { "have" };
        let message = match (armed, not_loaded, reason) {
            (0, 0, None) => return None,
            (0, 0, Some(reason)) => reason.to_owned(),
            (0, _, None) => format!("{} {has} not run this file yet", workers(not_loaded)),
            (0, _, Some(reason)) => format!(
                "{} {has} not run this file yet; others: {reason}",
                workers(not_loaded)
            ),
            (_, _, None) => format!("armed in {}", workers(armed)),
            (_, _, Some(reason)) => {
                format!("armed in {}; not in others: {reason}", workers(armed))
            }
        };
        Some(Shown {
            is_verified: armed > 0,
            line: at.iter().min().copied().unwrap_or(line),
            message,
        })
    }
}

fn line_in(line: &LineStatus) -> LineIn {
    match (&line.error, line.state) {
        (Some(error), _) => LineIn::Ended(one_line(error)),
        (None, LineState::Armed) => LineIn::Armed(line.at.clone()),
        (None, LineState::NotLoaded) => LineIn::NotLoaded,
        (None, _) => {
            LineIn::Ended("done: `once` is set, and the process has reached the line".to_owned())
        }
    }
}

fn workers(count: usize) -> String {
    match count {
        1 => "1 worker".to_owned(),
        _ => format!("{count} workers"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use ray_relay_base::wire::tunnel::messages::read;
    use serde_json::{Value, json};

    fn job() -> JobName {
        JobName {
            cluster: "a".into(),
            id: "01000000".to_owned(),
        }
    }

    fn node(id: &str) -> RayNode {
        RayNode {
            node_id: id.into(),
            address: [10, 0, 0, 1].into(),
            cluster: "a".into(),
        }
    }

    fn report(pid: u32, report: &Value) -> ArmReport {
        let line = json!({"pid": pid, "worker_id": "beef", "report": report});
        read(&line.to_string()).unwrap()
    }

    fn status(state: &str, at: u32, error: Option<&str>) -> Value {
        json!({"type": "status", "lines": [{"id": 7, "state": state, "at": [at], "error": error}]})
    }

    fn shown(progress: &Progress) -> (bool, u32, String) {
        let shown = progress.shown(7, 26).unwrap();
        (shown.is_verified, shown.line, shown.message)
    }

    #[test]
    fn breakpoint_is_verified_once_a_worker_has_the_line() {
        let (mut progress, job, node) = (Progress::default(), job(), node("a1"));
        assert_eq!(progress.shown(7, 26), None);
        progress.report(&job, &node, &report(1, &status("not_loaded", 26, None)));
        let expected = (false, 26, "1 worker has not run this file yet".to_owned());
        assert_eq!(shown(&progress), expected);
        for pid in 1..=2 {
            progress.report(&job, &node, &report(pid, &status("armed", 27, None)));
        }
        let expected = (true, 27, "armed in 2 workers".to_owned());
        assert_eq!(shown(&progress), expected);
        progress.report(&job, &node, &report(2, &json!({"type": "gone"})));
        assert_eq!(shown(&progress), (true, 27, "armed in 1 worker".to_owned()));
        progress.ended(&job);
        assert_eq!(progress.shown(7, 26), None);
    }

    #[test]
    fn breakpoint_shows_why_it_is_not_armed() {
        let (mut progress, job) = (Progress::default(), job());
        let reason = "armed lines need Python 3.12 or newer, and this worker runs 3.11";
        let refused = json!({"type": "refused", "reason": reason});
        progress.report(&job, &node("a1"), &report(1, &refused));
        assert_eq!(shown(&progress), (false, 26, reason.to_owned()));
        let error = status("ended", 26, Some("NameError: name 'x' is not defined"));
        progress.report(&job, &node("a2"), &report(1, &error));
        progress.report(&job, &node("a2"), &report(2, &error));
        let expected = "NameError: name 'x' is not defined";
        assert_eq!(shown(&progress), (false, 26, expected.to_owned()));
        progress.not_armed(&job, &node("a2"), "no agent is linked");
        let (is_verified, _, message) = shown(&progress);
        assert!(!is_verified && message != expected, "{message}");
    }
}
