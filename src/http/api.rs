//! The relay's own read-only API: breakpoints, sessions, health and metrics.
//!
//! Pure functions of a snapshot, called by [`super::connection`]. A node's address is shown for
//! reading; the debugger's port never is.

mod page;

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::{Response, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};

use self::page::{Page, Wanted};
use super::answer::{self, Body};
use super::query;
use crate::identity::Principal;
use crate::moment::Moment;
use crate::policy::{Scope, within};
use crate::registry::{Breakpoint, BreakpointId, Holder, Kind, Location, Reason, Snapshot, State};
use crate::session::SessionRow;
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

/// All that lives in `snapshot` as JSON. What somebody may not see has been taken out before
/// ([`crate::policy::visible`], [`crate::policy::within`]).
pub(crate) fn list(snapshot: &Snapshot) -> Value {
    let rows: Vec<&Breakpoint> = snapshot.live.iter().map(|b| &**b).collect();
    let page = Page {
        total: rows.len(),
        rows,
        next: None,
    };
    told(&page, snapshot)
}

/// `page` of `snapshot` as JSON.
fn told(page: &Page<'_>, snapshot: &Snapshot) -> Value {
    let (now, instant) = (Moment::now(), Instant::now());
    let rows: Vec<Row<'_>> = page.rows.iter().map(|b| Row::new(b, now)).collect();
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
        "total": page.total,
        "next": page.next,
        "snapshot_age_seconds": snapshot.age(instant).map(seconds),
        "clusters": clusters.collect::<Vec<_>>(),
    })
}

/// `GET /relay/v1/breakpoints`: the whole list, or what [`page`] makes of the query.
pub(crate) fn breakpoints(
    snapshot: &Arc<Snapshot>,
    query: Option<&str>,
    principal: &Principal,
) -> Response<Body> {
    let bad = |sentence: String| answer::error(StatusCode::BAD_REQUEST, sentence);
    let wanted = match query::pairs(query).and_then(|pairs| Wanted::read(&pairs)) {
        Ok(wanted) => wanted,
        Err(sentence) => return bad(sentence),
    };
    let listed = within(principal, Scope::List, snapshot);
    match wanted.of(&listed) {
        Ok(page) => answer::json(StatusCode::OK, &told(&page, &listed)),
        Err(sentence) => bad(sentence),
    }
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

/// `GET /relay/readyz`: this process serves. Heads that are away are no reason to send people elsewhere: here is what
/// says so. `audit`: why the record cannot be written, which somebody has to mend. With `?cluster=NAME` whether that cluster's list is fresh, for somebody who may list something there; without
/// such a `principal` nothing is told of any.
pub(crate) fn readyz(
    snapshot: &Snapshot,
    stale_after: Duration,
    query: Option<&str>,
    principal: Option<&Principal>,
    draining: bool,
    audit: Option<&str>,
) -> Response<Body> {
    let not_ready = |reason: String| {
        let body = json!({ "error": reason, "reasons": [reason] });
        answer::json(StatusCode::SERVICE_UNAVAILABLE, &body)
    };
    let wanted = match query::pairs(query) {
        Ok(pairs) => pairs,
        Err(sentence) => return answer::error(StatusCode::BAD_REQUEST, sentence),
    };
    let name = match wanted.as_slice() {
        [] => None,
        [(key, name)] if key == "cluster" && !name.is_empty() => Some(name),
        _ => {
            let sentence = "the only parameter of /relay/readyz is cluster=NAME, which asks whether that cluster's list is fresh";
            return answer::error(StatusCode::BAD_REQUEST, sentence);
        }
    };
    if draining {
        return not_ready("the relay is being shut down".to_owned());
    }
    let Some(name) = name else {
        let mut body = json!({ "status": "ok" });
        if let Some(why) = audit {
            // What it says names files of this machine.
            let may_know = principal.is_some_and(|p| p.access().may_anywhere(Scope::Admin));
            let why = if may_know {
                why
            } else {
                "it cannot be written"
            };
            body["audit"] = why.into();
        }
        return answer::json(StatusCode::OK, &body);
    };
    let known = snapshot.clusters.iter().find(|cluster| {
        let may_know = |p: &Principal| p.access().may_somewhere_on(Scope::List, &cluster.name);
        *cluster.name == **name && principal.is_some_and(may_know)
    });
    let Some(cluster) = known else {
        // What one may not know of is told as what does not exist.
        let sentence = "there is no cluster of that name here; /relay/v1/breakpoints names those that there are for you";
        return answer::error(StatusCode::NOT_FOUND, sentence);
    };
    let because = match &cluster.trouble {
        Some(trouble) => format!(": {trouble}"),
        None => String::new(),
    };
    let Some(polled) = cluster.polled else {
        return not_ready(format!("cluster {name} has not answered yet{because}"));
    };
    let age = Instant::now().saturating_duration_since(polled);
    if age > stale_after {
        let age = age.as_secs_f64();
        return not_ready(format!(
            "cluster {name} last answered {age:.1} s ago{because}"
        ));
    }
    let body = json!({ "status": "ok", "snapshot_age_seconds": seconds(age) });
    answer::json(StatusCode::OK, &body)
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
