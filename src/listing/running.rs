//! Running tasks as JSON: the rows of `/relay/v1/tasks` and of looks at them.
//!
//! A row has the keys of a breakpoint's row for what both have, so that the same filters and orders read both. One of a task
//! that has failed has more.

use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::json::seconds;
use crate::policy::Pattern;
use crate::ray::registry::{BreakpointId, Location, Resources, Running};

/// Whether `running` is what somebody calls so: by its name, its function or class, its actor's name, or its task's id.
pub(crate) fn is_called(running: &Running, pattern: &Pattern) -> bool {
    let names = &running.names;
    let names = [&names.actor_name, &names.task_id].into_iter().flatten();
    names
        .map(String::as_str)
        .chain([running.name(), &running.group])
        .any(|name| pattern.matches(name))
}

/// The states of rows.
pub(crate) const RUNNING: &str = "running";
const FAILED: &str = "failed";

/// One running task as clients see it.
#[derive(Debug, Serialize)]
pub(crate) struct RunningRow<'a> {
    cluster: &'a str,
    what: &'static str,
    state: &'static str,
    name: &'a str,
    group: &'a str,
    rank: Option<u32>,
    job_id: Option<&'a str>,
    submission_id: Option<&'a str>,
    task_id: Option<&'a str>,
    actor_id: Option<&'a str>,
    actor_name: Option<&'a str>,
    node_id: &'a str,
    node_ip: Option<IpAddr>,
    worker_id: &'a str,
    pid: Option<u32>,
    resources: Option<&'a Resources>,
    started: Option<f64>,
    /// As what waits has it: filters and orders know it by this name.
    #[serde(rename = "running_seconds")]
    running: Option<f64>,
    /// Where its worker waits at one.
    breakpoint: Option<BreakpointId>,
}

impl<'a> RunningRow<'a> {
    /// `running` at `now`; `breakpoint`: where its worker waits, for whoever may know of it.
    pub(crate) fn new(
        running: &'a Running,
        now: SystemTime,
        breakpoint: Option<BreakpointId>,
    ) -> Self {
        let names = &running.names;
        let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            cluster: &running.cluster,
            what: running.what.word(),
            state: RUNNING,
            name: running.name(),
            group: &running.group,
            rank: names.rank,
            job_id: names.job_id.as_deref(),
            submission_id: names.submission_id.as_deref(),
            task_id: names.task_id.as_deref(),
            actor_id: names.actor_id.as_deref(),
            actor_name: names.actor_name.as_deref(),
            node_id: &running.node_id,
            node_ip: running.node_ip,
            worker_id: &running.worker_id,
            pid: running.pid,
            resources: names.resources.as_ref(),
            started: running.started.map(|time| seconds(since(time))),
            running: running.running_for(now).map(seconds),
            breakpoint,
        }
    }
}

/// A task that has failed as clients see it.
#[derive(Debug, Serialize)]
pub(crate) struct FailedRow<'a> {
    id: &'a str,
    #[serde(flatten)]
    task: RunningRow<'a>,
    /// The type of what was raised, and where.
    exception: &'a str,
    location: Option<&'a Location>,
    failed: f64,
    /// How long ago that was.
    failed_seconds: f64,
}

impl<'a> FailedRow<'a> {
    /// `task`, of which `id` names what is kept, at `now`; it has failed `at`.
    pub(crate) fn new(
        id: &'a str,
        task: &'a Running,
        (at, now): (SystemTime, SystemTime),
        (exception, location): (&'a str, Option<&'a Location>),
    ) -> Self {
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
