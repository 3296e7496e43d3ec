//! Merges rows of the list: free tasks of one group that are paused at the same location become one row.
//!
//! Pure. All other tasks keep rows of their own, with the ids by which they are reached.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::fold::who::{Names, identified};
use super::received::RowAnswer;
use super::row::Row;
use ray_relay_base::wire::json::typed_list;

/// Smallest number of rows that are merged.
pub const MIN_GROUP_ROWS: usize = 5;

/// Returns the rows of `list`, the relay's answer, with one row for [`MIN_GROUP_ROWS`] or more similar ones, at the position
/// of the first of them. Also returns whether any were merged.
pub fn rows(list: &Value) -> (Vec<Row>, bool) {
    let all: Vec<RowAnswer<'_>> = typed_list(list, "breakpoints").collect();
    let who = identified(&all);
    let names = Names::new(&who);
    let rows: Vec<Row> = all.iter().map(Row::of).collect();
    let mut alike: BTreeMap<_, BTreeSet<usize>> = BTreeMap::new();
    for (at, row) in rows
        .iter()
        .enumerate()
        .filter(|(_, row)| row.state == "paused")
    {
        let key = (
            &row.cluster,
            &who[at].group,
            &row.location,
            &row.kind,
            all[at].is_post_mortem(),
        );
        alike.entry(key).or_default().insert(at);
    }
    alike.retain(|_, members| members.len() >= MIN_GROUP_ROWS);
    let mut first: BTreeMap<usize, &BTreeSet<usize>> = BTreeMap::new();
    let mut others: BTreeSet<usize> = BTreeSet::new();
    for members in alike.values() {
        first.extend(members.first().map(|at| (*at, members)));
        others.extend(members.iter().skip(1));
    }
    let merged = rows
        .iter()
        .enumerate()
        .filter(|(at, _)| !others.contains(at));
    let merged = merged.map(|(at, row)| match first.get(&at) {
        None => row.clone(),
        Some(members) => {
            let group = &who[at].group;
            let is_ranked = members.iter().all(|at| who[*at].number.is_some());
            let called = is_ranked.then(|| names.in_words(group, members));
            let total = names.groups().get(&**group).map_or(0, BTreeSet::len);
            one(
                members.iter().map(|at| (&rows[*at], &all[*at])),
                called,
                total,
            )
        }
    });
    (merged.collect(), !first.is_empty())
}

