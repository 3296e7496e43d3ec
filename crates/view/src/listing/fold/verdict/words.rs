//! The sentences of a verdict.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::super::location::Location;
use super::super::who::Names;
use super::roots::Found;
use super::state::{Position, State};
use ray_relay_base::wire::human_time::span;
use ray_relay_base::wire::text::shortened;

/// Characters of the names of several members, and of one sentence of a thread.
const MAX_NAMES_CHARS: usize = 160;
pub(super) const MAX_SENTENCE_CHARS: usize = 600;

/// Threads of a deadlock that are described.
const MAX_THREADS: usize = 4;

/// Words for what was found.
#[derive(Clone, Copy)]
pub(super) struct Words<'a> {
    pub(super) found: Found<'a>,
    pub(super) names: &'a Names<'a>,
}

impl Words<'_> {
    /// Names `nodes`, with their groups: `rank 3 of Trainer`.
    pub(super) fn name(self, nodes: &[usize]) -> String {
        self.named(nodes, &|group, name| match name.starts_with("rank") {
            true => format!("{name} of {group}"),
            false => name,
        })
    }

    /// Names `nodes`, with their groups only if there are several.
    pub(super) fn short_name(self, nodes: &[usize]) -> String {
        match self.names.groups().len() {
            1 => self.named(nodes, &|_, name| name),
            _ => self.name(nodes),
        }
    }

    fn named(self, nodes: &[usize], called: &dyn Fn(&str, String) -> String) -> String {
        let mut groups: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        let mut things = Vec::new();
        for node in nodes {
            match self.found.waits.thing(*node) {
                Some(thing) => things.push(thing.name().to_owned()),
                None => {
                    let of_group = groups.entry(self.found.job.group(*node)).or_default();
                    of_group.insert(*node);
                }
            }
        }
        let members = groups.into_iter().map(|(group, members)| {
            let name = self.names.in_words(group, &members);
            called(group, name)
        });
        let all: Vec<String> = members.chain(things).collect();
        shortened(&all.join(" and "), MAX_NAMES_CHARS)
    }

    /// Describes where and what the process `at` is: ` (pid 4711 @ 10.0.0.7)`. Empty if its name says so.
    fn process(self, at: usize) -> String {
        let Some(process) = self.found.job.processes.get(at) else {
            return String::new();
        };
        let group = self.found.job.group(at);
        match (process.pid, &process.node_ip) {
            _ if !self.names.are_numbered(group) => String::new(),
            (Some(pid), Some(ip)) => format!(" (pid {pid} @ {ip})"),
            (Some(pid), None) => format!(" (pid {pid})"),
            (None, _) => String::new(),
        }
    }

    /// Describes what the node `at` does, for how long, and what led there.
    pub(super) fn of_node(self, at: usize) -> Vec<String> {
        let does = format!(
            "{}{} {}",
            self.short_name(&[at]),
            self.process(at),
            self.does(at)
        );
        let Some(position) = self.found.positions.get(at) else {
            let process = self.found.job.processes.get(at);
            let lines = process.map_or(&[][..], |process| &process.last_lines);
            let lines = lines.iter().map(|line| format!("Its log: {line}"));
            return [sentence(&does)].into_iter().chain(lines).collect();
        };
        let and = match &position.state {
            State::LostChild(_)
            | State::WaitsForChild(_)
            | State::ChildRuns(_)
            | State::WaitsForLock(_) => "; it",
            _ => ", and",
        };
        let for_long = match position.still {
            _ if position.state == State::Paused => String::new(),
            Some(still) if position.moves() => format!("{and} moved within {}", longest(still)),
            Some(still) => format!("{and} has not moved for {}", span(still)),
            None => position.unmoved.map_or(String::new(), |apart| {
                format!(
                    "{and} did not move between two snapshots {} apart",
                    span(apart)
                )
            }),
        };
        let threads = match &position.state {
            State::Deadlocked(deadlock) => &deadlock.threads,
            _ => &position.locks,
        };
        let mut sentences = vec![sentence(&format!("{does}{for_long}"))];
        sentences.extend(threads.iter().take(MAX_THREADS).map(|one| sentence(one)));
        let before = position.before.as_ref();
        sentences.extend(before.map(|before| format!("Before that it was in {before}.")));
        sentences
    }

    /// Says in what the node `at` differs from the others of its collective.
    pub(super) fn remark(self, at: usize) -> Option<String> {
        let waits = self.found.waits;
        let surplus = "collective may be one too many: the others of the group have returned";
        let remark = match waits.is_surplus(at) {
            true => surplus,
            false => waits.remark(at)?,
        };
        Some(sentence(&format!("{}'s {remark}", self.short_name(&[at]))))
    }

    /// Describes what the node `at` does, as a sentence without its subject.
    pub(super) fn does(self, at: usize) -> String {
        if let Some(thing) = self.found.waits.thing(at) {
            return thing.reason().into_owned();
        }
        match self.found.positions.get(at) {
            Some(position) => {
                of_position(position, self.found.job.processes[at].breakpoint.as_deref())
            }
            None => {
                let process = self.found.job.processes.get(at);
                let absence = process.and_then(|process| process.absence.as_ref());
                absence.map_or("is idle".to_owned(), |absence| absence.words(1))
            }
        }
    }
}

