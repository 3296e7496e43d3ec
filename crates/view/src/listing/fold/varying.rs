//! Variables that have another value each time one looks, such as a batch and its length: they name no odd rank.
//!
//! Pure. A number that hardly changes, or that only rises, stays: it may tell that a rank has another learning rate, or is
//! steps behind. So does one that is not finite in any process.

use std::collections::{BTreeMap, BTreeSet};

use super::inspected::{InspectedProcess, InspectedTasks};
use super::number::number;
use ray_relay_ray::ray::look::{Frame, Local};

/// How far a number may change, as a part of the larger one, and not count as another value.
const MAX_DRIFT: f64 = 0.1;

/// A process, by its cluster and worker, and one of its threads.
type ThreadKey = (Option<String>, Option<String>, u64);

/// A variable in a call, by the file and function of that and its name.
type VariableKey = (String, String, String);

/// The values of all variables at one moment.
pub struct Values(BTreeMap<(ThreadKey, VariableKey), String>);

impl Values {
    /// Returns the values in `inspected`; in a recursion those of the innermost call.
    pub fn of(inspected: &InspectedTasks) -> Self {
        let mut values = BTreeMap::new();
        each(inspected, |thread, variable, local| {
            values
                .entry((thread, variable))
                .or_insert_with(|| local.value.clone());
        });
        Self(values)
    }
}

impl InspectedTasks {
    /// Removes the variables that have another value than in `earlier`, from all processes if it is so in one.
    pub fn drop_varying(&mut self, earlier: &Values) {
        let mut found: BTreeMap<VariableKey, Changes> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        each(self, |thread, variable, local| {
            let changes = found.entry(variable.clone()).or_default();
            let key = (thread, variable);
            if seen.insert(key.clone()) {
                changes.add(earlier.0.get(&key).map(|text| &**text), &local.value);
            }
        });
        let looks = self.processes.iter_mut();
        let looks = looks.filter_map(|one| one.look.as_mut().ok());
        let threads = looks.flat_map(|look| &mut look.threads);
        for frame in threads.flat_map(|thread| &mut thread.frames) {
            let Some(mut locals) = frame.locals.take() else {
                continue;
            };
            locals.retain(|local| !found.get(&key(frame, local)).is_some_and(Changes::varies));
            frame.locals = Some(locals);
        }
    }
}

/// How one variable has changed in all processes.
#[derive(Default)]
struct Changes {
    /// Whether it has another text, or a number that is far from the one before.
    is_another: bool,
    /// Whether one has fallen, or is no whole number.
    is_no_counter: bool,
    is_not_finite: bool,
}

impl Changes {
    fn add(&mut self, before: Option<&str>, now: &str) {
        let value = number(now);
        self.is_not_finite |= value.is_some_and(|value| !value.is_finite());
        let Some(before) = before.filter(|before| *before != now) else {
            return;
        };
        let (Some(before), Some(now)) = (number(before), value) else {
            self.is_another = true;
            self.is_no_counter = true;
            return;
        };
        self.is_another |= (now - before).abs() > MAX_DRIFT * now.abs().max(before.abs());
        self.is_no_counter |= now < before || now.fract() != 0.0;
    }

    fn varies(&self) -> bool {
        self.is_another && self.is_no_counter && !self.is_not_finite
    }
}

/// Calls `visit` for each variable of `inspected`, the innermost calls of a thread first.
fn each(inspected: &InspectedTasks, mut visit: impl FnMut(ThreadKey, VariableKey, &Local)) {
    let looks = inspected.processes.iter();
    for (process, look) in looks.filter_map(|one| Some((one, one.look.as_ref().ok()?))) {
        let (cluster, worker) = InspectedProcess::key(process);
        for thread in &look.threads {
            for frame in &thread.frames {
                for local in frame.locals.iter().flatten() {
                    let thread = (cluster.clone(), worker.clone(), thread.id);
                    visit(thread, key(frame, local), local);
                }
            }
        }
    }
}

fn key(frame: &Frame, local: &Local) -> VariableKey {
    (
        frame.file.clone(),
        frame.function.clone(),
        local.name.clone(),
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Two ranks with one variable each.
    fn ranks(values: [&str; 2]) -> InspectedTasks {
        let look = |(worker, value): (usize, &str)| {
            json!({"tasks": [{"cluster": "default", "worker_id": worker.to_string(), "name": "f"}],
                "look": {"pid": 7, "source": "hook", "threads": [{"id": 1, "is_main": true,
                    "frames": [{"file": "a.py", "line": 3, "function": "f", "locals": [{"name": "x", "value": value}]}]}]}})
        };
        let looks: Vec<_> = values.into_iter().enumerate().map(look).collect();
        InspectedTasks::read(&json!({ "looks": looks }))
    }

    fn stays(before: [&str; 2], now: [&str; 2]) -> bool {
        let mut inspected = ranks(now);
        inspected.drop_varying(&Values::of(&ranks(before)));
        let count = |one: &InspectedProcess| {
            let frame = &one.look.as_ref().unwrap().threads[0].frames[0];
            frame.locals.as_ref().unwrap().len()
        };
        let counts: Vec<usize> = inspected.processes.iter().map(count).collect();
        assert_eq!(counts[0], counts[1]);
        counts[0] == 1
    }

    #[test]
    fn only_what_is_another_value_each_time_is_left_out() {
        for (before, now) in [
            (["0.001", "0.01"], ["0.00099", "0.0099"]),
            (["41", "7"], ["66", "9"]),
            (["0.5", "nan"], ["0.2", "nan"]),
            (
                ["ndarray(shape=(8,))", "ndarray(shape=(7,))"],
                ["ndarray(shape=(8,))", "ndarray(shape=(7,))"],
            ),
        ] {
            assert!(stays(before, now), "{now:?}");
        }
        for (before, now) in [
            (
                ["ndarray(shape=(8, 90))"; 2],
                ["ndarray(shape=(8, 90))", "ndarray(shape=(8, 71))"],
            ),
            (["90", "71"], ["64", "95"]),
            (["0.5", "0.9"], ["0.2", "0.9"]),
            (["'a'", "'b'"], ["'a'", "'c'"]),
        ] {
            assert!(!stays(before, now), "{now:?}");
        }
    }

    #[test]
    fn process_that_was_not_seen_before_is_compared() {
        let nothing = InspectedTasks::read(&json!({}));
        let mut inspected = ranks(["1", "2"]);
        inspected.drop_varying(&Values::of(&nothing));
        assert_eq!(Values::of(&inspected).0.len(), 2);
    }
}
