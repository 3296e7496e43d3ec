//! The verdict about a job in which nothing is known to hold others up.

use std::collections::BTreeSet;

use super::super::differences::Weight;
use super::evidence::{notes, of_waiting, rows};
use super::next::next;
use super::report::{Confidence, DifferenceRow, Kind, NOTHING_RUNS, Verdict};
use super::state::{Position, STILL_LIMIT, State};
use super::values::{self, OddValue};
use super::waiting::Waiting;
use super::words::{Words, sentence};
use ray_relay_base::wire::human_time::span;

/// Locations that are described.
const MAX_DESCRIBED: usize = 4;

/// Members of which it is not known what they wait for, or what they do.
#[derive(Default)]
struct Unclear {
    /// Those that wait for their group or for an object.
    waiting: Vec<Waiting>,
    /// Others that have not moved for long.
    still: Vec<Waiting>,
    /// Those that have failed, or give no snapshot.
    unseen: Vec<usize>,
}

/// Returns the verdict about a job in which no root holds others up.
pub(super) fn without_roots(words: Words<'_>) -> Verdict {
    let found = words.found;
    let odd = values::odd(found.job, words.names, found.positions);
    let waiting = words.waiting(&[]);
    let unclear = Unclear::of(words, &waiting);
    let kind = match (odd.is_empty(), unclear.is_empty()) {
        _ if found.positions.is_empty() => Kind::Unknown,
        (false, _) if !unclear.lasts(words) && moves(words) => Kind::Differs,
        (true, true) if moves(words) => Kind::Healthy,
        _ => Kind::Unknown,
    };
    let is_recorded = found.positions.iter().all(|one| one.still.is_some());
    let is_not_finite = odd.iter().any(|one| one.weight == Weight::NotFinite);
    let confidence = match kind {
        Kind::Healthy if is_recorded => Confidence::Likely,
        Kind::Differs if is_not_finite => Confidence::Likely,
        _ => Confidence::Possible,
    };
    let mut evidence: Vec<String> = odd.iter().map(|one| in_words(words, one)).collect();
    evidence.extend(unclear.sentences(words));
    if kind == Kind::Unknown {
        if unclear.is_empty() {
            evidence.extend(all_places(words, &waiting));
        }
        evidence.extend(absent(words));
    }
    evidence.extend(notes(words, &[]));
    Verdict {
        kind,
        confidence,
        summary: summary(words, kind, confidence, &odd, &unclear),
        culprits: Vec::new(),
        evidence,
        waiting: rows(words, &waiting),
        differences: odd.iter().map(|one| of_value(words, one)).collect(),
        next: next(words, kind, &[]),
    }
}

/// Whether a process moves, or all have moved within [`STILL_LIMIT`].
fn moves(words: Words<'_>) -> bool {
    let positions = words.found.positions;
    let is_recent = |one: &Position| one.still.is_some_and(|still| still < STILL_LIMIT);
    positions.iter().any(Position::moves) || positions.iter().all(is_recent)
}

/// Returns the first sentence.
fn summary(
    words: Words<'_>,
    kind: Kind,
    confidence: Confidence,
    odd: &[OddValue],
    unclear: &Unclear,
) -> String {
    let (positions, sure) = (words.found.positions, confidence.word());
    let all = positions.len();
    let moving = positions.iter().filter(|one| one.moves()).count();
    match (kind, odd.first()) {
        _ if all == 0 => return NOTHING_RUNS.to_owned(),
        (Kind::Differs, Some(one)) => {
            let (name, has) = (words.name(&one.members), has(one));
            let value = format!("{name} {has} another value of {}", one.name);
            return sentence(&format!("nothing hangs, but {value} ({sure})"));
        }
        (Kind::Healthy, _) => {
            return match moving {
                0 => format!(
                    "Nothing is known to hang: each process has moved within the last {} ({sure}).",
                    span(STILL_LIMIT)
                ),
                _ if moving == all => format!("Nothing hangs: all {all} processes move ({sure})."),
                1 => format!("Nothing is known to hang: 1 of {all} processes moves ({sure})."),
                _ => {
                    format!("Nothing is known to hang: {moving} of {all} processes move ({sure}).")
                }
            };
        }
        _ => {}
    }
    let is_one = |waiting: &Waiting| waiting.members.len() == 1;
    sentence(&match (unclear.waiting.first(), unclear.still.first()) {
        (Some(one), _) => {
            let wait = if is_one(one) { "waits" } else { "wait" };
            let name = words.name(&one.members);
            format!("it is not known what {name} {wait} for ({sure})")
        }
        (None, Some(one)) => {
            let does = if is_one(one) { "does" } else { "do" };
            let name = words.name(&one.members);
            format!("it is not known why {name} {does} not move ({sure})")
        }
        (None, None) if unclear.unseen.is_empty() => {
            let odd = odd.first().map_or(String::new(), |one| {
                let name = words.name(&one.members);
                format!(", and {name} {} another value of {}", has(one), one.name)
            });
            format!("nothing is known to hang, but nothing moves now{odd} ({sure})")
        }
        (None, None) => {
            format!("nothing is known to hang, but not every process could be judged ({sure})")
        }
    })
}

/// Whether a member of the group of `at` moves.
fn group_moves(words: Words<'_>, at: usize) -> bool {
    let found = words.found;
    let group = words.names.groups().get(found.job.group(at));
    let mut positions = group
        .into_iter()
        .flatten()
        .filter_map(|at| found.positions.get(*at));
    positions.any(Position::moves)
}

