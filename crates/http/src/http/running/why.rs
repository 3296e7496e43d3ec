//! `POST /relay/v1/why`: one verdict on what running tasks wait for, or what differs between them, as `ray-relay why`
//! prints it.
//!
//! The body selects tasks by `name`, `job`, `cluster` and `filter`, as for `/relay/v1/looks`, and each of their
//! processes is inspected and audited in the same way. Where no hook records since when threads have not moved, all are
//! inspected a second time after 5 s. Where only values differ, they are read two more times. Of a job that has ended,
//! the answer is the verdict that the relay has [kept](super::watch).

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyper::{Response, StatusCode};
use tokio::task::JoinError;
use tokio::time::sleep;
use tracing::error;

use super::choice::{RawSelection, TaskChoice};
use super::inspect::{Inspector, measured};
use super::rights::may;
use super::shown::{Viewer, held};
use super::{NotListed, clusters, running};
use crate::http::answer::{self, Body};
use crate::http::exchange::Post;
use crate::http::refusal::HttpRefusal;
use crate::http::{audit, body};
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_ray::ray::registry::{Running, RunningIn};
use ray_relay_session::context::Context;
use ray_relay_session::hangs::HungJob;
use ray_relay_view::listing::fold::inspected::InspectedTasks;
use ray_relay_view::listing::fold::verdict::{Judged, Kept, Verdict};
use ray_relay_view::listing::json::seconds;

const MAX_BODY_BYTES: usize = 4096;
/// Error for an invalid body.
const INVALID_BODY: &str = "the body has to be {\"job\": \"ID\", \"name\": \"PATTERN\", \"cluster\": \"PATTERN\", \"filter\": [\"KEY=PATTERN\"]}, each of which may be left out";

/// Errors if the relay ends meanwhile, and if it fails.
const ENDING: &str = "the relay is ending: try again";
const FAULTY: &str =
    "the relay has failed to judge the job, which is a fault of its own: report it with its log";

/// Pause between two inspections where no hook records positions.
const INSPECTION_INTERVAL: Duration = Duration::from_secs(5);

/// Pause between two inspections of values that differ.
const VALUES_INTERVAL: Duration = Duration::from_secs(1);

/// Valid keys of a body.
const KEYS: [&str; 4] = ["job", "name", "cluster", "filter"];

/// Answers with the verdict on the tasks that the body selects.
pub(in crate::http) async fn answer(post: Post<'_>) -> Result<Response<Body>, HttpRefusal> {
    let (exchange, principal) = (post.exchange, post.principal);
    let ctx = exchange.ctx;
    let body = body::keyed(post.body, MAX_BODY_BYTES, &KEYS).await;
    let selection = body.and_then(|body| serde_json::from_value::<RawSelection>(body).ok());
    let selection = selection.ok_or(HttpRefusal::Malformed(INVALID_BODY.into()))?;
    let choice = selection
        .read()
        .map_err(|why| HttpRefusal::Malformed(why.into()))?;
    let share = ctx.snapshots.take(principal).map_err(HttpRefusal::Busy)?;
    let inspector = Inspector {
        viewer: Viewer {
            ctx,
            principal,
            exchange: Some(exchange),
        },
        locals: true,
        objects: true,
        native: false,
    };
    let (inspected, per_cluster) = match inspector.inspect_for_verdict(&choice).await {
        Ok(inspected) => inspected,
        Err(why) => return Ok(why.answer()),
    };
    let hung = hung_job(ctx, principal, &choice).filter(|_| inspected.processes.is_empty());
    let (verdict, kept) = match hung {
        Some(hung) => {
            let entry = audit::command(exchange, principal, "why")
                .with("cluster", &*hung.job.whole.cluster)
                .with("job_id", &*hung.job.job_id);
            audit::write_entry(ctx, entry).await?;
            let verdict = hung.job.verdict.clone().of_ended();
            (verdict, Some(kept(&hung, &per_cluster)))
        }
        None => match inspector
            .verdict(inspected, &per_cluster, &choice, share)
            .await
        {
            Ok(verdict) => (verdict, None),
            Err(why) => return Ok(not_judged(&why)),
        },
    };
    // A principal that was revoked meanwhile gets no verdict.
    if let Some(ended) = principal.is_over() {
        return Err(HttpRefusal::Ended(ended));
    }
    let is_silent = |one: &RunningIn| one.trouble.is_some() && one.rows.is_empty();
    let verdict = match per_cluster.iter().any(is_silent) {
        true => verdict.of_silent_head(),
        false => verdict,
    };
    let judged = Judged {
        verdict,
        kept,
        clusters: clusters(&per_cluster),
    };
    Ok(held(exchange, principal, &judged))
}

