//! Tasks that run in a cluster and wait at no breakpoint: queried from the head on demand, and never by polls.
//!
//! Four queries: the running tasks, the live workers (for addresses, and for drivers), the actors and the jobs (for
//! names). If there are more tasks than one response has, each running job is queried separately.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::ray::head::{HeadClient, HeadError};
use crate::ray::registry::breakpoint::Names;
use crate::ray::registry::clusters::ClusterHandle;
use crate::ray::registry::rows::newest_running;
use crate::ray::registry::rows::{ActorRow, JobRow, QueryResult, TaskRow, TrainRunRow, WorkerRow};
use crate::ray::registry::{names, query};

/// A query for running tasks.
pub struct RunningQuery<'a> {
    /// The clusters to include.
    pub on: &'a (dyn Fn(&str) -> bool + Sync),
    /// Only this job, by Ray's job id.
    pub job: Option<&'a str>,
}

/// The kind of a worker process's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkKind {
    /// A task of a function.
    Task,
    /// A method of an actor.
    Method,
    /// A replica of Ray Serve, about whose requests Ray reports nothing.
    Replica,
    /// A worker of Ray Train, whose training runs in a thread of its own: Ray reports no method.
    TrainWorker,
    /// The driver of a job.
    Driver,
}

impl WorkKind {
    /// The work of `actor` about which Ray reports nothing, if it has such.
    fn unlisted(actor: &ActorRow) -> Option<Self> {
        match actor {
            _ if names::is_replica(actor) => Some(Self::Replica),
            _ if names::is_train_worker(actor) => Some(Self::TrainWorker),
            _ => None,
        }
    }

    /// Whether it is work of an actor in which others of its class may take part.
    pub(super) fn is_of_peers(self) -> bool {
        matches!(self, Self::Method | Self::TrainWorker)
    }

    /// The name in the API.
    pub fn word(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Method => "method",
            Self::Replica => "replica",
            Self::TrainWorker => "train-worker",
            Self::Driver => "driver",
        }
    }
}

/// One running task, or another purpose of a worker process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Name of the cluster.
    pub cluster: Arc<str>,
    /// Its kind.
    pub what: WorkKind,
    /// Shared by those that run the same: the function, the actor's class, the deployment.
    pub group: String,
    /// Its names, like those of a breakpoint.
    pub names: Names,
    /// Ray's node id (hex); empty if Ray does not report it.
    pub node_id: String,
    /// The node's address; `None` if Ray does not report it.
    pub node_ip: Option<IpAddr>,
    /// Ray's worker id (hex).
    pub worker_id: String,
    /// Process id on that node.
    pub pid: Option<u32>,
    /// When it began, according to Ray.
    pub started: Option<SystemTime>,
}

impl Running {
    /// A job as a whole: a task without a name, on no node. A rule for some tasks or nodes does not cover it.
    pub fn whole_job(cluster: Arc<str>, names: Names) -> Self {
        Self {
            cluster,
            what: WorkKind::Driver,
            group: String::new(),
            names,
            node_id: String::new(),
            node_ip: None,
            worker_id: String::new(),
            pid: None,
            started: None,
        }
    }

    /// A name for people.
    pub fn name(&self) -> &str {
        self.names.name.as_deref().unwrap_or(&self.group)
    }

    /// Its identity, and its sort key in pages.
    pub fn key(&self) -> (&str, &str, &str) {
        let task = self.names.task_id.as_deref().unwrap_or_default();
        (&self.cluster, &self.worker_id, task)
    }

    /// How long it has run at `now`, if Ray reports its start.
    pub fn running_for(&self, now: SystemTime) -> Option<Duration> {
        Some(now.duration_since(self.started?).unwrap_or_default())
    }
}

/// The running tasks of one cluster.
#[derive(Debug)]
pub struct RunningIn {
    /// Name of the cluster.
    pub cluster: Arc<str>,
    /// Sorted by [`Running::key`].
    pub rows: Vec<Running>,
    /// Live actors that run no method, of classes of which another actor of the same job runs one.
    pub idle: Vec<Running>,
    /// The reason why nothing or not all is known, as a sentence.
    pub trouble: Option<String>,
    /// Whether the head's response was complete.
    pub complete: bool,
}

