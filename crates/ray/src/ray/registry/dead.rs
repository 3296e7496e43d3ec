//! Actors that died while others of their class and job run methods: queried on demand, and never by polls.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

use crate::ray::registry::clusters::ClusterHandle;
use crate::ray::registry::query;
use crate::ray::registry::rows::{QueryResult, WorkerRow};
use crate::ray::registry::running::{Rows, Running, time};
use crate::ray::registry::{exit, names};

/// Jobs whose dead actors are queried in one call, and dead actors that it returns.
const MAX_JOBS: usize = 4;
const MAX_DEAD: usize = 64;

/// A dead actor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadActor {
    /// The actor in its last process.
    pub actor: Running,
    /// The reason, as a sentence without text of the program.
    pub why: Arc<str>,
    /// When its process ended.
    pub at: SystemTime,
}

/// A class of actors: its job, and its name.
type Class<'a> = (&'a str, &'a str);

/// The actors of `cluster` that have died since the first of their class in `running` began its method. One that died
/// before belonged to an earlier attempt.
pub(super) async fn peers(cluster: &ClusterHandle, running: &[&Running]) -> Vec<DeadActor> {
    let Some(head) = &cluster.head else {
        return Vec::new();
    };
    let mut classes: BTreeMap<Class<'_>, SystemTime> = BTreeMap::new();
    for one in running.iter().filter(|one| one.what.is_of_peers()) {
        if let (Some(job), Some(started)) = (&one.names.job_id, one.started) {
            let first = classes.entry((job, &one.group)).or_insert(started);
            *first = started.min(*first);
        }
    }
    let mut jobs: Vec<&str> = classes.keys().map(|(job, _)| *job).collect();
    jobs.dedup();
    let mut actors = Vec::new();
    for job in jobs.into_iter().take(MAX_JOBS) {
        let of_job = query::dead_actors(head, job).await;
        actors.extend(of_job.map(QueryResult::into_rows).unwrap_or_default());
    }
    actors.retain(|actor| {
        let class = (&*actor.job_id, &*names::group_of(actor));
        actor.state == "DEAD" && actor.pid.is_some() && classes.contains_key(&class)
    });
    if actors.is_empty() {
        return Vec::new();
    }
    let workers = query::dead_workers(head).await;
    let workers = workers.map(QueryResult::into_rows).unwrap_or_default();
    let by_process: HashMap<(Option<u64>, &str), &WorkerRow> = workers
        .iter()
        .filter(|worker| !worker.is_alive)
        .map(|worker| ((worker.pid, &*worker.node_id), worker))
        .collect();
    let rows = Rows::new(&cluster.name, &[], &actors, &[]);
    let dead = actors.iter().filter_map(|actor| {
        let worker = *by_process.get(&(actor.pid, &*actor.node_id))?;
        let at = time(worker.end_time_ms?);
        let actor = rows.actor(worker, actor);
        let class = (actor.names.job_id.as_deref()?, &*actor.group);
        let why = exit::reason(worker);
        (at >= *classes.get(&class)?).then_some(DeadActor { actor, why, at })
    });
    dead.take(MAX_DEAD).collect()
}
