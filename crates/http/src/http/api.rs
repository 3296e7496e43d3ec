//! The relay's read-only API: breakpoints, sessions, health and metrics.
//!
//! Pure functions of a snapshot, called by [`super::routes`]. A node's address is shown for information; the debugger's
//! port never is.

mod list;
mod page;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hyper::{Response, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};

pub use self::list::breakpoints;
use super::answer::{self, Body};
use super::query;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::{RelayScope, Scope};
use ray_relay_base::memory::MemoryUse;
use ray_relay_base::wire::tunnel::messages::Replica;
use ray_relay_ray::ray::registry::Snapshot;
use ray_relay_session::agents::SessionElsewhere;
use ray_relay_session::context::Context;
use ray_relay_session::session::{SessionRow, newer};
use ray_relay_view::listing::json::seconds;

/// A session of this relay.
#[derive(Debug, Serialize)]
struct OwnSession<'a> {
    #[serde(flatten)]
    row: &'a SessionRow,
    /// The relay with this session: several relays may number their sessions alike.
    replica: Replica,
}

/// `GET /relay/v1/sessions`: the principal's own sessions, and those it administers according to the breakpoints in
/// `snapshot`. They are from this relay, and from relays linked to the same agents.
pub fn sessions(
    rows: &[SessionRow],
    replica: Replica,
    elsewhere: &[SessionElsewhere],
    principal: &Principal,
    snapshot: &Snapshot,
) -> Response<Body> {
    let access = principal.access();
    let held: HashMap<_, _> = match access.may_anywhere(Scope::PlaceAdmin) {
        true => snapshot.held().map(|known| (known.id, known)).collect(),
        false => HashMap::new(),
    };
    let may = |row: &&SessionRow| {
        let known = |own| newer(own, held.get(&own.id).copied());
        row.subject.as_deref() == Some(principal.subject())
            || access.administers(row.held.as_ref().map(|own| &**known(own)))
    };
    let here = rows.iter().filter(may);
    let here = here.map(|row| json!(OwnSession { row, replica }));
    let rows: Vec<Value> = here.chain(elsewhere.iter().map(|row| json!(row))).collect();
    let body = json!({ "replica": replica, "sessions": rows });
    answer::json(StatusCode::OK, &body)
}

/// `GET /relay/healthz`: the process runs.
pub fn healthz() -> Response<Body> {
    answer::json(StatusCode::OK, &json!({ "status": "ok" }))
}

/// A list older than this is stale: ten polls at the default interval.
const STALE_AFTER: Duration = Duration::from_secs(10);

/// `GET /relay/readyz`: whether this process serves. Heads that are down do not make it unready, since this relay is
/// the one that reports them. `audit` is the reason why the audit log cannot be written, for the operator.
///
/// With `?cluster=NAME` it tells whether that cluster's list is fresh. The `principal` must have permission to list
/// something there.
pub fn readyz(
    snapshot: &Snapshot,
    poll_interval: Duration,
    query: Option<&str>,
    principal: Option<&Principal>,
    draining: bool,
    audit: Option<&str>,
) -> Response<Body> {
    let not_ready = |reason: String| {
        let body = json!({ "error": reason, "reasons": [reason] });
        answer::json(StatusCode::SERVICE_UNAVAILABLE, &body)
    };
    let parameters = match query::pairs(query) {
        Ok(pairs) => pairs,
        Err(sentence) => return answer::error(StatusCode::BAD_REQUEST, sentence),
    };
    let name = match parameters.as_slice() {
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
        let may_know = principal.is_some_and(|p| p.access().may_on_relay(RelayScope::Admin));
        if let Some(search) = &snapshot.search {
            // Narrowed discovery does not make the relay unready: it still serves what it finds.
            body["discovery"] = match &search.narrowed {
                Some(why) if may_know => format!("{}: {why}", search.scope).into(),
                _ if may_know => Value::from(&*search.scope),
                _ => Value::from(&*search.brief),
            };
        }
        if let Some(why) = audit {
            // The reason names files of this machine.
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
        // A cluster that is hidden from the principal is answered like an unknown one.
        let sentence = "there is no cluster of that name here; /relay/v1/breakpoints lists those that you may see";
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
    if age > STALE_AFTER.max(2 * poll_interval) {
        let age = age.as_secs_f64();
        return not_ready(format!(
            "cluster {name} last answered {age:.1} s ago{because}"
        ));
    }
    let body = json!({ "status": "ok", "snapshot_age_seconds": seconds(age) });
    answer::json(StatusCode::OK, &body)
}

/// `GET /relay/metrics`, in the Prometheus text format.
pub fn metrics(ctx: &Context, snapshot: &Snapshot) -> Response<Body> {
    for kind in MemoryUse::ALL {
        ctx.metrics.set_memory_bytes(kind, ctx.memory.used(kind));
    }
    let text = ctx.metrics.render(snapshot);
    answer::own(
        StatusCode::OK,
        "text/plain; version=0.0.4; charset=utf-8",
        answer::full(text),
    )
}

#[cfg(test)]
#[path = "api/tests.rs"]
mod tests;
