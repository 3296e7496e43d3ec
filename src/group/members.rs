//! Which of the paused tasks are meant by a command for many, and who each of them is.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::listing::fold::compared::Compared;
use crate::listing::fold::ranks::Ranks;
use crate::listing::fold::told;
use crate::listing::fold::who::{self, Names, Numbers, Who, numbered};
use crate::listing::row::{Row, kind};
use crate::policy::Pattern;
use crate::wire::debugger::Kind;

/// Which of those that are paused: all that fit everything that is said here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Meant {
    /// Ids, names and groups, `*` matching anything: one of them fits.
    pub(crate) patterns: Vec<String>,
    /// Those of this job, by its id.
    pub(crate) job: Option<String>,
    /// Those of these numbers.
    pub(crate) ranks: Option<Ranks>,
}

impl Meant {
    /// Reads what a person types behind `all`: patterns, `job=ID` and `ranks=0-7,9`.
    ///
    /// # Errors
    /// What is wrong with it, in a sentence.
    pub(crate) fn read(words: &str) -> Result<Self, String> {
        let mut meant = Self::default();
        for word in words.split_whitespace() {
            match word.split_once('=') {
                Some(("job", job)) if !job.is_empty() => meant.job = Some(job.to_owned()),
                Some(("ranks", ranks)) => {
                    let ranks = ranks
                        .parse::<Ranks>()
                        .map_err(|why| format!("{why}: ranks=0-7,9"))?;
                    meant.ranks = Some(ranks);
                }
                _ => meant.patterns.push(word.to_owned()),
            }
        }
        Ok(meant)
    }
}

/// None of those that wait is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoMember {
    #[error("no task waits at a breakpoint")]
    NoneWaits,
    #[error("no task that waits fits; `ray-relay list` shows what waits")]
    NoneFits,
}

/// Why no command runs in a member, as the list knows it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotReady {
    #[error("a breakpoint of Ray's legacy debugger has a prompt of its own: `ray-relay debug ID`")]
    Legacy,
    /// Who has it, or how it is.
    #[error("{0}")]
    Held(String),
    #[error("its debugger cannot be reached; `ray-relay release --force` ends its worker")]
    Unreachable,
}

/// Paused tasks that are meant, in the order of their groups and numbers.
pub(crate) struct MeantTasks {
    pub(crate) rows: Vec<Value>,
    who: Vec<(Who, Numbers)>,
}

impl MeantTasks {
    /// Those of `list`, the answer of the relay, that are meant. They are numbered before ranks are chosen of them.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn of(list: &Value, meant: &Meant) -> Result<Self, NoMember> {
        let all = list["breakpoints"].as_array();
        let all = all.map(Vec::as_slice).unwrap_or_default();
        let is_of_job = |row: &&Value| {
            let job = meant.job.as_deref();
            job.is_none_or(|job| row["job_id"].as_str() == Some(job))
        };
        let patterns = meant.patterns.iter();
        let patterns: Vec<Pattern> = patterns
            .map(|pattern| Pattern::new(pattern.to_lowercase()))
            .collect();
        let is_called = |row: &&Value| {
            patterns.is_empty() || patterns.iter().any(|pattern| is_called(row, pattern))
        };
        let named = all.iter().filter(is_of_job).filter(is_called);
        let members = Self::numbered(named.cloned().collect(), meant.ranks.as_ref());
        match (members.rows.is_empty(), all.is_empty()) {
            (false, _) => Ok(members),
            (true, true) => Err(NoMember::NoneWaits),
            (true, false) => Err(NoMember::NoneFits),
        }
    }

    /// What `rows` of the list are about; of these, once they are numbered, those of `ranks`.
    pub(crate) fn numbered(rows: Vec<Value>, ranks: Option<&Ranks>) -> Self {
        let who = numbered(&rows.iter().collect::<Vec<_>>());
        let mut members: Vec<(Value, (Who, Numbers))> = rows.into_iter().zip(who).collect();
        if let Some(ranks) = ranks {
            members.retain(|(_, (who, _))| who.number.is_some_and(|number| ranks.contains(number)));
        }
        members.sort_by(|(_, (one, _)), (_, (other, _))| {
            (&one.group, one.number).cmp(&(&other.group, other.number))
        });
        let (rows, who) = members.into_iter().unzip();
        Self { rows, who }
    }

    /// Whether the one `at` this place is in a group of which not each has a rank that the list knows.
    pub(crate) fn lacks_rank(&self, at: usize) -> bool {
        self.who
            .get(at)
            .is_some_and(|(_, numbers)| *numbers == Numbers::Ordinals)
    }

    /// Takes `ranks`, which processes have told by the places of their tasks, for the numbers of a group that the list knows
    /// none of: where each of it has told another one. Whether there is such a group.
    pub(crate) fn learn(&mut self, ranks: &BTreeMap<usize, u32>) -> bool {
        let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for at in (0..self.who.len()).filter(|at| self.lacks_rank(*at)) {
            let group = self.who[at].0.group.clone();
            groups.entry(group).or_default().push(at);
        }
        let mut any = false;
        for all in groups.into_values() {
            let told: BTreeSet<u32> = all.iter().filter_map(|at| ranks.get(at).copied()).collect();
            if told.len() < all.len() {
                continue;
            }
            any = true;
            for at in all {
                self.who[at].0.number = ranks.get(&at).copied();
                self.who[at].1 = Numbers::Ranks;
            }
        }
        any
    }

    /// Their ids, in their order.
    pub(crate) fn ids(&self) -> Vec<&str> {
        let ids = self.rows.iter().filter_map(|row| row["id"].as_str());
        ids.collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// How they are called.
    pub(crate) fn names(&self) -> Names<'_> {
        Names::new(self.who.iter().map(|(who, _)| who))
    }

    /// Which groups there are, and what their numbers are.
    pub(crate) fn legend(&self) -> String {
        let ids = self.rows.iter().map(|row| Row::read(row).id);
        told::legend(&self.who, &ids.collect::<Vec<_>>())
    }

    /// Whether the number of the one `at` this place is among `ranks`.
    pub(crate) fn is_of(&self, at: usize, ranks: &Ranks) -> bool {
        let number = self.who.get(at).and_then(|(who, _)| who.number);
        number.is_some_and(|number| ranks.contains(number))
    }

    /// `compared` of them as JSON, each with why it gave no answer.
    pub(crate) fn compared(
        &self,
        compared: &Compared<'_>,
        errors: &BTreeMap<usize, String>,
    ) -> Value {
        let all = (0..self.len()).map(|at| self.json(at, errors.get(&at).map(String::as_str)));
        compared.json(&all.collect::<Vec<_>>())
    }

    /// One of them as JSON, with why it gave no answer.
    pub(crate) fn json(&self, at: usize, error: Option<&str>) -> Value {
        who::json(&self.who[at], &self.rows[at], error)
    }
}

