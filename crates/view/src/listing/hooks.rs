//! Counts the processes that have the hook, in rows of `/relay/v1/tasks?hook=true`. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::received::RowAnswer;
use ray_relay_base::wire::json::{typed, typed_at};
use ray_relay_base::wire::text::shortened;

/// Longest sentence of an agent, in characters.
const MAX_REASON_CHARS: usize = 300;

/// Processes with and without the hook. Several tasks may run in one process, which counts once.
#[derive(Debug, Default, PartialEq)]
pub struct HookCount {
    pub with: usize,
    pub without: usize,
    /// Processes where it is unknown, by the reason.
    pub unknown: BTreeMap<String, usize>,
}

impl HookCount {
    /// Counts the `rows` that have the field.
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a Value>) -> Self {
        let (mut count, mut seen) = (Self::default(), BTreeSet::new());
        for row in rows {
            let Some(hook) = row.get("hook") else {
                continue;
            };
            let process: RowAnswer<'_> = typed(row);
            if !seen.insert((process.cluster, process.worker_id)) {
                continue;
            }
            match hook.as_bool() {
                Some(true) => count.with += 1,
                Some(false) => count.without += 1,
                None => {
                    let why: Option<&str> = typed_at(row, "hook_unknown");
                    let why = shortened(
                        why.unwrap_or("the relay does not say why"),
                        MAX_REASON_CHARS,
                    );
                    *count.unknown.entry(why).or_default() += 1;
                }
            }
        }
        count
    }

    /// Formats a sentence for each reason why it is unknown. `singular` and `plural` are the words for a process.
    pub fn unknown(&self, singular: &str, plural: &str) -> Vec<String> {
        let sentence = |(why, count): (&String, &usize)| match count {
            1 => format!("of 1 {singular} it is not known whether it has the hook: {why}"),
            count => {
                format!("of {count} {plural} it is not known whether they have the hook: {why}")
            }
        };
        self.unknown.iter().map(sentence).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn process_counts_once_and_unknown_has_a_reason() {
        let row = |worker: &str, hook: Value| {
            let unknown = hook.is_null().then_some("the agent of its node is older");
            json!({"cluster": "c", "worker_id": worker, "hook": hook, "hook_unknown": unknown})
        };
        let rows = [
            row("a", true.into()),
            row("a", true.into()),
            row("b", false.into()),
            row("c", Value::Null),
            row("d", Value::Null),
            json!({"cluster": "c", "worker_id": "e"}),
        ];
        let count = HookCount::of(&rows);
        assert_eq!((count.with, count.without), (1, 1));
        let unknown_sentences = |count: &HookCount| count.unknown("process", "processes");
        let plural = "of 2 processes it is not known whether they have the hook: the agent of its node is older";
        assert_eq!(unknown_sentences(&count), [plural]);
        let singular =
            "of 1 process it is not known whether it has the hook: the agent of its node is older";
        assert_eq!(unknown_sentences(&HookCount::of(&rows[3..4])), [singular]);
        assert!(unknown_sentences(&HookCount::of(&rows[..3])).is_empty());
    }
}
