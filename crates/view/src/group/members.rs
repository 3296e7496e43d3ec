//! Selects the paused tasks for a command on many, and identifies each.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::listing::fold::answer_text;
use crate::listing::fold::compared::Compared;
use crate::listing::fold::ranks::Ranks;
use crate::listing::fold::who::{self, Names, Who, identified};
use crate::listing::job::MeantJob;
use crate::listing::received::RowAnswer;
use crate::listing::row::Row;
use ray_relay_access::policy::Pattern;
use ray_relay_base::wire::debugger::Kind;
use ray_relay_base::wire::json::{self, typed, typed_at};

/// A selection of paused tasks: those that match all of these criteria.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meant {
    /// Ids, names and groups, with `*` as wildcard. One of them has to match.
    pub patterns: Vec<String>,
    /// The job.
    pub job: Option<MeantJob>,
    /// The cluster: job ids count anew in each.
    pub cluster: Option<String>,
    /// Ranks, or pids of tasks without one.
    pub ranks: Option<Ranks>,
}

impl Meant {
    /// Parses the words that a user types after `all`: patterns, `job=NAME`, `cluster=NAME` and `ranks=0-7,9`. Returns the
    /// name of the job next to the rest, for the caller to look up.
    ///
    /// # Errors
    /// The fault, in a sentence.
    pub fn read(words: &str) -> Result<(Self, Option<String>), String> {
        let (mut meant, mut job) = (Self::default(), None);
        for word in words.split_whitespace() {
            match word.split_once('=') {
                Some(("job", name)) if !name.is_empty() => job = Some(name.to_owned()),
                Some(("cluster", name)) if !name.is_empty() => {
                    meant.cluster = Some(name.to_owned());
                }
                Some(("ranks", ranks)) => {
                    let ranks = ranks
                        .parse::<Ranks>()
                        .map_err(|why| format!("{why}: ranks=0-7,9"))?;
                    meant.ranks = Some(ranks);
                }
                _ => meant.patterns.push(word.to_owned()),
            }
        }
        Ok((meant, job))
    }
}

/// No paused task is selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoMember {
    #[error("no task waits at a breakpoint")]
    Waiting,
    #[error("no task that waits fits; `ray-relay list` shows what waits")]
    Fitting,
    #[error("no task that waits fits, and {}; try again in a moment", unnamed(*.0))]
    Unnamed(usize),
}

/// Why no command runs in a member, as far as the list shows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    #[error("a breakpoint of Ray's legacy debugger has a prompt of its own: `ray-relay debug ID`")]
    Legacy,
    /// Its holder, or its state.
    #[error("{0}")]
    Held(String),
    #[error("its debugger cannot be reached; `ray-relay release --force` ends its worker")]
    Unreachable,
}

/// The selected tasks, in the order of their groups and numbers.
pub struct MeantTasks {
    pub rows: Vec<Value>,
    who: Vec<Who>,
    /// Tasks that were left out and may belong to the selection: they have no name yet.
    pub unnamed: usize,
}

/// How many seconds a task may be paused until its current name counts as final.
const NAME_TIMEOUT: f64 = 10.0;

/// Whether `row` of the list may still get another name.
fn is_unnamed(row: &RowAnswer<'_>) -> bool {
    let waited = row.waiting_seconds;
    row.name_pending && (row.group.is_none() || waited.is_none_or(|waited| waited < NAME_TIMEOUT))
}

/// Counts the `rows` that are not `chosen` and have no name yet.
pub fn count_unnamed<'a>(rows: impl Iterator<Item = &'a Value>, chosen: &[Value]) -> usize {
    let chosen: BTreeSet<&str> = chosen
        .iter()
        .filter_map(|row| typed_at(row, "id"))
        .collect();
    let is_left =
        |row: &RowAnswer<'_>| is_unnamed(row) && row.id.is_some_and(|id| !chosen.contains(id));
    rows.map(typed).filter(is_left).count()
}

/// Describes `count` tasks without a name, as a clause.
pub fn unnamed(count: usize) -> String {
    match count {
        1 => "1 paused task has no name yet".to_owned(),
        count => format!("{count} paused tasks have no name yet"),
    }
}