/// Queries the head of `cluster`; `None` if there is none.
pub(super) async fn ask(cluster: &ClusterHandle, job: Option<&str>) -> Option<RunningIn> {
    let head = cluster.head.as_ref()?;
    let mut found = RunningIn {
        cluster: Arc::clone(&cluster.name),
        rows: Vec::new(),
        idle: Vec::new(),
        trouble: None,
        complete: true,
    };
    // The semaphore is never closed.
    let Ok(_turn) = cluster.listings.acquire().await else {
        return Some(found);
    };
    match rows(head, &cluster.name, job).await {
        Ok((rows, idle, complete)) => {
            found.trouble = (!complete).then(|| {
                "more runs than its Ray head tells at once: name a job to see all of that one"
                    .to_owned()
            });
            (found.rows, found.idle, found.complete) = (rows, idle, complete);
        }
        Err(error) => (found.trouble, found.complete) = (Some(error.to_string()), false),
    }
    Some(found)
}

async fn rows(
    head: &HeadClient,
    cluster: &Arc<str>,
    job: Option<&str>,
) -> Result<(Vec<Running>, Vec<Running>, bool), HeadError> {
    let (workers, actors, jobs) = tokio::join!(
        query::live_workers(head),
        query::actors(head),
        query::jobs(head)
    );
    // Names are optional: running tasks are known without them.
    let actors = actors.map(QueryResult::into_rows).unwrap_or_else(|error| {
        tracing::debug!(%error, "cannot look up the actors");
        Vec::new()
    });
    let jobs = jobs.unwrap_or_else(|error| {
        tracing::debug!(%error, "cannot look up the jobs");
        Vec::new()
    });
    let tasks = match job {
        Some(job) => query::running_tasks_of_job(head, job).await?,
        None => query::running_tasks(head).await?,
    };
    let workers = workers?;
    let mut complete = !tasks.truncated() && !workers.truncated();
    let crowded = tasks.truncated() && job.is_none();
    let mut tasks = tasks.into_rows();
    if crowded {
        (tasks, complete) = of_each_job(head, tasks, &jobs).await?;
    }
    let workers = workers.into_rows();
    let runs = match actors.iter().any(|a| names::is_of_train(&a.class_name)) {
        true => query::known_train_runs(head).await,
        false => Vec::new(),
    };
    let known = Rows {
        runs: &runs,
        ..Rows::new(cluster, &workers, &actors, &jobs)
    };
    let mut rows = known.all(&tasks);
    if let Some(job) = job {
        rows.retain(|row| row.names.job_id.as_deref() == Some(job));
    }
    // If a response was incomplete, an actor may be busy with an unlisted task.
    let idle = if complete {
        known.idle(&rows)
    } else {
        Vec::new()
    };
    Ok((rows, idle, complete))
}

/// The last method that ran in the actor of `idle`: its name, and its state in Ray's terms.
pub(super) async fn last_method(
    cluster: &ClusterHandle,
    idle: &Running,
) -> Option<(String, String)> {
    let head = cluster.head.as_ref()?;
    let (job, actor) = (idle.names.job_id.as_ref()?, idle.names.actor_id.as_ref()?);
    let tasks = query::tasks_of_actor(head, job, actor).await.ok()?;
    let of_actor = tasks.into_rows().into_iter();
    let of_actor = of_actor.filter(|task| task.actor_id == *actor);
    let last = of_actor.max_by_key(|task| task.start_time_ms)?;
    Some((names::of_task(&last).name?, last.state))
}

/// A task that a worker ran.
#[derive(Debug, Clone)]
pub struct TaskOf {
    /// Ray's id of the task.
    pub task_id: String,
    /// The worker.
    pub worker_id: String,
    /// Its node.
    pub node_id: String,
}

/// The listed state of `tasks`, whatever that is; `None` if Ray does not attribute them to those workers.
pub(super) async fn tasks_of(cluster: &ClusterHandle, tasks: &[TaskOf]) -> Vec<Option<Running>> {
    let Some(head) = &cluster.head else {
        return Vec::new();
    };
    let jobs = query::jobs(head).await.unwrap_or_default();
    let mut found = Vec::new();
    for task in tasks {
        found.push(task_of(head, &cluster.name, &jobs, task).await);
    }
    found
}

