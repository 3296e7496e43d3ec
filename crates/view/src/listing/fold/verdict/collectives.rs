//! Collectives of PyTorch in which members of a group wait, by the numbers that its flight recorders give them.
//!
//! Ranks in the same line may be in different collectives: one that has left one out is one behind, until the others wait
//! for it at the end. And a rank may be in the same collective with other tensors, or in another operation.

use std::collections::{BTreeMap, BTreeSet};

use super::gathering::{Gathering, Proof, absent, ranks};
use super::job::Job;
use super::state::{Position, State};
use ray_relay_ray::ray::look::collectives::{Collective, ProcessGroup};

/// Operations whose tensors need not be alike in all ranks begin with these words.
const UNEQUAL: [&str; 4] = ["all_to_all", "alltoall", "scatter", "gather"];

/// The collectives of one group of processes.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    pub(super) gatherings: Vec<Gathering>,
    /// In what a member differs from the others of its process group, behind `rank 3's`.
    pub(super) remarks: BTreeMap<usize, String>,
}

/// A member of a process group.
#[derive(Clone, Copy)]
struct Rank<'a> {
    at: usize,
    of: &'a ProcessGroup,
    /// Whether it may wait for its last collective.
    waits: bool,
}

/// The parts of a collective that are the same in all of its ranks, if nothing is wrong.
type Signature<'a> = (&'a str, &'a [Vec<u64>], &'a [String]);

/// Finds the collectives in which members of `group`, processes of one kind, wait.
pub(super) fn of_group(job: &Job, group: &BTreeSet<usize>, positions: &[Position]) -> Recorded {
    // Two groups of the same name are told apart by their ranks.
    let mut groups: BTreeMap<(&str, &str, &[u32]), Vec<Rank<'_>>> = BTreeMap::new();
    for at in group {
        let look = job
            .members
            .get(*at)
            .and_then(|member| member.look.as_ref().ok());
        for of in look.iter().flat_map(|look| &look.collectives) {
            let waits = of.begun > of.done && positions.get(*at).is_some_and(may_wait);
            let rank = Rank { at: *at, of, waits };
            let key = (&*of.backend, &*of.name, &*of.ranks);
            groups.entry(key).or_default().push(rank);
        }
    }
    let mut recorded = Recorded::default();
    for ranks in groups.values().filter(|ranks| is_one_group(job, ranks)) {
        recorded.add(job, group, positions, ranks);
    }
    recorded
}

/// Whether a member, whose last collective has not ended, may wait for that.
fn may_wait(position: &Position) -> bool {
    matches!(
        position.state,
        State::WaitsForGroup
            | State::WaitsForDevice
            | State::WaitsForPeer
            | State::WaitsForFileLock(_)
            | State::WaitsOutside
            | State::Unclear
    )
}

