//! Actors that run nothing while others of their class and job are inspected. The others may wait for one that has
//! returned, or has died.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::may_know;
use ray_relay_access::identity::Principal;
use ray_relay_ray::ray::registry::{Running, RunningIn};
use ray_relay_session::context::Context;
use ray_relay_view::listing::running::{DeadRow, IdleRow};

/// Maximum number of actors to report, and of those whose last method Ray is asked for.
const MAX_ROWS: usize = 256;
const MAX_LAST_METHOD_QUERIES: usize = 8;

/// Time limits for that query, and for the one for dead actors.
const LAST_METHOD_TIMEOUT: Duration = Duration::from_secs(3);
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

/// The actors of the classes of `running` that have died since those began, and that `principal` may know of, as JSON.
pub(super) async fn dead_rows(
    ctx: &Context,
    principal: &Principal,
    running: &[&Running],
) -> Vec<Value> {
    let mut by_cluster: BTreeMap<&str, Vec<&Running>> = BTreeMap::new();
    for one in running {
        by_cluster.entry(&one.cluster).or_default().push(one);
    }
    let queries = by_cluster.iter().map(|(cluster, running)| {
        let query = timeout(DEAD_TIMEOUT, ctx.registry.dead_peers(cluster, running));
        async { query.await.unwrap_or_default() }
    });
    let queries: Vec<_> = queries.collect();
    let dead = join_all(queries).await;
    let dead = dead.iter().flatten();
    let dead = dead.filter(|one| may_know(principal, &one.actor));
    let now = SystemTime::now();
    dead.take(MAX_ROWS)
        .map(|one| json!(DeadRow::new(one, now)))
        .collect()
}
