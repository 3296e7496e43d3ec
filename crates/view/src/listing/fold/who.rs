//! Identifies members: their group, their number in it, and names for sets of members.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::ranks::ranges;
use crate::listing::received::RowAnswer;
use crate::listing::row::Row;
use ray_relay_base::wire::text::replaced;

/// Members that are named one by one if they have no numbers.
const MAX_NAMED_MEMBERS: usize = 3;

/// The identity of one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Who {
    /// The group of members that run the same.
    pub group: String,
    /// Its rank, if known.
    pub number: Option<u32>,
    /// Distinguishes it from others without a number.
    pub name: String,
}

impl Who {
    /// Reads the identity from `row` of the relay's JSON, a running or a paused task. `several_jobs` adds the job to
    /// the group's name.
    pub(super) fn read(row: &RowAnswer<'_>, several_jobs: bool) -> Self {
        let cells = Row::of(row);
        // A relay of an older version reports no group of paused tasks.
        let mut group = replaced(row.group.or(row.name).unwrap_or("?")).into_owned();
        if several_jobs && let Some(job) = row.job_names().next() {
            group = format!("{} {group}", replaced(job));
        }
        Self {
            group,
            number: row.rank,
            name: format!("{} pid {} @ {}", cells.task, cells.pid, cells.node),
        }
    }
}

/// Reads the identities of `rows`, in order.
pub(super) fn all(rows: &[RowAnswer<'_>]) -> Vec<Who> {
    let jobs: BTreeSet<_> = rows.iter().map(|row| row.job_id).collect();
    let read = |row| Who::read(row, jobs.len() > 1);
    rows.iter().map(read).collect()
}

/// Identifies the members of `rows`, in order: each by its rank if that is known and unique in its group, otherwise
/// by its pid. A running count is never used as a rank.
pub fn identified(rows: &[RowAnswer<'_>]) -> Vec<Who> {
    let all = all(rows);
    let mut ranks: BTreeMap<(&str, u32), usize> = BTreeMap::new();
    let mut pids: BTreeMap<Option<u64>, usize> = BTreeMap::new();
    for (who, row) in all.iter().zip(rows) {
        if let Some(rank) = who.number {
            *ranks.entry((&who.group, rank)).or_default() += 1;
        }
        *pids.entry(row.pid).or_default() += 1;
    }
    let identify = |(who, row): (&Who, &RowAnswer<'_>)| {
        let is_alone = |rank: &u32| ranks.get(&(&*who.group, *rank)) == Some(&1);
        let name = match row.pid {
            Some(0) | None => who.name.clone(),
            Some(pid) if pids.get(&Some(pid)) == Some(&1) => format!("pid {pid}"),
            Some(pid) => format!("pid {pid} @ {}", Row::of(row).node),
        };
        Who {
            group: who.group.clone(),
            number: who.number.filter(is_alone),
            name,
        }
    };
    all.iter().zip(rows).map(identify).collect()
}

/// Returns one member as JSON: its identity, its `row` of the list, and why it gave no answer.
pub fn json(who: &Who, row: &Value, error: Option<&str>) -> Value {
    json!({"group": who.group, "number": who.number, "breakpoint": row, "error": error})
}

/// Names for sets of members: `0-2,4-7`, with the group's name in front if there are several groups.
pub struct Names<'a> {
    all: Vec<&'a Who>,
    /// The members of each group.
    groups: BTreeMap<&'a str, BTreeSet<usize>>,
}

impl<'a> Names<'a> {
    pub fn new(all: impl IntoIterator<Item = &'a Who>) -> Self {
        let all: Vec<&Who> = all.into_iter().collect();
        let mut groups: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        for (at, who) in all.iter().enumerate() {
            groups.entry(&who.group).or_default().insert(at);
        }
        Self { all, groups }
    }

    /// Returns the groups, each with its members.
    pub fn groups(&self) -> &BTreeMap<&'a str, BTreeSet<usize>> {
        &self.groups
    }

    /// Names `members` of `group`, of which some lack a unique number: numbers first, unless two members share one.
    fn mixed(&self, group: &str, members: &[&Who]) -> String {
        let of_group = self.groups.get(group).into_iter().flatten();
        let known: Vec<u32> = of_group.filter_map(|at| self.all[*at].number).collect();
        let are_distinct = known.iter().collect::<BTreeSet<_>>().len() == known.len();
        let is_numbered = |who: &&Who| are_distinct && who.number.is_some();
        let (ranked, rest): (Vec<&Who>, Vec<&Who>) =
            members.iter().partition(|who| is_numbered(who));
        let are_all = self.groups[group].len() == members.len();
        // If it is all of them, single names would repeat on each line.
        let names_all =
            rest.len() == 1 || rest.len() <= MAX_NAMED_MEMBERS && !(are_all && ranked.is_empty());
        let names = rest.iter().map(|who| who.name.clone());
        let ranks = (!ranked.is_empty()).then(|| numbers(&ranked));
        match (ranks, names_all) {
            (None, false) => format!("{group} ×{}", rest.len()),
            (Some(ranks), false) => format!("{ranks}, {} without a rank", rest.len()),
            (ranks, true) => ranks
                .into_iter()
                .chain(names)
                .collect::<Vec<_>>()
                .join(", "),
        }
    }

    /// Whether each member of `group` has a unique number.
    pub(super) fn are_numbered(&self, group: &str) -> bool {
        let all = self.groups.get(group).into_iter().flatten();
        let numbers: Vec<_> = all.map(|at| self.all[*at].number).collect();
        let distinct: BTreeSet<u32> = numbers.iter().flatten().copied().collect();
        distinct.len() == numbers.len()
    }

    /// Names the members `some`, of one group or of several.
    pub fn of(&self, some: &BTreeSet<usize>) -> String {
        let mut by_group: BTreeMap<&str, Vec<&Who>> = BTreeMap::new();
        for who in some.iter().filter_map(|at| self.all.get(*at)) {
            by_group.entry(&who.group).or_default().push(who);
        }
        let alone = self.groups.len() == 1;
        let called =
            by_group
                .into_iter()
                .map(|(group, members)| match (self.are_numbered(group), alone) {
                    (true, true) => numbers(&members),
                    (true, false) => format!("{group} {}", numbers(&members)),
                    (false, true) => self.mixed(group, &members),
                    (false, false) => match self.mixed(group, &members) {
                        called if called.starts_with(|c: char| c.is_ascii_digit()) => {
                            format!("{group} {called}")
                        }
                        called => called,
                    },
                });
        called.collect::<Vec<_>>().join("; ")
    }

    /// Names the members `some` of one group, in a sentence.
    pub(crate) fn in_words(&self, group: &str, some: &BTreeSet<usize>) -> String {
        let members = some.iter().filter_map(|at| self.all.get(*at).copied());
        let members: Vec<&Who> = members.collect();
        match (self.are_numbered(group), members.len()) {
            (true, 1) => format!("rank {}", numbers(&members)),
            (true, _) => format!("ranks {}", numbers(&members)),
            (_, 1..=MAX_NAMED_MEMBERS) => {
                let names: Vec<_> = members.iter().map(|who| &*who.name).collect();
                names.join(", ")
            }
            (_, many) => format!("{many} of {group}"),
        }
    }
}