/// Whether `row` of the list has an id or a name that fits, or is of such a group.
fn is_called(row: &Value, pattern: &Pattern) -> bool {
    let keys = ["id", "name", "group", "actor_name", "task_id", "worker_id"];
    let mut texts = keys.iter().filter_map(|key| row[key].as_str());
    texts.any(|text| pattern.matches(&text.to_lowercase()))
}

/// Whether commands can run in what `row` of the list is about, as the list knows it; `clients`: what those have left is gone on with.
///
/// # Errors
/// [`NotReady`].
pub(crate) fn ready(row: &Value, clients: &[&str]) -> Result<(), NotReady> {
    if !kind(row).is_some_and(Kind::speaks_dap) {
        return Err(NotReady::Legacy);
    }
    let holder = &row["holder"];
    let left_by = holder["client"].as_str();
    let is_left = !holder["parked_until"].is_null()
        && left_by.is_some_and(|client| clients.contains(&client));
    let shown = Row::read(row);
    match &*shown.state {
        "paused" => Ok(()),
        "parked" if is_left => Ok(()),
        "attached" => Err(NotReady::Held(format!("{} has it", shown.holder))),
        "unreachable" => Err(NotReady::Unreachable),
        _ => Err(NotReady::Held(shown.holder)),
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
                "rank": rank, "job_id": if rank < 6 { "01000000" } else { "02000000" }, "worker_id": format!("{rank:056x}")})
        });
        json!({"breakpoints": rows.collect::<Vec<_>>()})
    }

    fn meant(words: &str) -> Result<Vec<String>, String> {
        let members =
            MeantTasks::of(&list(), &Meant::read(words)?).map_err(|why| why.to_string())?;
        Ok(members.ids().into_iter().map(str::to_owned).collect())
    }

    #[test]
    fn what_is_typed_behind_all_narrows_it() {
        let ids = |ranks: &[u32]| Ok(ranks.iter().map(|n| format!("rank{n:04}")).collect());
        assert_eq!(meant(""), ids(&[0, 1, 2, 3, 4, 5, 6, 7]));
        assert_eq!(meant("train*"), ids(&[0, 1, 2, 3, 4, 5, 6, 7]));
        assert_eq!(meant("Trainer ranks=0,6-7"), ids(&[0, 6, 7]));
        assert_eq!(meant(" job=02000000 "), ids(&[6, 7]));
        // As the page names those of a group.
        assert_eq!(meant("rank0004 RANK0001"), ids(&[1, 4]));
        assert!(meant("ranks=x").unwrap_err().contains("ranks=0-7,9"));
        assert!(
            meant("other")
                .unwrap_err()
                .contains("no task that waits fits")
        );
    }
}
