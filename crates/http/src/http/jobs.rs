//! `GET /relay/v1/jobs?job=NAME`: the jobs with a name, as `--job` takes it.
//!
//! The answer is `{"jobs": [{"cluster", "name", "job_id", "submission_id", "ended"}]}`. A job that the principal may not
//! see is answered like one that does not exist.

use std::sync::Arc;

use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use serde_json::json;

use super::answer::{self, Body};
use super::exchange::Exchange;
use super::query;
use super::running::rights::{may, may_know};
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_ray::ray::registry::{Job, Running};
use ray_relay_session::context::Context;
use ray_relay_session::session::{NoJob, find_jobs};

/// Maximum length of a name, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// Finds the jobs called `name` that `principal` may know of.
///
/// # Errors
/// [`NoJob`].
pub(super) async fn find(
    ctx: &Context,
    principal: &Principal,
    name: &str,
) -> Result<Vec<Job>, NoJob> {
    let found = find_jobs(&ctx.registry, principal, name).await;
    let kept = match &found {
        Err(NoJob::Unknown(_)) => {
            of_failed(ctx, principal, name).or_else(|| of_hang(ctx, principal, name))
        }
        // Whether a job that hung runs still is not known then.
        Err(NoJob::Unclear { .. }) => of_failed(ctx, principal, name),
        _ => None,
    };
    kept.map_or(found, |job| Ok(vec![job]))
}

/// The job called `name` of a failed task that an agent keeps: Ray may have forgotten the job.
fn of_failed(ctx: &Context, principal: &Principal, name: &str) -> Option<Job> {
    let all = ctx.peers.agents.failures();
    let failed = all.iter().find(|failed| {
        may(principal, Scope::List, &failed.task) && failed.task.names.is_of_job(name)
    })?;
    Some(ended(&failed.task))
}

/// The job called `name` that was seen to hang.
fn of_hang(ctx: &Context, principal: &Principal, name: &str) -> Option<Job> {
    let hung = ctx.hangs.of_job(name, |job| may_know(principal, job))?;
    Some(ended(&hung.job.whole))
}

/// The job of `task`, of which Ray may list nothing any more.
fn ended(task: &Running) -> Job {
    Job {
        cluster: Arc::clone(&task.cluster),
        job_id: task.names.job_id.clone(),
        submission_id: task.names.submission_id.clone(),
        ended: true,
    }
}

/// Answers that a name stands for no job.
pub(super) fn none(why: &NoJob) -> Response<Body> {
    let status = match why {
        NoJob::Unknown(_) => StatusCode::NOT_FOUND,
        NoJob::Several { .. } => StatusCode::CONFLICT,
        NoJob::Unclear { .. } => StatusCode::BAD_GATEWAY,
    };
    answer::error(status, why)
}

/// Answers with the jobs that the query names.
pub(super) async fn answer(
    exchange: &Exchange<'_>,
    parts: &Parts,
    principal: &Principal,
) -> Response<Body> {
    let bad = |sentence: String| answer::error(StatusCode::BAD_REQUEST, sentence);
    let parameters = match query::pairs(parts.uri.query()) {
        Ok(pairs) => pairs,
        Err(sentence) => return bad(sentence),
    };
    let name = match parameters.as_slice() {
        [(key, name)] if key == "job" && (1..=MAX_NAME_BYTES).contains(&name.len()) => name,
        _ => {
            return bad(format!(
                "the only parameter of /relay/v1/jobs is job: a submission id, a job id or the name of a Ray Train run, of 1 to {MAX_NAME_BYTES} bytes"
            ));
        }
    };
    let Ok(_share) = exchange.ctx.snapshots.take(principal) else {
        return answer::too_many();
    };
    let jobs = match find(exchange.ctx, principal, name).await {
        Ok(jobs) => jobs,
        Err(why) => return none(&why),
    };
    // A principal that was revoked meanwhile gets no answer.
    if let Some(ended) = principal.is_over() {
        return answer::error(StatusCode::UNAUTHORIZED, ended);
    }
    let rows = jobs.iter().map(|job| {
        json!({
            "cluster": &*job.cluster, "name": job.name(), "job_id": job.job_id, "submission_id": job.submission_id,
            "ended": job.ended,
        })
    });
    answer::json(StatusCode::OK, &json!({ "jobs": rows.collect::<Vec<_>>() }))
}
