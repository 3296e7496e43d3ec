//! Merged snapshots as text: first the members at a different location, then the stacks of all as one tree.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::answers::Same;
use super::location::{Call, Location};
use super::locations::{self, Group};
use super::member::{self, Member, calls, location};
use super::tree::{self, Node};
use super::variable::{ComparedVariable, Member as VariableOf, Variable, as_a_whole};
use super::who::Names;
use crate::listing::text::width;
use ray_relay_base::wire::text::shortened;
use ray_relay_ray::ray::look::Frame;

/// Largest width of the names column. Longer names shift only their own line.
const MAX_NAMES_WIDTH: usize = 32;

/// Variables shown of a call, values of each, and characters of a value.
const MAX_VARIABLES: usize = 16;
const MAX_VALUES: usize = 4;
const MAX_VALUE_CHARS: usize = 160;

/// Options of the tree.
#[derive(Debug, Clone, Copy, Default)]
pub struct TreeOptions {
    /// Includes threads without code of the program's own.
    pub all_threads: bool,
    /// Includes variables of the innermost call of the program's own code.
    pub locals: bool,
}

/// Lists the members of each group at a different location, and those that could not be inspected.
pub fn summary(members: &[Member]) -> String {
    let names = Names::new(members.iter().map(|member| &member.who));
    let mut text = String::new();
    for group in locations::of(members) {
        text += &of_group(&names, &group);
    }
    let mut silent: BTreeMap<(&str, String), BTreeSet<usize>> = BTreeMap::new();
    for (at, member) in members.iter().enumerate() {
        let why = match &member.look {
            Err(why) => Some(why.clone()),
            Ok(look) => {
                let note = look.note.as_ref();
                note.map(|why| format!("{why}; this stack is seen from outside"))
            }
        };
        if let Some(why) = why {
            let key = (&*member.who.group, why);
            silent.entry(key).or_default().insert(at);
        }
    }
    for ((group, why), some) in silent {
        text += &format!("! {group}, {}: {why}\n", names.in_words(group, &some));
    }
    text
}

fn of_group(names: &Names<'_>, group: &Group) -> String {
    let (name, size) = (&group.name, group.size());
    let line = |spot: &locations::Spot| {
        let who = names.in_words(name, &spot.members);
        let verb = if spot.members.len() == 1 { "" } else { "all " };
        format!(
            "  {who}: {verb}{}\n",
            plural(&spot.location, spot.members.len())
        )
    };
    let lines: String = group.spots.iter().map(line).collect();
    match (&*group.spots, group.odd()) {
        ([only], _) if size == 1 => {
            let who = names.in_words(name, &only.members);
            format!("{name}, {who}: {}\n", only.location)
        }
        ([only], _) => format!("{name}: all {size} {}\n", plural(&only.location, size)),
        (_, Some((odd, _))) => {
            let some: BTreeSet<usize> = odd.iter().flat_map(|spot| spot.members.clone()).collect();
            let is = if some.len() == 1 { "is" } else { "are" };
            let who = names.in_words(name, &some);
            format!(
                "{name}: {who} {is} elsewhere than the other {} of {size}\n{lines}",
                size - some.len()
            )
        }
        (spots, None) => {
            format!(
                "{name}: {size} at {} places, the fewest first\n{lines}",
                spots.len()
            )
        }
    }
}

/// Describes `location` in singular or plural.
pub(super) fn plural(location: &Location, count: usize) -> String {
    let words = location.to_string();
    match (count, words.split_once(' ')) {
        (1, _) | (_, None) => words,
        (_, Some(("waits", rest))) => format!("wait {rest}"),
        (_, Some(("is", rest))) => format!("are {rest}"),
        (_, Some((_, rest))) => format!("have {rest}"),
    }
}

/// Formats the stacks of `members` as one tree.
pub fn tree(members: &[Member], options: TreeOptions) -> String {
    let names = Names::new(members.iter().map(|member| &member.who));
    let (mut stacks, mut annotations) = (Vec::new(), Annotations::default());
    for (at, member) in members.iter().enumerate() {
        for thread in member.threads(options.all_threads) {
            let calls = calls(thread);
            let location = location(thread);
            let ends = match &location.raised {
                Some(raised) => Some(format!("raised {raised}")),
                None => location.waits().map(str::to_owned),
            };
            if let Some(ends) = ends {
                annotations
                    .ends
                    .entry(calls.clone())
                    .or_default()
                    .insert(ends);
            }
            for (depth, frame) in member::relevant_frames(thread)
                .into_iter()
                .filter(|_| options.locals)
            {
                let path = calls[..=depth].to_vec();
                annotations
                    .locals
                    .entry(path)
                    .or_default()
                    .push((at, frame));
            }
            stacks.push((at, calls));
        }
    }
    annotations.tree(&names, &stacks)
}

