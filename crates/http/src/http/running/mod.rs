//! Running and failed tasks: lists and snapshots. The running ones wait at no breakpoint.
//!
//! Ray is queried only on a client's request. A task that a principal may not see is treated as missing, by the same
//! rules as breakpoints (`clusters`, `jobs`, `namespaces`, `tasks`, `nodes`).

pub(super) mod arm;
mod choice;
mod failed;
mod hooked;
mod idle;
mod inspect;
mod list;
pub(super) mod looks;
pub(in crate::http) mod objects;
pub(super) mod rights;
mod shown;
pub mod watch;
pub(super) mod why;

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyper::{Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

pub(super) use self::list::list;
pub(super) use self::shown::held;
use super::answer::{self, Body};
use super::jobs;
use super::route::RequiredPermission;
use choice::TaskChoice;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_ray::ray::registry::{BreakpointId, Running, RunningIn, RunningQuery};
use ray_relay_session::context::Context;
use ray_relay_session::session::NoJob;
use ray_relay_view::listing::running::RunningRow;

/// Time limit for the heads to list running tasks, including earlier requests in the queue.
const HEADS_TIMEOUT: Duration = Duration::from_secs(20);

/// Error if they take longer.
const SLOW: &str = "the Ray heads did not list their running tasks in time; try again, or select one cluster or job";

/// Why there is no list of running tasks.
enum NotListed {
    /// The heads take too long.
    Slow,
    /// There is no such job.
    NoJob(NoJob),
}

impl NotListed {
    fn answer(&self) -> Response<Body> {
        match self {
            Self::Slow => answer::error(StatusCode::SERVICE_UNAVAILABLE, SLOW),
            Self::NoJob(why) => jobs::none(why),
        }
    }
}

/// Running tasks in clusters where `principal` has `scope` somewhere, as preselected by `choice`. The caller has to
/// check its rights on each task.
///
/// # Errors
/// [`NotListed`].
async fn running(
    ctx: &Context,
    principal: &Principal,
    scope: Scope,
    choice: &TaskChoice,
) -> Result<Vec<RunningIn>, NotListed> {
    let until = Instant::now() + HEADS_TIMEOUT;
    let query = JobQuery {
        ctx,
        principal,
        scope,
        choice,
        until,
    };
    let Some(name) = &choice.job else {
        return query.running(None, None).await;
    };
    let jobs = match jobs::find(ctx, principal, name).await {
        Ok(jobs) => jobs,
        // Without a list of jobs, the name may still be Ray's job id. The answer has the trouble of the head.
        Err(NoJob::Unclear { .. }) => return query.running(Some(name), None).await,
        Err(why) => return Err(NotListed::NoJob(why)),
    };
    let mut clusters: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    // A run may have been started often. Of what is left, each cluster has one job at most.
    for job in jobs.iter().filter(|job| !job.ended || job.has_id(name)) {
        if let Some(id) = &job.job_id {
            clusters.entry(id).or_default().insert(&job.cluster);
        }
    }
    let mut found = Vec::new();
    for (id, clusters) in clusters {
        found.extend(query.running(Some(id), Some(clusters)).await?);
    }
    Ok(merged(found))
}

/// The queries of one request, which have one deadline.
struct JobQuery<'a> {
    ctx: &'a Context,
    principal: &'a Principal,
    scope: Scope,
    choice: &'a TaskChoice,
    until: Instant,
}

impl JobQuery<'_> {
    /// The running tasks of `job`, by Ray's id, in those `clusters` that have it; of all if these are not given.
    async fn running(
        &self,
        job: Option<&str>,
        clusters: Option<BTreeSet<&str>>,
    ) -> Result<Vec<RunningIn>, NotListed> {
        let access = self.principal.access();
        let on = |cluster: &str| {
            clusters.as_ref().is_none_or(|all| all.contains(cluster))
                && self.choice.fits_cluster(cluster)
                && access.may_somewhere_on(self.scope, cluster)
        };
        let query = RunningQuery { on: &on, job };
        let listed = timeout_at(self.until, self.ctx.registry.running(&query)).await;
        listed.map_err(|_| NotListed::Slow)
    }
}

/// Merges what was queried of each job, so that each cluster is there once, with its rows in the order of pages.
fn merged(found: Vec<RunningIn>) -> Vec<RunningIn> {
    let mut clusters: BTreeMap<Arc<str>, RunningIn> = BTreeMap::new();
    for one in found {
        match clusters.entry(Arc::clone(&one.cluster)) {
            Entry::Vacant(entry) => _ = entry.insert(one),
            Entry::Occupied(mut entry) => {
                let known = entry.get_mut();
                known.rows.extend(one.rows);
                known.idle.extend(one.idle);
                known.trouble = known.trouble.take().or(one.trouble);
                known.complete &= one.complete;
            }
        }
    }
    let mut merged: Vec<RunningIn> = clusters.into_values().collect();
    for one in &mut merged {
        one.rows.sort_by(|a, b| a.key().cmp(&b.key()));
    }
    merged
}

/// The permission to take a snapshot of `running`.
fn view_permission(running: &Running) -> RequiredPermission {
    RequiredPermission {
        scope: Scope::View,
        place: format!("on {} in worker {}", running.name(), running.worker_id),
    }
}

/// The JSON of `running`, for `principal`.
fn row(ctx: &Context, principal: &Principal, running: &Running, now: SystemTime) -> Value {
    let id = BreakpointId::derive(&running.cluster, &running.worker_id);
    let list = ctx.registry.snapshot();
    let waits = list.find(id).filter(|waits| {
        *waits.worker_id == *running.worker_id
            && ray_relay_session::session::may(principal, Scope::List, waits)
    });
    json!(RunningRow::new(
        running,
        now,
        waits.map(Arc::as_ref).map(|waits| waits.id)
    ))
}

/// JSON with the status of each cluster.
fn clusters(per_cluster: &[RunningIn]) -> Value {
    let statuses = per_cluster.iter().map(
        |one| json!({ "name": *one.cluster, "trouble": one.trouble, "complete": one.complete }),
    );
    statuses.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_of_several_jobs_are_merged_once_each() {
        let found = |cluster: &str, trouble: Option<&str>| RunningIn {
            cluster: cluster.into(),
            rows: Vec::new(),
            idle: Vec::new(),
            trouble: trouble.map(str::to_owned),
            complete: trouble.is_none(),
        };
        let all = merged(vec![
            found("b", None),
            found("a", None),
            found("b", Some("late")),
        ]);
        let all: Vec<_> = all
            .iter()
            .map(|one| (&*one.cluster, one.trouble.as_deref(), one.complete))
            .collect();
        assert_eq!(all, [("a", None, true), ("b", Some("late"), false)]);
    }
}
