//! The job that `--job` names.

use std::ops::Deref;
use std::str::FromStr;

use hyper::StatusCode;

use super::failure::Failure;
use super::relay_client::{RelayClient, RelayError, patiently};
use super::worker_session::WorkerSessionError as SessionError;
use ray_relay_base::wire::json;
use ray_relay_view::listing::job::{MeantJob, SeveralJobs};

/// A name for a job on the command line. An empty one, of a variable that is not set, is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobName(String);

/// The name is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the name of a job is empty")]
pub struct EmptyName;

impl FromStr for JobName {
    type Err = EmptyName;

    fn from_str(name: &str) -> Result<Self, EmptyName> {
        match name {
            "" => Err(EmptyName),
            name => Ok(Self(name.to_owned())),
        }
    }
}

impl Deref for JobName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// Finds the job called `name`, if a name is given.
///
/// # Errors
/// There is no such job, or the relay cannot tell.
pub(super) async fn requested(
    relay: &RelayClient,
    name: Option<&str>,
) -> Result<Option<MeantJob>, Failure> {
    let Some(name) = name else {
        return Ok(None);
    };
    match patiently(async || relay.jobs(name).await).await {
        Ok(answer) => Ok(Some(MeantJob::read(name, &answer))),
        Err(RelayError::Older { .. }) => {
            let mut rows = json::list(&relay.breakpoints(true).await?, "breakpoints").to_vec();
            if let Ok(failed) = relay.failed_tasks().await {
                rows.extend_from_slice(json::list(&failed, "tasks"));
            }
            Ok(Some(MeantJob::listed(name, &rows)))
        }
        Err(RelayError::Refused {
            status: StatusCode::CONFLICT,
            message,
            ..
        }) => Err(SessionError::Failed(message).into()),
        Err(why) => Err(SessionError::of_refusal(why)?.into()),
    }
}

/// Finds the one job called `name`, of `cluster` if that is given, for a command that acts on its tasks.
///
/// # Errors
/// There is no such job, there are several, or the relay cannot tell.
pub(super) async fn only_requested(
    relay: &RelayClient,
    name: Option<&str>,
    cluster: Option<&str>,
) -> Result<Option<MeantJob>, Failure> {
    let job = requested(relay, name).await?;
    if let Some(job) = &job {
        let only = job.only(cluster, ", or add --cluster NAME");
        only.map_err(SessionError::from)?;
    }
    Ok(job)
}

impl From<SeveralJobs> for SessionError {
    fn from(why: SeveralJobs) -> Self {
        Self::Failed(why.to_string())
    }
}

/// Converts the relay's error for a query with a job, which may not exist.
pub(super) fn unknown(why: RelayError) -> Failure {
    match why {
        RelayError::Refused {
            status: StatusCode::NOT_FOUND,
            message,
            ..
        } => SessionError::NotFound(message).into(),
        why => why.into(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::cli::Cli;

    #[test]
    fn empty_name_of_a_job_is_refused() {
        for command in [
            &["release", "--all"][..],
            &["park", "x"],
            &["exec"],
            &["debug"],
            &["diff"],
            &["list"],
            &["tasks"],
            &["snapshot"],
        ] {
            let parsed = |job| {
                let line = [&["ray-relay"], command, &["--job", job]].concat();
                Cli::try_parse_from(line)
            };
            let refused = parsed("").map(|_| ()).map_err(|error| error.to_string());
            let why = refused.err().unwrap_or_default();
            assert!(
                why.contains("the name of a job is empty"),
                "{command:?}: {why}"
            );
            assert!(parsed(&"x".repeat(300)).is_ok(), "{command:?}");
        }
    }
}
