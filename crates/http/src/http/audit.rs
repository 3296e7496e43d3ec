//! What goes on record of requests: denied ones, commands, and every change through the dashboard before it is made.
//!
//! Refused credentials are put on record by [`ray_relay_session::session::authenticate`]. Not on record is a client that presents nothing at
//! all: any client can do that as often as it likes.

use hyper::StatusCode;
use serde_json::{Map, Value};
use tracing::warn;

use super::exchange::Exchange;
use super::refusal::HttpRefusal;
use super::route::Missing;
use ray_relay_access::audit::{Entry, EntryKind, Unavailable};
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_ray::ray::registry::BreakpointId;
use ray_relay_session::context::Context;

/// Refuses for want of a permission, with a record of it.
pub(super) async fn deny(
    exchange: &Exchange<'_>,
    principal: &Principal,
    (scope, place): Missing,
) -> HttpRefusal {
    let entry = exchange
        .entry(EntryKind::Decision, principal, "denied")
        .with("scope", scope.word())
        .with("place", place.as_str());
    if let Err(unavailable) = on_record(exchange.ctx, entry).await {
        warn!(%unavailable, "a denied request is not on record");
    }
    HttpRefusal::Denied {
        subject: principal.subject().to_owned(),
        scope,
        place,
        remedy: principal.remedy(scope),
    }
}

/// The same on the breakpoint `id`, or where there is none, as what was asked for is no id.
pub(super) async fn deny_on(
    exchange: &Exchange<'_>,
    principal: &Principal,
    scope: Scope,
    id: Option<BreakpointId>,
) -> HttpRefusal {
    let place = match id {
        Some(id) => format!("on breakpoint {id}"),
        None => "on an unknown breakpoint".to_owned(),
    };
    deny(exchange, principal, (scope, place)).await
}

/// Puts on record what is about to be done; `details` says what else is known of it.
pub(super) async fn record(
    exchange: &Exchange<'_>,
    principal: &Principal,
    (scope, place): Missing,
    details: Map<String, Value>,
) -> Result<(), HttpRefusal> {
    let mut entry = exchange
        .entry(EntryKind::Decision, principal, "allowed")
        .with("scope", scope.word())
        .with("place", place);
    entry.details.extend(details);
    Ok(on_record(exchange.ctx, entry).await?)
}

/// Puts on record what came of what was done. Where the client is gone before the head has answered there is no such line.
pub(super) async fn answered(
    exchange: &Exchange<'_>,
    principal: &Principal,
    status: StatusCode,
    submission_id: Option<String>,
) {
    let mut entry = exchange
        .entry(EntryKind::Decision, principal, "answered")
        .with("status", status.as_u16());
    if let Some(id) = submission_id {
        entry = entry.with("submission_id", id);
    }
    if let Err(unavailable) = on_record(exchange.ctx, entry).await {
        warn!(%unavailable, "the answer to a change is not on record");
    }
}

/// That the relay is told to do `command`, to be put on record before it is done.
pub(super) fn command(exchange: &Exchange<'_>, principal: &Principal, command: &str) -> Entry {
    let entry = exchange.entry(EntryKind::Administration, principal, "allowed");
    entry.with("command", command)
}

/// Writes `entry` to the audit log.
pub(super) async fn on_record(ctx: &Context, entry: Entry) -> Result<(), Unavailable> {
    ctx.audit.write(entry).await
}
