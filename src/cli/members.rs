//! Selects the paused tasks of a command for many.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::failure::Failure;
use super::job::{self, JobName};
use super::relay_client::{RelayClient, RelayError, patiently};
use super::worker_session::WorkerSessionError as SessionError;
use ray_relay_base::wire::json;
use ray_relay_base::wire::text::replaced;
use ray_relay_view::group::members::{Meant, MeantTasks, NoMember, NotReady, unnamed};
use ray_relay_view::listing::fold::ranks::{BadRanks, Ranks};

/// How long to wait for names that are not known yet.
const NAMES_TIMEOUT: Duration = Duration::from_secs(10);

/// Poll interval of the list meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// Which of those that are paused.
#[derive(Debug, Clone, Default, Args)]
pub struct MembersArgs {
    /// Only tasks of this job: its submission id, job id or Ray Train run name
    #[arg(long, value_name = "JOB")]
    pub job: Option<JobName>,
    /// Only tasks of this cluster: job ids count anew in each
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Only these ranks, such as 0-7,9, or `odd`
    ///
    /// Without known ranks, use pids. `odd` selects the ranks that `ray-relay diff` marks as odd. It needs `view`.
    #[arg(long, value_name = "RANKS")]
    pub ranks: Option<RequestedRanks>,
}

/// The value of `--ranks`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestedRanks {
    /// These numbers.
    Numbers(Ranks),
    /// The ranks that a comparison marks as odd.
    Odd,
}

impl FromStr for RequestedRanks {
    type Err = BadRanks;

    fn from_str(text: &str) -> Result<Self, BadRanks> {
        match text {
            "odd" => Ok(Self::Odd),
            text => text.parse().map(Self::Numbers),
        }
    }
}

/// The purpose for which tasks are selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// They are compared, and not changed.
    Compare,
    /// A command acts on them, so they have to be of one job.
    Act,
}

