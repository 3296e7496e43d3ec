//! Members of a group that wait in the same call for the others of their group, and those that are missing there.

use std::collections::{BTreeMap, BTreeSet};

use super::super::location::Location;
use super::super::ranks::ranges;
use super::super::who::Names;
use super::job::Job;
use super::state::{Position, State};

/// Ranks that a group may claim to have, and absent ones that are named.
const MAX_RANKS: u32 = 4096;
const MAX_ABSENT: usize = 64;

/// How it is known that members wait for their group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    /// They are in a collective or a barrier.
    Collective,
    /// Most of the group has not moved from one location for long.
    SameLocation,
}

/// Members that wait in one call.
#[derive(Debug)]
pub(super) struct Gathering {
    pub(super) members: BTreeSet<usize>,
    /// The members and idle actors of the group that are not in this call.
    pub(super) missing: Vec<usize>,
    /// Ranks that run in no process, as text.
    pub(super) absent: Option<String>,
    pub(super) proof: Proof,
}

/// Finds the gatherings of all groups.
pub(super) fn all(job: &Job, names: &Names<'_>, positions: &[Position]) -> Vec<Gathering> {
    let groups = names.groups().values();
    groups
        .flat_map(|group| of_group(job, group, positions))
        .collect()
}

fn of_group(job: &Job, group: &BTreeSet<usize>, positions: &[Position]) -> Vec<Gathering> {
    let in_state = |is: &dyn Fn(&Position) -> bool| {
        let mut spots: BTreeMap<&Location, BTreeSet<usize>> = BTreeMap::new();
        for at in group {
            let position = positions.get(*at).filter(|position| is(position));
            if let Some(location) = position.and_then(|position| position.location.as_ref()) {
                spots.entry(location).or_default().insert(*at);
            }
        }
        spots
    };
    let mut spots = in_state(&|position| position.state == State::WaitsForGroup);
    let mut proof = Proof::Collective;
    if spots.is_empty() && group.iter().all(|at| job.rank(*at).is_some()) {
        spots = in_state(&may_wait_for_group);
        spots.retain(|_, members| 2 * members.len() > group.len() && members.len() > 1);
        proof = Proof::SameLocation;
    }
    // That most are at one location says nothing while the others move on, unless most wait in the system.
    let is_in_system = |at: &usize| {
        let state = positions.get(*at).map(|one| &one.state);
        matches!(state, Some(State::WaitsForPeer | State::WaitsOutside))
    };
    let is_waited_for = |at: &usize, members: &BTreeSet<usize>| {
        let may_be = |one: &Position| {
            one.still.is_none() || !one.moves() || members.iter().all(is_in_system)
        };
        proof == Proof::Collective || positions.get(*at).is_none_or(may_be)
    };
    let ranks = ranks(job, group);
    let size = world_size(job, group).or_else(|| up_to_largest(ranks.as_ref()?));
    let gather = |members: BTreeSet<usize>| {
        // With all ranks here, other actors of the class take no part.
        let is_complete = size.is_some_and(|size| members.len() >= size as usize);
        let others = group.difference(&members).copied();
        let others = others.filter(|at| !job.is_driver(*at) && is_waited_for(at, &members));
        Gathering {
            missing: others.filter(|_| !is_complete).collect(),
            absent: size
                .filter(|_| !is_complete && job.left_out == 0)
                .and_then(|size| absent(ranks.as_ref()?, size)),
            members,
            proof,
        }
    };
    let gatherings = spots.into_values().map(gather);
    gatherings
        .filter(|one| proof == Proof::Collective || !one.missing.is_empty() || one.absent.is_some())
        .collect()
}

/// Whether a member may wait for its group in a call that does not say so: a GPU's work ends with a collective, and a
/// barrier of the program's own may be a socket.
fn may_wait_for_group(position: &Position) -> bool {
    let may = matches!(
        position.state,
        State::WaitsForDevice
            | State::WaitsForPeer
            | State::WaitsOutside
            | State::Runs
            | State::Unclear
    );
    may && position.is_still()
}

/// Returns the ranks of the group, if each process has another one.
fn ranks(job: &Job, group: &BTreeSet<usize>) -> Option<BTreeSet<u32>> {
    let ranks: Option<BTreeSet<u32>> = group.iter().map(|at| job.rank(*at)).collect();
    ranks.filter(|ranks| ranks.len() == group.len())
}

/// Returns how many ranks a group has by its largest one, if few are missing below.
fn up_to_largest(ranks: &BTreeSet<u32>) -> Option<u32> {
    let size = ranks.last()?.checked_add(1)?;
    (size as usize <= 2 * ranks.len()).then_some(size)
}

/// Returns how many ranks the group has, if its processes agree.
fn world_size(job: &Job, group: &BTreeSet<usize>) -> Option<u32> {
    let sizes: BTreeSet<_> = group
        .iter()
        .map(|at| job.processes.get(*at).and_then(|one| one.world_size))
        .collect();
    match (sizes.len(), sizes.first()) {
        (1, Some(Some(size))) if (1..=MAX_RANKS).contains(size) => Some(*size),
        _ => None,
    }
}

/// Returns those below `size` that are not among `ranks`, as text, if they are few.
fn absent(ranks: &BTreeSet<u32>, size: u32) -> Option<String> {
    let absent: BTreeSet<u32> = (0..size).filter(|rank| !ranks.contains(rank)).collect();
    let named = (1..=MAX_ABSENT).contains(&absent.len()) && absent.len() < ranks.len();
    named.then(|| ranges(&absent))
}