/// Whether `ranks` can be one process group, and not several of the same name.
fn is_one_group(job: &Job, ranks: &[Rank<'_>]) -> bool {
    let listed = listed(ranks).len();
    let numbered = ranks.iter().filter_map(|rank| job.rank(rank.at));
    let numbers: Vec<u32> = numbered.collect();
    let different: BTreeSet<&u32> = numbers.iter().collect();
    (listed == 0 || ranks.len() <= listed) && different.len() == numbers.len()
}

impl Recorded {
    /// Adds the collective in which the first of `all`, the ranks of one process group, wait.
    fn add(
        &mut self,
        job: &Job,
        group: &BTreeSet<usize>,
        positions: &[Position],
        all: &[Rank<'_>],
    ) {
        let waiting = all.iter().filter(|rank| rank.waits);
        let Some(number) = waiting.map(|rank| rank.of.done.saturating_add(1)).min() else {
            return;
        };
        let (begun, behind): (Vec<Rank<'_>>, Vec<Rank<'_>>) =
            all.iter().partition(|rank| rank.of.begun >= number);
        let parts = parts(&begun, number);
        let unseen = unseen(job, group, positions, all);
        let of = all.first().map_or("", |rank| &rank.of.description);
        let absent = absent_ranks(job, group, all);
        for (signature, members) in &parts {
            let others = begun
                .iter()
                .filter(|rank| !members.iter().any(|one| one.at == rank.at));
            let missing = others.chain(&behind).map(|rank| rank.at);
            let missing: Vec<usize> = missing.chain(unseen.iter().copied()).collect();
            let waiting: BTreeSet<usize> = members
                .iter()
                .filter_map(|rank| rank.waits.then_some(rank.at))
                .collect();
            if waiting.is_empty() {
                continue;
            }
            self.gatherings.push(Gathering {
                members: waiting,
                missing,
                absent: absent.clone(),
                proof: Proof::Collective,
                collective: Some(named(signature.map(|one| one.0), number, of)),
            });
        }
        self.remark_on_behind(number, &behind);
        self.remark_on_parts(number, &parts);
    }

    fn remark_on_behind(&mut self, number: u64, behind: &[Rank<'_>]) {
        for rank in behind {
            let begun = rank.of.begun;
            let operation = last_of(rank.of, begun).map(|one| &*one.operation);
            let last = named(operation, begun, &rank.of.description);
            let remark = format!("last collective is {last}, and others wait in #{number}");
            self.remarks.insert(rank.at, remark);
        }
    }

    /// Says of each rank that is in a collective with something else than most in what it differs.
    fn remark_on_parts(&mut self, number: u64, parts: &[(Option<Signature<'_>>, Vec<Rank<'_>>)]) {
        let Some((Some(most), _)) = parts.first() else {
            return;
        };
        for (signature, ranks) in &parts[1..] {
            let Some(own) = signature else { continue };
            for rank in ranks {
                let of = &rank.of.description;
                let remark = match own.0 == most.0 {
                    true => format!(
                        "{} has {}, and that of the others {}",
                        named(Some(own.0), number, of),
                        tensors(*own),
                        tensors(*most)
                    ),
                    false => format!(
                        "{} is {}, and that of the others is {}",
                        named(None, number, of),
                        own.0,
                        most.0
                    ),
                };
                self.remarks.insert(rank.at, remark);
            }
        }
    }
}

/// Groups `ranks` by what they have begun as collective `number`, the largest part first. Those whose recorder has
/// forgotten it are of the largest part.
fn parts<'a>(ranks: &[Rank<'a>], number: u64) -> Vec<(Option<Signature<'a>>, Vec<Rank<'a>>)> {
    let mut parts: BTreeMap<Option<Signature<'a>>, Vec<Rank<'a>>> = BTreeMap::new();
    for rank in ranks {
        let signature = last_of(rank.of, number).map(signature);
        parts.entry(signature).or_default().push(*rank);
    }
    let unknown = parts.remove(&None);
    let mut parts: Vec<_> = parts.into_iter().collect();
    parts.sort_by_key(|(_, ranks)| std::cmp::Reverse(ranks.len()));
    match (parts.first_mut(), unknown) {
        (Some((_, largest)), Some(unknown)) => largest.extend(unknown),
        (None, Some(unknown)) => parts.push((None, unknown)),
        (_, None) => {}
    }
    parts
}

fn last_of(group: &ProcessGroup, number: u64) -> Option<&Collective> {
    group.last.iter().find(|one| one.number == number)
}

fn signature(of: &Collective) -> Signature<'_> {
    match UNEQUAL.iter().any(|word| of.operation.starts_with(word)) {
        true => (&of.operation, &[], &[]),
        false => (&of.operation, &of.sizes, &of.types),
    }
}

/// `all_reduce #1841 of default_pg`.
fn named(operation: Option<&str>, number: u64, of: &str) -> String {
    let operation = operation.filter(|operation| !operation.is_empty());
    let operation = operation.unwrap_or("collective");
    match of {
        "" => format!("{operation} #{number}"),
        of => format!("{operation} #{number} of {of}"),
    }
}

/// `Float [4, 8], Int [2]`.
fn tensors((_, sizes, types): Signature<'_>) -> String {
    let all = sizes.iter().zip(types);
    let all: Vec<String> = all.map(|(sizes, of)| format!("{of} {sizes:?}")).collect();
    match all.is_empty() {
        true => "no tensor".to_owned(),
        false => all.join(", "),
    }
}

/// The global ranks of the process group of `all`; empty if they are not known.
fn listed<'a>(all: &[Rank<'a>]) -> &'a [u32] {
    all.first().map_or(&[], |rank| &rank.of.ranks)
}

/// Members of `group` without a record that belong to the process group of `all`: as many as are missing there.
fn unseen(
    job: &Job,
    group: &BTreeSet<usize>,
    positions: &[Position],
    all: &[Rank<'_>],
) -> Vec<usize> {
    let listed = listed(all);
    let is_recorded = |at: &usize| all.iter().any(|rank| rank.at == *at);
    let fits = |at: &usize| job.rank(*at).is_none_or(|rank| listed.contains(&rank));
    // Which collective one waits in whose recorder does not answer is not known.
    let is_in_one = |at: &usize| {
        let position = positions.get(*at);
        position.is_some_and(|one| one.state == State::WaitsForGroup)
    };
    let unseen = group
        .iter()
        .copied()
        .filter(|at| !job.is_driver(*at) && !is_recorded(at) && fits(at) && !is_in_one(at));
    let unseen: Vec<usize> = unseen.collect();
    match unseen.len() <= listed.len().saturating_sub(all.len()) {
        true => unseen,
        false => Vec::new(),
    }
}

/// Returns the ranks of the process group of `all` that run in no process, as text.
fn absent_ranks(job: &Job, group: &BTreeSet<usize>, all: &[Rank<'_>]) -> Option<String> {
    let listed = listed(all);
    let is_whole = job.left_out == 0 && all.len() < listed.len();
    absent(&ranks(job, group)?, listed.iter().copied()).filter(|_| is_whole)
}