/// Describes who waits for whom, and where the others are, the odd ones first.
fn all_places(words: Words<'_>, waiting: &[Waiting]) -> Vec<String> {
    let found = words.found;
    let is_waiting = |at: &usize| waiting.iter().any(|one| one.members.contains(at));
    let others = found.positions.iter().enumerate();
    let others = others.filter(|(_, one)| one.location.is_some());
    let others = others
        .map(|(at, _)| at)
        .filter(|at| !found.job.is_driver(*at));
    let others: Vec<usize> = others.filter(|at| !is_waiting(at)).collect();
    let mut spots = words.spots(&others);
    spots.sort_by_key(|one| one.members.len());
    let has_others = waiting.len() > 1 || !spots.is_empty();
    let is_driver = |one: &Waiting| one.members.iter().all(|at| found.job.is_driver(*at));
    let waiting: Vec<Waiting> = waiting
        .iter()
        .filter(|one| !has_others || !is_driver(one))
        .cloned()
        .collect();
    let mut sentences = of_waiting(words, &waiting, &[]);
    let spots = spots.iter().take(MAX_DESCRIBED);
    sentences.extend(spots.map(|spot| words.of_waiting(spot, &[])));
    sentences
}

/// Describes ranks that run nothing, or have died, beside others of their group: these may wait for them.
fn absent(words: Words<'_>) -> Vec<String> {
    let job = words.found.job;
    let processes = job.processes.iter().enumerate();
    let absent = processes.filter(|(at, one)| one.absence.is_some() && job.rank(*at).is_some());
    let absent = absent.take(MAX_DESCRIBED);
    absent.flat_map(|(at, _)| words.of_node(at)).collect()
}

impl Unclear {
    fn of(words: Words<'_>, waiting: &[Waiting]) -> Self {
        let found = words.found;
        let has_workers = found.has_workers();
        let counts = |at: &usize| !found.job.is_driver(*at) || !has_workers;
        let mut unclear = Self::default();
        for one in waiting {
            let moves = one.members.iter().all(|at| found.positions[*at].moves());
            let is_thing = |to: &usize| found.waits.thing(*to).is_some();
            let is_known = !one.targets.is_empty() && !one.targets.iter().any(is_thing);
            if !moves && !is_known && one.members.iter().any(counts) {
                unclear.waiting.push(one.clone());
            }
        }
        let mut still = Vec::new();
        for (at, position) in found.positions.iter().enumerate() {
            let is_waiting = waiting.iter().any(|one| one.members.contains(&at));
            match position.state {
                _ if is_waiting || !counts(&at) => {}
                State::Raised | State::Silent(_) | State::NotInspected(_) => {
                    unclear.unseen.push(at)
                }
                State::Paused => {}
                // A server waits for work in a queue or an event loop; a rank does so only while its group moves.
                State::WaitsForQueue | State::WaitsForFuture
                    if found.job.rank(at).is_none() || group_moves(words, at) => {}
                _ if position.is_still() => still.push(at),
                _ => {}
            }
        }
        unclear.still = words.spots(&still);
        // The odd ones first.
        unclear.still.sort_by_key(|one| one.members.len());
        unclear
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.still.is_empty() && self.unseen.is_empty()
    }

    /// Whether any of them has not moved for long.
    fn lasts(&self, words: Words<'_>) -> bool {
        let all = self.waiting.iter().chain(&self.still);
        let mut all = all.flat_map(|one| &one.members);
        all.any(|at| words.found.positions[*at].is_still())
    }

    /// Describes those that wait or have not moved.
    fn sentences(&self, words: Words<'_>) -> Vec<String> {
        let mut sentences = of_waiting(words, &self.waiting, &[]);
        let targets = self.waiting.iter().flat_map(|one| &one.targets);
        let things: BTreeSet<usize> = targets
            .copied()
            .filter(|to| words.found.waits.thing(*to).is_some())
            .collect();
        sentences.extend(
            things
                .iter()
                .take(MAX_DESCRIBED)
                .flat_map(|at| words.of_node(*at)),
        );
        for spot in self.still.iter().take(MAX_DESCRIBED) {
            match spot.members[..] {
                [only] => sentences.extend(words.of_node(only)),
                _ => sentences.push(words.of_waiting(spot, &[])),
            }
        }
        sentences
    }
}

fn of_value(words: Words<'_>, one: &OddValue) -> DifferenceRow {
    DifferenceRow {
        group: one.group.clone(),
        name: one.name.clone(),
        frame: one.frame.clone(),
        tasks: words
            .names
            .in_words(&one.group, &one.members.iter().copied().collect()),
        value: one.value.clone(),
        others: one.others.clone(),
    }
}

/// `Rank 2 has self.loss = nan in step (loop.py), and most others have 0.5.`
fn in_words(words: Words<'_>, one: &OddValue) -> String {
    let frame = one
        .frame
        .as_ref()
        .map_or(String::new(), |frame| format!(" in {frame}"));
    let has = has(one);
    let others = match one.is_shared {
        true => format!("most others have {}", one.others),
        false => format!("another one has {}", one.others),
    };
    sentence(&format!(
        "{} {has} {} = {}{frame}, and {others}",
        words.short_name(&one.members),
        one.name,
        one.value,
    ))
}

fn has(one: &OddValue) -> &'static str {
    match one.members.len() {
        1 => "has",
        _ => "have",
    }
}
