//! Running tasks as JSON: the rows of `/relay/v1/tasks` and of snapshots.
//!
//! Shared fields have the keys of a breakpoint's row, so that the same filters and orders apply. The row of a failed
//! task has more.

use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::json::seconds;
use ray_relay_access::policy::Pattern;
use ray_relay_ray::ray::registry::{
    BreakpointId, Crash, DeadActor, Location, LogTail, Resources, Running,
};

/// Whether a user may mean `running` by `pattern`: it matches its name, its function or class, its actor's name, or
/// its task's id.
pub fn is_called(running: &Running, pattern: &Pattern) -> bool {
    let names = &running.names;
    let names = [&names.actor_name, &names.task_id].into_iter().flatten();
    names
        .map(String::as_str)
        .chain([running.name(), &running.group])
        .any(|name| pattern.matches(name))
}

/// The states of rows.
pub const RUNNING: &str = "running";
const FAILED: &str = "failed";
const IDLE: &str = "idle";
const DEAD: &str = "dead";

/// One running task as clients see it.
#[derive(Debug, Serialize)]
pub struct RunningRow<'a> {
    /// The cluster's name.
    cluster: &'a str,
    /// `task`, `method`, `replica` or `driver`.
    what: &'static str,
    /// `running`, `failed` or `idle`.
    state: &'static str,
    /// The task, actor method, replica or driver.
    name: &'a str,
    /// The common name of a job's ranks: the function, or the class of the actor.
    group: &'a str,
    /// The rank in its group, where the runtime environment or a name says it.
    rank: Option<u32>,
    /// Its rank among those of its node, where the runtime environment says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    local_rank: Option<u32>,
    /// How many ranks its group has, where the runtime environment says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    world_size: Option<u32>,
    /// Ray's job id.
    job_id: Option<&'a str>,
    /// The submission id.
    submission_id: Option<&'a str>,
    /// Ray Train run name. Needs `RAY_TRAIN_ENABLE_STATE_TRACKING=1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    train_run: Option<&'a str>,
    /// Ray's task id.
    task_id: Option<&'a str>,
    /// Ray's actor id.
    actor_id: Option<&'a str>,
    /// The name that the program gave to the actor.
    actor_name: Option<&'a str>,
    /// Ray's id of the node.
    node_id: &'a str,
    /// The node's address.
    node_ip: Option<IpAddr>,
    /// Ray's id of the worker process.
    worker_id: &'a str,
    /// The process id on the node.
    pid: Option<u32>,
    /// The resources of its node that the task holds, such as `{"CPU": 1.0, "GPU": 1.0}`.
    resources: Option<&'a Resources>,
    /// When it began, in seconds since 1970.
    started: Option<f64>,
    /// For how long it runs, or ran until it failed.
    running_seconds: Option<f64>,
    /// The id of the breakpoint at which its worker waits.
    breakpoint: Option<BreakpointId>,
}

impl<'a> RunningRow<'a> {
    /// Builds the row of `running` at `now`. `breakpoint` is where its worker is paused, if the client may know that.
    pub fn new(running: &'a Running, now: SystemTime, breakpoint: Option<BreakpointId>) -> Self {
        let names = &running.names;
        let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            cluster: &running.cluster,
            what: running.what.word(),
            state: RUNNING,
            name: running.name(),
            group: &running.group,
            rank: names.rank,
            local_rank: names.local_rank,
            world_size: names.world_size,
            job_id: names.job_id.as_deref(),
            submission_id: names.submission_id.as_deref(),
            train_run: names.train_run.as_deref(),
            task_id: names.task_id.as_deref(),
            actor_id: names.actor_id.as_deref(),
            actor_name: names.actor_name.as_deref(),
            node_id: &running.node_id,
            node_ip: running.node_ip,
            worker_id: &running.worker_id,
            pid: running.pid,
            resources: names.resources.as_ref(),
            started: running.started.map(|time| seconds(since(time))),
            running_seconds: running.running_for(now).map(seconds),
            breakpoint,
        }
    }
}

/// An actor that runs no method, as clients see it.
#[derive(Debug, Serialize)]
pub struct IdleRow<'a> {
    #[serde(flatten)]
    actor: RunningRow<'a>,
    /// The last method that ran in it, if Ray still lists that.
    last_method: Option<String>,
    /// Ray's state of that method: `FINISHED`, `FAILED`.
    last_state: Option<String>,
}

impl<'a> IdleRow<'a> {
    /// Builds the row of `actor`, with the name and state of its last method.
    pub fn new(actor: &'a Running, last: Option<(String, String)>) -> Self {
        let (last_method, last_state) = last.unzip();
        let actor = RunningRow {
            state: IDLE,
            ..RunningRow::new(actor, UNIX_EPOCH, None)
        };
        Self {
            actor,
            last_method,
            last_state,
        }
    }
}

/// An actor that has died while others of its class run methods, as clients see it.
#[derive(Debug, Serialize)]
pub struct DeadRow<'a> {
    #[serde(flatten)]
    actor: RunningRow<'a>,
    /// The reason, as a sentence.
    died_of: &'a str,
    /// How long ago its process ended.
    died_seconds: f64,
    /// The fatal signal that ended it, with the stack.
    #[serde(skip_serializing_if = "Option::is_none")]
    crash: Option<&'a Crash>,
    /// The last lines of its error log, for those who may see text of the program.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    last_lines: &'a [String],
}

impl<'a> DeadRow<'a> {
    /// Builds the row of `dead` at `now`, with the end of its `log` as far as it may be seen.
    pub fn new(dead: &'a DeadActor, log: &'a LogTail, now: SystemTime) -> Self {
        let actor = RunningRow {
            state: DEAD,
            ..RunningRow::new(&dead.actor, UNIX_EPOCH, None)
        };
        Self {
            actor,
            died_of: &dead.why,
            died_seconds: seconds(now.duration_since(dead.at).unwrap_or_default()),
            crash: log.crash.as_ref(),
            last_lines: &log.lines,
        }
    }
}

/// The failure of a task.
#[derive(Debug, Clone, Copy)]
pub struct Failure<'a> {
    /// The id of the failure's black box.
    pub id: &'a str,
    /// The type of the exception.
    pub exception: &'a str,
    /// Where it was raised.
    pub location: Option<&'a Location>,
    /// When the task failed.
    pub at: SystemTime,
}

/// A failed task, as clients see it.
#[derive(Debug, Serialize)]
pub struct FailedRow<'a> {
    /// The id for `ray-relay snapshot`.
    id: &'a str,
    #[serde(flatten)]
    task: RunningRow<'a>,
    /// The type of the exception.
    exception: &'a str,
    /// Where it was raised.
    location: Option<&'a Location>,
    /// When, in seconds since 1970.
    failed: f64,
    /// How long ago that was.
    failed_seconds: f64,
}

impl<'a> FailedRow<'a> {
    /// Builds the row of `task` and its `failure` at `now`.
    pub fn new(task: &'a Running, failure: Failure<'a>, now: SystemTime) -> Self {
        let Failure {
            id,
            exception,
            location,
            at,
        } = failure;
        let task = RunningRow {
            state: FAILED,
            ..RunningRow::new(task, at, None)
        };
        Self {
            id,
            task,
            exception,
            location,
            failed: seconds(at.duration_since(UNIX_EPOCH).unwrap_or_default()),
            failed_seconds: seconds(now.duration_since(at).unwrap_or_default()),
        }
    }
}