impl MeantTasks {
    /// Selects from `list`, the relay's answer. Numbers are assigned before ranks are filtered.
    ///
    /// # Errors
    /// No task is selected.
    pub fn of(list: &Value, meant: &Meant) -> Result<Self, NoMember> {
        let is_there = |row: &&Value| {
            let cluster = typed::<RowAnswer<'_>>(row).cluster.unwrap_or_default();
            let mut named = meant.cluster.iter();
            named.all(|name| name.eq_ignore_ascii_case(cluster))
        };
        let listed = json::list(list, "breakpoints");
        let all: Vec<&Value> = listed.iter().filter(is_there).collect();
        let is_of_job = |row: &&Value| meant.job.as_ref().is_none_or(|job| job.has(&typed(row)));
        let has_job = |row: &&Value| typed::<RowAnswer<'_>>(row).job_id.is_some();
        let may_be_of_job = |row: &&Value| is_of_job(row) || !has_job(row);
        let patterns = meant.patterns.iter();
        let patterns: Vec<Pattern> = patterns
            .map(|pattern| Pattern::new(pattern.to_lowercase()))
            .collect();
        let is_called = |row: &&Value| {
            patterns.is_empty() || patterns.iter().any(|pattern| is_called(row, pattern))
        };
        let rows = all.iter().copied();
        let named = rows.clone().filter(is_of_job).filter(is_called);
        let mut members = Self::numbered(named.cloned().collect(), meant.ranks.as_ref());
        members.unnamed = count_unnamed(rows.filter(may_be_of_job), &members.rows);
        match (members.rows.is_empty(), members.unnamed) {
            (false, _) => Ok(members),
            (true, _) if listed.is_empty() => Err(NoMember::Waiting),
            (true, 0) => Err(NoMember::Fitting),
            (true, count) => Err(NoMember::Unnamed(count)),
        }
    }

    /// Identifies the tasks of `rows`, then keeps those of `ranks`.
    pub fn numbered(rows: Vec<Value>, ranks: Option<&Ranks>) -> Self {
        let who = identified(&rows.iter().map(typed).collect::<Vec<_>>());
        let mut members: Vec<(Value, Who)> = rows.into_iter().zip(who).collect();
        if let Some(ranks) = ranks {
            members.retain(|(row, who)| is_among(ranks, who, row));
        }
        members.sort_by_cached_key(|(row, who)| {
            (
                who.group.clone(),
                who.number.is_none(),
                who.number,
                pid(row),
            )
        });
        let (rows, who) = members.into_iter().unzip();
        Self {
            rows,
            who,
            unnamed: 0,
        }
    }

    /// Whether the member `at` this index is in a group with unknown ranks.
    pub fn lacks_rank(&self, at: usize) -> bool {
        let Some(one) = self.who.get(at) else {
            return false;
        };
        let mut group = self.who.iter().filter(|who| who.group == one.group);
        group.any(|who| who.number.is_none())
    }

    /// Applies `ranks`, which processes have reported by member index, to each group with unknown ranks whose members
    /// all reported distinct ones. Returns whether there is such a group.
    pub fn learn(&mut self, ranks: &BTreeMap<usize, u32>) -> bool {
        let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for at in (0..self.who.len()).filter(|at| self.lacks_rank(*at)) {
            let group = self.who[at].group.clone();
            groups.entry(group).or_default().push(at);
        }
        let mut any = false;
        for all in groups.into_values() {
            let reported: BTreeSet<u32> =
                all.iter().filter_map(|at| ranks.get(at).copied()).collect();
            if reported.len() < all.len() {
                continue;
            }
            any = true;
            for at in all {
                self.who[at].number = ranks.get(&at).copied();
            }
        }
        any
    }

    /// Keeps those with one of these `ids`.
    pub fn retain(&mut self, ids: &BTreeSet<String>) {
        let all = std::mem::take(&mut self.rows).into_iter();
        let all = all.zip(std::mem::take(&mut self.who));
        let is_kept = |row: &Value| ids.contains(typed_at::<&str>(row, "id"));
        (self.rows, self.who) = all.filter(|(row, _)| is_kept(row)).unzip();
    }