async fn task_of(
    head: &HeadClient,
    cluster: &Arc<str>,
    jobs: &[JobRow],
    task: &TaskOf,
) -> Option<Running> {
    let rows = query::task(head, &task.task_id).await.ok()?.into_rows();
    // There is one row for each attempt.
    let is_it = |row: &&TaskRow| {
        row.task_id == task.task_id
            && row.worker_id == task.worker_id
            && (row.node_id.is_empty() || row.node_id == task.node_id)
    };
    of_row(head, cluster, jobs, rows.iter().find(is_it)?).await
}

/// The task of `row`, with the row of its actor; `None` if the actor cannot be queried.
pub(super) async fn of_row(
    head: &HeadClient,
    cluster: &Arc<str>,
    jobs: &[JobRow],
    row: &TaskRow,
) -> Option<Running> {
    let actors = match row.actor_id.is_empty() {
        true => Vec::new(),
        false => query::actor(head, &row.actor_id).await.ok()?.into_rows(),
    };
    Some(Rows::new(cluster, &[], &actors, jobs).task(row))
}

/// The tasks of the latest jobs, merged with `tasks`, which may be of others; and whether those are all.
async fn of_each_job(
    head: &HeadClient,
    tasks: Vec<TaskRow>,
    jobs: &[JobRow],
) -> Result<(Vec<TaskRow>, bool), HeadError> {
    let (newest, mut complete) = newest_running(jobs);
    let mut all: HashMap<String, TaskRow> = HashMap::new();
    let keyed = |task: TaskRow| (task.task_id.clone(), task);
    all.extend(tasks.into_iter().map(keyed));
    for job in newest {
        let list = query::running_tasks_of_job(head, &job.job_id).await?;
        complete &= !list.truncated();
        all.extend(list.into_rows().into_iter().map(keyed));
    }
    Ok((all.into_values().collect(), complete))
}

/// Combines rows of Ray.
pub(super) struct Rows<'a> {
    cluster: &'a Arc<str>,
    workers: &'a [WorkerRow],
    by_id: HashMap<&'a str, &'a WorkerRow>,
    actors: &'a [ActorRow],
    actors_by_id: HashMap<&'a str, &'a ActorRow>,
    jobs: HashMap<&'a str, &'a JobRow>,
    /// Runs of Ray Train.
    runs: &'a [TrainRunRow],
}

impl<'a> Rows<'a> {
    pub(super) fn new(
        cluster: &'a Arc<str>,
        workers: &'a [WorkerRow],
        actors: &'a [ActorRow],
        jobs: &'a [JobRow],
    ) -> Self {
        let jobs = jobs.iter().filter(|job| !job.job_id.is_empty());
        Self {
            cluster,
            workers,
            by_id: workers.iter().map(|w| (&*w.worker_id, w)).collect(),
            actors,
            actors_by_id: actors.iter().map(|a| (&*a.actor_id, a)).collect(),
            jobs: jobs.map(|job| (&*job.job_id, job)).collect(),
            runs: &[],
        }
    }

    /// All running tasks, in the order of pages.
    fn all(&self, tasks: &[TaskRow]) -> Vec<Running> {
        // Old versions ignore unknown filters; a task without a worker does not run yet.
        let run = tasks
            .iter()
            .filter(|task| task.state == "RUNNING" && !task.worker_id.is_empty());
        let mut rows: Vec<Running> = run.map(|task| self.task(task)).collect();
        let busy: Vec<String> = rows.iter().map(|row| row.worker_id.clone()).collect();
        let busy: HashSet<&str> = busy.iter().map(String::as_str).collect();
        let others = self
            .workers
            .iter()
            .filter(|w| !busy.contains(&*w.worker_id));
        let by_process: HashMap<_, _> = self
            .actors
            .iter()
            .filter(|actor| actor.state == "ALIVE")
            .filter_map(|actor| {
                Some((
                    (actor.pid, &*actor.node_id),
                    (actor, WorkKind::unlisted(actor)?),
                ))
            })
            .collect();
        for worker in others {
            match by_process.get(&(worker.pid, &*worker.node_id)) {
                _ if worker.is_driver() => rows.extend(self.driver(worker)),
                Some((actor, what)) => rows.push(Running {
                    what: *what,
                    ..self.actor(worker, actor)
                }),
                None => {}
            }
        }
        rows.sort_by(|a, b| a.key().cmp(&b.key()));
        rows.dedup_by(|a, b| a.key() == b.key());
        rows
    }

