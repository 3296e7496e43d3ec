//! Audit of requests: denials, commands, and every change through the dashboard before it is made.
//!
//! [`ray_relay_session::session::authenticate`] records refused credentials. A request without any credential is not
//! recorded, because a client can repeat it without limit.

use hyper::StatusCode;
use serde_json::{Map, Value};
use tracing::warn;

use super::exchange::Exchange;
use super::refusal::HttpRefusal;
use super::route::RequiredPermission;
use ray_relay_access::audit::{Entry, EntryKind, Unavailable};
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_ray::ray::registry::BreakpointId;
use ray_relay_session::context::Context;

/// Denies a request that lacks the permission `missing`, and records that.
pub(super) async fn deny(
    exchange: &Exchange<'_>,
    principal: &Principal,
    missing: RequiredPermission,
) -> HttpRefusal {
    let RequiredPermission { scope, place } = missing;
    let entry = exchange
        .entry(EntryKind::Decision, principal, "denied")
        .with("scope", scope.word())
        .with("place", place.as_str());
    if let Err(unavailable) = write_entry(exchange.ctx, entry).await {
        warn!(%unavailable, "a denied request is not on record");
    }
    HttpRefusal::Denied {
        subject: principal.subject().to_owned(),
        scope,
        place,
        remedy: principal.remedy(scope),
    }
}

/// The same for the breakpoint `id`, or for an unknown one if the request named no valid id.
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
    deny(exchange, principal, RequiredPermission { scope, place }).await
}

/// Records a change that is about to be made under `permission`, with further `details`.
pub(super) async fn record(
    exchange: &Exchange<'_>,
    principal: &Principal,
    permission: RequiredPermission,
    details: Map<String, Value>,
) -> Result<(), HttpRefusal> {
    let mut entry = exchange
        .entry(EntryKind::Decision, principal, "allowed")
        .with("scope", permission.scope.word())
        .with("place", permission.place);
    entry.details.extend(details);
    Ok(write_entry(exchange.ctx, entry).await?)
}

/// Records the head's answer to a change. There is no such entry if the client disconnects before the head answers.
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
    if let Err(unavailable) = write_entry(exchange.ctx, entry).await {
        warn!(%unavailable, "the answer to a change is not on record");
    }
}

/// Creates the entry for `command`. It must be recorded before the command is executed.
pub(super) fn command(exchange: &Exchange<'_>, principal: &Principal, command: &str) -> Entry {
    let entry = exchange.entry(EntryKind::Administration, principal, "allowed");
    entry.with("command", command)
}

/// Writes `entry` to the audit log.
pub(super) async fn write_entry(ctx: &Context, entry: Entry) -> Result<(), Unavailable> {
    ctx.audit.write(entry).await
}
