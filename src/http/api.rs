//! The relay's own read-only API: breakpoints, sessions, health and metrics.
//!
//! Pure functions of a snapshot, called by [`super::connection`]. A node's address is shown for
//! reading; the debugger's port never is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::{Response, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};

use super::SessionRow;
use super::answer::{self, Body};
use crate::identity::Principal;
use crate::moment::Moment;
use crate::policy::{Scope, within};
use crate::registry::{Breakpoint, BreakpointId, Holder, Kind, Location, Reason, Snapshot, State};
use crate::telemetry::Metrics;

/// One breakpoint as clients see it: in the list and in events.
#[derive(Debug, Serialize)]
pub(crate) struct Row<'a> {
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

impl<'a> Row<'a> {
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

/// Seconds with milliseconds.
fn seconds(duration: Duration) -> f64 {
    duration.as_millis() as f64 / 1000.0
}

/// All of `snapshot` as JSON, the ended ones behind the live ones where wanted. What somebody may not see has been taken
/// out before ([`crate::policy::visible`], [`crate::policy::within`]).
pub(crate) fn list(snapshot: &Snapshot, ended: bool) -> Value {
    let (now, instant) = (Moment::now(), Instant::now());
    let ended = snapshot.ended.iter().filter(|_| ended);
    let rows = snapshot.live.iter().chain(ended);
    let rows: Vec<Row<'_>> = rows.map(|breakpoint| Row::new(breakpoint, now)).collect();
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
        "snapshot_age_seconds": snapshot.age(instant).map(seconds),
        "clusters": clusters.collect::<Vec<_>>(),
    })
}

/// `GET /relay/v1/breakpoints`, `?ended=1` with those that ended a short while ago.
pub(crate) fn breakpoints(
    snapshot: &Arc<Snapshot>,
    query: Option<&str>,
    principal: &Principal,
) -> Response<Body> {
    let mut ended = false;
    for pair in query
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
    {
        ended = match pair {
            "ended=1" | "ended=true" => true,
            "ended=0" | "ended=false" => false,
            _ => {
                let sentence = "the only parameter of /relay/v1/breakpoints is ended=1, which includes those that ended a short while ago";
                return answer::error(StatusCode::BAD_REQUEST, sentence);
            }
        };
    }
    let listed = within(principal, Scope::List, snapshot);
    answer::json(StatusCode::OK, &list(&listed, ended))
}

/// `GET /relay/v1/sessions`: one's own, or everybody's with `admin`.
pub(crate) fn sessions(rows: &[SessionRow], principal: &Principal) -> Response<Body> {
    let all = principal.access().may_anywhere(Scope::Admin);
    let own = |row: &&SessionRow| all || row.subject.as_deref() == Some(principal.subject());
    let rows: Vec<&SessionRow> = rows.iter().filter(own).collect();
    answer::json(StatusCode::OK, &json!({ "sessions": rows }))
}

/// `GET /relay/healthz`: the process runs.
pub(crate) fn healthz() -> Response<Body> {
    answer::json(StatusCode::OK, &json!({ "status": "ok" }))
}

/// `GET /relay/readyz`: every cluster's list is there and not older than `stale_after`. Which one is not is for
/// somebody who may list something there.
pub(crate) fn readyz(
    snapshot: &Snapshot,
    stale_after: Duration,
    principal: Option<&Principal>,
) -> Response<Body> {
    let now = Instant::now();
    let may_know = |cluster: &str| {
        principal.is_some_and(|p| p.access().may_somewhere_on(Scope::List, cluster))
    };
    let mut reasons: Vec<String> = snapshot
        .clusters
        .iter()
        .filter_map(|cluster| {
            if !may_know(&cluster.name) {
                let polled = cluster.polled;
                let age = polled.map(|at| now.saturating_duration_since(at));
                let stale = age.is_none_or(|age| age > stale_after);
                return stale.then(|| "a cluster does not answer".to_owned());
            }
            let because = match &cluster.trouble {
                Some(trouble) => format!(": {trouble}"),
                None => String::new(),
            };
            let name = &cluster.name;
            let Some(polled) = cluster.polled else {
                return Some(format!("cluster {name} has not answered yet{because}"));
            };
            let age = now.saturating_duration_since(polled);
            (age > stale_after).then(|| {
                let age = age.as_secs_f64();
                format!("cluster {name} last answered {age:.1} s ago{because}")
            })
        })
        .collect();
    if snapshot.clusters.is_empty() {
        reasons.push("no cluster has been asked yet".to_owned());
    }
    reasons.dedup();
    if reasons.is_empty() {
        return answer::json(StatusCode::OK, &json!({ "status": "ok" }));
    }
    let body = json!({ "error": reasons.join("; "), "reasons": reasons });
    answer::json(StatusCode::SERVICE_UNAVAILABLE, &body)
}

/// `GET /relay/metrics`.
pub(crate) fn metrics(metrics: &Metrics, snapshot: &Snapshot) -> Response<Body> {
    let text = metrics.render(snapshot);
    answer::own(
        StatusCode::OK,
        "text/plain; version=0.0.4; charset=utf-8",
        answer::full(text),
    )
}

#[cfg(test)]
#[path = "api/tests.rs"]
mod tests;
