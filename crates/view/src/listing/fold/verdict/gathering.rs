//! Members of a group that wait in one call, and those that are missing there.

use std::collections::BTreeSet;

use super::super::ranks::ranges;
use super::job::Job;

/// Absent ranks that are named.
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
    /// The collective, if it is recorded: `all_reduce #1841 of default_pg`.
    pub(super) collective: Option<String>,
}

impl Gathering {
    /// Whether it is rather one collective too many of its few members than one that is missing in most: these have
    /// returned.
    pub(super) fn is_surplus(&self, job: &Job) -> bool {
        self.collective.is_some()
            && self.missing.len() > self.members.len()
            && self.missing.iter().all(|at| job.is_idle(*at))
            && self.absent.is_none()
    }
}

/// Returns the ranks of the group, if each process has another one.
pub(super) fn ranks(job: &Job, group: &BTreeSet<usize>) -> Option<BTreeSet<u32>> {
    let ranks: Option<BTreeSet<u32>> = group.iter().map(|at| job.rank(*at)).collect();
    ranks.filter(|ranks| ranks.len() == group.len())
}

/// Returns those of `expected` that are not among `ranks`, as text, if they are few.
pub(super) fn absent(ranks: &BTreeSet<u32>, expected: impl Iterator<Item = u32>) -> Option<String> {
    let absent: BTreeSet<u32> = expected.filter(|rank| !ranks.contains(rank)).collect();
    let named = (1..=MAX_ABSENT).contains(&absent.len()) && absent.len() < ranks.len();
    named.then(|| ranges(&absent))
}