/// Answers that there is no verdict because the relay is ending, or has a fault.
fn not_judged(why: &JoinError) -> Response<Body> {
    match why.is_panic() {
        true => {
            // Its message may quote text of the program.
            error!("a verdict has panicked");
            answer::error(StatusCode::INTERNAL_SERVER_ERROR, FAULTY)
        }
        false => answer::error(StatusCode::SERVICE_UNAVAILABLE, ENDING),
    }
}

/// Returns the job that was seen to hang, if `choice` names it and nothing else, and `principal` may view all of it.
fn hung_job(ctx: &Context, principal: &Principal, choice: &TaskChoice) -> Option<HungJob> {
    let name = choice.job.as_deref().filter(|_| choice.is_of_job_alone())?;
    let may_view =
        |job: &Running| choice.fits_cluster(&job.cluster) && may(principal, Scope::View, job);
    ctx.hangs.of_job(name, may_view)
}

/// Says when `hung` was seen to hang, and whether it has ended, as far as `per_cluster` tells.
fn kept(hung: &HungJob, per_cluster: &[RunningIn]) -> Kept {
    let unix = |time: SystemTime| {
        let since = time.duration_since(SystemTime::UNIX_EPOCH);
        seconds(since.unwrap_or_default())
    };
    let is_known = |one: &RunningIn| one.complete && one.trouble.is_none();
    Kept {
        cluster: hung.job.whole.cluster.to_string(),
        job_id: hung.job.job_id.clone(),
        submission_id: hung.job.submission_id().map(str::to_owned),
        ended: per_cluster.iter().all(is_known),
        first: unix(hung.job.at.time),
        last: unix(hung.last),
    }
}

/// Computes the verdict apart from other tasks: the time grows with the size of the stacks and values. `share` is held
/// until then.
///
/// # Errors
/// The relay ends, or the computation has panicked.
pub(super) async fn verdict(
    inspected: InspectedTasks,
    share: impl Send + 'static,
) -> Result<Verdict, JoinError> {
    apart(move || Verdict::of(inspected), share).await
}

async fn apart(
    judge: impl FnOnce() -> Verdict + Send + 'static,
    share: impl Send + 'static,
) -> Result<Verdict, JoinError> {
    let verdict = tokio::task::spawn_blocking(move || {
        let _share = share;
        judge()
    });
    verdict.await
}

impl Inspector<'_> {
    /// Computes the verdict on `inspected`. If only values differ, they are read two more times: what has another value
    /// each time names no rank. `share` is held until then.
    ///
    /// # Errors
    /// As of [`verdict`].
    async fn verdict(
        self,
        inspected: InspectedTasks,
        per_cluster: &[RunningIn],
        choice: &TaskChoice,
        share: impl Send + Sync + 'static,
    ) -> Result<Verdict, JoinError> {
        let share = Arc::new(share);
        let first = verdict(inspected, Arc::clone(&share)).await?;
        if !first.differs() {
            return Ok(first);
        }
        let earlier = self.inspect(per_cluster, choice, measured).await;
        sleep(VALUES_INTERVAL).await;
        let mut inspected = self.inspect(per_cluster, choice, measured).await;
        let judge = move || {
            inspected.drop_varying(&earlier);
            Verdict::of(inspected)
        };
        apart(judge, share).await
    }

    /// Inspects what `choice` selects: twice, if nothing records since when threads are where they are.
    async fn inspect_for_verdict(
        self,
        choice: &TaskChoice,
    ) -> Result<(InspectedTasks, Vec<RunningIn>), NotListed> {
        let Viewer { ctx, principal, .. } = self.viewer;
        let per_cluster = running(ctx, principal, Scope::View, choice).await?;
        let mut first = self.inspect(&per_cluster, choice, measured).await;
        if first.is_recorded() {
            return Ok((first, per_cluster));
        }
        first.drop_values();
        sleep(INSPECTION_INTERVAL).await;
        let per_cluster = running(ctx, principal, Scope::View, choice).await?;
        let mut second = self.inspect(&per_cluster, choice, measured).await;
        second.add_history(&first, INSPECTION_INTERVAL);
        Ok((second, per_cluster))
    }
}
