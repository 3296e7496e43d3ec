//! Looks up what paused workers run and where they stopped, one task for each cluster.
//!
//! What is wanted and when lies with each breakpoint in the core, so a lookup for a worker that
//! has gone simply is not there any more; an answer that comes late is dropped by its number of
//! the stop. At most [`MAX_NAMES`] questions for names and [`MAX_STACKS`] for stacks are out.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::Instant;

use super::names::{self, Found};
use super::rows::{ActorRow, JobRow, LIMIT, TaskRow};
use super::shared::Shared;
use super::state::{Cluster, Target};
use super::{query, traceback};
use crate::head::{HeadClient, HeadError};

/// Questions for names at a time.
const MAX_NAMES: usize = 4;

/// Stack dumps at a time: each stops a worker for tens of milliseconds.
const MAX_STACKS: usize = 2;

/// From so many workers on, all running tasks are asked for at once.
const BATCH: usize = 8;

/// Jobs that are tried one by one on a head that filters nothing but jobs.
const MAX_JOBS: usize = 20;

/// For how long a head that refuses stack dumps is not asked again.
const REFUSED: Duration = Duration::from_secs(600);

type Flight<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Runs until cancelled by dropping it.
pub(super) async fn run(shared: &Shared, cluster: Cluster, head: &HeadClient) {
    let wake = &shared.clusters[cluster].lookup_now;
    let asker = Asker {
        shared,
        cluster,
        head,
    };
    let mut waiting: Vec<Target> = Vec::new();
    let mut named: FuturesUnordered<Flight<'_>> = FuturesUnordered::new();
    let mut stacks: FuturesUnordered<std::pin::Pin<Box<dyn Future<Output = bool> + Send + '_>>> =
        FuturesUnordered::new();
    let mut no_stacks_until: Option<Instant> = None;
    loop {
        waiting.extend(shared.with(|state| state.due_names(cluster, Instant::now())));
        if waiting.len() >= BATCH && named.len() < MAX_NAMES {
            named.push(Box::pin(asker.name_many(std::mem::take(&mut waiting))));
        }
        while named.len() < MAX_NAMES
            && let Some(target) = waiting.pop()
        {
            named.push(Box::pin(asker.name_one(target)));
        }
        let may_ask = no_stacks_until.is_none_or(|until| until <= Instant::now());
        while shared.settings.locations
            && may_ask
            && stacks.len() < MAX_STACKS
            && let Some(target) = shared.with(|state| state.due_location(cluster))
        {
            stacks.push(Box::pin(asker.locate(target)));
        }
        let next = shared.with(|state| state.next_names(cluster));
        let next = next.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
        tokio::select! {
            Some(()) = named.next(), if !named.is_empty() => {}
            Some(refused) = stacks.next(), if !stacks.is_empty() => {
                if refused {
                    no_stacks_until = Some(Instant::now() + REFUSED);
                }
            }
            () = wake.notified() => {}
            () = tokio::time::sleep_until(next) => {}
        }
    }
}

#[derive(Clone, Copy)]
struct Asker<'a> {
    shared: &'a Shared,
    cluster: Cluster,
    head: &'a HeadClient,
}

