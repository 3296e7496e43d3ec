//! One process that was looked at: what it is called, and the stacks of it that count.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::place::{Call, Place, is_library};
use super::ranks::ranges;
use crate::listing::row::Row;
use crate::ray::look::{Frame, Look, Thread};
use crate::wire::text::replaced;

/// Members that are named one by one where they have no ranks.
const NAMED: usize = 3;

/// What is looked at.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    /// Those that run the same.
    pub(super) group: String,
    rank: Option<u32>,
    /// What tells it from those without a rank.
    name: String,
    /// What was seen; a sentence where nothing was.
    pub(super) look: Result<Look, String>,
}

impl Member {
    /// One of the relay's answer; `several_jobs`: there are members of more than one.
    pub(crate) fn read(entry: &Value, several_jobs: bool) -> Self {
        let task = &entry["tasks"][0];
        let text = |key: &str| task[key].as_str().map(|text| replaced(text).into_owned());
        let row = Row::read(task);
        let mut group = text("group").unwrap_or_else(|| "?".to_owned());
        if several_jobs && let Some(job) = text("job_id") {
            group = format!("{job} {group}");
        }
        let look = serde_json::to_vec(&entry["look"]).map_err(|why| why.to_string());
        let look = match entry["error"].as_str() {
            Some(why) => Err(replaced(why).into_owned()),
            None => look.and_then(|json| Look::read(&json).map_err(|why| why.to_string())),
        };
        let rank = task["rank"].as_u64();
        Self {
            group,
            rank: rank.and_then(|rank| u32::try_from(rank).ok()),
            name: format!("{} pid {} @ {}", row.task, row.pid, row.node),
            look,
        }
    }

    /// The threads that count, the one that runs the task first where that can be told: those with code of somebody's own,
    /// or the main one where there are none. `all`: every one.
    pub(super) fn threads(&self, all: bool) -> Vec<&Thread> {
        let Ok(look) = &self.look else {
            return Vec::new();
        };
        let is_own = |thread: &&Thread| thread.frames.iter().any(|f| !is_library(&f.file));
        let mut threads: Vec<&Thread> = look.threads.iter().filter(|t| all || is_own(t)).collect();
        threads.sort_by_key(|thread| (!is_own(thread), !thread.is_main));
        if threads.is_empty() {
            let main = look.threads.iter().find(|thread| thread.is_main);
            threads.extend(main.or(look.threads.first()));
        }
        threads
    }

    /// Whether every thread that counts is at the same lines of the same functions as in `before`, a look at the same process.
    pub(crate) fn is_where(&self, before: &Self) -> bool {
        let of = |member: &Self| {
            member
                .threads(false)
                .into_iter()
                .map(calls)
                .collect::<Vec<_>>()
        };
        self.look.is_ok() && before.look.is_ok() && of(self) == of(before)
    }

    /// Where it is, as a sentence without its subject; `None`: it was not seen.
    pub(crate) fn place_in_words(&self) -> Option<String> {
        Some(self.place()?.to_string())
    }

    /// Where it is.
    pub(super) fn place(&self) -> Option<Place> {
        let thread = *self.threads(false).first()?;
        Some(place(thread))
    }
}

/// Where `thread` is.
pub(super) fn place(thread: &Thread) -> Place {
    match &thread.raised {
        Some(raised) => Place::left_by(raised, frames(thread)),
        None => Place::of(frames(thread), thread.idle),
    }
}

/// The frames of `thread`, innermost first, from the outermost one of somebody's own code on: what Ray and Python have around
/// every task tells nothing. Where there is none of that, all.
pub(super) fn frames(thread: &Thread) -> &[Frame] {
    let own = thread.frames.iter().rposition(|f| !is_library(&f.file));
    own.map_or(&thread.frames, |own| &thread.frames[..=own])
}

/// The innermost frame of `thread` of somebody's own code, by its place in [`calls`].
fn own(thread: &Thread) -> Option<(usize, &Frame)> {
    let frames = frames(thread);
    let at = frames.iter().position(|frame| !is_library(&frame.file))?;
    Some((frames.len() - 1 - at, &frames[at]))
}

/// The frames of `thread` whose variables say something, by their places in [`calls`]: the innermost of somebody's own code,
/// or all of that where an exception has left them.
pub(super) fn told(thread: &Thread) -> Vec<(usize, &Frame)> {
    if thread.raised.is_none() {
        return own(thread).into_iter().collect();
    }
    let frames = frames(thread).iter().rev().enumerate();
    frames
        .filter(|(_, frame)| !is_library(&frame.file))
        .collect()
}

/// The calls of `thread`, the outermost first.
pub(super) fn calls(thread: &Thread) -> Vec<Call> {
    frames(thread).iter().rev().map(Call::of).collect()
}

/// How some of `members` are called, by their groups: `0-2,4-7`, or with the group before where there are several.
pub(super) struct Names<'a> {
    members: &'a [Member],
    /// The members of each.
    groups: BTreeMap<&'a str, BTreeSet<usize>>,
}

impl<'a> Names<'a> {
    pub(super) fn new(members: &'a [Member]) -> Self {
        let mut groups: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        for (at, member) in members.iter().enumerate() {
            groups.entry(&member.group).or_default().insert(at);
        }
        Self { members, groups }
    }

    /// The groups, each with its members.
    pub(super) fn groups(&self) -> &BTreeMap<&'a str, BTreeSet<usize>> {
        &self.groups
    }

    /// Whether each member of `group` has a rank of its own.
    fn are_ranked(&self, group: &str) -> bool {
        let all = self.groups.get(group).into_iter().flatten();
        let ranks: Vec<_> = all.map(|at| self.members[*at].rank).collect();
        let distinct: BTreeSet<u32> = ranks.iter().flatten().copied().collect();
        distinct.len() == ranks.len()
    }

    /// What `some` are called, all of one group or of several.
    pub(super) fn of(&self, some: &BTreeSet<usize>) -> String {
        let mut by_group: BTreeMap<&str, Vec<&Member>> = BTreeMap::new();
        for member in some.iter().filter_map(|at| self.members.get(*at)) {
            by_group.entry(&member.group).or_default().push(member);
        }
        let alone = self.groups.len() == 1;
        let called =
            by_group
                .into_iter()
                .map(|(group, members)| match (self.are_ranked(group), alone) {
                    (true, true) => ranks(&members),
                    (true, false) => format!("{group} {}", ranks(&members)),
                    // All of them are no names that stand on each line.
                    _ if members.len() == 1
                        || members.len() <= NAMED && self.groups[group].len() != members.len() =>
                    {
                        let names: Vec<_> = members.iter().map(|member| &*member.name).collect();
                        names.join(", ")
                    }
                    _ => format!("{group} ×{}", members.len()),
                });
        called.collect::<Vec<_>>().join("; ")
    }

    /// The same of one group, in a sentence.
    pub(super) fn in_words(&self, group: &str, some: &BTreeSet<usize>) -> String {
        let members: Vec<_> = some.iter().filter_map(|at| self.members.get(*at)).collect();
        match (self.are_ranked(group), members.len()) {
            (true, 1) => format!("rank {}", ranks(&members)),
            (true, _) => format!("ranks {}", ranks(&members)),
            (_, 1..=NAMED) => {
                let names: Vec<_> = members.iter().map(|member| &*member.name).collect();
                names.join(", ")
            }
            (_, many) => format!("{many} of {group}"),
        }
    }
}

fn ranks(members: &[&Member]) -> String {
    ranges(&members.iter().filter_map(|member| member.rank).collect())
}
