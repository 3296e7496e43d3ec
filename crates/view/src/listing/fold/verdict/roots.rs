//! The ends of waiting: processes and things that others wait for, and that wait for none of them.

use std::collections::BTreeSet;
use std::time::Duration;

use super::edges::WaitGraph;
use super::gathering::Proof;
use super::graph::{Shape, Sink};
use super::job::{Job, Role};
use super::locks::Ownership;
use super::report::Confidence;
use super::state::{MOVES_LIMIT, Position, STILL_LIMIT, State};
use super::things::Thing;

/// Roots whose waiters are counted through others.
const MAX_COUNTED_ROOTS: usize = 64;

/// How a root gets on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pace {
    /// It has not moved for long, or cannot move.
    Stuck,
    /// Not known: there is no history.
    Unknown,
    /// It has not moved for a moment, or others have not waited for long.
    Slow,
    Moves,
}

/// A process or thing that others wait for, or several that wait for each other.
#[derive(Debug, Clone)]
pub(super) struct Root {
    /// Those that hold the others up.
    pub(super) nodes: Vec<usize>,
    /// All of a cycle; empty if there is none.
    pub(super) cycle: Vec<usize>,
    pub(super) confidence: Confidence,
    pub(super) pace: Pace,
    /// Those that wait for it, through others too.
    pub(super) waiters: Vec<usize>,
    pub(super) still: Option<Duration>,
}

/// The job, its positions and its graph, in which the roots are found.
#[derive(Clone, Copy)]
pub(super) struct Found<'a> {
    pub(super) job: &'a Job,
    pub(super) positions: &'a [Position],
    pub(super) waits: &'a WaitGraph,
}

