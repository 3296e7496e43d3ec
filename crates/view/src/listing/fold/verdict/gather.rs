//! Members of a group that wait in the same call for the others of their group, and those that are missing there.
//!
//! By PyTorch's [`collectives`] where these are recorded, by the locations otherwise.

use std::collections::{BTreeMap, BTreeSet};

use super::super::location::Location;
use super::super::who::Names;
use super::collectives;
use super::gathering::{Gathering, Proof, absent, ranks};
use super::job::Job;
use super::state::{Position, State};

/// Ranks that a group may claim to have.
const MAX_RANKS: u32 = 4096;

/// The gatherings of all groups.
#[derive(Debug, Default)]
pub(super) struct Gatherings {
    pub(super) all: Vec<Gathering>,
    /// In what a member differs from the others of its collective, behind `rank 3's`.
    pub(super) remarks: BTreeMap<usize, String>,
    /// Members that seem to be in one call too many, in which the others will not come.
    pub(super) surplus: BTreeSet<usize>,
}

impl Gatherings {
    /// Finds the gatherings of all groups.
    pub(super) fn of(job: &Job, names: &Names<'_>, positions: &[Position]) -> Self {
        let mut found = Self::default();
        for group in names.groups().values() {
            let recorded = collectives::of_group(job, group, positions);
            let all = recorded.gatherings.iter();
            let surplus = all.clone().filter(|one| one.is_surplus(job));
            found.surplus.extend(surplus.flat_map(|one| &one.members));
            let known = all.flat_map(|one| &one.members).copied().collect();
            found.all.extend(of_group(job, group, positions, &known));
            found.all.extend(recorded.gatherings);
            found.remarks.extend(recorded.remarks);
        }
        found
    }
}

/// Finds the gatherings of `group` by the locations of its members, apart from those where one of `known` is.
fn of_group(
    job: &Job,
    group: &BTreeSet<usize>,
    positions: &[Position],
    known: &BTreeSet<usize>,
) -> Vec<Gathering> {
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
    spots.retain(|_, members| members.is_disjoint(known));
    let mut proof = Proof::Collective;
    if spots.is_empty() && known.is_empty() && group.iter().all(|at| job.rank(*at).is_some()) {
        spots = in_state(&may_wait_for_group);
        spots.retain(|_, members| 2 * members.len() > group.len() && members.len() > 1);
        proof = Proof::SameLocation;
    }
    // That most are at one location says nothing while the others move on, unless most wait in the system.
    let is_in_system = |at: &usize| {
        let state = positions.get(*at).map(|one| &one.state);
        matches!(
            state,
            Some(State::WaitsForPeer | State::WaitsForFileLock(_) | State::WaitsOutside)
        )
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
                .and_then(|size| absent(ranks.as_ref()?, 0..size)),
            members,
            proof,
            collective: None,
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
    let may = match &position.state {
        State::WaitsForFileLock(holders) => holders.is_empty(),
        State::WaitsForDevice
        | State::WaitsForPeer
        | State::WaitsOutside
        | State::Runs
        | State::Unclear => true,
        _ => false,
    };
    may && position.is_still()
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