/// Builds one row for `members`, of a group of `total`.
fn one<'a>(
    members: impl Iterator<Item = (&'a Row, &'a RowAnswer<'a>)>,
    called: Option<String>,
    total: usize,
) -> Row {
    let (rows, all): (Vec<&Row>, Vec<&RowAnswer<'_>>) = members.unzip();
    let distinct = |text: &dyn Fn(usize) -> String| -> BTreeSet<String> {
        (0..rows.len()).map(text).collect()
    };
    // The common text, or the number of distinct ones.
    let common = |texts: BTreeSet<String>, many: &str| match texts.len() {
        1 => texts.into_iter().next().unwrap_or_default(),
        count if many.is_empty() => format!("{count}"),
        count => format!("{count} {many}"),
    };
    let name = |at: usize| all[at].name.unwrap_or("?").to_owned();
    let group = |at: usize| all[at].group.map_or_else(|| name(at), str::to_owned);
    let names = distinct(&name);
    let mut task = match names.len() {
        1 => common(names, ""),
        _ => common(distinct(&group), "names"),
    };
    task = ray_relay_base::wire::text::replaced(&task).into_owned();
    if let Some(called) = called {
        task += &format!(" {called}");
    }
    if all.first().is_some_and(|row| row.is_post_mortem()) {
        task += " (post-mortem)";
    }
    let first = rows.first().copied().cloned().unwrap_or_default();
    let none = || "-".to_owned();
    Row {
        // As wide as an id, so that the name keeps its width.
        id: format!("{} of {total}", rows.len()),
        task,
        node: common(distinct(&|at| rows[at].node.clone()), "nodes"),
        waiting: rows.iter().map(|row| row.waiting).max().unwrap_or_default(),
        timeout: rows.iter().filter_map(|row| row.timeout).min(),
        gpus: rows.iter().map(|row| row.gpus).sum(),
        pid: none(),
        task_id: none(),
        worker: none(),
        ..first
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rank(rank: usize, line: u32, state: &str) -> Value {
        json!({"id": format!("rank{rank:04}"), "state": state, "kind": "debugpy", "name": "Trainer.step", "group": "Trainer",
            "actor_name": format!("rank-{rank}"), "rank": rank, "job_id": "01000000", "node_ip": format!("10.0.0.{}", rank % 3 + 1),
            "worker_id": format!("{rank:056x}"), "pid": 100 + rank, "location": {"file": "train.py", "line": line},
            "waiting_seconds": rank, "resources": {"GPU": 1.0}})
    }

    fn lines(all: &[Value]) -> Vec<String> {
        let (rows, _) = rows(&json!({ "breakpoints": all }));
        let lines = |row: &Row| {
            format!(
                "{} | {} | {} | {} | {:?} | {}",
                row.id, row.task, row.location, row.node, row.waiting, row.gpus
            )
        };
        rows.iter().map(lines).collect()
    }

    #[test]
    fn rows_at_one_location_are_folded_except_the_odd_one() {
        let mut ranks: Vec<Value> = (0..8).map(|index| rank(index, 42, "paused")).collect();
        ranks[3] = rank(3, 9, "paused");
        assert_eq!(
            lines(&ranks),
            [
                "7 of 8 | Trainer.step ranks 0-2,4-7 | train.py:42 | 3 nodes | 7s | 7",
                "rank0003 | Trainer.step [rank-3] rank 3 | train.py:9 | 10.0.0.1 | 3s | 1",
            ]
        );
        // An attached rank also has a row of its own.
        ranks[0] = rank(0, 42, "attached");
        let lines = lines(&ranks);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(
            lines[1].starts_with("6 of 8 | Trainer.step ranks 1,2,4-7 |"),
            "{lines:?}"
        );
    }

    #[test]
    fn small_groups_are_not_folded() {
        let small_group: Vec<Value> = (0..MIN_GROUP_ROWS - 1)
            .map(|index| rank(index, 42, "paused"))
            .collect();
        let list = json!({ "breakpoints": small_group });
        let (row_list, is_grouped) = rows(&list);
        assert_eq!((row_list.len(), is_grouped), (MIN_GROUP_ROWS - 1, false));
    }

    #[test]
    fn group_name_replaces_differing_names() {
        let renamed = (0..6).map(|index| {
            let mut row = rank(index, 42, "paused");
            row["name"] = format!("part {index}").into();
            row["rank"] = Value::Null;
            row["actor_name"] = Value::Null;
            row
        });
        assert_eq!(
            lines(&renamed.collect::<Vec<_>>()),
            ["6 of 6 | Trainer | train.py:42 | 3 nodes | 5s | 6"]
        );
    }

    proptest::proptest! {
        #[test]
        fn every_task_is_in_one_row(all in proptest::collection::vec((0usize..3, 0u32..2, 0usize..3), 0..40)) {
            let states = ["paused", "paused", "attached"];
            let list: Vec<Value> = all.iter().enumerate().map(|(index, (group, line, state))| {
                let mut row = rank(index, *line, states[*state]);
                row["group"] = format!("g{group}").into();
                row
            }).collect();
            let (row_list, _) = rows(&json!({ "breakpoints": list }));
            let counts = row_list.iter().map(|row| row.id.split_once(" of ").map_or(Ok(1), |(count, _)| count.parse::<usize>()));
            let counts: Result<Vec<usize>, _> = counts.collect();
            let counts = counts.unwrap_or_default();
            proptest::prop_assert_eq!(counts.iter().sum::<usize>(), all.len());
            proptest::prop_assert!(counts.iter().all(|count| *count == 1 || *count >= MIN_GROUP_ROWS));
        }
    }
}
