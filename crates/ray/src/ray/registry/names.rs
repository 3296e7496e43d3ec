//! Derives what a paused worker runs from rows of tasks, actors and jobs. Pure; [`crate::ray::registry::lookup`] sends
//! the queries.

mod ranks;

use std::borrow::Cow;

use self::ranks::{WorldRank, rank_in, trailing_index};
use crate::ray::registry::breakpoint::Names;
use crate::ray::registry::resources::Resources;
use crate::ray::registry::rows::{ActorRow, JobRow, RuntimeEnv, TaskRow, TrainRunRow};
use crate::ray::registry::traceback;
use crate::ray::registry::traceback::Stopped;
use ray_relay_base::wire::text::one_line;

/// Longest readable name, in characters.
const MAX_NAME_CHARS: usize = 60;

/// Prefix of Serve's replica classes: `ServeReplica:app1:Echo`.
const REPLICA: &str = "ServeReplica:";

/// The group of a driver.
pub(super) const DRIVER: &str = "driver";

/// Names of concurrent tasks before an ellipsis.
const MAX_TASKS: usize = 3;

/// The results of a lookup of one worker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) names: Names,
    /// Set if the rows prove it.
    pub(super) stop: Option<Stopped>,
    pub(super) certainty: Certainty,
}

impl Found {
    /// The result for a worker without a task's row: `settled` if its own row is complete.
    fn without_tasks(names: Names, settled: bool) -> Self {
        Self {
            names,
            stop: None,
            certainty: match settled {
                true => Certainty::Settled,
                false => Certainty::Provisional,
            },
        }
    }
}

/// Whether another query could find more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Certainty {
    /// A placeholder until the task's row is there: the class of an actor, the number of a job.
    #[default]
    Provisional,
    /// Right unless the row is a second old: Ray's workers report their tasks once a second, so a worker that has just
    /// been reused can still show its last task.
    Likely,
    /// Final.
    Settled,
}

