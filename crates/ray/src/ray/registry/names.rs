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
    names.submitter = submitter(job);
}

/// Classes of Ray Train's actors: its ranks, and what manages them.
const TRAIN_CLASSES: [&str; 2] = ["RayTrainWorker", "TrainController"];

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
fn submitter(job: &JobRow) -> Option<String> {
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
        submitter: job.and_then(submitter),
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
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn task(name: &str, environment: &str) -> TaskRow {
        serde_json::from_value(serde_json::json!({
            "task_id": "t1", "name": name, "state": "RUNNING", "job_id": "01000000", "actor_id": null,
            "worker_id": "w", "runtime_env_info": {"serialized_runtime_env": environment},
        }))
        .unwrap()
    }

    fn actor(class_name: &str, name: &str, repr_name: &str) -> ActorRow {
        serde_json::from_value(serde_json::json!({
            "actor_id": "a1", "class_name": class_name, "name": name, "repr_name": repr_name,
            "job_id": "01000000", "ray_namespace": "train", "state": "ALIVE", "pid": 7,
        }))
        .unwrap()
    }

    fn name_of(tasks: &[&str]) -> String {
        let rows: Vec<_> = tasks.iter().map(|name| task(name, "{}")).collect();
        of_tasks(&rows).unwrap().names.name.unwrap()
    }

    #[test]
    fn concurrent_tasks_are_joined_once_each() {
        assert_eq!(name_of(&["Pool.a", "Pool.a"]), "Pool.a");
        assert_eq!(name_of(&["Pool.a", "Pool.b", "Pool.a"]), "Pool.a, Pool.b");
        assert_eq!(name_of(&["a", "b", "c", "d"]), "a, b, c, …");
    }

    #[test]
    fn names_are_cut_and_cleaned() {
        let name = name_of(&[&"x".repeat(500)]);
        assert_eq!(
            (name.chars().count(), name.ends_with('…')),
            (MAX_NAME_CHARS, true)
        );
        assert_eq!(name_of(&["a\u{1b}[31m\nb"]), "a [31m b");
    }

    #[test]
    fn working_dirs_are_unpacked_when_they_are_uris() {
        let unpacked = |environment| {
            of_tasks(&[task("f", environment)])
                .unwrap()
                .names
                .unpacked_working_dir
        };
        assert!(unpacked(r#"{"working_dir": "gcs://_ray_pkg_1f2e.zip"}"#));
        assert!(unpacked(r#"{"working_dir": "https://host/code.zip"}"#));
        assert!(!unpacked(r#"{"working_dir": "/srv/code"}"#));
        assert!(!unpacked(r#"{"env_vars": {}}"#) && !unpacked("not json") && !unpacked(""));
    }

    #[test]
    fn collective_timeout_is_read_from_the_environment() {
        let timeout_of = |environment| of_task(&task("f", environment)).collective_timeout;
        let minutes = |minutes: u64| Some(std::time::Duration::from_secs(60 * minutes));
        let environment = r#"{"env_vars": {"A": "b", "RAY_RELAY_COLLECTIVE_TIMEOUT": "10m"}}"#;
        assert_eq!(timeout_of(environment), minutes(10));
        for invalid in [
            r#"{"env_vars": {"RAY_RELAY_COLLECTIVE_TIMEOUT": "soon"}}"#,
            r#"{"env_vars": {"RAY_RELAY_COLLECTIVE_TIMEOUT": "0s"}}"#,
            r#"{"env_vars": {"RAY_RELAY_COLLECTIVE_TIMEOUT": "9999d"}}"#,
            r#"{"env_vars": {"RAY_RELAY_COLLECTIVE_TIMEOUT": ["10m"]}}"#,
            r#"{"env_vars": ["RAY_RELAY_COLLECTIVE_TIMEOUT"]}"#,
            "{}",
        ] {
            assert_eq!(timeout_of(invalid), None, "{invalid}");
        }
        // An actor's value applies to a method without one.
        let mut actor = actor("Trainer", "", "");
        actor.serialized_runtime_env = environment.to_owned();
        assert_eq!(of_actor(&actor).names.collective_timeout, minutes(10));
    }

    #[test]
    fn ranks_come_from_the_runtime_environment() {
        let ranks_of = |environment: &str| {
            let names = of_tasks(&[task("step_rank_9", environment)]).unwrap().names;
            (names.rank, names.local_rank, names.world_size)
        };
        let all =
            r#"{"env_vars": {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "TOKEN": "x"}}"#;
        assert_eq!(ranks_of(all), (Some(3), Some(1), Some(8)));
        // Ranks outside the world size and values that are no numbers are ignored.
        let invalid = r#"{"env_vars": {"RANK": "8", "LOCAL_RANK": "x", "WORLD_SIZE": "8"}}"#;
        assert_eq!(ranks_of(invalid), (Some(9), None, Some(8)));
        for other in ["{}", r#"{"env_vars": []}"#, r#"{"env_vars": {"RANK": 3}}"#] {
            assert_eq!(ranks_of(other), (Some(9), None, None), "{other}");
        }
        // An actor's environment overrides its name.
        let mut names = Names::default();
        let mut ranked_actor = actor("Trainer", "worker-7", "");
        ranked_actor.serialized_runtime_env = all.to_owned();
        add_actor(&mut names, &ranked_actor);
        assert_eq!((names.rank, names.world_size), (Some(3), Some(8)));
    }

    #[test]
    fn certain_rank_stays_with_its_actor_and_beats_a_name() {
        let names_with = |actor: &str, rank, certain| Names {
            actor_id: Some(actor.to_owned()),
            rank: Some(rank),
            rank_is_certain: certain,
            ..Names::default()
        };
        let before = names_with("a", 5, true);
        for (mut next, rank) in [
            (names_with("a", 7, false), 5),
            (names_with("a", 7, true), 7),
            (names_with("b", 7, false), 7),
        ] {
            next.keep_rank(&before);
            assert_eq!(next.rank, Some(rank));
        }
        let mut names = before;
        add_actor(&mut names, &actor("Trainer", "worker-7", ""));
        assert_eq!((names.rank, names.rank_is_certain), (Some(5), true));
    }

    #[test]
    fn an_actor_adds_its_given_name_and_rank() {
        let mut names = of_tasks(&[task("Trainer.step", "{}")]).unwrap().names;
        add_actor(&mut names, &actor("Trainer", "worker-7", ""));
        assert_eq!(
            (names.actor_name.as_deref(), names.rank),
            (Some("worker-7"), Some(7))
        );
        assert_eq!(names.namespace.as_deref(), Some("train"));
        add_actor(&mut names, &actor("Trainer", "", "Trainer(rank=2)"));
        assert_eq!((names.actor_name, names.rank), (None, Some(2)));
    }

    #[test]
    fn a_serve_replica_is_named_by_its_deployment() {
        let found = of_actor(&actor(
            "ServeReplica:app1:Echo",
            "SERVE_REPLICA::app1#Echo#oqmuf2kx",
            "",
        ));
        assert_eq!(found.names.name.as_deref(), Some("Serve app1:Echo"));
        assert_eq!(
            (found.names.actor_name, found.certainty),
            (None, Certainty::Settled)
        );
        assert_eq!(
            of_actor(&actor("Counter", "", "")).certainty,
            Certainty::Provisional
        );
    }

    #[test]
    fn serve_replica_with_a_task_has_the_same_name() {
        let mut names = of_tasks(&[task("ServeReplica:app1:Echo.handle_request", "{}")])
            .unwrap()
            .names;
        add_actor(
            &mut names,
            &actor(
                "ServeReplica:app1:Echo",
                "SERVE_REPLICA::app1#Echo#DjCmR-3",
                "",
            ),
        );
        assert_eq!(names.name.as_deref(), Some("Serve app1:Echo"));
        assert_eq!(
            (names.actor_name, names.namespace, names.rank),
            (None, None, None)
        );
    }

    #[test]
    fn a_driver_without_its_job_is_named_by_the_job_id() {
        let found = of_driver("05000000", None);
        assert_eq!(found.names.name.as_deref(), Some("driver of job 05000000"));
        assert_eq!(found.certainty, Certainty::Provisional);
    }
}
