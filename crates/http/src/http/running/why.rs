//! `POST /relay/v1/why`: one verdict on what running tasks wait for, or what differs between them, as `ray-relay why`
//! prints it.
//!
//! The body selects tasks by `name`, `job`, `cluster` and `filter`, as for `/relay/v1/looks`, and each of their
//! processes is inspected and audited in the same way. Where no hook records since when threads have not moved, all are
//! inspected a second time after 5 s. Of a job that has ended, the answer is the verdict that the relay has [kept](super::watch).

use std::time::{Duration, SystemTime};

use hyper::{Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::sleep;

use super::choice::{RawSelection, TaskChoice};
use super::inspect::Inspector;
use super::shown::{held, text_of};
use super::{NotListed, clusters, may, running};
use crate::http::answer::{self, Body};
use crate::http::exchange::Post;
use crate::http::refusal::HttpRefusal;
use crate::http::{audit, body};
use ray_relay_access::policy::Scope;
use ray_relay_ray::ray::look::Look;
use ray_relay_ray::ray::registry::RunningIn;
use ray_relay_session::hangs::HungJob;
use ray_relay_view::listing::fold::inspected::InspectedTasks;
use ray_relay_view::listing::fold::verdict::Verdict;
use ray_relay_view::listing::json::seconds;

const MAX_BODY_BYTES: usize = 4096;
/// Error for an invalid body.
const INVALID_BODY: &str = "the body has to be {\"job\": \"ID\", \"name\": \"PATTERN\", \"cluster\": \"PATTERN\", \"filter\": [\"KEY=PATTERN\"]}, each of which may be left out";

/// Error if the relay ends meanwhile.
const ENDING: &str = "the relay is ending: try again";

/// Pause between two inspections where no hook records positions.
const INSPECTION_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WhyRequest {
    job: Option<String>,
    name: Option<String>,
    cluster: Option<String>,
    #[serde(default)]
    filter: Vec<String>,
}

impl WhyRequest {
    /// The selection. An error is a sentence for the client.
    fn choice(self) -> Result<TaskChoice, String> {
        let selection = RawSelection {
            cluster: self.cluster,
            job: self.job,
            name: self.name,
            older_than: None,
            filter: self.filter,
        };
        selection.read()
    }
}

/// The answer.
#[derive(Serialize)]
struct WhyAnswer {
    #[serde(flatten)]
    verdict: Verdict,
    clusters: Value,
    /// If the verdict was kept of a job of which nothing runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<Kept>,
}

/// When the relay saw the job hang, first and last: Unix time, in seconds.
#[derive(Serialize)]
struct Kept {
    first: f64,
    last: f64,
}

impl Kept {
    fn of(hung: &HungJob) -> Self {
        let unix = |time: SystemTime| {
            let since = time.duration_since(SystemTime::UNIX_EPOCH);
            seconds(since.unwrap_or_default())
        };
        Self {
            first: unix(hung.job.at.time),
            last: unix(hung.last),
        }
    }
}

/// Answers with the verdict on the tasks that the body selects.
pub(in crate::http) async fn answer(post: Post<'_>) -> Result<Response<Body>, HttpRefusal> {
    let (exchange, principal) = (post.exchange, post.principal);
    let ctx = exchange.ctx;
    let request: Option<WhyRequest> = body::json(post.body, MAX_BODY_BYTES).await;
    let request = request.ok_or(HttpRefusal::Malformed(INVALID_BODY.into()))?;
    let choice = request
        .choice()
        .map_err(|why| HttpRefusal::Malformed(why.into()))?;
    let _share = ctx.snapshots.take(principal).map_err(HttpRefusal::Busy)?;
    let inspector = Inspector {
        ctx,
        principal,
        exchange: Some(exchange),
        locals: true,
        objects: true,
        native: false,
    };
    let (inspected, per_cluster) = match inspector.inspect_for_verdict(&choice).await {
        Ok(inspected) => inspected,
        Err(why) => return Ok(why.answer()),
    };
    // A principal that was revoked meanwhile gets no verdict.
    if let Some(ended) = principal.is_over() {
        return Err(HttpRefusal::Ended(ended));
    }
    let clusters = clusters(&per_cluster);
    let name = choice
        .job
        .as_deref()
        .filter(|_| inspected.processes.is_empty());
    let may_view = |task: &_| may(principal, Scope::View, task);
    let hung = name.and_then(|name| ctx.hangs.of_job(name, may_view));
    if let Some(hung) = hung {
        let entry = audit::command(exchange, principal, "why");
        let entry = entry
            .with("cluster", &*hung.job.cluster)
            .with("job_id", &*hung.job.job_id);
        audit::write_entry(ctx, entry).await?;
        let answer = WhyAnswer {
            verdict: hung.job.verdict.clone().of_ended(),
            clusters,
            kept: Some(Kept::of(&hung)),
        };
        return Ok(held(exchange, principal, &answer));
    }
    let Some(verdict) = verdict(inspected).await else {
        return Ok(answer::error(StatusCode::SERVICE_UNAVAILABLE, ENDING));
    };
    let answer = WhyAnswer {
        verdict,
        clusters,
        kept: None,
    };
    Ok(held(exchange, principal, &answer))
}

/// Computes the verdict apart from other tasks: the time grows with the size of the stacks and values.
/// `None`: the relay ends.
pub(super) async fn verdict(inspected: InspectedTasks) -> Option<Verdict> {
    let verdict = tokio::task::spawn_blocking(|| Verdict::of(inspected));
    verdict.await.ok()
}

impl Inspector<'_> {
    /// Inspects what `choice` selects: twice, if nothing records since when threads are where they are.
    async fn inspect_for_verdict(
        self,
        choice: &TaskChoice,
    ) -> Result<(InspectedTasks, Vec<RunningIn>), NotListed> {
        let Self { ctx, principal, .. } = self;
        let per_cluster = running(ctx, principal, Scope::View, choice).await?;
        let first = self.inspect(&per_cluster, choice, measured).await;
        if first.is_recorded() {
            return Ok((first, per_cluster));
        }
        sleep(INSPECTION_INTERVAL).await;
        let per_cluster = running(ctx, principal, Scope::View, choice).await?;
        let mut second = self.inspect(&per_cluster, choice, measured).await;
        second.add_history(&first, INSPECTION_INTERVAL);
        Ok((second, per_cluster))
    }
}

/// Returns `look` with the size of its JSON.
pub(super) fn measured(look: Look) -> Result<(Look, usize), String> {
    let bytes = text_of(&look)?.get().len();
    Ok((look, bytes))
}