fn numbers(members: &[&Who]) -> String {
    ranges(&members.iter().filter_map(|who| who.number).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use ray_relay_base::wire::json::typed;

    fn row(group: &str, rank: Option<u32>, node: &str, worker: u32) -> Value {
        json!({"group": group, "name": group, "rank": rank, "job_id": "01000000", "node_ip": node,
            "worker_id": format!("{worker:08x}"), "pid": worker})
    }

    #[test]
    fn member_of_unknown_rank_is_named_by_pid() {
        let rows = [
            row("f", Some(5), "10.0.0.1", 1),
            row("f", None, "10.0.0.1", 2),
            row("f", Some(2), "10.0.0.1", 3),
            row("f", Some(7), "10.0.0.1", 4),
            row("f", Some(7), "10.0.0.1", 6),
        ];
        let all = identified(&rows.iter().map(typed).collect::<Vec<_>>());
        let names = Names::new(&all);
        assert_eq!(names.of(&[0].into()), "5");
        assert_eq!(names.of(&[1].into()), "pid 2");
        assert_eq!(names.of(&[0, 1, 2].into()), "2,5, pid 2");
        // Two members that claim the same rank have none.
        assert_eq!(names.of(&[3].into()), "pid 4");
        assert_eq!(names.of(&[3, 4].into()), "pid 4, pid 6");
        let unknown = [rows[1].clone(), row("f", None, "10.0.0.2", 2)];
        let all = identified(&unknown.iter().map(typed).collect::<Vec<_>>());
        let names = Names::new(&all);
        assert_eq!(names.of(&[0].into()), "pid 2 @ 10.0.0.1");
        assert_eq!(names.of(&[0, 1].into()), "f ×2");
    }

    #[test]
    fn several_jobs_are_separate_groups() {
        let mut other = row("f", Some(0), "10.0.0.1", 2);
        other["job_id"] = "02000000".into();
        let rows = [row("f", Some(0), "10.0.0.1", 1), other];
        let all = identified(&rows.iter().map(typed).collect::<Vec<_>>());
        assert_eq!(all[1].group, "02000000 f");
        let names = Names::new(&all);
        assert_eq!(names.of(&[0, 1].into()), "01000000 f 0; 02000000 f 0");
    }

    proptest! {
        #[test]
        fn every_member_has_a_unique_stable_name(
            rows in proptest::collection::vec((0u8..3, proptest::option::of(0u32..4), 0u8..3), 0..20), rotation in 0usize..20,
        ) {
            let rows: Vec<Value> = (0..).zip(&rows).map(|(worker, (group, rank, node))| {
                row(&format!("g{group}"), *rank, &format!("10.0.0.{node}"), worker)
            }).collect();
            let mut reordered = rows.clone();
            reordered.rotate_left(rotation % rows.len().max(1));
            let numbers = |rows: &[Value]| -> BTreeMap<String, (String, Option<u32>, Option<String>)> {
                let all = identified(&rows.iter().map(typed).collect::<Vec<_>>()).into_iter();
                let identity = |who: Who| (who.group, who.number, who.number.is_none().then_some(who.name));
                all.zip(rows).map(|(who, row)| (row["worker_id"].to_string(), identity(who))).collect()
            };
            let by_worker = numbers(&rows);
            prop_assert_eq!(&by_worker, &numbers(&reordered));
            let distinct: BTreeSet<_> = by_worker.values().collect();
            prop_assert_eq!(distinct.len(), rows.len());
        }
    }
}
