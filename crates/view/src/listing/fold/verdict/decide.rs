//! Chooses the kind of the verdict, those to blame, and the evidence.

use super::evidence::{notes, of_waiting, rows};
use super::next::next;
use super::report::{Confidence, Culprit, Kind, Verdict};
use super::roots::{Pace, Root};
use super::summary::summary;
use super::unheld::without_roots;
use super::words::{MAX_SENTENCE_CHARS, Words};
use ray_relay_base::wire::text::shortened;

/// Culprits in JSON, and those that the text describes.
const MAX_CULPRITS: usize = 32;
const MAX_DESCRIBED: usize = 4;

/// Returns the verdict about what `words` describe.
pub(super) fn decide(words: Words<'_>) -> Verdict {
    let roots = words.found.roots();
    let of_pace = |pace: Pace| -> Vec<Root> {
        let roots = roots.iter().filter(|root| root.pace == pace);
        roots.cloned().collect()
    };
    let stuck = surest(of_pace(Pace::Stuck));
    if !stuck.is_empty() {
        return held_up(words, Kind::Hangs, &stuck);
    }
    let unknown = of_pace(Pace::Unknown);
    if !unknown.is_empty() {
        return held_up(words, Kind::Unknown, &unknown);
    }
    let slow = [of_pace(Pace::Slow), of_pace(Pace::Moves)];
    for mut roots in slow {
        roots.retain(|root| holds_up(words, root));
        if !roots.is_empty() {
            return held_up(words, Kind::Slow, &roots);
        }
    }
    without_roots(words)
}

/// Leaves out what is only possible, if something surer is found that others wait for.
fn surest(mut roots: Vec<Root>) -> Vec<Root> {
    let is_sure = |root: &Root| root.confidence < Confidence::Possible;
    if roots
        .iter()
        .any(|root| is_sure(root) && !root.waiters.is_empty())
    {
        roots.retain(is_sure);
    }
    roots
}

/// Whether `root`, which moves, holds up more than a driver and members that move too.
fn holds_up(words: Words<'_>, root: &Root) -> bool {
    let found = words.found;
    root.waiters.iter().any(|at| {
        let Some(position) = found.positions.get(*at) else {
            return false;
        };
        let is_gathered = found.waits.gathering(*at).is_some();
        let waits = is_gathered || root.pace == Pace::Slow || position.is_still();
        waits && !found.job.is_driver(*at) && !position.moves()
    })
}

/// Returns the verdict that `roots` hold others up.
fn held_up(words: Words<'_>, kind: Kind, roots: &[Root]) -> Verdict {
    let Some(first) = roots.first() else {
        return without_roots(words);
    };
    let confidence = match kind {
        Kind::Unknown => Confidence::Possible,
        _ => first.confidence,
    };
    let blamed: Vec<usize> = roots.iter().flat_map(|root| root.nodes.clone()).collect();
    let mut evidence = Vec::new();
    // Those of a cycle are described below, with what they wait for, and the first thing in the summary.
    let is_thing = |root: &Root| {
        root.nodes
            .iter()
            .any(|at| words.found.waits.thing(*at).is_some())
    };
    let ends = roots.iter().enumerate();
    let ends = ends.filter(|(at, root)| root.cycle.is_empty() && (*at > 0 || !is_thing(root)));
    for at in ends.take(MAX_DESCRIBED).flat_map(|(_, root)| &root.nodes) {
        evidence.extend(words.of_node(*at));
    }
    let remarks = blamed.iter().filter_map(|at| words.remark(*at));
    evidence.extend(remarks.take(MAX_DESCRIBED));
    match roots.len().saturating_sub(MAX_DESCRIBED) {
        0 => {}
        more => evidence.push(format!("{more} more processes or tasks hold others up.")),
    }
    let mut sorted = blamed.clone();
    sorted.sort_unstable();
    let waiting = words.waiting(&sorted);
    evidence.extend(of_waiting(words, &waiting, &sorted));
    evidence.extend(notes(words, &blamed));
    let culprits = blamed.iter().take(MAX_CULPRITS);
    Verdict {
        kind,
        confidence,
        summary: summary(words, kind, confidence, roots),
        culprits: culprits.map(|at| culprit(words, *at)).collect(),
        evidence,
        waiting: rows(words, &waiting),
        differences: Vec::new(),
        next: next(words, kind, &blamed),
    }
}

fn culprit(words: Words<'_>, at: usize) -> Culprit {
    let found = words.found;
    let (process, position) = (found.job.processes.get(at), found.positions.get(at));
    let location = position.and_then(|position| position.location.as_ref());
    Culprit {
        group: process.map(|_| found.job.group(at).to_owned()),
        tasks: match process {
            Some(_) => words.names.in_words(found.job.group(at), &[at].into()),
            None => words.name(&[at]),
        },
        worker_id: process.and_then(|process| process.worker_id.clone()),
        pid: process.and_then(|process| process.pid),
        node_ip: process.and_then(|process| process.node_ip.clone()),
        at: location.and_then(|location| location.at.clone()),
        reason: shortened(&words.does(at), MAX_SENTENCE_CHARS),
        still_seconds: position
            .and_then(|position| position.still)
            .map(|still| still.as_secs_f64()),
    }
}