/// Derives the names from the rows of one worker's running tasks; there are several in a threaded or async actor.
pub(super) fn of_tasks(rows: &[TaskRow]) -> Option<Found> {
    let running = || rows.iter().filter(|row| row.state == "RUNNING");
    let first = running().next()?;
    let mut distinct = Vec::new();
    for name in running().map(task_name) {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    let mut name = distinct[..distinct.len().min(MAX_TASKS)].join(", ");
    if distinct.len() > MAX_TASKS {
        name += ", …";
    }
    let names = of_task_called(first, &name);
    let stop = running().find_map(post_mortem);
    let certainty = if stop.is_some() {
        Certainty::Settled
    } else {
        Certainty::Likely
    };
    Some(Found {
        names,
        stop,
        certainty,
    })
}

/// Derives the names from the row of one task, whether it runs or not.
pub(super) fn of_task(row: &TaskRow) -> Names {
    of_task_called(row, &task_name(row))
}

fn of_task_called(row: &TaskRow, name: &str) -> Names {
    let environment = row.runtime_env_info.as_ref();
    let environment = environment.map(|info| RuntimeEnv::read(&info.serialized_runtime_env));
    let environment = environment.unwrap_or_default();
    let world = WorldRank::of(&environment);
    Names {
        rank: world.rank.or_else(|| rank_in(name)),
        rank_is_certain: world.rank.is_some(),
        local_rank: world.local_rank,
        world_size: world.world_size,
        name: Some(shortened(name)),
        group: Some(function_of(row)),
        job_id: known(&row.job_id),
        task_id: known(&row.task_id),
        actor_id: known(&row.actor_id),
        unpacked_working_dir: environment.unpacks(),
        collective_timeout: environment.collective_timeout(),
        resources: held_by_task(row),
        ..Names::default()
    }
}

/// A task that still runs although its function has raised waits in a post-mortem. Ray records the
/// exception with the task (`profiling_data`, all versions), so this needs no `/worker/traceback`.
fn post_mortem(row: &TaskRow) -> Option<Stopped> {
    let events = &row.profiling_data.as_ref()?.events.read;
    let raised = events.iter().find_map(|event| {
        let extra = event
            .extra_data
            .as_ref()
            .filter(|_| event.event_name == "task:execute")?;
        Some(&*extra.traceback).filter(|traceback| !traceback.is_empty())
    })?;
    Some(traceback::of_post_mortem(raised))
}

/// The resources that a task holds. A method's row has the resources for creating its actor, which the actor may not
/// keep: the actor's own row has the ones that it holds.
fn held_by_task(row: &TaskRow) -> Option<Resources> {
    let is_own = known(&row.actor_id).is_none();
    let required = row.required_resources.as_ref().filter(|_| is_own)?;
    Some(Resources::read(required))
}

/// Adds the information of the actor's own row.
pub(super) fn add_actor(names: &mut Names, actor: &ActorRow) {
    names.resources = actor.required_resources.as_ref().map(Resources::read);
    names.actor_id = known(&actor.actor_id);
    names.group = Some(group_of(actor));
    let environment = RuntimeEnv::read(&actor.serialized_runtime_env);
    names.unpacked_working_dir |= environment.unpacks();
    names.collective_timeout = names
        .collective_timeout
        .or(environment.collective_timeout());
    if actor.class_name.starts_with(REPLICA) {
        // `SERVE_REPLICA::app1#Echo#oqmuf2kx` is Serve's own name for it, not the program's.
        return;
    }
    names.actor_name = known(&actor.name).map(|name| shortened(&name));
    names.namespace = names
        .actor_name
        .as_ref()
        .and_then(|_| known(&actor.ray_namespace));
    let world = WorldRank::of(&environment);
    names.local_rank = world.local_rank.or(names.local_rank);
    names.world_size = world.world_size.or(names.world_size);
    let certain = names.rank.filter(|_| names.rank_is_certain);
    let certain = world.rank.or(certain);
    names.rank_is_certain = certain.is_some();
    names.rank = certain
        .or_else(|| rank_in(&actor.name))
        .or_else(|| trailing_index(&actor.name))
        .or_else(|| rank_in(&actor.repr_name))
        .or(names.rank);
}

/// Adds the information of its job's row.
pub(super) fn add_job(names: &mut Names, job: &JobRow) {
    names.submission_id = known(&job.submission_id);
    names.submitter = submitter_of(job);
}

/// Classes of Ray Train's actors: its ranks, and what manages them.
const TRAIN_WORKER: &str = "RayTrainWorker";
const TRAIN_CLASSES: [&str; 2] = [TRAIN_WORKER, "TrainController"];

/// Whether a class of this name is one of Ray Train's, so that its runs are worth a query.
pub(super) fn is_of_train(class_name: &str) -> bool {
    TRAIN_CLASSES.contains(&class_name)
}

/// Adds the run of Ray Train: that of its actor, otherwise the only one of its job.
pub(super) fn add_train_run(names: &mut Names, runs: &[TrainRunRow]) {
    let Some(job) = names.job_id.as_deref() else {
        return;
    };
    let of_job: Vec<&TrainRunRow> = runs.iter().filter(|run| run.job_id == job).collect();
    let actor = names.actor_id.as_deref();
    let has_actor = |run: &TrainRunRow| {
        let workers = run.attempts.read.iter();
        let mut workers = workers.flat_map(|attempt| &attempt.workers.read);
        actor.is_some_and(|actor| {
            run.controller_actor_id == actor || workers.any(|worker| worker.actor_id == actor)
        })
    };
    let own = of_job.iter().find(|run| has_actor(run));
    let run = match (own, &*of_job) {
        (Some(run), _) | (None, [run]) => Some(shortened(&run.name)),
        (None, _) => None,
    };
    names.train_run = run.filter(|name| !name.is_empty());
}

/// The principal that has submitted `job` through a relay.
pub(super) fn submitter_of(job: &JobRow) -> Option<String> {
    let metadata = job.metadata.as_ref()?;
    (!metadata.submitter.is_empty()).then(|| metadata.submitter.clone())
}

/// Derives the names from an actor's row alone: a Serve replica has no task row while it handles a request.
pub(super) fn of_actor(actor: &ActorRow) -> Found {
    let replica = actor.class_name.strip_prefix(REPLICA);
    let name = match replica {
        Some(deployment) => format!("Serve {deployment}"),
        None => actor.class_name.clone(),
    };
    let mut names = Names {
        name: Some(shortened(&name)),
        job_id: known(&actor.job_id),
        ..Names::default()
    };
    add_actor(&mut names, actor);
    Found::without_tasks(names, replica.is_some())
}

/// Whether `actor` is a replica of Ray Serve.
pub(super) fn is_replica(actor: &ActorRow) -> bool {
    actor.class_name.starts_with(REPLICA)
}

/// Whether `actor` is a worker of Ray Train, one for each rank.
pub(super) fn is_train_worker(actor: &ActorRow) -> bool {
    actor.class_name == TRAIN_WORKER
}

/// The group of `actor`, which it shares with actors of the same class.
pub(super) fn group_of(actor: &ActorRow) -> String {
    match actor.class_name.strip_prefix(REPLICA) {
        Some(deployment) => shortened(&format!("Serve {deployment}")),
        None => shortened(&actor.class_name),
    }
}

/// The function of `task`; for a method whose actor is not known, the class before it.
pub(super) fn function_of(task: &TaskRow) -> String {
    let function = match task.func_or_class_name.is_empty() {
        true => &task.name,
        false => &task.func_or_class_name,
    };
    let class = function
        .rsplit_once('.')
        .filter(|_| known(&task.actor_id).is_some());
    shortened(class.map_or(function, |(class, _)| class))
}

/// The job of a driver, whose worker id is the job id followed by `ff…`.
pub(super) fn job_of_driver(worker_id: &str) -> Option<&str> {
    worker_id.get(..8)
}

/// Derives the names from a driver's job, or from its id alone if the head does not list the job (yet).
pub(super) fn of_driver(job_id: &str, job: Option<&JobRow>) -> Found {
    let name = match job.map(|job| command(&job.entrypoint)) {
        Some(command) if !command.is_empty() => format!("driver: {command}"),
        _ => format!("driver of job {job_id}"),
    };
    let environment = job.and_then(|job| job.runtime_env.as_ref());
    let names = Names {
        name: Some(shortened(&name)),
        group: Some(DRIVER.to_owned()),
        job_id: known(job_id),
        submission_id: job.and_then(|job| known(&job.submission_id)),
        submitter: job.and_then(submitter_of),
        unpacked_working_dir: environment.is_some_and(RuntimeEnv::unpacks),
        // Ray assigns no resources to a driver.
        resources: Some(Resources::default()),
        ..Names::default()
    };
    Found::without_tasks(names, job.is_some())
}

/// Shortens `/opt/venv/bin/python3.11 /srv/jobs/train.py --lr 1` to `python3.11 train.py --lr 1`: the name is
/// truncated later, and folders must not displace what distinguishes programs.
fn command(entrypoint: &str) -> String {
    let entrypoint = one_line(entrypoint);
    let word = |word: &str| match word.starts_with('/') {
        true => word.rsplit('/').next().unwrap_or(word).to_owned(),
        false => word.to_owned(),
    };
    entrypoint
        .split_whitespace()
        .map(word)
        .collect::<Vec<_>>()
        .join(" ")
}

fn task_name(row: &TaskRow) -> Cow<'_, str> {
    let name = if row.name.is_empty() {
        &row.func_or_class_name
    } else {
        &row.name
    };
    match name.strip_prefix(REPLICA) {
        // `ServeReplica:app1:Echo.handle_request`: a replica has a task row in Ray 2.9.
        Some(replica) => {
            let deployment = replica
                .rsplit_once('.')
                .map_or(replica, |(deployment, _)| deployment);
            format!("Serve {deployment}").into()
        }
        None => Cow::Borrowed(name),
    }
}

/// Actor ids of tasks without an actor are null, empty, or all `f`.
fn known(id: &str) -> Option<String> {
    let nothing = id.is_empty() || id.bytes().all(|byte| byte == b'f');
    if nothing { None } else { Some(one_line(id)) }
}

fn shortened(name: &str) -> String {
    let name = one_line(name);
    match name.char_indices().nth(MAX_NAME_CHARS) {
        None => name,
        Some(_) => name.chars().take(MAX_NAME_CHARS - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests;