/// `3s`, the least time within which a thread has moved.
fn longest(still: Duration) -> String {
    span(still.max(Duration::from_secs(1)))
}

/// Describes `position`, as a sentence without its subject.
fn of_position(position: &Position, breakpoint: Option<&str>) -> String {
    let location = position.location.as_ref();
    let at = location.and_then(|location| location.at.as_ref());
    let at_in = at.map_or(String::new(), |at| format!(" in {at}"));
    let from_outside = match location {
        Some(location) => format!("; seen from outside, it {location}"),
        None => String::new(),
    };
    match &position.state {
        State::Deadlocked(_) => "has threads that wait for each other".to_owned(),
        State::Idle => {
            "runs nothing of the program: its function has returned or failed, or has not begun"
                .to_owned()
        }
        State::Paused => {
            let at = breakpoint.map_or(String::new(), |id| format!(" at breakpoint {id}"));
            format!(
                "is paused{at}{at_in}: a person or breakpoint() has stopped it, and a person has to resume it"
            )
        }
        State::Silent(why) => format!("does not answer ({why}){from_outside}"),
        State::NotInspected(why) => format!("could not be inspected: {why}"),
        State::Sleeps => format!("sleeps{at_in}"),
        State::Runs => format!("runs{at_in}"),
        State::WaitsForLock(lock) => {
            let lock = if lock.is_empty() { "a lock" } else { lock };
            format!("waits for {lock}{at_in}, and no thread is known to hold it or to notify it")
        }
        State::LostChild(child) | State::WaitsForChild(child) | State::ChildRuns(child) => {
            format!("{}, while {child}", in_words(location))
        }
        State::WaitsForFileLock(holders) if !holders.is_empty() => {
            let holders: Vec<String> = holders.iter().map(u32::to_string).collect();
            format!(
                "{}, which process {} holds",
                in_words(location),
                holders.join(" and ")
            )
        }
        _ => in_words(location),
    }
}

fn in_words(location: Option<&Location>) -> String {
    location.map_or("has no Python stack".to_owned(), Location::to_string)
}

/// Returns `words` as a sentence. Names of the program keep their case.
pub(super) fn sentence(words: &str) -> String {
    let words = shortened(words, MAX_SENTENCE_CHARS);
    let is_ours = [
        "rank ",
        "ranks ",
        "the ",
        "a task",
        "an object",
        "its ",
        "nothing ",
        "it is not known ",
    ];
    let starts = is_ours.iter().any(|start| words.starts_with(start));
    let mut rest = words.chars();
    match rest.next().filter(|_| starts) {
        Some(first) => format!("{}{}.", first.to_uppercase(), rest.as_str()),
        None => format!("{words}."),
    }
}
