//! The queries of the lookups, and how their responses are combined. Changes nothing by itself.

use std::collections::HashMap;

use crate::ray::head::{HeadClient, HeadError};
use crate::ray::registry::lookup::answer::LookupAnswer;
use crate::ray::registry::names::Found;
use crate::ray::registry::rows::newest_running;
use crate::ray::registry::rows::{ActorRow, JobRow, MAX_QUERY_ROWS, TaskRow};
use crate::ray::registry::state::Target;
use crate::ray::registry::{names, query, traceback};

/// Workers that are processed without yielding to other tasks.
const MAX_WORKERS_PER_YIELD: usize = 512;

/// Sends the queries of the lookups to one cluster's head.
#[derive(Clone, Copy)]
pub(super) struct LookupClient<'a> {
    head: &'a HeadClient,
}

/// The results of one query about many workers.
#[derive(Default)]
pub(super) struct Many {
    pub(super) answers: Vec<LookupAnswer>,
    /// The workers that the head left out for lack of space, to be queried individually.
    pub(super) remaining: Vec<Target>,
}

impl<'a> LookupClient<'a> {
    pub(super) fn new(head: &'a HeadClient) -> Self {
        Self { head }
    }

    /// Looks up one worker with queries of its own.
    pub(super) async fn name_one(self, target: Target) -> LookupAnswer {
        let mut found = match self.find(&target).await {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(%error, worker = %target.worker_id, "cannot look up a worker's task");
                None
            }
        };
        if !target.driver {
            self.add_submissions(found.iter_mut()).await;
        }
        LookupAnswer::Names(target, found.map(Box::new))
    }

    /// Names those of `targets` that are actors, from the actors table alone.
    pub(super) async fn name_actors(self, targets: Vec<Target>) -> Vec<LookupAnswer> {
        let actors = match targets.as_slice() {
            [only] => query::actor_of_process(self.head, &only.node_id, only.pid).await,
            _ => query::actors(self.head).await,
        };
        let Ok(actors) = actors else {
            return Vec::new();
        };
        let actors = actors.into_rows();
        let alive = actors.iter().filter(|actor| actor.state != "DEAD");
        let by_process: HashMap<_, _> = alive.map(|one| ((one.pid, &*one.node_id), one)).collect();
        let named = targets.into_iter().filter_map(|target| {
            let actor = by_process.get(&(Some(target.pid.into()), &*target.node_id))?;
            let found = Box::new(names::of_actor(actor));
            Some(LookupAnswer::Actor(target, found))
        });
        named.collect()
    }

    /// Looks up many workers: one query each for all running tasks, all actors and all jobs, as far as needed. Workers
    /// that stay nameless are not listed yet, and are queried again together.
    pub(super) async fn name_many(self, targets: Vec<Target>) -> Many {
        let (drivers, targets): (Vec<_>, Vec<_>) = targets.into_iter().partition(|t| t.driver);
        let mut many = Many::default();
        if !drivers.is_empty() {
            many.answers = self.name_drivers(drivers).await;
        }
        if targets.is_empty() {
            return many;
        }
        let (by_worker, crowded) = self.running_tasks(&targets).await;
        let mut found: Vec<Option<Found>> = Vec::with_capacity(targets.len());
        for stretch in targets.chunks(MAX_WORKERS_PER_YIELD) {
            found.extend(stretch.iter().map(|target| {
                let rows = by_worker.get(&*target.worker_id)?;
                names::of_tasks(rows)
            }));
            tokio::task::yield_now().await;
        }
        // A plain task needs no actor; everything else does.
        if found
            .iter()
            .any(|found| found.as_ref().is_none_or(|f| f.names.actor_id.is_some()))
        {
            let actors = self.all_actors().await;
            let by_id: HashMap<_, _> = actors.iter().map(|a| (&*a.actor_id, a)).collect();
            let alive = actors.iter().filter(|actor| actor.state != "DEAD");
            let by_process: HashMap<_, _> = alive.map(|a| ((a.pid, &*a.node_id), a)).collect();
            for (target, found) in targets.iter().zip(&mut found) {
                match found {
                    Some(found) => {
                        let id = found.names.actor_id.as_deref();
                        if let Some(actor) = id.and_then(|id| by_id.get(id)) {
                            names::add_actor(&mut found.names, actor);
                        }
                    }
                    None => {
                        let process = (Some(target.pid.into()), &*target.node_id);
                        *found = by_process.get(&process).map(|a| names::of_actor(a));
                    }
                }
            }
        }
        self.add_submissions(found.iter_mut().flatten()).await;
        for (target, found) in targets.into_iter().zip(found) {
            match found {
                None if crowded => many.remaining.push(target),
                found => many
                    .answers
                    .push(LookupAnswer::Names(target, found.map(Box::new))),
            }
        }
        many
    }

    /// The running tasks of `targets` by worker, and whether the head has more tasks than it returned.
    async fn running_tasks(self, targets: &[Target]) -> (HashMap<String, Vec<TaskRow>>, bool) {
        let mut by_worker: HashMap<String, Vec<TaskRow>> = HashMap::with_capacity(targets.len());
        let mut crowded = false;
        match query::running_tasks(self.head).await {
            Ok(list) => {
                crowded = list.truncated();
                add(&mut by_worker, list.into_rows());
            }
            Err(error) => tracing::debug!(%error, "cannot look up the running tasks"),
        }
        if crowded {
            // Each job has fewer, and costs one query for all of its workers.
            for job in self.running_jobs().await {
                if targets
                    .iter()
                    .all(|t| by_worker.contains_key(&*t.worker_id))
                {
                    break;
                }
                match query::running_tasks_of_job(self.head, &job.job_id).await {
                    Ok(list) => {
                        let mut rows = list.into_rows();
                        rows.retain(|row| !by_worker.contains_key(&row.worker_id));
                        add(&mut by_worker, rows);
                    }
                    Err(error) => {
                        tracing::debug!(%error, "cannot look up the running tasks of a job");
                        break;
                    }
                }
            }
        }
        (by_worker, crowded)
    }

    async fn name_drivers(self, drivers: Vec<Target>) -> Vec<LookupAnswer> {
        let jobs = self.jobs().await;
        let named = drivers.into_iter().map(|driver| {
            let found = of_driver(&driver, &jobs);
            LookupAnswer::Names(driver, found.map(Box::new))
        });
        named.collect()
    }

    async fn find(self, target: &Target) -> Result<Option<Found>, HeadError> {
        if target.driver {
            return Ok(of_driver(target, &query::jobs(self.head).await?));
        }
        let list = query::tasks_of_worker(self.head, &target.worker_id).await?;
        let crowded = list.total.is_some_and(|total| total >= MAX_QUERY_ROWS);
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

    /// Before Ray 2.38 only the job filter of tasks is applied before the cut at 10,000 tasks.
    async fn tasks_by_job(self, target: &Target) -> Result<Vec<TaskRow>, HeadError> {
        for job in self.running_jobs().await {
            let list = query::tasks_of_job(self.head, &job.job_id, &target.worker_id).await?;
            let rows = of_worker(list.into_rows(), &target.worker_id);
            if !rows.is_empty() {
                return Ok(rows);
            }
        }
        Ok(Vec::new())
    }

    /// Adds the other names of the jobs, which rows of tasks and actors do not have.
    async fn add_submissions<'f>(self, found: impl Iterator<Item = &'f mut Found>) {
        let mut of_jobs: Vec<_> = found.filter(|f| f.names.job_id.is_some()).collect();
        if of_jobs.is_empty() {
            return;
        }
        let jobs = self.jobs().await;
        let by_id: HashMap<_, _> = jobs.iter().map(|job| (&*job.job_id, job)).collect();
        for found in &mut of_jobs {
            let id = found.names.job_id.as_deref();
            if let Some(job) = id.and_then(|id| by_id.get(id)) {
                names::add_job(&mut found.names, job);
            }
        }
        let is_of_train = |found: &Found| {
            let class = found.names.group.as_deref();
            class.is_some_and(names::is_of_train)
        };
        if of_jobs.iter().any(|found| is_of_train(found)) {
            let runs = query::known_train_runs(self.head).await;
            for found in of_jobs {
                names::add_train_run(&mut found.names, &runs);
            }
        }
    }

    /// The jobs to query one by one; none if the head does not tell.
    async fn running_jobs(self) -> Vec<JobRow> {
        newest_running(&self.jobs().await).0
    }

    /// All jobs; none if the head does not tell.
    async fn jobs(self) -> Vec<JobRow> {
        match query::jobs(self.head).await {
            Ok(jobs) => jobs,
            Err(error) => {
                tracing::debug!(%error, "cannot look up the jobs");
                Vec::new()
            }
        }
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

    /// Looks up the stack of a worker, and returns whether the head refuses such requests altogether.
    pub(super) async fn locate(self, target: Target) -> (LookupAnswer, bool) {
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
        (LookupAnswer::Stack(target, stack), refused)
    }
}

/// Filters are checked again: old versions ignore unknown ones.
pub(in crate::ray::registry) fn of_worker(mut rows: Vec<TaskRow>, worker_id: &str) -> Vec<TaskRow> {
    rows.retain(|row| row.worker_id == worker_id);
    rows
}

fn add(by_worker: &mut HashMap<String, Vec<TaskRow>>, rows: Vec<TaskRow>) {
    for row in rows {
        match by_worker.get_mut(&row.worker_id) {
            Some(rows) => rows.push(row),
            None => _ = by_worker.insert(row.worker_id.clone(), vec![row]),
        }
    }
}

fn actor_of<'a>(actors: &'a [ActorRow], target: &Target) -> Option<&'a ActorRow> {
    actors.iter().find(|actor| {
        actor.pid == Some(target.pid.into())
            && *actor.node_id == *target.node_id
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
