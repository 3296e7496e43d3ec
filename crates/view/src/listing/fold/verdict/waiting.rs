//! Members that wait, grouped by where and for what, and the sentences about them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::super::location::Location;
use super::super::text::plural;
use super::state::State;
use super::words::{Words, sentence};
use ray_relay_base::wire::human_time::span;

/// Members that do the same and wait for the same.
#[derive(Debug, Clone)]
pub(super) struct Waiting {
    pub(super) members: Vec<usize>,
    pub(super) location: Option<Location>,
    pub(super) targets: Vec<usize>,
    /// The object that they wait for, if that is no node.
    objects: Option<String>,
    /// The shortest and the longest time that they have waited.
    waited: Option<(Duration, Duration)>,
}

impl Words<'_> {
    /// Returns the members that wait for others, or for what is not known; those that wait for `nodes` first, then
    /// the most.
    pub(super) fn waiting(self, nodes: &[usize]) -> Vec<Waiting> {
        type Key<'a> = (&'a str, Option<&'a Location>, &'a [usize], Option<&'a str>);
        let mut found: BTreeMap<Key<'_>, Vec<usize>> = BTreeMap::new();
        for (at, position) in self.found.positions.iter().enumerate() {
            let targets = self.found.waits.graph.targets(at);
            let waits = matches!(position.state, State::WaitsForGroup | State::WaitsForObject);
            if targets.is_empty() && (!waits || nodes.contains(&at)) {
                continue;
            }
            let objects = self.found.job.objects[at].first();
            let objects = objects.filter(|object| {
                object.is_known && targets.is_empty() && position.state == State::WaitsForObject
            });
            let objects = objects.map(|object| &*object.words);
            let key = (
                self.found.job.group(at),
                position.location.as_ref(),
                targets,
                objects,
            );
            found.entry(key).or_default().push(at);
        }
        let rows = found
            .into_iter()
            .map(|((_, location, targets, objects), members)| Waiting {
                location: location.cloned(),
                targets: targets.to_vec(),
                objects: objects.map(str::to_owned),
                waited: self.waited(&members),
                members,
            });
        let mut rows: Vec<Waiting> = rows.collect();
        let is_direct = |row: &Waiting| row.targets.iter().any(|target| nodes.contains(target));
        rows.sort_by_key(|row| (!is_direct(row), std::cmp::Reverse(row.members.len())));
        rows
    }

    /// Groups `nodes` by their locations, as members that wait for nothing known.
    pub(super) fn spots(self, nodes: &[usize]) -> Vec<Waiting> {
        let mut spots: BTreeMap<(&str, Option<&Location>), Vec<usize>> = BTreeMap::new();
        for at in nodes {
            let location = self.found.positions[*at].location.as_ref();
            let key = (self.found.job.group(*at), location);
            spots.entry(key).or_default().push(*at);
        }
        let spots = spots.into_iter();
        spots
            .map(|((_, location), members)| Waiting {
                location: location.cloned(),
                targets: Vec::new(),
                objects: None,
                waited: self.waited(&members),
                members,
            })
            .collect()
    }

    /// Returns the shortest and the longest time that `members` have not moved.
    fn waited(self, members: &[usize]) -> Option<(Duration, Duration)> {
        let still = members
            .iter()
            .filter_map(|at| self.found.positions[*at].still);
        still.clone().min().zip(still.max())
    }

    /// Describes `waiting`. The reader knows that `nodes` are the ones to blame, if there are any.
    pub(super) fn of_waiting(self, waiting: &Waiting, nodes: &[usize]) -> String {
        let count = waiting.members.len();
        let name = self.short_name(&waiting.members);
        let target = match self.target(waiting) {
            _ if !waiting.targets.is_empty() && waiting.targets == waiting.members => {
                " for itself".to_owned()
            }
            _ if !nodes.is_empty() && waiting.targets == nodes => {
                let it = if nodes.len() == 1 { "it" } else { "them" };
                format!(" for {it}")
            }
            Some(target) => format!(" for {target}"),
            None => String::new(),
        };
        let location = match &waiting.location {
            Some(location) => plural(location, count),
            None => "wait".to_owned(),
        };
        let for_long = match waiting.waited.map(|(min, max)| (span(min), span(max))) {
            Some((min, max)) if min == max => format!(", for {min}"),
            Some((min, max)) => format!(", for {min} to {max}"),
            None => String::new(),
        };
        // `wait in ray.get, from f (a.py:3)`: the target comes behind the verb.
        let words = match location.split_once(' ') {
            Some((verb @ ("wait" | "waits"), rest)) => format!("{verb}{target} {rest}"),
            _ if target.is_empty() => location,
            _ => format!(
                "{location}, and {}{target}",
                if count == 1 { "waits" } else { "wait" }
            ),
        };
        let collective = self.collective(&waiting.members);
        let collective = collective.map_or(String::new(), |one| format!(": {one}"));
        sentence(&format!("{name} {words}{for_long}{collective}"))
    }

    /// Names the collective in which all of `members` wait, if it is recorded.
    pub(super) fn collective(&self, members: &[usize]) -> Option<&str> {
        let of = |at: &usize| self.found.waits.gathering(*at)?.collective.as_deref();
        let all: BTreeSet<Option<&str>> = members.iter().map(of).collect();
        all.first().copied().flatten().filter(|_| all.len() == 1)
    }

    /// Names what `waiting` waits for.
    pub(super) fn target(self, waiting: &Waiting) -> Option<String> {
        match waiting.targets.is_empty() {
            true => waiting.objects.clone(),
            false => Some(self.short_name(&waiting.targets)),
        }
    }
}