/// The relay's comparison of several tasks.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Differences {
    members: Vec<DifferencesMember>,
    groups: Vec<DifferencesGroup>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DifferencesMember {
    breakpoint: ComparedBreakpoint,
    error: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ComparedBreakpoint {
    id: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DifferencesGroup {
    /// Indexes of members.
    odd: Vec<usize>,
}

impl Differences {
    /// The ids of the odd members.
    fn odd(&self) -> BTreeSet<String> {
        let odd = self.groups.iter().flat_map(|group| &group.odd);
        let members = odd.filter_map(|at| self.members.get(*at));
        members.map(|member| member.breakpoint.id.clone()).collect()
    }
}

impl MembersArgs {
    /// Whether the command is for several tasks.
    pub(super) fn are_several(&self) -> bool {
        self.job.is_some() || self.cluster.is_some() || self.ranks.is_some()
    }

    /// Selects tasks of the list of `relay`, by these arguments and by `pattern`. Waits for names that are not known
    /// yet. `None`, after a message, if a filter matches none.
    ///
    /// # Errors
    /// There is no such job, it is one of several, no task called `pattern` is paused, or the relay does not answer.
    pub(super) async fn of(
        &self,
        relay: &RelayClient,
        pattern: Option<&str>,
        purpose: Purpose,
    ) -> Result<Option<MeantTasks>, Failure> {
        let (name, cluster) = (self.job.as_deref(), self.cluster.as_deref());
        let job = match purpose {
            Purpose::Compare => job::requested(relay, name).await?,
            Purpose::Act => job::only_requested(relay, name, cluster).await?,
        };
        let selection = Meant {
            patterns: pattern.map(str::to_owned).into_iter().collect(),
            job,
            cluster: self.cluster.clone(),
            ranks: match &self.ranks {
                Some(RequestedRanks::Numbers(ranks)) => Some(ranks.clone()),
                Some(RequestedRanks::Odd) | None => None,
            },
        };
        let choose = |list: &Value| {
            let members = MeantTasks::of(list, &selection);
            let unnamed = match &members {
                Ok(members) => members.unnamed,
                Err(NoMember::Unnamed(count)) => *count,
                Err(_) => 0,
            };
            (members, unnamed)
        };
        let (members, _) = once_named(relay, choose).await?;
        match members {
            Ok(members) if self.ranks == Some(RequestedRanks::Odd) => {
                odd_members(relay, members).await
            }
            Ok(members) => Ok(Some(members)),
            Err(why @ (NoMember::Waiting | NoMember::Fitting)) if pattern.is_none_or(is_filter) => {
                let what = match &selection.job {
                    Some(job)
                        if pattern.is_none() && self.cluster.is_none() && self.ranks.is_none() =>
                    {
                        format!("job {} has no paused task", replaced(job.name()))
                    }
                    _ => why.to_string(),
                };
                writeln!(io::stderr(), "ray-relay: {what}")?;
                Ok(None)
            }
            Err(why) => Err(SessionError::from(why).into()),
        }
    }
}

/// Returns the `members` that a comparison marks as odd; `None`, after a message, if there is none.
///
/// # Errors
/// The relay does not compare them.
async fn odd_members(
    relay: &RelayClient,
    mut members: MeantTasks,
) -> Result<Option<MeantTasks>, Failure> {
    let payload = json!({ "ids": members.ids() });
    let answer = match patiently(async || relay.differences(&payload).await).await {
        Ok(answer) => Differences::deserialize(answer).unwrap_or_default(),
        Err(why) => return Err(SessionError::of_refusal(why)?.into()),
    };
    let failed = answer.members.iter().filter(|one| one.error.is_some());
    let failed_count = failed.count();
    let failed = match failed_count {
        0 => String::new(),
        count => format!(", and {count} could not be compared: `ray-relay diff` says why"),
    };
    let odd = answer.odd();
    if odd.is_empty() && failed_count > 0 {
        return Err(SessionError::Failed(format!("no rank is known to be odd{failed}")).into());
    }
    if odd.is_empty() {
        writeln!(io::stderr(), "ray-relay: no rank is odd")?;
        return Ok(None);
    }
    if !failed.is_empty() {
        let count = odd.len();
        writeln!(io::stderr(), "ray-relay: {count} odd{failed}")?;
    }
    members.retain(&odd);
    Ok(Some(members))
}

/// Whether `pattern` selects among what exists, and does not name one task or function.
pub(super) fn is_filter(pattern: &str) -> bool {
    pattern.contains('*')
}

/// Applies `choose` to the list of `relay`. It returns its result and how many unnamed tasks may be missing, which are
/// waited for.
///
/// # Errors
/// The relay does not answer.
pub(super) async fn once_named<T>(
    relay: &RelayClient,
    choose: impl Fn(&Value) -> (T, usize),
) -> Result<(T, usize), RelayError> {
    let until = Instant::now() + NAMES_TIMEOUT;
    loop {
        let chosen = choose(&relay.breakpoints(false).await?);
        if chosen.1 == 0 || Instant::now() > until {
            return Ok(chosen);
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// The rows of `list`, the answer of the relay.
pub(super) fn rows_of(list: &Value) -> &[Value] {
    json::list(list, "breakpoints")
}

/// Reports `count` unnamed tasks that a command for several may have missed, after it has ended with `done`.
///
/// # Errors
/// There are such tasks, or the command has failed.
pub(super) fn complete(count: usize, done: Result<(), Failure>) -> Result<(), Failure> {
    match count {
        0 => done,
        count => {
            let why = format!(
                "{}, and may be meant as well; try again in a moment",
                unnamed(count)
            );
            done.and(Err(SessionError::Failed(why).into()))
        }
    }
}

/// Makes the relay record that `client` works in all of `members`, and returns the id of that record.
///
/// # Errors
/// Without the record, nothing is done.
pub(super) async fn announced(
    members: &MeantTasks,
    relay: &RelayClient,
    client: &str,
) -> Result<String, RelayError> {
    relay.group(&members.ids(), client).await
}

impl From<NoMember> for SessionError {
    fn from(why: NoMember) -> Self {
        Self::NotFound(why.to_string())
    }
}

impl From<NotReady> for SessionError {
    fn from(why: NotReady) -> Self {
        let sentence = why.to_string();
        match why {
            NotReady::Legacy => Self::Failed(sentence),
            NotReady::Held(_) => Self::Refused(sentence),
            NotReady::Unreachable => Self::Unreachable(sentence),
        }
    }
}