impl Asker<'_> {
    /// One worker by questions of its own.
    async fn name_one(self, target: Target) {
        let found = match self.find(&target).await {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(%error, worker = %target.worker_id, "cannot look up a worker's task");
                None
            }
        };
        self.found(&target, found);
    }

    /// Many workers: one question each for all running tasks, all actors and all jobs, whichever
    /// are needed. What that leaves nameless is not there yet and is asked for again together.
    async fn name_many(self, targets: Vec<Target>) {
        let (drivers, targets): (Vec<_>, Vec<_>) = targets.into_iter().partition(|t| t.driver);
        if !drivers.is_empty() {
            self.name_drivers(&drivers).await;
        }
        if targets.is_empty() {
            return;
        }
        let (tasks, crowded) = match query::running_tasks(self.head).await {
            Ok(list) => {
                let crowded = list.truncated();
                (list.into_rows(), crowded)
            }
            Err(error) => {
                tracing::debug!(%error, "cannot look up the running tasks");
                (Vec::new(), false)
            }
        };
        let mut by_worker: HashMap<String, Vec<TaskRow>> = HashMap::new();
        for task in tasks {
            by_worker
                .entry(task.worker_id.clone())
                .or_default()
                .push(task);
        }
        let mut found: Vec<_> = targets
            .iter()
            .map(|target| {
                by_worker
                    .get(&target.worker_id)
                    .and_then(|rows| names::of_tasks(rows))
            })
            .collect();
        // A plain task needs no actor; everything else does.
        if found
            .iter()
            .any(|found| found.as_ref().is_none_or(|f| f.names.actor_id.is_some()))
        {
            let actors = self.all_actors().await;
            for (target, found) in targets.iter().zip(&mut found) {
                match found {
                    Some(found) => {
                        let id = found.names.actor_id.as_ref();
                        if let Some(actor) =
                            id.and_then(|id| actors.iter().find(|a| a.actor_id == *id))
                        {
                            names::add_actor(&mut found.names, actor);
                        }
                    }
                    None => *found = actor_of(&actors, target).map(names::of_actor),
                }
            }
        }
        for (target, found) in targets.into_iter().zip(found) {
            match found {
                None if crowded => self.name_one(target).await,
                found => self.found(&target, found),
            }
        }
    }

    async fn name_drivers(self, drivers: &[Target]) {
        let jobs = match query::jobs(self.head).await {
            Ok(jobs) => jobs,
            Err(error) => {
                tracing::debug!(%error, "cannot look up the jobs");
                Vec::new()
            }
        };
        for driver in drivers {
            self.found(driver, of_driver(driver, &jobs));
        }
    }

    async fn find(self, target: &Target) -> Result<Option<Found>, HeadError> {
        if target.driver {
            return Ok(of_driver(target, &query::jobs(self.head).await?));
        }
        let list = query::tasks_of_worker(self.head, &target.worker_id).await?;
        let crowded = list.total.is_some_and(|total| total >= LIMIT);
        let mut rows = of_worker(list.into_rows(), &target.worker_id);
        if rows.is_empty() && crowded {
            rows = self.tasks_by_job(target).await?;
        }
        let Some(mut found) = names::of_tasks(&rows) else {
            return self.find_actor(target).await;
        };
        if let Some(actor_id) = &found.names.actor_id {
            let actors = query::actor(self.head, actor_id).await?.into_rows();
            if let Some(actor) = actors.iter().find(|actor| actor.actor_id == *actor_id) {
                names::add_actor(&mut found.names, actor);
            }
        }
        Ok(Some(found))
    }

    async fn find_actor(self, target: &Target) -> Result<Option<Found>, HeadError> {
        let actors = query::actor_of_process(self.head, &target.node_id, target.pid)
            .await?
            .into_rows();
        Ok(actor_of(&actors, target).map(names::of_actor))
    }

    /// Before Ray 2.38 no task filter but the job's is applied before the cut at 10,000 tasks.
    async fn tasks_by_job(self, target: &Target) -> Result<Vec<TaskRow>, HeadError> {
        let mut jobs = query::jobs(self.head).await?;
        jobs.retain(|job: &JobRow| job.status == "RUNNING" && !job.job_id.is_empty());
        // The newest first: job ids count up.
        jobs.sort_by(|a, b| b.job_id.cmp(&a.job_id));
        for job in jobs.iter().take(MAX_JOBS) {
            let list = query::tasks_of_job(self.head, &job.job_id, &target.worker_id).await?;
            let rows = of_worker(list.into_rows(), &target.worker_id);
            if !rows.is_empty() {
                return Ok(rows);
            }
        }
        Ok(Vec::new())
    }

    async fn all_actors(self) -> Vec<ActorRow> {
        match query::actors(self.head).await {
            Ok(list) => list.into_rows(),
            Err(error) => {
                tracing::debug!(%error, "cannot look up the actors");
                Vec::new()
            }
        }
    }

    /// Whether the head refuses such questions altogether.
    async fn locate(self, target: Target) -> bool {
        let (stack, refused) = match query::traceback(self.head, target.node_ip, target.pid).await {
            Ok(dump) => (traceback::of_dump(&dump), false),
            Err(error) => {
                tracing::debug!(%error, worker = %target.worker_id, "no stack of a paused worker");
                let refused = matches!(
                    error,
                    HeadError::Status {
                        status: 403 | 404,
                        ..
                    }
                );
                (None, refused)
            }
        };
        let Target {
            worker_id, stop, ..
        } = &target;
        let apply = |state: &mut super::state::State, _| {
            (state.apply_stack(self.cluster, worker_id, *stop, stack), ())
        };
        self.shared.change(apply);
        refused
    }

    fn found(self, target: &Target, found: Option<Found>) {
        let Target {
            worker_id, stop, ..
        } = target;
        self.shared.change(|state, now| {
            (
                state.apply_found(self.cluster, worker_id, *stop, found, now),
                (),
            )
        });
    }
}

/// Filters are checked again: old versions skip those that they do not know.
pub(super) fn of_worker(mut rows: Vec<TaskRow>, worker_id: &str) -> Vec<TaskRow> {
    rows.retain(|row| row.worker_id == worker_id);
    rows
}

fn actor_of<'a>(actors: &'a [ActorRow], target: &Target) -> Option<&'a ActorRow> {
    actors.iter().find(|actor| {
        actor.pid == Some(target.pid.into())
            && actor.node_id == target.node_id
            && actor.state != "DEAD"
    })
}

fn of_driver(target: &Target, jobs: &[JobRow]) -> Option<Found> {
    let job_id = names::job_of_driver(&target.worker_id)?;
    Some(names::of_driver(
        job_id,
        jobs.iter().find(|job| job.job_id == job_id),
    ))
}