/// Formats stacks as one tree, each with the index of its member and its frames, innermost first.
pub fn stacks<'a>(
    names: &Names<'_>,
    all: impl IntoIterator<Item = (usize, &'a [Frame])>,
) -> String {
    let (mut stacks, mut annotations) = (Vec::new(), Annotations::default());
    for (at, frames) in all {
        let frames = member::from_own(frames);
        let calls: Vec<Call> = frames.iter().rev().map(Call::of).collect();
        if let Some(waits) = Location::of(frames, None, None).waits() {
            let ends = annotations.ends.entry(calls.clone()).or_default();
            ends.insert(waits.to_owned());
        }
        stacks.push((at, calls));
    }
    annotations.tree(names, &stacks)
}

/// One line of a tree.
struct TreeLine {
    who: String,
    depth: usize,
    label: String,
}

/// Annotations of calls, by their paths from the outermost call on.
#[derive(Default)]
struct Annotations<'a> {
    /// Waits or exceptions of stacks that end there.
    ends: HashMap<Vec<Call>, BTreeSet<String>>,
    locals: HashMap<Vec<Call>, Vec<(usize, &'a Frame)>>,
}

impl Annotations<'_> {
    /// Formats the tree of `stacks`, with annotations.
    fn tree(&self, names: &Names<'_>, stacks: &[(usize, Vec<Call>)]) -> String {
        let nodes = tree::fold(stacks.iter().map(|(at, calls)| (*at, &**calls)));
        let mut lines = Vec::new();
        self.lines(names, &nodes, &mut Vec::new(), 0, &mut lines);
        let widest = lines
            .iter()
            .map(|line| width(&line.who))
            .filter(|w| *w <= MAX_NAMES_WIDTH);
        let room = widest.max().unwrap_or_default();
        let mut text = String::new();
        for line in lines {
            let pad = room.saturating_sub(width(&line.who));
            text += &format!(
                "{}{:pad$}  {:depth$}{}\n",
                line.who,
                "",
                "",
                line.label,
                depth = 2 * line.depth
            );
        }
        text
    }

    fn lines(
        &self,
        names: &Names<'_>,
        nodes: &[Node],
        path: &mut Vec<Call>,
        depth: usize,
        lines: &mut Vec<TreeLine>,
    ) {
        for node in nodes {
            path.push(node.call.clone());
            let mut label = node.call.to_string();
            if let Some(ends) = self.ends.get(path).filter(|_| !node.ends.is_empty()) {
                let ends: Vec<&str> = ends.iter().map(String::as_str).collect();
                label += &format!("  ← {}", ends.join(", "));
            }
            let who = names.of(&node.members);
            lines.push(TreeLine { who, depth, label });
            for label in self
                .locals
                .get(path)
                .map_or(Vec::new(), |all| variables(names, all))
            {
                let who = String::new();
                lines.push(TreeLine {
                    who,
                    depth: depth + 2,
                    label,
                });
            }
            // Indents only at branches.
            let parts = node.calls.len() > 1 || !(node.ends.is_empty() || node.calls.is_empty());
            self.lines(names, &node.calls, path, depth + usize::from(parts), lines);
            path.pop();
        }
    }
}

