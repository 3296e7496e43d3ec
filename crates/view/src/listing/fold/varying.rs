//! Variables that have another value each time one looks, such as a batch and its length: they name no odd rank.
//!
//! Pure. A number that hardly changes, or that only rises, stays: it may tell that a rank has another learning rate, or is
//! steps behind. So does one that is not finite in any process.

use std::collections::{BTreeMap, BTreeSet};

use super::inspected::InspectedTasks;
use super::number::{are_far, number};
use ray_relay_ray::ray::look::{Frame, Thread};

/// A process, by its cluster and worker, and one of its threads.
type ThreadKey = (Option<String>, Option<String>, u64);

/// A variable in a call, by the file and function of that and its name.
type VariableKey<'a> = (&'a str, &'a str, &'a str);

impl InspectedTasks {
    /// Removes the variables that have another value than in `earlier`, from all processes if it is so in one. Computes.
    pub fn drop_varying(&mut self, earlier: &Self) {
        let before: BTreeMap<ThreadKey, &Thread> = threads(earlier).collect();
        let mut changes: BTreeMap<VariableKey<'_>, Changes> = BTreeMap::new();
        for (key, thread) in threads(self) {
            let before = before.get(&key).map(|thread| values(thread));
            for (variable, now) in values(thread) {
                let before = before.as_ref().and_then(|before| before.get(&variable));
                let of_variable = changes.entry(variable).or_default();
                of_variable.add(before.copied(), now);
            }
        }
        let varying = changes.into_iter().filter(|(_, changes)| changes.varies());
        let varying: BTreeSet<[String; 3]> = varying
            .map(|((file, function, name), _)| [file, function, name].map(str::to_owned))
            .collect();
        let looks = self.processes.iter_mut();
        let looks = looks.filter_map(|one| one.look.as_mut().ok());
        let threads = looks.flat_map(|look| &mut look.threads);
        for frame in threads.flat_map(|thread| &mut thread.frames) {
            let Frame {
                file,
                function,
                locals: Some(locals),
                ..
            } = frame
            else {
                continue;
            };
            let key = |name: &String| [&*file, &*function, name].map(String::clone);
            locals.retain(|local| !varying.contains(&key(&local.name)));
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
        self.is_another |= are_far(now, before);
        self.is_no_counter |= now < before || now.fract() != 0.0;
    }

    fn varies(&self) -> bool {
        self.is_another && self.is_no_counter && !self.is_not_finite
    }
}

/// Returns the threads of `inspected`.
fn threads(inspected: &InspectedTasks) -> impl Iterator<Item = (ThreadKey, &Thread)> {
    let looks = inspected.processes.iter();
    let looks = looks.filter_map(|one| Some((one.key(), one.look.as_ref().ok()?)));
    looks.flat_map(|((cluster, worker), look)| {
        let threads = look.threads.iter();
        threads.map(move |thread| ((cluster.clone(), worker.clone(), thread.id), thread))
    })
}

/// Returns the values of the variables of `thread`; in a recursion those of the innermost call.
fn values(thread: &Thread) -> BTreeMap<VariableKey<'_>, &str> {
    let mut values = BTreeMap::new();
    for frame in &thread.frames {
        for local in frame.locals.iter().flatten() {
            let key = (&*frame.file, &*frame.function, &*local.name);
            values.entry(key).or_insert(&*local.value);
        }
    }
    values
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
        inspected.drop_varying(&ranks(before));
        let counts: Vec<usize> = threads(&inspected)
            .map(|(_, one)| values(one).len())
            .collect();
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
        inspected.drop_varying(&nothing);
        let all = threads(&inspected).map(|(_, one)| values(one).len());
        assert_eq!(all.sum::<usize>(), 2);
    }
}
