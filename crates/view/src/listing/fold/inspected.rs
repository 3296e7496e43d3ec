//! Inspected processes, as the relay has them and as a client receives them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::member::{Member, is_same_location};
use crate::listing::received::RowAnswer;
use ray_relay_base::wire::json::{self, typed, typed_at};
use ray_relay_base::wire::text::replaced;
use ray_relay_ray::ray::look::progress::History;
use ray_relay_ray::ray::look::{Look, Thread};

/// Running tasks that were inspected at one moment. `L` is a snapshot.
#[derive(Debug, Clone, Default)]
pub struct InspectedTasks<L = Look> {
    pub processes: Vec<InspectedProcess<L>>,
    /// The rows of actors of the same classes that are idle or have died.
    pub idle: Vec<Value>,
    /// Number of selected processes that were not inspected.
    pub left_out: usize,
}

/// An inspected process.
#[derive(Debug, Clone)]
pub struct InspectedProcess<L = Look> {
    /// The rows of the tasks that run in it.
    pub tasks: Vec<Value>,
    /// Its snapshot, or why there is none.
    pub look: Result<L, String>,
    /// The objects that it waits for in `ray.get`.
    pub waits_for: Vec<Value>,
}

impl InspectedTasks {
    /// Reads `answer`, the relay's to `POST /relay/v1/looks`.
    pub fn read(answer: &Value) -> Self {
        let looks = json::list(answer, "looks").iter();
        Self {
            processes: looks.map(InspectedProcess::read).collect(),
            idle: json::list(answer, "idle").to_vec(),
            left_out: typed_at(answer, "left_out"),
        }
    }

    /// Whether a hook records since when threads have not moved, or there is no snapshot at all.
    pub fn is_recorded(&self) -> bool {
        let looks = self
            .processes
            .iter()
            .filter_map(|one| one.look.as_ref().ok());
        let mut looks = looks.peekable();
        let is_recorded = |look: &Look| look.threads.iter().any(|one| one.history.is_some());
        looks.peek().is_none() || looks.any(is_recorded)
    }

    /// Removes the values of variables: for [`Self::add_history`] the locations suffice.
    pub fn drop_values(&mut self) {
        let looks = self
            .processes
            .iter_mut()
            .filter_map(|one| one.look.as_mut().ok());
        let threads = looks.flat_map(|look| &mut look.threads);
        for frame in threads.flat_map(|thread| &mut thread.frames) {
            frame.locals = None;
        }
    }

    /// Adds to each process whether it has moved since `earlier`, which was inspected `apart` before.
    pub fn add_history(&mut self, earlier: &Self, apart: Duration) {
        let by_key: BTreeMap<_, &InspectedProcess> = earlier
            .processes
            .iter()
            .map(|one| (one.key(), one))
            .collect();
        for process in &mut self.processes {
            let before = by_key.get(&process.key());
            let (Some(Ok(before)), Ok(look)) = (before.map(|one| &one.look), &mut process.look)
            else {
                continue;
            };
            let history = History::of_two_looks(!is_same_location(before, look), apart);
            let add = |thread: &mut Thread| thread.history = Some(history.clone());
            look.threads.iter_mut().for_each(add);
        }
    }
}

impl InspectedProcess {
    /// Reads one of `looks` in the relay's answer.
    fn read(entry: &Value) -> Self {
        let error: Option<&str> = typed_at(entry, "error");
        let look = match error {
            Some(why) => Err(replaced(why).into_owned()),
            None => {
                let json = entry.get("look").map(Value::to_string).unwrap_or_default();
                Look::read(json.as_bytes()).map_err(|why| why.to_string())
            }
        };
        Self {
            tasks: json::list(entry, "tasks").to_vec(),
            look,
            waits_for: json::list(entry, "waits_for").to_vec(),
        }
    }

    /// Its cluster and worker.
    pub(super) fn key(&self) -> (Option<String>, Option<String>) {
        let first: RowAnswer<'_> = self.tasks.first().map(typed).unwrap_or_default();
        (
            first.cluster.map(str::to_owned),
            first.worker_id.map(str::to_owned),
        )
    }
}

impl Member {
    /// Reads one of `looks` in the relay's answer. `several_jobs` adds the job to the group's name.
    pub fn read(entry: &Value, several_jobs: bool) -> Self {
        let process = InspectedProcess::read(entry);
        Self::of(&process.tasks, process.look, several_jobs)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tasks(lines: [u32; 2]) -> InspectedTasks {
        let entry = |(worker, line): (usize, u32)| {
            json!({"tasks": [{"cluster": "default", "worker_id": worker.to_string(), "name": "f"}],
                "look": {"pid": 7, "source": "traceback", "threads": [{"id": 1, "is_main": true,
                    "frames": [{"file": "a.py", "line": line, "function": "f"}]}]}})
        };
        let entries: Vec<Value> = lines.into_iter().enumerate().map(entry).collect();
        InspectedTasks::read(&json!({ "looks": entries }))
    }

    #[test]
    fn second_inspection_says_which_have_moved() {
        let first = tasks([1, 1]);
        let mut second = tasks([1, 2]);
        assert!(!second.is_recorded());
        second.add_history(&first, Duration::from_secs(5));
        let history = |at: usize| {
            let look = second.processes[at].look.as_ref().unwrap();
            let history = look.threads[0].history.as_ref().unwrap();
            (history.still_ms, history.at_least)
        };
        assert_eq!((history(0), history(1)), ((5000, true), (0, false)));
        assert!(second.is_recorded());
    }

    #[test]
    fn process_without_snapshot_says_why() {
        let answer = json!({"looks": [{"tasks": [], "error": "gone\u{1b}"}], "left_out": 3});
        let read = InspectedTasks::read(&answer);
        let why = read.processes[0].look.as_ref().unwrap_err();
        assert!(
            why.starts_with("gone") && !why.contains('\u{1b}'),
            "{why:?}"
        );
        assert_eq!(read.left_out, 3);
        assert!(read.is_recorded());
    }
}
