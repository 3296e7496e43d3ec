//! The evidence of a verdict: who waits, and who could not be judged.

use std::collections::BTreeMap;

use super::report::WaitingRow;
use super::state::State;
use super::waiting::Waiting;
use super::words::{Words, sentence};

/// Rows of waiting members in JSON, and sentences about them in the text.
const MAX_WAITING: usize = 64;
const MAX_WAITING_SENTENCES: usize = 5;

/// Sentences about other members.
const MAX_NOTES: usize = 4;

/// Describes `waiting`, those that wait for `nodes` first.
pub(super) fn of_waiting(words: Words<'_>, waiting: &[Waiting], nodes: &[usize]) -> Vec<String> {
    // That a driver waits for all of its tasks says nothing.
    let is_driver = |one: &&Waiting| {
        let mut members = one.members.iter();
        one.targets.is_empty() && members.all(|at| words.found.job.is_driver(*at))
    };
    let waiting: Vec<&Waiting> = match waiting {
        [_] => waiting.iter().collect(),
        _ => waiting.iter().filter(|one| !is_driver(one)).collect(),
    };
    let all = waiting.iter().take(MAX_WAITING_SENTENCES);
    let mut sentences: Vec<String> = all.map(|one| words.of_waiting(one, nodes)).collect();
    let rest = waiting.iter().skip(MAX_WAITING_SENTENCES);
    match rest.map(|one| one.members.len()).sum() {
        0usize => {}
        more => sentences.push(format!("{more} more processes wait.")),
    }
    sentences
}

/// Returns `waiting` as rows of the JSON.
pub(super) fn rows(words: Words<'_>, waiting: &[Waiting]) -> Vec<WaitingRow> {
    let row = |one: &Waiting| {
        let group = one
            .members
            .first()
            .map_or("", |at| words.found.job.group(*at));
        let location = one.location.as_ref();
        WaitingRow {
            group: group.to_owned(),
            tasks: words
                .names
                .in_words(group, &one.members.iter().copied().collect()),
            waits_in: location.and_then(|location| location.waits().map(str::to_owned)),
            at: location.and_then(|location| location.at.clone()),
            target: words.target(one),
            collective: words.collective(&one.members).map(str::to_owned),
        }
    };
    waiting.iter().take(MAX_WAITING).map(row).collect()
}

/// Describes members that are not blamed, and that a reader has to know of.
pub(super) fn notes(words: Words<'_>, blamed: &[usize]) -> Vec<String> {
    let positions = words.found.positions.iter().enumerate();
    let is_noted = |state: &State| {
        matches!(
            state,
            State::Paused | State::Raised | State::Silent(_) | State::NotInspected(_)
        )
    };
    // A driver does nothing that the others wait for.
    let is_unseen_driver = |at: usize, state: &State| {
        matches!(state, State::NotInspected(_)) && words.found.job.is_driver(at)
    };
    let noted = positions.filter(|(at, one)| {
        is_noted(&one.state) && !blamed.contains(at) && !is_unseen_driver(*at, &one.state)
    });
    // Those that cannot be inspected usually have one reason.
    let mut alike: BTreeMap<(Option<usize>, String), Vec<usize>> = BTreeMap::new();
    for (at, position) in noted {
        let is_shared = matches!(position.state, State::NotInspected(_));
        let key = ((!is_shared).then_some(at), words.does(at));
        alike.entry(key).or_default().push(at);
    }
    let noted = alike.iter().take(MAX_NOTES);
    let noted =
        noted.map(|((_, does), all)| sentence(&format!("{} {does}", words.short_name(all))));
    let mut notes: Vec<String> = noted.collect();
    match alike.values().skip(MAX_NOTES).map(Vec::len).sum() {
        0usize => {}
        1 => notes.push("1 more is paused, has failed, or gives no snapshot.".to_owned()),
        more => notes.push(format!(
            "{more} more are paused, have failed, or give no snapshot."
        )),
    }
    match words.found.job.left_out {
        0 => {}
        more => notes.push(format!("{more} more processes were not inspected.")),
    }
    notes
}
