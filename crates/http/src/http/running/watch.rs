//! The relay's own inspection of running jobs, for [`Hangs`](ray_relay_session::hangs::Hangs).
//!
//! Every verdict is one of a principal with `view` alone, without texts of values, and none is audited: what leaves the
//! relay is a notice, or the answer to a request, which is audited. Only agents are asked for snapshots: without a hook,
//! one does not tell whether something hangs.

use std::collections::BTreeMap;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, error, warn};

use super::HEADS_TIMEOUT;
use super::choice::TaskChoice;
use super::inspect::{Inspector, measured};
use super::shown::Viewer;
use super::why::verdict;
use ray_relay_access::identity::Principal;
use ray_relay_base::config::{Config, NoticeEvent};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_ray::ray::registry::{Running, RunningIn, RunningQuery};
use ray_relay_session::context::Context;
use ray_relay_session::hangs::JudgedJob;
use ray_relay_view::listing::fold::verdict::Verdict;

/// Time between inspections. A verdict takes 30 s in which nothing moves: together with this, less than a minute.
const CHECK_INTERVAL: Duration = Duration::from_secs(20);

/// How many times as long as an inspection the pause behind it is at least: the heads and workers have other work. A
/// worker that does not answer takes some seconds of it.
const PAUSE_FACTOR: u32 = 2;

/// Jobs of a cluster that are inspected at the same time.
const MAX_CONCURRENT_JOBS: usize = 4;

/// Maximum number of jobs of a cluster that are inspected at a time; the others are, the next times.
const MAX_JOBS: usize = 64;

/// Whether `config` wants the running jobs to be watched: for notices, or for their verdicts to be kept.
pub fn is_wanted(config: &Config) -> bool {
    let notices =
        config.notice.url_file.is_some() && config.notice.on.contains(&NoticeEvent::Hangs);
    notices || config.post_mortem.enabled
}

/// Inspects all that runs from time to time, until the relay drains.
pub async fn run(ctx: Arc<Context>) {
    let inspect = async {
        for round in 0.. {
            let begun = Instant::now();
            judge_all(&ctx, round).await;
            sleep(CHECK_INTERVAL.max(PAUSE_FACTOR * begun.elapsed())).await;
        }
    };
    tokio::select! {
        () = ctx.shutdown.drain.cancelled() => {}
        () = inspect => {}
    }
}

/// Judges the running jobs of all clusters.
async fn judge_all(ctx: &Context, round: usize) {
    let clusters: Vec<Arc<str>> = ctx.registry.clusters().collect();
    join_all(
        clusters
            .iter()
            .map(|cluster| judge_cluster(ctx, cluster, round)),
    )
    .await;
}

/// Judges the running jobs of `cluster`.
async fn judge_cluster(ctx: &Context, cluster: &str, round: usize) {
    let query = RunningQuery {
        on: &|one| one == cluster,
        job: None,
    };
    let Ok(running) = timeout(HEADS_TIMEOUT, ctx.registry.running(&query)).await else {
        debug!(
            cluster,
            "the head did not list its running tasks in time: no job is judged"
        );
        return;
    };
    // Of an incomplete list, what is missing would seem to be gone.
    let known = running
        .into_iter()
        .filter(|one| one.complete && one.trouble.is_none());
    let mut jobs: Vec<(String, RunningIn)> = known.flat_map(by_job).collect();
    if jobs.len() > MAX_JOBS {
        warn!(
            cluster,
            jobs = jobs.len(),
            most = MAX_JOBS,
            "not all running jobs are judged each time"
        );
        let first = round.wrapping_mul(MAX_JOBS) % jobs.len();
        jobs.rotate_left(first);
        jobs.truncate(MAX_JOBS);
    }
    let judging =
        stream::iter(jobs).for_each_concurrent(MAX_CONCURRENT_JOBS, |(job_id, tasks)| async move {
            let verdict = verdict_on(ctx, &tasks).await;
            let judged = verdict
                .and_then(|verdict| JudgedJob::new(job_id, &tasks.rows, verdict, Timestamp::now()));
            if let Some(judged) = judged {
                ctx.hangs.judged(judged);
            }
        });
    judging.await;
}

/// Judges one job. Ray is asked for the objects that are waited for only if something may hang: that takes all of its
/// workers.
async fn verdict_on(ctx: &Context, tasks: &RunningIn) -> Option<Verdict> {
    let principal = Principal::relay_viewer();
    let viewer = Viewer {
        ctx,
        principal: &principal,
        exchange: None,
    };
    let mut inspector = Inspector {
        viewer,
        locals: true,
        objects: false,
        native: false,
    };
    let choice = TaskChoice::default();
    for objects in [false, true] {
        inspector.objects = objects;
        let inspected = inspector
            .inspect(slice::from_ref(tasks), &choice, measured)
            .await;
        match verdict(inspected, ()).await {
            Ok(verdict) if verdict.is_healthy() || objects => return Some(verdict),
            Ok(_) => {}
            // The message of a panic may quote text of the program.
            Err(why) => {
                error!(panicked = why.is_panic(), "a job could not be judged");
                return None;
            }
        }
    }
    None
}

/// Separates what runs in a cluster by jobs. Tasks of no known job are left out.
fn by_job(cluster: RunningIn) -> Vec<(String, RunningIn)> {
    let mut jobs: BTreeMap<String, RunningIn> = BTreeMap::new();
    let mut add = |one: Running, list: fn(&mut RunningIn) -> &mut Vec<Running>| {
        let Some(id) = one.names.job_id.clone() else {
            return;
        };
        let job = jobs.entry(id).or_insert_with(|| RunningIn {
            cluster: Arc::clone(&cluster.cluster),
            rows: Vec::new(),
            idle: Vec::new(),
            trouble: None,
            complete: cluster.complete,
        });
        list(job).push(one);
    };
    for one in cluster.rows {
        add(one, |job| &mut job.rows);
    }
    for one in cluster.idle {
        add(one, |job| &mut job.idle);
    }
    let jobs = jobs.into_iter().filter(|(_, job)| !job.rows.is_empty());
    jobs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ray_relay_ray::ray::testing::running;

    #[test]
    fn jobs_are_separated_with_their_idle_actors() {
        let of = |job: Option<&str>, worker: &str| {
            let mut task = running("train", worker);
            task.names.job_id = job.map(str::to_owned);
            task
        };
        let all = RunningIn {
            cluster: "default".into(),
            rows: vec![
                of(Some("02"), "a"),
                of(Some("01"), "b"),
                of(None, "c"),
                of(Some("02"), "d"),
            ],
            idle: vec![of(Some("02"), "e"), of(Some("03"), "f")],
            trouble: None,
            complete: true,
        };
        let jobs = by_job(all).into_iter();
        let ids = |tasks: Vec<Running>| {
            tasks
                .into_iter()
                .map(|task| task.worker_id)
                .collect::<Vec<_>>()
        };
        let jobs: Vec<_> = jobs
            .map(|(id, job)| (id, ids(job.rows), ids(job.idle)))
            .collect();
        let [first, second] = &jobs[..] else {
            panic!("{jobs:?}");
        };
        assert_eq!((&*first.0, &first.1[..]), ("01", &["b".to_owned()][..]));
        assert_eq!(
            (&*second.0, second.1.len(), &second.2[..]),
            ("02", 2, &["e".to_owned()][..])
        );
    }
}