    /// The idle actors among peers of the actors in `rows`.
    fn idle(&self, rows: &[Running]) -> Vec<Running> {
        let of_actors = rows.iter().filter(|row| row.what.is_of_peers());
        let at_work: HashSet<_> = of_actors
            .map(|row| (&*row.group, row.names.job_id.as_deref()))
            .collect();
        let busy: HashSet<_> = rows
            .iter()
            .filter_map(|row| row.names.actor_id.as_deref())
            .collect();
        let by_process: HashMap<_, _> = self
            .workers
            .iter()
            .map(|worker| ((worker.pid, &*worker.node_id), worker))
            .collect();
        let idle = self
            .actors
            .iter()
            .filter(|actor| actor.state == "ALIVE" && !busy.contains(&*actor.actor_id));
        let idle = idle.filter_map(|actor| {
            let worker = by_process.get(&(actor.pid, &*actor.node_id))?;
            let actor = self.actor(worker, actor);
            at_work
                .contains(&(&*actor.group, actor.names.job_id.as_deref()))
                .then_some(actor)
        });
        idle.collect()
    }

    /// The actor of `row`, which is in the process of `worker`.
    pub(super) fn actor(&self, worker: &WorkerRow, row: &ActorRow) -> Running {
        self.running(Running {
            what: WorkKind::Method,
            group: names::group_of(row),
            ..self.of_worker(worker, names::of_actor(row).names)
        })
    }

    fn task(&self, task: &TaskRow) -> Running {
        let mut names = names::of_task(task);
        let actor = names.actor_id.as_deref();
        let actor = actor.and_then(|id| self.actors_by_id.get(id));
        let group = match actor {
            Some(actor) => names::group_of(actor),
            None => names::function_of(task),
        };
        let what = match (actor, names.actor_id.is_some()) {
            (Some(actor), _) if names::is_replica(actor) => WorkKind::Replica,
            (_, true) => WorkKind::Method,
            (_, false) => WorkKind::Task,
        };
        if let Some(actor) = actor {
            names::add_actor(&mut names, actor);
        }
        let worker = self.by_id.get(&*task.worker_id);
        let pid = task.worker_pid.or(worker.and_then(|worker| worker.pid));
        let node_id = match (&*task.node_id, worker) {
            ("", Some(worker)) => worker.node_id.clone(),
            (node_id, _) => node_id.to_owned(),
        };
        self.running(Running {
            cluster: Arc::clone(self.cluster),
            what,
            group,
            names,
            node_id,
            node_ip: worker.and_then(|worker| worker.address()),
            worker_id: task.worker_id.clone(),
            pid: pid.and_then(|pid| u32::try_from(pid).ok()),
            started: task.start_time_ms.map(time),
        })
    }

    fn driver(&self, worker: &WorkerRow) -> Option<Running> {
        let job_id = names::job_of_driver(&worker.worker_id)?;
        let job = self.jobs.get(job_id).copied();
        let mut names = names::of_driver(job_id, job).names;
        names::add_train_run(&mut names, self.runs);
        Some(Running {
            started: job.and_then(|job| job.start_time).map(time),
            ..self.of_worker(worker, names)
        })
    }

    fn of_worker(&self, worker: &WorkerRow, names: Names) -> Running {
        Running {
            cluster: Arc::clone(self.cluster),
            what: WorkKind::Driver,
            group: names::DRIVER.to_owned(),
            names,
            node_id: worker.node_id.clone(),
            node_ip: worker.address(),
            worker_id: worker.worker_id.clone(),
            pid: worker.pid.and_then(|pid| u32::try_from(pid).ok()),
            started: None,
        }
    }

    /// Adds the other names of the job.
    fn running(&self, mut running: Running) -> Running {
        let job = running.names.job_id.as_deref();
        let job = job.and_then(|job| self.jobs.get(job));
        let submission = job.map(|job| job.submission_id.clone());
        running.names.submission_id = submission.filter(|id| !id.is_empty());
        names::add_train_run(&mut running.names, self.runs);
        running
    }
}

pub(super) fn time(millis: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(millis)
}
