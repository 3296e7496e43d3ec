//! What goes on record of requests: denied ones, and every change through the dashboard before it is made.
//!
//! Refused credentials are put on record by [`crate::session::authenticate`]. Not on record is whoever presents nothing at
//! all: anybody can do that as often as they like.

use hyper::http::request::Parts;
use hyper::{Method, StatusCode, Uri};
use serde_json::{Map, Value, json};
use tracing::warn;

use super::connection::Connection;
use super::query;
use super::refusal::HttpRefusal;
use super::route::Missing;
use crate::audit::{Action, Entry, Unavailable};
use crate::context::Context;
use crate::policy::Scope;
use crate::ray::registry::BreakpointId;
use crate::session::authenticate::{Authenticated, RequestDetails};
use crate::telemetry::request::RequestId;
use crate::wire::text::one_line;

/// What a query says about what is meant. The rest of it stays out of the record: it is Ray's and may hold anything.
const MEANT: [&str; 14] = [
    "actor_id",
    "force_kill",
    "no_restart",
    "task_id",
    "attempt_number",
    "worker_id",
    "node_id",
    "ip",
    "pid",
    "job_id",
    "submission_id",
    "duration",
    "native",
    "format",
];

/// What the record says of a request.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    id: RequestId,
    method: Method,
    uri: Uri,
}

impl Asked {
    /// What `parts` ask for, as the client sent them, in the request `id`.
    pub(crate) fn of(parts: &Parts, id: RequestId) -> Self {
        Self {
            id,
            method: parts.method.clone(),
            uri: parts.uri.clone(),
        }
    }

    pub(crate) fn entry(&self, action: Action, connection: &Connection, outcome: &str) -> Entry {
        let mut entry = Entry::new(action);
        entry.details = self.details();
        entry.peer = Some(connection.peer);
        entry.request = Some(self.id);
        entry.with("outcome", outcome)
    }
}

impl RequestDetails for Asked {
    fn id(&self) -> RequestId {
        self.id
    }

    /// Protocol, method, path, and what the query means.
    fn details(&self) -> Map<String, Value> {
        let mut details = Map::new();
        details.insert("protocol".to_owned(), "http".into());
        details.insert("method".to_owned(), one_line(self.method.as_str()).into());
        details.insert("path".to_owned(), one_line(self.uri.path()).into());
        details.extend(meant(self.uri.query()));
        details
    }
}

/// The members of the query that go on record; where one is given several times all of them, since it is the head's to
/// choose.
fn meant(query: Option<&str>) -> Map<String, Value> {
    let mut meant: Map<String, Value> = Map::new();
    for part in query.unwrap_or_default().split('&') {
        // What cannot be read as the relay reads queries may mean something to the head.
        let pair = query::pairs(Some(part)).unwrap_or_else(|_| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            vec![(name.to_owned(), value.to_owned())]
        });
        for (name, value) in pair {
            if !MEANT.contains(&name.as_str()) {
                continue;
            }
            match meant.get_mut(&name) {
                Some(Value::Array(all)) => all.push(value.into()),
                Some(first) => *first = json!([first.take(), value]),
                None => _ = meant.insert(name, value.into()),
            }
        }
    }
    meant
}

/// Refuses for want of a permission, with a record of it.
pub(crate) async fn deny(
    ctx: &Context,
    connection: &Connection,
    caller: &Authenticated,
    asked: &Asked,
    (scope, place): Missing,
) -> HttpRefusal {
    let mut entry = asked
        .entry(Action::Decision, connection, "denied")
        .with("scope", scope)
        .with("place", place.as_str());
    entry.principal = Some(caller.principal.clone());
    if let Err(unavailable) = on_record(ctx, entry).await {
        warn!(%unavailable, "a denied request is not on record");
    }
    HttpRefusal::Denied {
        subject: caller.principal.subject().to_owned(),
        scope,
        place,
    }
}

/// The same on the breakpoint `id`, or where there is none, as what was asked for is no id.
pub(super) async fn deny_on(
    ctx: &Context,
    connection: &Connection,
    caller: &Authenticated,
    asked: &Asked,
    scope: Scope,
    id: Option<BreakpointId>,
) -> HttpRefusal {
    let place = match id {
        Some(id) => format!("on breakpoint {id}"),
        None => "on a breakpoint that is none".to_owned(),
    };
    deny(ctx, connection, caller, asked, (scope.word(), place)).await
}

/// Puts on record what is about to be done; `details` says what else is known of it.
pub(crate) async fn record(
    ctx: &Context,
    connection: &Connection,
    caller: &Authenticated,
    asked: &Asked,
    (scope, place): Missing,
    details: Map<String, Value>,
) -> Result<(), HttpRefusal> {
    let mut entry = asked
        .entry(Action::Decision, connection, "allowed")
        .with("scope", scope)
        .with("place", place);
    entry.details.extend(details);
    entry.principal = Some(caller.principal.clone());
    Ok(on_record(ctx, entry).await?)
}

/// Puts on record what came of what was done. Where the client is gone before the head has answered there is no such line.
pub(crate) async fn answered(
    ctx: &Context,
    connection: &Connection,
    caller: &Authenticated,
    asked: &Asked,
    status: StatusCode,
    submission_id: Option<String>,
) {
    let mut entry = asked
        .entry(Action::Decision, connection, "answered")
        .with("status", status.as_u16());
    if let Some(id) = submission_id {
        entry = entry.with("submission_id", id);
    }
    entry.principal = Some(caller.principal.clone());
    if let Err(unavailable) = on_record(ctx, entry).await {
        warn!(%unavailable, "the answer to a change is not on record");
    }
}

/// Puts on record that the relay is told to revoke: `jti` or `sub`, and which.
pub(crate) async fn administers(
    ctx: &Context,
    connection: &Connection,
    caller: &Authenticated,
    asked: &Asked,
    (kind, name): (&str, &str),
) -> Result<(), HttpRefusal> {
    let mut entry = asked
        .entry(Action::Administration, connection, "allowed")
        .with("command", "revoke")
        .with(kind, name);
    entry.principal = Some(caller.principal.clone());
    Ok(on_record(ctx, entry).await?)
}

/// Writes `entry` to the audit log.
pub(crate) async fn on_record(ctx: &Context, entry: Entry) -> Result<(), Unavailable> {
    ctx.audit.write(entry).await
}
