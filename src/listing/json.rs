//! Breakpoints as JSON: the rows of the list and of events, as `/relay/v1/breakpoints` documents them.
//!
//! A node's address is shown for reading; the debugger's port never is.

use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};

use crate::moment::Moment;
use crate::ray::registry::{
    Breakpoint, BreakpointId, Holder, Kind, Location, Reason, Snapshot, State,
};

/// One breakpoint as clients see it: in the list and in events.
#[derive(Debug, Serialize)]
pub(crate) struct JsonRow<'a> {
    id: BreakpointId,
    kind: Kind,
    state: &'static str,
    holder: Option<&'a Holder>,
    cluster: &'a str,
    node_id: &'a str,
    node_ip: std::net::IpAddr,
    worker_id: &'a str,
    pid: u32,
    job_id: Option<&'a str>,
    task_id: Option<&'a str>,
    name: String,
    title: String,
    actor_id: Option<&'a str>,
    actor_name: Option<&'a str>,
    rank: Option<u32>,
    reason: Reason,
    location: Option<&'a Location>,
    exception: Option<&'a str>,
    stop: u64,
    first_seen: Moment,
    waiting_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unreachable_since: Option<Moment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_ended: Option<Moment>,
}

impl<'a> JsonRow<'a> {
    /// `breakpoint` at `now`.
    pub(crate) fn new(breakpoint: &'a Breakpoint, now: Moment) -> Self {
        let names = &breakpoint.names;
        Self {
            id: breakpoint.id,
            kind: breakpoint.kind,
            state: breakpoint.state.word(),
            holder: breakpoint.holder(),
            cluster: &breakpoint.cluster,
            node_id: &breakpoint.node_id,
            node_ip: breakpoint.node_ip,
            worker_id: &breakpoint.worker_id,
            pid: breakpoint.pid,
            job_id: names.job_id.as_deref(),
            task_id: names.task_id.as_deref(),
            name: breakpoint.name(),
            title: breakpoint.title(),
            actor_id: names.actor_id.as_deref(),
            actor_name: names.actor_name.as_deref(),
            rank: names.rank,
            reason: breakpoint.reason,
            location: breakpoint.location.as_ref(),
            exception: breakpoint.exception.as_deref(),
            stop: breakpoint.stop,
            first_seen: breakpoint.first_seen,
            waiting_seconds: seconds(breakpoint.waiting(now)),
            why: match &breakpoint.state {
                State::Died { why, .. } => Some(why),
                State::Unreachable { .. } => breakpoint.unreachable(),
                State::Paused | State::Unlisted | State::Attached(_) | State::Released { .. } => {
                    None
                }
            },
            unreachable_since: match &breakpoint.state {
                State::Unreachable { since } => Some(*since),
                _ => None,
            },
            task_ended: breakpoint.task_ended,
        }
    }
}

/// `duration` in seconds, to the millisecond.
pub(crate) fn seconds(duration: Duration) -> f64 {
    duration.as_millis() as f64 / 1000.0
}

/// All that lives in `snapshot` as JSON. What somebody may not see has been taken out before.
pub(crate) fn list(snapshot: &Snapshot) -> Value {
    let rows: Vec<&Breakpoint> = snapshot.live.iter().map(|b| &**b).collect();
    let total = rows.len();
    page(&rows, total, None, snapshot)
}

/// These `rows` of `snapshot` as JSON, of `total` in all; `next` is what to ask for after them.
pub(crate) fn page(
    rows: &[&Breakpoint],
    total: usize,
    next: Option<&str>,
    snapshot: &Snapshot,
) -> Value {
    let (now, instant) = (Moment::now(), Instant::now());
    let rows: Vec<JsonRow<'_>> = rows.iter().map(|b| JsonRow::new(b, now)).collect();
    let clusters = snapshot.clusters.iter().map(|cluster| {
        let age = cluster
            .polled
            .map(|at| seconds(instant.saturating_duration_since(at)));
        json!({
            "name": *cluster.name,
            "ray_version": cluster.ray_version,
            "snapshot_age_seconds": age,
            "trouble": cluster.trouble.as_ref().or(cluster.incomplete.as_ref()),
            "complete": cluster.incomplete.is_none(),
        })
    });
    json!({
        "breakpoints": rows,
        "total": total,
        "next": next,
        "snapshot_age_seconds": snapshot.age(instant).map(seconds),
        "clusters": clusters.collect::<Vec<_>>(),
    })
}
