//! `POST /relay/v1/why`: one verdict on what running tasks wait for, or what differs between them, as `ray-relay why`
//! prints it.
//!
//! The body selects tasks by `name`, `job`, `cluster` and `filter`, as for `/relay/v1/looks`, and each of their
//! processes is inspected and audited in the same way. Where no hook records since when threads have not moved, all are
//! inspected a second time after 5 s.

use std::collections::BTreeMap;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use hyper::{Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::sleep;

use super::choice::{RawSelection, TaskChoice};
use super::inspect::Inspector;
use super::shown::{held, text_of};
use super::{NotListed, clusters, running};
use crate::http::answer::{self, Body};
use crate::http::body;
use crate::http::exchange::Post;
use crate::http::refusal::HttpRefusal;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_ray::ray::look::Look;
use ray_relay_ray::ray::registry::{Running, RunningIn};
use ray_relay_session::context::Context;
use ray_relay_view::listing::fold::inspected::InspectedTasks;
use ray_relay_view::listing::fold::verdict::Verdict;

const MAX_BODY_BYTES: usize = 4096;
/// Error for an invalid body.
const INVALID_BODY: &str = "the body has to be {\"job\": \"ID\", \"name\": \"PATTERN\", \"cluster\": \"PATTERN\", \"filter\": [\"KEY=PATTERN\"]}, each of which may be left out";

/// Error if the relay ends meanwhile.
const ENDING: &str = "the relay is ending: try again";

/// Maximum number of jobs that the relay inspects for itself.
const MAX_JOBS: usize = 64;

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
    let Some(verdict) = verdict(inspected).await else {
        return Ok(answer::error(StatusCode::SERVICE_UNAVAILABLE, ENDING));
    };
    let clusters = clusters(&per_cluster);
    Ok(held(exchange, principal, &WhyAnswer { verdict, clusters }))
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
fn measured(look: Look) -> Result<(Look, usize), String> {
    let bytes = text_of(&look)?.get().len();
    Ok((look, bytes))
}

/// The verdict on a running job.
#[derive(Debug)]
pub(crate) struct JobVerdict {
    pub(crate) cluster: Arc<str>,
    /// Ray's job id, such as `01000000`.
    pub(crate) job_id: String,
    pub(crate) submission_id: Option<String>,
    pub(crate) verdict: Verdict,
}

/// Returns the verdicts on all running jobs, without texts of their values. Each process is inspected once. Not audited.
pub(crate) async fn of_all_jobs(ctx: &Context) -> Vec<JobVerdict> {
    let principal = Principal::relay_viewer();
    let choice = TaskChoice::default();
    let Ok(per_cluster) = running(ctx, &principal, Scope::View, &choice).await else {
        return Vec::new();
    };
    let inspector = Inspector {
        ctx,
        principal: &principal,
        exchange: None,
        locals: true,
        objects: true,
        native: false,
    };
    let mut verdicts = Vec::new();
    for (job_id, tasks) in by_job(per_cluster).into_iter().take(MAX_JOBS) {
        let inspected = inspector.inspect(slice::from_ref(&tasks), &choice, measured);
        let Some(verdict) = verdict(inspected.await).await else {
            break;
        };
        let names = tasks.rows.iter().map(|one| &one.names);
        let submission_id = names.filter_map(|names| names.submission_id.clone()).next();
        verdicts.push(JobVerdict {
            cluster: tasks.cluster,
            job_id,
            submission_id,
            verdict,
        });
    }
    verdicts
}

/// Separates what runs in each cluster by jobs. Tasks of no known job are left out.
fn by_job(per_cluster: Vec<RunningIn>) -> Vec<(String, RunningIn)> {
    let mut jobs: BTreeMap<(Arc<str>, String), RunningIn> = BTreeMap::new();
    for cluster in per_cluster {
        let mut add = |one: Running, list: fn(&mut RunningIn) -> &mut Vec<Running>| {
            let Some(id) = one.names.job_id.clone() else {
                return;
            };
            let job = jobs.entry((Arc::clone(&cluster.cluster), id));
            let job = job.or_insert_with(|| RunningIn {
                cluster: Arc::clone(&cluster.cluster),
                rows: Vec::new(),
                idle: Vec::new(),
                trouble: None,
                complete: cluster.complete,
            });
            list(job).push(one);
        };
        cluster
            .rows
            .into_iter()
            .for_each(|one| add(one, |job| &mut job.rows));
        cluster
            .idle
            .into_iter()
            .for_each(|one| add(one, |job| &mut job.idle));
    }
    let jobs = jobs.into_iter().filter(|(_, job)| !job.rows.is_empty());
    jobs.map(|((_, id), job)| (id, job)).collect()
}
