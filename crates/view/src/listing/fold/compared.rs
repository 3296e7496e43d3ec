//! Compares paused tasks for `ray-relay diff` and the page: the differences within each group, and the stacks of all
//! as one tree.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::differences::{Comparison, TaskStack, compare};
use super::tree::{self, Node};
use super::who::Names;
use ray_relay_base::wire::json::put;

/// The comparison of all tasks, which are identified by index.
pub struct Compared<'a> {
    names: Names<'a>,
    groups: Vec<Compare<'a>>,
    stacks: Vec<Node>,
    size: usize,
}

/// The comparison of one group.
struct Compare<'a> {
    group: &'a str,
    size: usize,
    comparison: Comparison,
}

/// The name of the set of all tasks, if different groups are compared.
const ALL_TASKS: &str = "all";

impl<'a> Compared<'a> {
    /// Compares within each group. If no group has two members, compares all: they may have a function in common.
    pub fn new(names: Names<'a>, task_stacks: &BTreeMap<usize, TaskStack>) -> Self {
        let of = |group: &'a str, all: &BTreeSet<usize>| {
            let of = task_stacks.iter().filter(|(at, _)| all.contains(at));
            let of: BTreeMap<usize, TaskStack> = of.map(|(at, seen)| (*at, seen.clone())).collect();
            Compare {
                group,
                size: of.len(),
                comparison: compare(&of),
            }
        };
        let groups = names.groups().iter();
        let mut groups: Vec<Compare<'a>> = groups.map(|(group, all)| of(group, all)).collect();
        if task_stacks.len() > 1 && groups.iter().all(|group| group.size < 2) {
            groups = vec![of(ALL_TASKS, &task_stacks.keys().copied().collect())];
        }
        let calls: Vec<_> = task_stacks
            .iter()
            .map(|(at, one)| (*at, one.calls()))
            .collect();
        let stacks = tree::fold(calls.iter().map(|(at, calls)| (*at, &**calls)));
        Self {
            names,
            groups,
            stacks,
            size: task_stacks.len(),
        }
    }

    /// Formats the comparison.
    pub fn text(&self) -> String {
        let group = |compare: &Compare<'_>| {
            let head = match self.groups.len() {
                1 => String::new(),
                _ => format!("{}: ", compare.group),
            };
            let rest = match compare.size {
                0 => "none could be looked at.\n".to_owned(),
                1 => {
                    "only one could be looked at: there is nothing to compare it with.\n".to_owned()
                }
                _ => compare.comparison.text(&self.names),
            };
            format!("\n{head}{rest}")
        };
        self.groups.iter().map(group).collect()
    }

    /// Returns the comparison as JSON, with `members`: [`json`](super::who::json) of each.
    pub fn json(&self, members: &[Value]) -> Value {
        let groups = self.groups.iter().map(|compare| {
            let mut json_group = compare.comparison.json(&self.names);
            put(&mut json_group, "group", compare.group);
            json_group
        });
        json!({"members": members, "groups": groups.collect::<Vec<_>>(), "stacks": self.calls(&self.stacks)})
    }

    fn calls(&self, nodes: &[Node]) -> Vec<Value> {
        // The recursion is as deep as the stacks, which are bounded.
        let nodes = nodes.iter().map(|node| {
            let (call, members) = (&node.call, &node.members);
            json!({
                "function": call.function, "file": call.file, "line": call.line,
                "who": self.names.of(members), "members": members, "odd": 2 * members.len() < self.size,
                "calls": self.calls(&node.calls),
            })
        });
        nodes.collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::who::Who;
    use super::*;

    fn stack(function: &str, loss: &str) -> TaskStack {
        let frame = |function: &str| {
            json!({"file": "/srv/train.py", "line": 4, "function": function,
            "variables": [{"name": "loss", "type": "float", "value": loss}, {"name": "lr", "type": "float", "value": "0.1"}]})
        };
        TaskStack::read(&json!([{"name": "MainThread", "frames": [frame("run"), frame(function)]}]))
            .unwrap()
    }

    fn compared(groups: &[&str], stacks: Vec<TaskStack>) -> (String, Value) {
        let members: Vec<Who> = groups
            .iter()
            .zip(0..)
            .map(|(group, number)| Who {
                group: (*group).to_owned(),
                number: Some(number),
                name: String::new(),
            })
            .collect();
        let stacks = stacks.into_iter().enumerate().collect();
        let compared = Compared::new(Names::new(&members), &stacks);
        (compared.text(), compared.json(&[]))
    }

    #[test]
    fn stacks_form_one_tree_and_equal_values_are_folded() {
        let all = vec![
            stack("step", "0.5"),
            stack("load", "0.5"),
            stack("step", "0.5"),
        ];
        let (_, json_group) = compared(&["Trainer"; 3], all);
        let run = &json_group["stacks"][0];
        assert_eq!(
            (&run["function"], &run["who"]),
            (&json!("run"), &json!("0-2"))
        );
        let calls = run["calls"].as_array().unwrap();
        assert_eq!(
            (&calls[0]["who"], &calls[0]["odd"]),
            (&json!("0,2"), &json!(false))
        );
        assert_eq!(
            (&calls[1]["who"], &calls[1]["odd"]),
            (&json!("1"), &json!(true))
        );
        let group = &json_group["groups"][0];
        assert_eq!(group["group"], "Trainer");
        let same = group["same"].as_array().unwrap();
        let equal_value = json!({"what": "variable", "name": "lr", "frame": "run (/srv/train.py)", "text": "0.1", "who": "0-2", "members": [0, 1, 2]});
        assert!(same.contains(&equal_value), "{same:?}");
        assert_eq!(group["alike"], same.len());
    }

    #[test]
    fn groups_are_compared_separately_unless_singletons() {
        let two = || vec![stack("step", "0.5"), stack("step", "nan")];
        let (text, json_group) = compared(&["Trainer", "Loader"], two());
        assert_eq!(
            json_group["groups"].as_array().unwrap().len(),
            1,
            "{json_group}"
        );
        assert!(text.contains("loss, in step (/srv/train.py)\n"), "{text}");
        let three = [two(), vec![stack("step", "1")]].concat();
        let (text, json_group) = compared(&["Trainer", "Trainer", "Loader"], three);
        assert_eq!(
            json_group["groups"].as_array().unwrap().len(),
            2,
            "{json_group}"
        );
        assert!(
            text.contains("Loader: only one could be looked at"),
            "{text}"
        );
    }
}
