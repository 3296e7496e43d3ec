//! Actors that run nothing while others of their class and job are inspected. The others may wait for one that has
//! returned, or has died.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::repeat_with;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::rights::may_know;
use super::shown::Viewer;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_access::visibility::Visibility;
use ray_relay_ray::ray::registry::{DeadActor, LogTail, Running, RunningIn};
use ray_relay_session::context::Context;
use ray_relay_view::listing::running::{DeadRow, IdleRow};

/// Maximum number of actors to report, of those whose last method Ray is asked for, and of dead ones whose error log is read.
const MAX_ROWS: usize = 256;
const MAX_LAST_METHOD_QUERIES: usize = 8;
const MAX_LOG_QUERIES: usize = 4;

/// Time limits for these queries, and for the one for dead actors.
const LAST_METHOD_TIMEOUT: Duration = Duration::from_secs(3);
const LOG_TIMEOUT: Duration = Duration::from_secs(4);
const DEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// A class of actors: its cluster, job and name.
pub(super) type Class<'a> = (&'a str, Option<&'a str>, &'a str);

/// The class of `running`.
pub(super) fn class(running: &Running) -> Class<'_> {
    let job = running.names.job_id.as_deref();
    (&running.cluster, job, &running.group)
}

/// The idle actors of `classes` that `principal` may know of, as JSON.
pub(super) async fn rows(
    ctx: &Context,
    principal: &Principal,
    per_cluster: &[RunningIn],
    classes: &BTreeSet<Class<'_>>,
) -> Vec<Value> {
    let idle = per_cluster.iter().flat_map(|one| &one.idle);
    let idle = idle.filter(|one| classes.contains(&class(one)));
    let idle = idle.filter(|one| may_know(principal, one));
    let idle: Vec<&Running> = idle.take(MAX_ROWS).collect();
    let queries = idle.iter().take(MAX_LAST_METHOD_QUERIES).map(|one| {
        let query = timeout(LAST_METHOD_TIMEOUT, ctx.registry.last_method(one));
        async { query.await.ok().flatten() }
    });
    let queries: Vec<_> = queries.collect();
    let last = join_all(queries)
        .await
        .into_iter()
        .chain(std::iter::repeat(None));
    let rows = idle.iter().zip(last);
    rows.map(|(one, last)| json!(IdleRow::new(one, last)))
        .collect()
}

/// The actors of the classes of `running` that have died since those began, and that the principal may know of, as
/// JSON.
pub(super) async fn dead_rows(viewer: Viewer<'_>, running: &[&Running]) -> Vec<Value> {
    let Viewer { ctx, principal, .. } = viewer;
    let mut by_cluster: BTreeMap<&str, Vec<&Running>> = BTreeMap::new();
    for one in running {
        by_cluster.entry(&one.cluster).or_default().push(one);
    }
    let queries = by_cluster.iter().map(|(cluster, running)| {
        let query = timeout(DEAD_TIMEOUT, ctx.registry.dead_peers(cluster, running));
        async { query.await.unwrap_or_default() }
    });
    let queries: Vec<_> = queries.collect();
    let dead: Vec<DeadActor> = join_all(queries).await.into_iter().flatten().collect();
    let dead: Vec<&DeadActor> = dead
        .iter()
        .filter(|one| may_know(principal, &one.actor))
        .take(MAX_ROWS)
        .collect();
    let logs = dead.iter().take(MAX_LOG_QUERIES);
    let logs: Vec<_> = logs.map(|one| log_tail(viewer, one)).collect();
    let logs = join_all(logs).await;
    let logs = logs.into_iter().chain(repeat_with(LogTail::default));
    let now = SystemTime::now();
    let rows = dead.iter().zip(logs);
    rows.map(|(one, log)| json!(DeadRow::new(one, &log, now)))
        .collect()
}

/// The end of the error log of `dead`, as far as the viewer may see it: the stack of a crash as other stacks, and the
/// lines as text of the program. Audited as an inspection.
async fn log_tail(viewer: Viewer<'_>, dead: &DeadActor) -> LogTail {
    let Viewer { ctx, principal, .. } = viewer;
    let actor = &dead.actor;
    let rights = principal.access().rights_on_running(actor);
    if !rights.scopes.contains(Scope::View) {
        return LogTail::default();
    }
    let shows_text = !Visibility::of(&rights).hides() && !rights.obligations.record;
    if viewer.record(actor, shows_text).await.is_err() {
        return LogTail::default();
    }
    let tail = timeout(LOG_TIMEOUT, ctx.registry.log_tail(dead)).await;
    let mut tail = tail.unwrap_or_default();
    if !shows_text {
        tail.lines.clear();
    }
    tail
}