/// Formats the variables of one call: a value that is the same everywhere once, otherwise each value with its
/// members. Those by which a member is odd come first.
fn variables(names: &Names<'_>, frames: &[(usize, &Frame)]) -> Vec<String> {
    let cut = frames
        .iter()
        .map(|(_, frame)| frame.locals_cut as usize)
        .max()
        .unwrap_or_default();
    let mut order: Vec<&str> = Vec::new();
    let mut by_name: HashMap<&str, Vec<(usize, Variable)>> = HashMap::new();
    for (at, frame) in frames {
        for local in frame.locals.iter().flatten() {
            let all = by_name.entry(&local.name).or_insert_with(|| {
                order.push(&local.name);
                Vec::new()
            });
            all.push((*at, Variable::of_running(local)));
        }
    }
    let members: BTreeSet<usize> = frames.iter().map(|(at, _)| *at).collect();
    let compared = order.iter().filter_map(|name| {
        let all = by_name.get(name)?.iter().map(|(at, variable)| VariableOf {
            at: *at,
            variable: Some(variable),
            has_checksums: false,
        });
        Some(as_a_whole(name, &all.collect::<Vec<_>>()))
    });
    let mut compared: Vec<ComparedVariable> = compared.collect();
    compared.sort_by_key(|one| one.answers.odd().is_empty());
    let line = |one: &ComparedVariable| {
        let mut answers: Vec<&Same> = one.answers.same.iter().collect();
        answers.sort_by_key(|same| std::cmp::Reverse(same.members.len()));
        let is_one = answers.len() == 1 && answers[0].members == members;
        let shown = answers.iter().take(MAX_VALUES).map(|same| {
            let value = shortened(&same.text, MAX_VALUE_CHARS);
            match is_one {
                true => value,
                false => format!("{value} ({})", names.of(&same.members)),
            }
        });
        let shown: Vec<String> = shown.collect();
        let more = match answers.len().saturating_sub(MAX_VALUES) {
            0 => String::new(),
            more => format!(", and {more} other values"),
        };
        format!("{} = {}{more}", one.name, shown.join(", "))
    };
    let mut lines: Vec<String> = compared.iter().take(MAX_VARIABLES).map(line).collect();
    match compared.len().saturating_sub(MAX_VARIABLES) + cut {
        0 => {}
        more => lines.push(format!("… {more} more variables")),
    }
    lines
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns the entry of a rank of `group` in an answer of the relay, with its frames, innermost first.
    fn entry(group: &str, rank: usize, frames: &[(&str, &str, u32)], locals: &Value) -> Value {
        let frames = frames
            .iter()
            .enumerate()
            .map(|(at, (function, file, line))| {
                let mut frame = json!({"function": function, "file": file, "line": line});
                if at == 0 && locals.is_array() {
                    frame["locals"] = locals.clone();
                }
                frame
            });
        let frames: Vec<Value> = frames.collect();
        json!({"tasks": [{"group": group, "name": group, "rank": rank, "pid": 100 + rank, "node_ip": "10.0.0.7"}],
            "look": {"pid": 1, "source": "hook", "threads": [
                {"id": 1, "name": "MainThread", "is_main": true, "idle": true, "frames": frames},
                {"id": 2, "name": "gc", "frames": [{"function": "run", "file": "ray/gc.py", "line": 3}]}]}})
    }

    pub(in crate::listing::fold) fn member(
        group: &str,
        rank: usize,
        frames: &[(&str, &str, u32)],
    ) -> Member {
        Member::read(&entry(group, rank, frames, &Value::Null), false)
    }

    const BARRIER_FRAMES: &[(&str, &str, u32)] = &[
        ("barrier", "torch/distributed/distributed_c10d.py", 4159),
        ("step", "train.py", 41),
        ("run", "train.py", 88),
        ("main_loop", "ray/_private/worker.py", 1069),
    ];
    const LOADER_FRAMES: &[(&str, &str, u32)] = &[
        ("load", "data.py", 17),
        ("run", "train.py", 88),
        ("main_loop", "ray/_private/worker.py", 1069),
    ];

    fn eight_ranks() -> Vec<Member> {
        let ranks = (0..8usize).map(|rank| {
            let odd = rank == 3;
            let locals =
                json!([{"name": "batch", "type": "int", "value": if odd { "8" } else { "7" }}]);
            Member::read(
                &entry(
                    "train",
                    rank,
                    if odd { LOADER_FRAMES } else { BARRIER_FRAMES },
                    &locals,
                ),
                false,
            )
        });
        ranks.collect()
    }

    #[test]
    fn odd_rank_is_named_first_with_its_location() {
        assert_eq!(
            summary(&eight_ranks()),
            "train: rank 3 is elsewhere than the other 7 of 8\n  \
             rank 3: waits outside Python, called by load (data.py:17)\n  \
             ranks 0-2,4-7: all wait in torch.distributed.barrier, from step (train.py:41)\n"
        );
    }

    #[test]
    fn stacks_form_one_tree_with_ranks_at_its_calls() {
        let options = TreeOptions {
            locals: true,
            ..TreeOptions::default()
        };
        assert_eq!(
            tree(&eight_ranks(), options),
            "0-7      run (train.py:88)\n\
             0-2,4-7    step (train.py:41)\n\
             0-2,4-7    barrier (torch/distributed/distributed_c10d.py:4159)  ← torch.distributed.barrier\n\
             3          load (data.py:17)  ← outside Python\n\
             \x20              batch = 8\n"
        );
        let all = TreeOptions {
            all_threads: true,
            ..TreeOptions::default()
        };
        assert!(tree(&eight_ranks(), all).contains("0-7      run (ray/gc.py:3)\n"));
    }

    #[test]
    fn variable_is_listed_once_with_ranks_per_value() {
        let entry_without_rank = |rank: usize| {
            let locals = json!([{"name": "x", "type": "int", "value": "1"},
                {"name": "rank", "type": "int", "value": (rank / 3).to_string()}]);
            Member::read(&entry("train", rank, &[("f", "a.py", 1)], &locals), false)
        };
        let members: Vec<Member> = (0..5).map(entry_without_rank).collect();
        let options = TreeOptions {
            locals: true,
            ..TreeOptions::default()
        };
        let text = tree(&members, options);
        assert!(text.contains(" x = 1\n"), "{text}");
        assert!(text.contains(" rank = 0 (0-2), 1 (3,4)\n"), "{text}");
    }

    #[test]
    fn variable_with_an_odd_member_comes_first() {
        let of = |rank: usize| {
            let loss = ["0.5", "0.50", "nan", "0.5"][rank];
            let locals = json!([{"name": "x", "type": "int", "value": "1"},
                {"name": "self.loss", "type": "float", "value": loss}]);
            Member::read(&entry("train", rank, &[("f", "a.py", 1)], &locals), false)
        };
        let members: Vec<Member> = (0..4).map(of).collect();
        let shown = TreeOptions {
            locals: true,
            ..TreeOptions::default()
        };
        let text = tree(&members, shown);
        let loss = text.find(" self.loss = 0.5 (0,1,3), nan (2)\n");
        assert!(loss.is_some() && loss < text.find(" x = 1\n"), "{text}");
    }

    #[test]
    fn unanswered_member_is_named_and_others_are_shown() {
        let mut members = eight_ranks();
        let unanswered = json!({"tasks": [{"group": "train", "name": "train", "rank": 8}], "error": "it is gone"});
        members.push(Member::read(&unanswered, false));
        let text = summary(&members);
        assert!(
            text.starts_with("train: rank 3 is elsewhere than the other 7 of 8\n"),
            "{text}"
        );
        assert!(text.ends_with("! train, rank 8: it is gone\n"), "{text}");
        // The hook of this member does not answer, but its stack is seen from outside.
        let mut from_outside = entry("train", 9, BARRIER_FRAMES, &Value::Null);
        from_outside["look"]["note"] = "it keeps the lock".into();
        members.push(Member::read(&from_outside, false));
        let expected = "! train, rank 9: it keeps the lock; this stack is seen from outside\n";
        assert!(
            summary(&members).ends_with(expected),
            "{}",
            summary(&members)
        );
    }

    #[test]
    fn tasks_without_ranks_are_named_or_counted() {
        let entry_without_rank = |at: usize| {
            let mut entry = entry("f", at, &[("f", "a.py", 1)], &Value::Null);
            entry["tasks"][0]["rank"] = Value::Null;
            entry
        };
        let members = |count| {
            let members: Vec<Member> = (0..count)
                .map(|at| Member::read(&entry_without_rank(at), false))
                .collect();
            members
        };
        assert_eq!(
            summary(&members(1)),
            "f, f pid 100 @ 10.0.0.7: waits outside Python, called by f (a.py:1)\n"
        );
        assert!(tree(&members(5), TreeOptions::default()).starts_with("f ×5  f (a.py:1)"));
        assert!(tree(&members(2), TreeOptions::default()).starts_with("f ×2  f (a.py:1)"));
        let mut different = members(2);
        let other_location = entry("f", 7, &[("f", "a.py", 2)], &Value::Null);
        different.push(Member::read(&other_location, false));
        let text = tree(&different, TreeOptions::default());
        assert!(text.contains("f pid 100 @ 10.0.0.7, f pid 101"), "{text}");
    }
}