    /// Returns their ids, in order.
    pub fn ids(&self) -> Vec<&str> {
        let ids = self.rows.iter().filter_map(|row| typed_at(row, "id"));
        ids.collect()
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns their names.
    pub fn names(&self) -> Names<'_> {
        Names::new(&self.who)
    }

    /// Describes the groups and their numbers.
    pub fn legend(&self) -> String {
        let ids = self.rows.iter().map(|row| Row::read(row).id);
        let legend = answer_text::legend(&self.who, &ids.collect::<Vec<_>>());
        match self.unnamed {
            0 => legend,
            count => format!("{legend}{}, and may be missing here\n", unnamed(count)),
        }
    }

    /// Whether `ranks` contains the rank of the member `at` this index, or its pid if its rank is unknown.
    pub fn is_of(&self, at: usize, ranks: &Ranks) -> bool {
        let both = self.who.get(at).zip(self.rows.get(at));
        both.is_some_and(|(who, row)| is_among(ranks, who, row))
    }

    /// Returns `compared` as JSON, with the error of each member that gave no answer.
    pub fn compared(&self, compared: &Compared<'_>, errors: &BTreeMap<usize, String>) -> Value {
        let all = (0..self.len()).map(|at| self.json(at, errors.get(&at).map(String::as_str)));
        compared.json(&all.collect::<Vec<_>>())
    }

    /// Returns one member as JSON, with its error if it gave no answer.
    pub fn json(&self, at: usize, error: Option<&str>) -> Value {
        who::json(&self.who[at], &self.rows[at], error)
    }
}

fn pid(row: &Value) -> Option<u32> {
    u32::try_from(row.get("pid")?.as_u64()?).ok()
}

fn is_among(ranks: &Ranks, who: &Who, row: &Value) -> bool {
    let number = who.number.or_else(|| pid(row));
    number.is_some_and(|number| ranks.contains(number))
}

/// Whether the id, name or group of `row` matches.
fn is_called(row: &Value, pattern: &Pattern) -> bool {
    let keys = ["id", "name", "group", "actor_name", "task_id", "worker_id"];
    let mut texts = keys.iter().filter_map(|key| row.get(key)?.as_str());
    texts.any(|text| pattern.matches(&text.to_lowercase()))
}

