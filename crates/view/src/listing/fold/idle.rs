//! Actors that are idle or have died while others of their class wait, as text.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::location::{Call, is_library};
use super::member::Member;
use super::who::{self, Names};
use crate::listing::received::RowAnswer;
use ray_relay_base::wire::human_time::span;
use ray_relay_base::wire::json::{self, typed};
use ray_relay_base::wire::text::{replaced, shortened};
use ray_relay_ray::ray::look::Frame;

/// Last lines of a dead actor.
const MAX_LAST_LINES: usize = 5;

/// Characters of a method's name or a state.
const MAX_WORD_CHARS: usize = 200;

/// Formats one line for each set of `rows`, the relay's idle actors, with the same last method. `members` are the
/// inspected ones.
pub fn text(members: &[Member], rows: &[Value]) -> String {
    let all: Vec<RowAnswer<'_>> = rows.iter().map(typed).collect();
    let idle = who::all(&all);
    let all = members.iter().map(|member| &member.who).chain(&idle);
    let names = Names::new(all);
    let mut lines: BTreeMap<(&str, Absence), BTreeSet<usize>> = BTreeMap::new();
    for (at, (who, row)) in idle.iter().zip(rows).enumerate() {
        let key = (&*who.group, Absence::read(row));
        lines.entry(key).or_default().insert(members.len() + at);
    }
    let lines = lines.into_iter().map(|((group, absence), some)| {
        let does = absence.words(some.len());
        format!("→ {group}, {} {does}\n", names.in_words(group, &some))
    });
    lines.collect()
}

/// Why an actor takes no part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Absence {
    /// No method runs in it, with its last one.
    Idle(String),
    /// It has died, with the reason and when.
    Dead(String),
}

impl Absence {
    /// Reads `row` of the relay's idle and dead actors.
    pub(super) fn read(row: &Value) -> Self {
        let word = |key: &str| {
            let text = row.get(key)?.as_str()?;
            Some(shortened(&replaced(text), MAX_WORD_CHARS))
        };
        if let Some(of) = word("died_of") {
            let ago = row.get("died_seconds").and_then(Value::as_f64);
            let ago = ago.and_then(|ago| Duration::try_from_secs_f64(ago).ok());
            let ago = ago.map_or(String::new(), |ago| format!(" {} ago", span(ago)));
            return Self::Dead(format!("{ago}: {}", crash(row).unwrap_or(of)));
        }
        Self::Idle(match (word("last_method"), word("last_state").as_deref()) {
            (Some(method), Some("FINISHED")) => format!("{method} returned"),
            (Some(method), Some("FAILED")) => format!("{method} failed"),
            _ => "no method runs in it".to_owned(),
        })
    }

    /// Describes `count` actors, as a sentence without its subject.
    pub(super) fn words(&self, count: usize) -> String {
        let (is, has) = if count == 1 {
            ("is", "has")
        } else {
            ("are", "have")
        };
        match self {
            Self::Idle(last) => format!("{is} idle: {last}"),
            Self::Dead(of) => format!("{has} died{of}"),
        }
    }
}

/// A fatal signal that has ended an actor.
#[derive(Deserialize)]
struct CrashAnswer {
    signal: String,
    frames: Vec<Frame>,
}

/// Describes the crash of `row`: `it crashed (Segmentation fault) in die (train.py:7)`.
fn crash(row: &Value) -> Option<String> {
    let crash = CrashAnswer::deserialize(row.get("crash")?).ok()?;
    let own = crash.frames.iter().find(|frame| !is_library(&frame.file));
    let at = own.or(crash.frames.first()).map(Call::of);
    let at = at.map_or(String::new(), |call| format!(" in {call}"));
    let words = format!("it crashed ({}){at}", crash.signal);
    Some(shortened(&replaced(&words), MAX_WORD_CHARS))
}

/// Returns the last lines of the error log of `row`'s actor, if it has died and they may be seen.
pub(super) fn last_lines(row: &Value) -> Vec<String> {
    let lines = json::list(row, "last_lines").iter().take(MAX_LAST_LINES);
    let lines = lines.filter_map(Value::as_str);
    lines
        .map(|line| shortened(&replaced(line), MAX_WORD_CHARS))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::text::tests::member;
    use super::*;

    #[test]
    fn idle_rank_is_named_with_the_returned_call() {
        let members: Vec<Member> = (0..6)
            .map(|rank| member("Trainer", rank, &[("step", "train.py", 7)]))
            .collect();
        let row = |rank: Option<u32>, state: &str| {
            json!({"group": "Trainer", "name": "Trainer", "rank": rank, "pid": 9, "node_ip": "10.0.0.7",
            "job_id": "01000000", "last_method": "Trainer.step", "last_state": state})
        };
        let mut died = row(Some(10), "NIL");
        (died["died_of"], died["died_seconds"]) = ("the worker crashed".into(), 65.0.into());
        let mut ended = row(Some(8), "NIL");
        ended["last_method"] = Value::Null;
        let rows = [
            row(Some(6), "FINISHED"),
            row(Some(7), "FAILED"),
            ended,
            row(Some(9), "FINISHED"),
            died,
        ];
        assert_eq!(
            text(&members, &rows),
            "→ Trainer, rank 7 is idle: Trainer.step failed\n\
             → Trainer, ranks 6,9 are idle: Trainer.step returned\n\
             → Trainer, rank 8 is idle: no method runs in it\n\
             → Trainer, rank 10 has died 1m 05s ago: the worker crashed\n"
        );
        assert_eq!(text(&members, &[]), "");
    }
}
