//! The first sentence of a verdict that something holds others up.

use std::time::Duration;

use super::report::{Confidence, Kind};
use super::roots::{Pace, Root};
use super::state::State;
use super::words::{Words, sentence};
use ray_relay_base::wire::human_time::span;

/// Returns the first sentence about `roots`.
pub(super) fn summary(
    words: Words<'_>,
    kind: Kind,
    confidence: Confidence,
    roots: &[Root],
) -> String {
    let first = &roots[0];
    let sure = confidence.word();
    let head = first.nodes.first().copied().unwrap_or_default();
    let state = words.found.positions.get(head).map(|one| &one.state);
    let others = others(words, first);
    if words.found.waits.thing(head).is_some() {
        let (name, does) = (words.name(&[head]), words.does(head));
        let wait = if first.waiters.len() == 1 {
            "waits"
        } else {
            "wait"
        };
        return sentence(&format!(
            "{others} {wait} for {name}, which {does} ({sure})"
        ));
    }
    if !first.cycle.is_empty() && first.cycle.len() == first.nodes.len() {
        let name = words.name(&first.nodes);
        return sentence(&match first.nodes.len() {
            1 => format!("{name} waits for itself ({sure})"),
            _ => format!("{name} wait for each other ({sure})"),
        });
    }
    let nodes = alike(words, roots);
    let (name, is_one) = (words.name(&nodes), nodes.len() == 1);
    let (holds, moves, runs, it) = if is_one {
        ("holds", "moves", "runs", "it")
    } else {
        ("hold", "move", "run", "them")
    };
    let wait = if others == "the others" || first.waiters.len() > 1 {
        "wait"
    } else {
        "waits"
    };
    if words.found.waits.is_surplus(head) {
        let wait = if is_one { "waits" } else { "wait" };
        return sentence(&format!(
            "{name} {wait} for the others of the group, which have returned ({sure})"
        ));
    }
    let words_of_state = match state {
        Some(State::Deadlocked(_)) if first.waiters.is_empty() => {
            return sentence(&format!(
                "{name} has threads that wait for each other ({sure})"
            ));
        }
        Some(State::LostChild(child)) if first.waiters.is_empty() => {
            return sentence(&format!("{name} waits, while {child} ({sure})"));
        }
        Some(State::Deadlocked(_)) => ": its threads wait for each other",
        Some(State::Paused) => ": it is paused at a breakpoint until a person resumes it",
        _ if !first.cycle.is_empty() && words.found.waits.remark(head).is_some() && is_one => {
            ": its collective is not theirs"
        }
        _ if !first.cycle.is_empty() => ": it waits in another call than they do",
        _ => "",
    };
    sentence(&match (kind, first.pace) {
        (Kind::Slow, Pace::Moves) => {
            format!("{name} {moves}, and {others} {wait} for {it} now ({sure})")
        }
        (Kind::Slow, _) if let Some(State::ChildRuns(child)) = state => {
            let waits = if is_one { "waits" } else { "wait" };
            format!("{name} {waits}, while {child}, and {others} {wait} for {it} ({sure})")
        }
        (Kind::Slow, _) if state == Some(&State::Runs) => {
            format!("{name} still {runs}, and {others} {wait} for {it} ({sure})")
        }
        (Kind::Slow, _) => {
            format!("{others} {wait} for {name} now, and not for long yet ({sure})")
        }
        (Kind::Unknown, _) if let Some(apart) = unmoved(words, &nodes) => format!(
            "{others} {wait} for {name}, and {} not moved for at least {} ({sure})",
            if is_one { "it has" } else { "they have" },
            span(apart)
        ),
        (Kind::Unknown, _) => format!(
            "{others} {wait} for {name}, and whether {it} {} is not known ({sure})",
            if is_one { "moves" } else { "move" }
        ),
        _ => format!("{name} {holds} {others} up{words_of_state} ({sure})"),
    })
}

/// Returns how far two looks were apart in which none of `nodes` has moved, if only these tell.
fn unmoved(words: Words<'_>, nodes: &[usize]) -> Option<Duration> {
    let positions = nodes.iter().map(|at| words.found.positions.get(*at));
    let unmoved: Option<Vec<Duration>> = positions.map(|one| one?.unmoved).collect();
    unmoved?.into_iter().min()
}

/// Returns the nodes of all roots that can share a sentence with the first: processes of its group.
fn alike(words: Words<'_>, roots: &[Root]) -> Vec<usize> {
    let found = words.found;
    let first = &roots[0];
    let is_plain = |at: usize| {
        let state = found.positions.get(at).map(|one| &one.state);
        !matches!(state, Some(State::Deadlocked(_) | State::Paused))
    };
    let group = |at: usize| found.waits.thing(at).is_none().then(|| found.job.group(at));
    let of = first.nodes.first().and_then(|at| group(*at));
    let mut nodes = first.nodes.clone();
    if first.cycle.is_empty() && first.nodes.iter().all(|at| is_plain(*at)) {
        let rest = roots[1..].iter().filter(|root| root.cycle.is_empty());
        let rest = rest.flat_map(|root| root.nodes.iter().copied());
        nodes.extend(rest.filter(|at| is_plain(*at) && group(*at) == of));
    }
    nodes
}

/// Names those that wait for `root`: `the others` if they are of its group.
fn others(words: Words<'_>, root: &Root) -> String {
    let job = words.found.job;
    let workers: Vec<usize> = root
        .waiters
        .iter()
        .copied()
        .filter(|at| !job.is_driver(*at) && words.found.waits.thing(*at).is_none())
        .collect();
    let head = root.nodes.first().copied().unwrap_or_default();
    let is_thing = words.found.waits.thing(head).is_some();
    let is_same = |at: &usize| !is_thing && job.group(*at) == job.group(head);
    match workers.iter().all(is_same) {
        true if !workers.is_empty() => "the others".to_owned(),
        _ if workers.is_empty() => words.name(&root.waiters),
        _ => words.name(&workers),
    }
}
