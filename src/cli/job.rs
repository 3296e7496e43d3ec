//! The job that `--job` names.

use hyper::StatusCode;

use super::failure::Failure;
use super::members::rows_of;
use super::relay_client::{RelayClient, RelayError, patiently};
use super::worker_session::WorkerSessionError as SessionError;
use ray_relay_base::wire::json;
use ray_relay_view::listing::job::MeantJob;

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
            let mut rows = rows_of(&relay.breakpoints(true).await?).to_vec();
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
