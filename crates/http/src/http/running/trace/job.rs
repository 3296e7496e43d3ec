//! The job whose lines are traced, and the rights of a principal on it.

use std::sync::Arc;

use hyper::{Response, StatusCode};

use crate::http::answer::{self, Body};
use crate::http::jobs;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Rights;
use ray_relay_ray::ray::registry::{Job, Names, Running};
use ray_relay_session::context::Context;
use ray_relay_session::session::NoJob;

/// A job whose lines are traced, on behalf of a principal.
#[derive(Clone)]
pub(super) struct TracedJob {
    pub(super) cluster: Arc<str>,
    /// Ray's id.
    pub(super) job_id: String,
    /// The job as a whole.
    whole: Running,
}

impl TracedJob {
    /// The rights of `principal` on the job as a whole.
    pub(super) fn rights(&self, principal: &Principal) -> Rights {
        principal.access().rights_on_running(&self.whole)
    }

    /// Whether `principal` may run code in whatever task of the job reaches a line.
    pub(super) fn may_trace(&self, ctx: &Context, principal: &Principal) -> bool {
        ctx.may_open_debugger(self.rights(principal).scopes)
    }
}

/// Why there is no job to trace.
pub(super) enum NotTraced {
    NoJob(NoJob),
    NotRunning,
    SeveralClusters,
}

impl NotTraced {
    pub(super) fn answer(&self) -> Response<Body> {
        let sentence = match self {
            Self::NoJob(why) => return jobs::none(why),
            Self::NotRunning => "that job has ended, or its driver does not run yet",
            Self::SeveralClusters => {
                "several clusters have a job of that name: name the `cluster` too"
            }
        };
        answer::error(StatusCode::CONFLICT, sentence)
    }
}

/// The live job called `name`, of `cluster` if that is given, among those that `principal` may know of.
///
/// # Errors
/// [`NotTraced`].
pub(super) async fn find(
    ctx: &Context,
    principal: &Principal,
    name: &str,
    cluster: Option<&str>,
) -> Result<TracedJob, NotTraced> {
    let found = jobs::find(ctx, principal, name).await;
    let found = found.map_err(NotTraced::NoJob)?;
    let is_meant = |job: &Job| !job.ended && cluster.is_none_or(|cluster| *job.cluster == *cluster);
    let live = found.into_iter().filter(is_meant);
    let live = live.filter_map(|job| Some((job.cluster, job.job_id?, job.submission_id)));
    let mut live: Vec<_> = live.collect();
    let (cluster, job_id, submission_id) = live.pop().ok_or(NotTraced::NotRunning)?;
    match live.is_empty() {
        false => Err(NotTraced::SeveralClusters),
        true => {
            let names = Names {
                job_id: Some(job_id.clone()),
                submission_id,
                ..Names::default()
            };
            Ok(TracedJob {
                whole: Running::whole_job(Arc::clone(&cluster), names),
                cluster,
                job_id,
            })
        }
    }
}
