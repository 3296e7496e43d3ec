//! Merged answers, formatted for people and scripts.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::answers::{Answers, Figures, Same};
use super::who::{Names, Who};
use crate::listing::text::width;

/// Distinct answers that are shown.
const MAX_ANSWERS: usize = 32;

/// Answers shown on one line, and characters of each.
const MAX_ANSWERS_ON_A_LINE: usize = 6;
const MAX_INLINE_CHARS: usize = 60;

/// Members that are named one by one if their ranks are unknown.
const MAX_NAMED_MEMBERS: usize = 16;

/// Largest width of the names column. Longer names shift only their own line.
const MAX_NAMES_WIDTH: usize = 32;

/// Characters kept of a common prefix before the first difference.
const PREFIX_CONTEXT_CHARS: usize = 20;

/// The text for an empty answer.
const EMPTY_ANSWER: &str = "(nothing printed)";

/// Lists the groups of tasks, and those without a known rank by the `ids`.
pub fn legend(members: &[Who], ids: &[String]) -> String {
    let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, who) in members.iter().enumerate() {
        groups.entry(&who.group).or_default().push(at);
    }
    let mut text = String::new();
    for (group, mut all) in groups {
        let count = all.len();
        let tasks = if count == 1 { "task" } else { "tasks" };
        all.retain(|at| members[*at].number.is_none());
        if all.is_empty() {
            text += &format!("{group}: {count} {tasks} by rank\n");
            continue;
        }
        let unknown = all.len();
        text += &format!("{group}: {count} {tasks}, of which {unknown} by pid: no rank is known\n");
        for at in all.iter().take(MAX_NAMED_MEMBERS) {
            text += &format!("  {}  {}\n", members[*at].name, ids[*at]);
        }
        if unknown > MAX_NAMED_MEMBERS {
            text += &format!(
                "  … and {} more: --json names all\n",
                unknown - MAX_NAMED_MEMBERS
            );
        }
    }
    text
}

/// Formats all answers, odd ones first, with statistics of numbers.
pub fn text(names: &Names<'_>, all: &Answers) -> String {
    lines(names, all, "", None) + &figures(names, all)
}

/// Formats all answers on one line: each with its members, odd ones first, then the silent members.
pub fn in_one_line<'a>(
    names: &Names<'_>,
    all: &Answers,
    silent: impl IntoIterator<Item = (usize, &'a str)>,
) -> String {
    let listed = all.same.iter().take(MAX_ANSWERS_ON_A_LINE).map(|same| {
        let odd = if same.odd { " ← odd" } else { "" };
        let answer = match same.text.trim_end() {
            "" => EMPTY_ANSWER.to_owned(),
            answer => part(&answer.replace('\n', "\\n"), 0, MAX_INLINE_CHARS),
        };
        format!("{}: {answer}{odd}", names.of(&same.members))
    });
    let mut parts: Vec<String> = listed.collect();
    if all.same.len() > MAX_ANSWERS_ON_A_LINE {
        parts.push(format!(
            "{} more different answers",
            all.same.len() - MAX_ANSWERS_ON_A_LINE
        ));
    }
    let silent: BTreeSet<usize> = silent.into_iter().map(|(at, _)| at).collect();
    if !silent.is_empty() {
        parts.push(format!("! {}: no answer", names.of(&silent)));
    }
    parts.join(", ")
}

/// Formats each answer after its members, on one line or several. `longest` limits the characters shown of one.
pub(super) fn lines(
    names: &Names<'_>,
    all: &Answers,
    indent: &str,
    longest: Option<usize>,
) -> String {
    let listed = &all.same[..all.same.len().min(MAX_ANSWERS)];
    let called = |same: &Same| format!("{}:", names.of(&same.members));
    let is_long = listed
        .iter()
        .any(|same| same.text.trim_end().contains('\n'));
    let widths = listed.iter().map(|same| width(&called(same)));
    let room = widths.filter(|width| *width <= MAX_NAMES_WIDTH).max();
    let skipped_chars = longest.map_or(0, |longest| common_prefix(all, longest));
    let mut text = String::new();
    for same in listed {
        let who = called(same);
        let odd = if same.odd { "  ← odd" } else { "" };
        let answer = match (same.text.trim_end(), longest) {
            ("", _) => EMPTY_ANSWER.to_owned(),
            (answer, Some(longest)) => part(answer, skipped_chars, longest),
            (answer, None) => answer.to_owned(),
        };
        if is_long {
            let answer = answer.lines().map(|line| format!("{indent}  {line}\n"));
            text += &format!("{indent}{who}{odd}\n{}", answer.collect::<String>());
        } else {
            let pad = room.unwrap_or_default().saturating_sub(width(&who));
            text += &format!("{indent}{who}{:pad$} {answer}{odd}\n", "");
        }
    }
    if let Some(rest) = all.same.get(MAX_ANSWERS..).filter(|rest| !rest.is_empty()) {
        let who: BTreeSet<usize> = rest
            .iter()
            .flat_map(|same| &same.members)
            .copied()
            .collect();
        text += &format!(
            "{indent}{}: {} more different answers; --json has all\n",
            names.of(&who),
            rest.len()
        );
    }
    text
}

/// Returns the number of common leading characters to skip, with some context left. 0 if the first difference is
/// visible without.
fn common_prefix(all: &Answers, longest: usize) -> usize {
    let Some((first, rest)) = all.same.split_first() else {
        return 0;
    };
    let same = |other: &Same| {
        let both = first.text.chars().zip(other.text.chars());
        both.take_while(|(one, other)| one == other).count()
    };
    match rest.iter().map(same).min() {
        Some(common) if 2 * common > longest => common - PREFIX_CONTEXT_CHARS.min(common),
        _ => 0,
    }
}