impl Found<'_> {
    /// Returns the roots, those that most wait for first.
    pub(super) fn roots(self) -> Vec<Root> {
        let sinks = self.waits.graph.sinks();
        let mut roots: Vec<Root> = sinks.iter().filter_map(|sink| self.root(sink)).collect();
        roots.sort_by_key(|root| std::cmp::Reverse(root.waiters.len()));
        for root in roots.iter_mut().take(MAX_COUNTED_ROOTS) {
            root.waiters = self.waits.graph.all_waiters(&root.nodes);
        }
        roots.sort_by_key(|root| std::cmp::Reverse((root.waiters.len(), root.still)));
        roots
    }

    fn root(self, sink: &Sink) -> Option<Root> {
        let (nodes, confidence) = match sink.shape {
            Shape::End => {
                let node = *sink.nodes.first()?;
                (vec![node], self.end(node)?)
            }
            Shape::Cycle => self.cycle(&sink.nodes)?,
        };
        let cycle = match sink.shape {
            Shape::End => Vec::new(),
            Shape::Cycle => sink.nodes.clone(),
        };
        let still = nodes.iter().map(|node| self.still(*node)).min().flatten();
        let direct: BTreeSet<usize> = nodes
            .iter()
            .flat_map(|node| self.waits.graph.waiters(*node).iter().copied())
            .collect();
        let mut waited = self.waited(&direct);
        if waited.is_none() {
            // An actor in which they meet records no history.
            let all = self.waits.graph.all_waiters(&nodes);
            let took_part = |at: &usize| self.job.took_part(*at, &all);
            if nodes.iter().all(took_part) {
                waited = self.waited(&all.into_iter().collect());
            }
        }
        let pace = self.pace(&nodes, confidence, still, waited);
        if pace == Pace::Unknown && direct.iter().any(|at| self.is_guess(*at)) {
            return None;
        }
        Some(Root {
            nodes,
            cycle,
            confidence,
            pace,
            waiters: direct.into_iter().collect(),
            still,
        })
    }

    /// Returns how sure it is that the node `at`, where waiting ends, holds others up. `None`: it does not.
    fn end(self, at: usize) -> Option<Confidence> {
        let waiters = self.waits.graph.waiters(at);
        if let Some(thing) = self.waits.thing(at) {
            return match thing {
                Thing::Unscheduled(_) => Some(Confidence::Certain),
                // Ray forgets an object that has just arrived, and lists objects late.
                Thing::OwnerGone(_) if !self.has_waited(waiters) => None,
                Thing::OwnerGone(_) => Some(Confidence::Likely),
                Thing::Absent(_) if waiters.iter().any(|at| self.is_guess(*at)) => {
                    Some(Confidence::Possible)
                }
                Thing::NoMemory(_) | Thing::Absent(_) => Some(Confidence::Likely),
                // It may wait for another one itself.
                Thing::Method { .. } => Some(Confidence::Possible),
                // A task that a driver waits for may have begun after the snapshots.
                Thing::NotInspected(_) if self.has_workers() && self.are_drivers(waiters) => None,
                Thing::NotInspected(_) if self.has_just_begun(waiters) => None,
                Thing::NotInspected(_) => Some(Confidence::Possible),
                // It waits itself.
                Thing::WaitsForArguments(_) => None,
            };
        }
        let by_group = || {
            waiters
                .iter()
                .find_map(|waiter| self.waits.gathering(*waiter))
        };
        let confidence = match by_group() {
            Some(gathering) if gathering.proof == Proof::SameLocation => Confidence::Possible,
            Some(gathering) => match self.ends_of(&gathering.missing) {
                1 => Confidence::Likely,
                missing if 2 * missing < gathering.members.len() => Confidence::Likely,
                _ => Confidence::Possible,
            },
            None if waiters.iter().any(|waiter| self.is_guess(*waiter)) => Confidence::Possible,
            None => Confidence::Likely,
        };
        let Some(position) = self.positions.get(at) else {
            return (!waiters.is_empty()).then_some(confidence);
        };
        match &position.state {
            State::Deadlocked(deadlock) => return Some(by_ownership(deadlock.ownership)),
            State::LostChild(_) if waiters.is_empty() => return Some(of_child(position)),
            _ if self.waits.is_surplus(at) => return Some(Confidence::Possible),
            _ if waiters.is_empty() || self.job.is_driver(at) => return None,
            _ => {}
        }
        let only_drivers = self.are_drivers(waiters);
        let limit = match &position.state {
            State::Paused => return Some(Confidence::Certain),
            // These wait for their group, and what keeps it is not known.
            State::WaitsForGroup => return None,
            State::WaitsForDevice if by_group().is_none() => return None,
            State::WaitsForObject if only_drivers => return None,
            // An actor that serves the calls of others waits for what they have not brought yet.
            State::WaitsForFuture | State::WaitsForQueue | State::Idle
                if by_group().is_none() && !only_drivers =>
            {
                return None;
            }
            State::WaitsForFileLock(holders) if holders.is_empty() => return None,
            // What these wait for is not known.
            State::NotInspected(_) | State::WaitsForObject | State::WaitsForFuture => {
                Confidence::Possible
            }
            // It may compute for long in one call.
            state if state.computes() && position.is_still() => Confidence::Possible,
            // A service waits for requests.
            State::WaitsForPeer | State::WaitsForQueue | State::WaitsForThread if only_drivers => {
                Confidence::Possible
            }
            _ => Confidence::Likely,
        };
        Some(confidence.max(limit))
    }

    /// Counts those of `nodes` that wait for no other.
    fn ends_of(self, nodes: &[usize]) -> usize {
        let is_end = |at: &&usize| self.waits.graph.targets(**at).is_empty();
        nodes.iter().filter(is_end).count()
    }

    /// Whether it is a guess that the member `at` waits for its group, or for those who have not come to it.
    fn is_guess(self, at: usize) -> bool {
        if self.waits.is_barrier(at) {
            return true;
        }
        let gathering = self.waits.gathering(at);
        gathering.is_some_and(|one| one.proof == Proof::SameLocation)
    }

    /// Whether all of `waiters` are known to have moved within a moment: what they waited for may be there by now.
    fn has_just_begun(self, waiters: &[usize]) -> bool {
        let positions = waiters.iter().filter_map(|at| self.positions.get(*at));
        let mut still = positions.map(|one| one.still);
        still.all(|still| still.is_some_and(|still| still < MOVES_LIMIT))
    }

    /// Whether one of `waiters` is known not to have moved for long.
    fn has_waited(self, waiters: &[usize]) -> bool {
        let mut positions = waiters.iter().filter_map(|at| self.positions.get(*at));
        positions.any(Position::is_still)
    }

    fn are_drivers(self, nodes: &[usize]) -> bool {
        nodes.iter().all(|node| self.job.is_driver(*node))
    }

    /// Whether a process is inspected that is no driver.
    pub(super) fn has_workers(self) -> bool {
        (0..self.positions.len()).any(|at| !self.job.is_driver(at))
    }

    /// Returns those of the cycle `nodes` that hold the others up.
    fn cycle(self, nodes: &[usize]) -> Option<(Vec<usize>, Confidence)> {
        let gathering = |at: &usize| self.waits.gathering(*at);
        let gatherings = nodes.iter().filter_map(gathering);
        let Some(largest) = gatherings.max_by_key(|one| one.members.len()) else {
            let confidence = match self.waits.is_sure(nodes) {
                true => Confidence::Certain,
                false => Confidence::Likely,
            };
            return Some((nodes.to_vec(), confidence));
        };
        let minority = nodes.iter().filter(|at| !largest.members.contains(at));
        let minority: Vec<usize> = minority.copied().collect();
        // The minority is in another call than most of its group.
        let is_minority = minority.len() < largest.members.len() && !minority.is_empty();
        Some(match (is_minority, minority.len()) {
            (true, 1) if largest.proof == Proof::Collective => (minority, Confidence::Likely),
            (true, _) => (minority, Confidence::Possible),
            (false, _) => (nodes.to_vec(), Confidence::Possible),
        })
    }

    fn still(self, at: usize) -> Option<Duration> {
        match self.waits.thing(at) {
            Some(thing) => thing.still(),
            None => self.positions.get(at)?.still,
        }
    }

    /// Returns for how long `waiters` have typically waited; drivers only if no others do.
    fn waited(self, waiters: &BTreeSet<usize>) -> Option<Duration> {
        let of = |role: Role| {
            let waiters = waiters.iter().filter(|at| {
                self.job
                    .processes
                    .get(**at)
                    .is_some_and(|one| one.role == role)
            });
            let mut waited: Vec<Duration> = waiters.filter_map(|at| self.still(*at)).collect();
            waited.sort_unstable();
            waited.get(waited.len() / 2).copied()
        };
        of(Role::Worker).or_else(|| of(Role::Driver))
    }

    fn pace(
        self,
        nodes: &[usize],
        confidence: Confidence,
        still: Option<Duration>,
        waited: Option<Duration>,
    ) -> Pace {
        let is_short = |time: Duration| time < STILL_LIMIT;
        let position = nodes.first().and_then(|at| self.positions.get(*at));
        let thing = nodes.first().and_then(|at| self.waits.thing(*at));
        match (confidence, thing) {
            // A node may still be started for it.
            (_, Some(Thing::Unscheduled(_))) if waited.is_some_and(is_short) => return Pace::Slow,
            (_, Some(Thing::NotInspected(_))) => return Pace::Unknown,
            // Locks and `ray.get` may have a timeout, and be tried again.
            (Confidence::Certain, _) if still.is_none_or(|still| still >= MOVES_LIMIT) => {
                return Pace::Stuck;
            }
            (Confidence::Certain, _) if position.is_some_and(|one| one.state == State::Paused) => {
                return Pace::Stuck;
            }
            _ => {}
        }
        let runs = position.is_some_and(|one| one.state.computes());
        let is_silent = |one: &Position| matches!(one.state, State::Silent(_));
        let is_seen = position.is_some_and(|one| one.location.is_some() && !is_silent(one));
        match (still, waited) {
            (Some(still), _) if still < MOVES_LIMIT => Pace::Moves,
            (Some(still), waited) if is_short(still) || waited.is_some_and(is_short) => Pace::Slow,
            // A loop may be in the same call at each sample.
            (Some(_), _) if runs => Pace::Slow,
            (Some(_), _) => Pace::Stuck,
            (None, Some(waited)) if is_short(waited) => Pace::Slow,
            (None, Some(_)) if !is_seen => Pace::Stuck,
            (None, Some(_)) if runs => Pace::Slow,
            (None, None) if runs && position.is_some_and(Position::moves) => Pace::Moves,
            (None, _) => Pace::Unknown,
        }
    }
}

fn by_ownership(ownership: Ownership) -> Confidence {
    match ownership {
        Ownership::Recorded => Confidence::Certain,
        Ownership::Inferred => Confidence::Likely,
    }
}

/// Returns how sure it is that a process waits for its lost child: a queue between threads needs none.
fn of_child(position: &Position) -> Confidence {
    let location = position.location.as_ref();
    let waits = location.and_then(|location| location.waits.as_deref());
    match waits.is_some_and(|waits| waits.starts_with("queue.")) {
        true => Confidence::Possible,
        false => Confidence::Likely,
    }
}