/// Whether commands can run in the task of `row`, as far as the list shows. The relay decides who may resume a park.
///
/// # Errors
/// [`NotReady`].
pub fn ready(row: &Value) -> Result<(), NotReady> {
    let row: RowAnswer<'_> = typed(row);
    if !row.debugger().is_some_and(Kind::speaks_dap) {
        return Err(NotReady::Legacy);
    }
    let cells = Row::of(&row);
    match &*cells.state {
        "paused" | "parked" => Ok(()),
        "attached" => Err(NotReady::Held(format!("{} has it", cells.holder))),
        "unreachable" => Err(NotReady::Unreachable),
        _ => Err(NotReady::Held(cells.holder)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list() -> Value {
        let rows = (0..8).map(|rank| {
            json!({"id": format!("rank{rank:04}"), "state": "paused", "kind": "debugpy", "name": "Trainer.step", "group": "Trainer",
                "cluster": if rank < 4 { "a" } else { "b" }, "rank": rank, "job_id": if rank < 6 { "01000000" } else { "02000000" }, "worker_id": format!("{rank:056x}")})
        });
        json!({"breakpoints": rows.collect::<Vec<_>>()})
    }

    fn meant(list: &Value, words: &str) -> Result<Meant, String> {
        let (meant, job) = Meant::read(words)?;
        let job = job.map(|name| MeantJob::listed(name, json::list(list, "breakpoints")));
        Ok(Meant { job, ..meant })
    }

    fn selected_ids(text: &str) -> Result<Vec<String>, String> {
        let members =
            MeantTasks::of(&list(), &meant(&list(), text)?).map_err(|reason| reason.to_string())?;
        Ok(members.ids().into_iter().map(str::to_owned).collect())
    }

    #[test]
    fn every_park_is_ready_for_the_relay_to_decide() {
        let row = |state: &str, holder: Value| json!({"state": state, "kind": "debugpy", "holder": holder, "first_seen": 0, "waiting_seconds": 1});
        for client in ["ray-relay exec", "ray-relay park", "VS Code"] {
            let holder = json!({"client": client, "parked_until": 600});
            assert_eq!(ready(&row("parked", holder)), Ok(()));
        }
        let attached = ready(&row("attached", json!({"client": "VS Code"})));
        assert_eq!(attached, Err(NotReady::Held("VS Code has it".to_owned())));
    }

    /// A number of tasks could be mistaken for a rank.
    #[test]
    fn member_of_unknown_rank_is_selected_by_pid() {
        let mut list = list();
        list["breakpoints"][3]["rank"] = Value::Null;
        list["breakpoints"][3]["pid"] = 4711.into();
        let select = |text: &str| MeantTasks::of(&list, &meant(&list, text).unwrap());
        let all = select("job=01000000").unwrap();
        assert_eq!(all.names().of(&(0..6).collect()), "0-2,4,5, pid 4711");
        assert!(all.legend().contains("  pid 4711  rank0003\n"));
        assert_eq!(select("ranks=4711").unwrap().ids(), ["rank0003"]);
        assert_eq!(select("ranks=3").err(), Some(NoMember::Fitting));
    }

    #[test]
    fn words_after_all_narrow_the_members() {
        let ids = |ranks: &[u32]| Ok(ranks.iter().map(|n| format!("rank{n:04}")).collect());
        assert_eq!(selected_ids(""), ids(&[0, 1, 2, 3, 4, 5, 6, 7]));
        assert_eq!(selected_ids("train*"), ids(&[0, 1, 2, 3, 4, 5, 6, 7]));
        assert_eq!(selected_ids("Trainer ranks=0,6-7"), ids(&[0, 6, 7]));
        assert_eq!(selected_ids(" job=02000000 "), ids(&[6, 7]));
        // Ids of tasks are accepted, too.
        assert_eq!(selected_ids("rank0004 RANK0001"), ids(&[1, 4]));
        let mut pending = list();
        for (index, row) in pending["breakpoints"]
            .as_array_mut()
            .unwrap()
            .iter_mut()
            .enumerate()
        {
            row["waiting_seconds"] = 30.into();
            match index {
                // The name is unknown.
                0 => (row["name"], row["group"]) = ("worker 00000000".into(), Value::Null),
                // The name may be that of the previous task.
                1 => (row["name"], row["waiting_seconds"]) = ("setup".into(), 1.into()),
                // The name has been known for long, and is final.
                2 => row["name"] = "loader".into(),
                _ => continue,
            }
            row["name_pending"] = true.into();
            row["group"] = match index {
                0 => Value::Null,
                _ => "setup".into(),
            };
        }
        let select = |text: &str| MeantTasks::of(&pending, &meant(&pending, text).unwrap());
        let trainers = select("Trainer").unwrap();
        assert_eq!((trainers.len(), trainers.unnamed), (5, 2));
        assert!(
            trainers
                .legend()
                .ends_with("2 paused tasks have no name yet, and may be missing here\n")
        );
        assert_eq!(select("").unwrap().unnamed, 0, "all are meant");
        assert_eq!(select("other").err(), Some(NoMember::Unnamed(2)));
        let of_cluster = selected_ids("cluster=B").unwrap();
        assert_eq!(of_cluster, ["rank0004", "rank0005", "rank0006", "rank0007"]);
        assert_eq!(
            selected_ids("job=01000000 cluster=b").unwrap(),
            of_cluster[..2]
        );
        assert!(
            selected_ids("cluster=c")
                .unwrap_err()
                .contains("no task that waits fits")
        );
        assert!(selected_ids("ranks=x").unwrap_err().contains("ranks=0-7,9"));
        assert!(
            selected_ids("other")
                .unwrap_err()
                .contains("no task that waits fits")
        );
    }
}
