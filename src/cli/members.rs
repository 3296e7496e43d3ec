//! Which of the paused tasks are meant by a command for many.

use clap::Args;
use serde_json::Value;

use super::relay_client::{RelayClient, RelayError};
use super::worker_session::WorkerSessionError as SessionError;
use crate::group::members::{Meant, MeantTasks, NoMember, NotReady};
use crate::listing::fold::ranks::Ranks;

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

    /// Those of `list`, the answer of the relay, that are meant and called by `pattern`.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn of(
        &self,
        list: &Value,
        pattern: Option<&str>,
    ) -> Result<MeantTasks, SessionError> {
        let meant = Meant {
            patterns: pattern.map(str::to_owned).into_iter().collect(),
            job: self.job.clone(),
            ranks: self.ranks.clone(),
        };
        Ok(MeantTasks::of(list, &meant)?)
    }
}

/// Has the relay put on record that `client` works in all of `members`, and gives the id of that.
///
/// # Errors
/// What is not on record does not happen.
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
