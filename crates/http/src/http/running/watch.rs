//! The relay's own inspection of running jobs, for [`Hangs`](ray_relay_session::hangs::Hangs).
//!
//! Every verdict is one of a principal with `view` alone, without texts of values, and none is audited: what leaves the
//! relay is a notice, or the answer to a request, which is audited.

use std::collections::BTreeMap;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::choice::TaskChoice;
use super::inspect::Inspector;
use super::running;
use super::why::{measured, verdict};
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_base::config::{Config, NoticeEvent};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_ray::ray::registry::{Running, RunningIn};
use ray_relay_session::context::Context;
use ray_relay_session::hangs::JudgedJob;

/// Time between inspections. A verdict takes 30 s in which nothing moves: together with this, less than a minute.
const CHECK_INTERVAL: Duration = Duration::from_secs(20);

/// How many times as long as an inspection the pause behind it is at least: the heads and workers have other work.
const PAUSE_FACTOR: u32 = 5;

/// Maximum number of jobs that are inspected.
const MAX_JOBS: usize = 64;

/// Whether `config` wants the running jobs to be watched: for notices, or for their verdicts to be kept.
pub fn is_wanted(config: &Config) -> bool {
    let notices =
        config.notice.url_file.is_some() && config.notice.on.contains(&NoticeEvent::Hangs);
    notices || config.post_mortem.enabled
}

/// Inspects all that runs from time to time, until the relay drains.
pub async fn watch(ctx: Arc<Context>) {
    let inspect = async {
        loop {
            let begun = Instant::now();
            judge_all(&ctx).await;
            sleep(CHECK_INTERVAL.max(PAUSE_FACTOR * begun.elapsed())).await;
        }
    };
    tokio::select! {
        () = ctx.shutdown.drain.cancelled() => {}
        () = inspect => {}
    }
}

/// Judges each running job. Each process is inspected once.
pub(in crate::http) async fn judge_all(ctx: &Context) {
    let principal = Principal::relay_viewer();
    let choice = TaskChoice::default();
    let Ok(per_cluster) = running(ctx, &principal, Scope::View, &choice).await else {
        return;
    };
    let inspector = Inspector {
        ctx,
        principal: &principal,
        exchange: None,
        locals: true,
        objects: true,
        native: false,
    };
    for (job_id, tasks) in by_job(per_cluster).into_iter().take(MAX_JOBS) {
        let inspected = inspector.inspect(slice::from_ref(&tasks), &choice, measured);
        let Some(verdict) = verdict(inspected.await).await else {
            return;
        };
        ctx.hangs.judged(JudgedJob {
            cluster: tasks.cluster,
            job_id,
            tasks: tasks.rows,
            verdict,
            at: Timestamp::now(),
        });
    }
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