/// Returns `longest` characters of `text`, without the first `skipped_chars`.
fn part(text: &str, skipped_chars: usize, longest: usize) -> String {
    let mut part = if skipped_chars > 0 {
        "…".to_owned()
    } else {
        String::new()
    };
    part.extend(text.chars().skip(skipped_chars).take(longest));
    if text.chars().nth(skipped_chars + longest).is_some() {
        part.push('…');
    }
    part
}

/// Formats the statistics, if finite numbers differ.
fn figures(names: &Names<'_>, all: &Answers) -> String {
    let Some(figures) = all
        .figures
        .as_ref()
        .filter(|figures| figures.min.0 < figures.max.0)
    else {
        return String::new();
    };
    let Figures {
        min, median, max, ..
    } = figures;
    let mut text = format!(
        "min {} ({}), median {}, max {} ({})",
        figure(min.0),
        names.of(&min.1),
        figure(*median),
        figure(max.0),
        names.of(&max.1)
    );
    if !figures.not_finite.is_empty() {
        text += &format!(", not finite: {}", names.of(&figures.not_finite));
    }
    text + "\n"
}

/// Formats `number` for people.
fn figure(number: f64) -> String {
    if number.fract() == 0.0 && number.abs() < 1e15 {
        format!("{number:.0}")
    } else {
        format!("{number:?}")
    }
}

/// Returns the answers as JSON: members by index, and as text.
pub fn json(names: &Names<'_>, all: &Answers) -> Value {
    let same = all.same.iter().map(|same| {
        json!({"who": names.of(&same.members), "members": same.members, "text": same.text, "odd": same.odd})
    });
    let figures = all.figures.as_ref().map(|figures| {
        json!({"min": figures.min.0, "min_of": figures.min.1, "median": figures.median, "max": figures.max.0,
            "max_of": figures.max.1, "not_finite": figures.not_finite})
    });
    json!({"answers": same.collect::<Vec<_>>(), "figures": figures})
}

/// Lists the members without an answer, with the reasons.
pub fn silent<'a>(names: &Names<'_>, all: impl IntoIterator<Item = (usize, &'a str)>) -> String {
    let mut by_sentence: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for (at, why) in all {
        by_sentence.entry(why).or_default().insert(at);
    }
    let mut parts: Vec<_> = by_sentence.into_iter().collect();
    parts.sort_by_key(|(_, who)| who.first().copied());
    let parts = parts
        .iter()
        .map(|(why, who)| format!("! {}: {why}\n", names.of(who)));
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::super::answers::fold;
    use super::*;

    fn eight_ranks() -> Vec<Who> {
        let member = |number| Who {
            group: "Trainer".to_owned(),
            number: Some(number),
            name: format!("pid {number}"),
        };
        (0..8).map(member).collect()
    }

    fn lines(answers: &[&str]) -> String {
        let eight_ranks = eight_ranks();
        let names = Names::new(&eight_ranks);
        text(&names, &fold(answers.iter().copied().enumerate()))
    }

    #[test]
    fn odd_answer_is_marked_and_numbers_get_statistics() {
        let mut losses = ["0.6931"; 8];
        losses[3] = "nan\n";
        assert_eq!(lines(&losses), "3:       nan  ← odd\n0-2,4-7: 0.6931\n");
        losses[3] = "17";
        assert_eq!(
            lines(&losses),
            "3:       17  ← odd\n0-2,4-7: 0.6931\nmin 0.6931 (0-2,4-7), median 0.6931, max 17 (3)\n"
        );
        assert_eq!(lines(&["(32, 10)"; 8]), "0-7: (32, 10)\n");
        assert_eq!(lines(&[""; 8]), "0-7: (nothing printed)\n");
    }

    #[test]
    fn multiline_answer_is_shown_below_its_ranks() {
        let mut locations = ["> a.py(1)f()\n-> g()\n"; 8];
        locations[0] = "> a.py(2)f()\n-> h()\n";
        assert_eq!(
            lines(&locations),
            "0:  ← odd\n  > a.py(2)f()\n  -> h()\n1-7:\n  > a.py(1)f()\n  -> g()\n"
        );
    }

    #[test]
    fn many_different_answers_are_counted() {
        let all: Vec<Who> = (0..40)
            .map(|number| {
                let mut member = eight_ranks().remove(0);
                member.number = Some(number);
                member
            })
            .collect();
        let names = Names::new(&all);
        let texts: Vec<String> = (0..40).map(|n| format!("x{n}")).collect();
        let text = text(&names, &fold(texts.iter().map(String::as_str).enumerate()));
        assert!(
            text.ends_with("32-39: 8 more different answers; --json has all\n"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 33);
    }

    #[test]
    fn tasks_without_a_known_rank_are_listed_by_pid() {
        let mut all = eight_ranks();
        assert_eq!(
            legend(&all, &vec!["id".to_owned(); 8]),
            "Trainer: 8 tasks by rank\n"
        );
        all[7].number = None;
        let text = legend(&all, &vec!["3kfz0q8m".to_owned(); 8]);
        assert!(
            text.starts_with("Trainer: 8 tasks, of which 1 by pid"),
            "{text}"
        );
        assert!(text.contains("\n  pid 7  3kfz0q8m\n"), "{text}");
    }

    #[test]
    fn equal_failures_are_grouped() {
        let eight_ranks = eight_ranks();
        let names = Names::new(&eight_ranks);
        let lines = silent(
            &names,
            [(5, "it is gone"), (2, "ann has it"), (4, "it is gone")],
        );
        assert_eq!(lines, "! 2: ann has it\n! 4,5: it is gone\n");
    }
}
