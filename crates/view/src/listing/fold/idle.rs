//! Idle actors while others of their class wait, as text.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::member::Member;
use super::who::{self, Names};
use crate::listing::received::RowAnswer;
use ray_relay_base::wire::json::typed;
use ray_relay_base::wire::text::{replaced, shortened};

/// Characters of a method's name or a state.
const MAX_WORD_CHARS: usize = 200;

/// Formats one line for each set of `rows`, the relay's idle actors, with the same last method. `members` are the
/// inspected ones.
pub fn text(members: &[Member], rows: &[Value]) -> String {
    let all: Vec<RowAnswer<'_>> = rows.iter().map(typed).collect();
    let idle = who::all(&all);
    let all = members.iter().map(|member| &member.who).chain(&idle);
    let names = Names::new(all);
    let mut lines: BTreeMap<(&str, String), BTreeSet<usize>> = BTreeMap::new();
    for (at, (who, row)) in idle.iter().zip(rows).enumerate() {
        let key = (&*who.group, last(row));
        lines.entry(key).or_default().insert(members.len() + at);
    }
    let lines = lines.into_iter().map(|((group, last), some)| {
        let is = if some.len() == 1 { "is" } else { "are" };
        format!(
            "→ {group}, {} {is} idle: {last}\n",
            names.in_words(group, &some)
        )
    });
    lines.collect()
}

/// Describes the last method of the actor of `row`.
pub(super) fn last(row: &Value) -> String {
    let word = |key: &str| {
        let text = row.get(key)?.as_str()?;
        Some(shortened(&replaced(text), MAX_WORD_CHARS))
    };
    match (word("last_method"), word("last_state").as_deref()) {
        (Some(method), Some("FINISHED")) => format!("{method} returned"),
        (Some(method), Some("FAILED")) => format!("{method} failed"),
        _ => "no method runs in it".to_owned(),
    }
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
        let mut ended = row(Some(8), "NIL");
        ended["last_method"] = Value::Null;
        let rows = [
            row(Some(6), "FINISHED"),
            row(Some(7), "FAILED"),
            ended,
            row(Some(9), "FINISHED"),
        ];
        assert_eq!(
            text(&members, &rows),
            "→ Trainer, rank 7 is idle: Trainer.step failed\n\
             → Trainer, ranks 6,9 are idle: Trainer.step returned\n\
             → Trainer, rank 8 is idle: no method runs in it\n"
        );
        assert_eq!(text(&members, &[]), "");
    }
}
