//! Which of the paused tasks are meant by a command for many, and who each of them is.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use serde_json::Value;

use super::relay_client::{RelayClient, RelayError};
use super::worker_session::WorkerSessionError as SessionError;
use crate::listing::fold::ranks::Ranks;
use crate::listing::fold::told;
use crate::listing::fold::who::{self, Names, Numbers, Who, numbered};
use crate::listing::row::{Row, kind};
use crate::policy::Pattern;
use crate::wire::debugger::Kind;

/// Which of those that are paused.
#[derive(Debug, Clone, Default, Args)]
pub struct MembersArgs {
    /// Those of this job, by its id (such as 01000000)
    #[arg(long, value_name = "JOB")]
    pub job: Option<String>,
    /// Those of these ranks, such as 0-7,9; where ranks are not known, of these numbers by node and worker
    #[arg(long, value_name = "RANKS")]
    pub ranks: Option<Ranks>,
}

impl MembersArgs {
    /// Whether several are meant.
    pub(super) fn are_several(&self) -> bool {
        self.job.is_some() || self.ranks.is_some()
    }
}

/// Paused tasks that are meant, in the order of their groups and numbers.
pub(super) struct Members {
    pub(super) rows: Vec<Value>,
    who: Vec<(Who, Numbers)>,
}

impl Members {
    /// Those of `list`, the answer of the relay, that are called by `pattern` and meant by `args`. They are numbered before
    /// `args.ranks` are chosen of them.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn of(
        list: &Value,
        pattern: Option<&str>,
        args: &MembersArgs,
    ) -> Result<Self, SessionError> {
        let all = list["breakpoints"].as_array();
        let all = all.map(Vec::as_slice).unwrap_or_default();
        let is_of_job = |row: &&Value| {
            let job = args.job.as_deref();
            job.is_none_or(|job| row["job_id"].as_str() == Some(job))
        };
        let pattern = pattern.map(|pattern| Pattern::new(pattern.to_lowercase()));
        let is_called = |row: &&Value| {
            let pattern = pattern.as_ref();
            pattern.is_none_or(|pattern| is_called(row, pattern))
        };
        let meant: Vec<&Value> = all.iter().filter(is_of_job).filter(is_called).collect();
        let mut members: Vec<(Value, (Who, Numbers))> = meant
            .iter()
            .map(|row| (*row).clone())
            .zip(numbered(&meant))
            .collect();
        if let Some(ranks) = &args.ranks {
            members.retain(|(_, (who, _))| who.number.is_some_and(|number| ranks.contains(number)));
        }
        members.sort_by(|(_, (one, _)), (_, (other, _))| {
            (&one.group, one.number).cmp(&(&other.group, other.number))
        });
        if members.is_empty() {
            let why = match all.is_empty() {
                true => "no task waits at a breakpoint",
                false => "no task that waits fits; `ray-relay list` shows what waits",
            };
            return Err(SessionError::NotFound(why.to_owned()));
        }
        let (rows, who) = members.into_iter().unzip();
        Ok(Self { rows, who })
    }

    /// Whether the one `at` this place is in a group of which not each has a rank that the list knows.
    pub(super) fn lacks_rank(&self, at: usize) -> bool {
        self.who
            .get(at)
            .is_some_and(|(_, numbers)| *numbers == Numbers::Ordinals)
    }

    /// Takes `ranks`, which processes have told by the places of their tasks, for the numbers of a group that the list knows
    /// none of: where each of it has told another one. Whether there is such a group.
    pub(super) fn learn(&mut self, ranks: &BTreeMap<usize, u32>) -> bool {
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

    /// Has the relay put on record that `client` works in all of them, and gives the id of that.
    ///
    /// # Errors
    /// What is not on record does not happen.
    pub(super) async fn announced(
        &self,
        relay: &RelayClient,
        client: &str,
    ) -> Result<String, RelayError> {
        let ids: Vec<&str> = self
            .rows
            .iter()
            .filter_map(|row| row["id"].as_str())
            .collect();
        relay.group(&ids, client).await
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// How they are called.
    pub(super) fn names(&self) -> Names<'_> {
        Names::new(self.who.iter().map(|(who, _)| who))
    }

    /// Which groups there are, and what their numbers are.
    pub(super) fn legend(&self) -> String {
        let ids = self.rows.iter().map(|row| Row::read(row).id);
        told::legend(&self.who, &ids.collect::<Vec<_>>())
    }

    /// Whether the number of the one `at` this place is among `ranks`.
    pub(super) fn is_of(&self, at: usize, ranks: &Ranks) -> bool {
        let number = self.who.get(at).and_then(|(who, _)| who.number);
        number.is_some_and(|number| ranks.contains(number))
    }

    /// One of them as JSON, with why it gave no answer.
    pub(super) fn json(&self, at: usize, error: Option<&str>) -> Value {
        who::json(&self.who[at], &self.rows[at], error)
    }
}

/// Whether `row` of the list has an id or a name that fits, or is of such a group.
fn is_called(row: &Value, pattern: &Pattern) -> bool {
    let keys = ["id", "name", "group", "actor_name", "task_id", "worker_id"];
    let mut texts = keys.iter().filter_map(|key| row[key].as_str());
    texts.any(|text| pattern.matches(&text.to_lowercase()))
}

/// Why no command runs in what `row` of the list is about, as the list knows it; `client`: what that has left is gone on with.
///
/// # Errors
/// That sentence.
pub(super) fn ready(row: &Value, client: &str) -> Result<(), SessionError> {
    if !kind(row).is_some_and(Kind::speaks_dap) {
        let why =
            "a breakpoint of Ray's legacy debugger has a prompt of its own: `ray-relay debug ID`";
        return Err(SessionError::Failed(why.to_owned()));
    }
    let holder = &row["holder"];
    let is_left = !holder["parked_until"].is_null() && holder["client"] == client;
    let shown = Row::read(row);
    match &*shown.state {
        "paused" => Ok(()),
        "parked" if is_left => Ok(()),
        "attached" => Err(SessionError::Refused(format!("{} has it", shown.holder))),
        "unreachable" => {
            let why = "its debugger cannot be reached; `ray-relay release --force` ends its worker";
            Err(SessionError::Unreachable(why.to_owned()))
        }
        _ => Err(SessionError::Refused(shown.holder)),
    }
}
