//! One request, as its handler knows it: its connection, its origin, and its audit details.

use std::net::SocketAddr;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Method, Uri};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Span;

use super::guard::RequestOrigin;
use super::in_progress::InProgress;
use super::query;
use ray_relay_access::audit::{Entry, EntryKind};
use ray_relay_access::connection::ConnectionInfo;
use ray_relay_access::identity::Principal;
use ray_relay_access::telemetry::request::RequestId;
use ray_relay_base::wire::text::one_line;
use ray_relay_session::context::Context;
use ray_relay_session::session::authenticate::RequestDetails;

/// Query keys that are audited. The rest of a query is Ray's and may contain anything, so it is left out.
const AUDITED_KEYS: [&str; 14] = [
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

/// The connection of a request, as handlers know it.
pub(super) struct Connection {
    /// The client's address.
    pub peer: SocketAddr,
    /// How the connection reached the relay.
    pub info: ConnectionInfo,
    /// Owns tasks that outlive a request: upgraded connections.
    pub tasks: TaskTracker,
    /// Cancelled when the relay drains, and when the connection is given up.
    pub closing: CancellationToken,
    /// The span of every request, if authentication is off.
    pub(super) span: Option<Span>,
}

/// One request that has passed the guard.
pub(super) struct Exchange<'a> {
    pub ctx: &'a Arc<Context>,
    pub connection: &'a Connection,
    pub arrived: &'a RequestOrigin,
    pub request: RecordedRequest,
    /// The request's memory reservation.
    pub(super) in_progress: InProgress,
    /// Path segments at the placeholders of the route, in order.
    pub words: [Option<&'a str>; 2],
}

impl Exchange<'_> {
    /// Creates an audit entry about a request of `principal`.
    pub(super) fn entry(&self, action: EntryKind, principal: &Principal, outcome: &str) -> Entry {
        let mut entry = Entry::new(action);
        entry.details = self.request.details();
        entry.peer = Some(self.connection.peer);
        entry.request = Some(self.request.id);
        entry.principal = Some(principal.clone());
        entry.with("outcome", outcome)
    }
}

/// A POST of an authorized principal. Its body is unread.
pub(super) struct Post<'a> {
    pub exchange: &'a Exchange<'a>,
    pub principal: &'a Principal,
    pub parts: &'a Parts,
    pub body: Incoming,
}

/// Audit details of a request.
#[derive(Debug, Clone)]
pub(super) struct RecordedRequest {
    id: RequestId,
    method: Method,
    uri: Uri,
}

impl RecordedRequest {
    /// Copies the details from `parts` of the request `id`, as the client sent them.
    pub(super) fn of(parts: &Parts, id: RequestId) -> Self {
        Self {
            id,
            method: parts.method.clone(),
            uri: parts.uri.clone(),
        }
    }
}

impl RequestDetails for RecordedRequest {
    fn id(&self) -> RequestId {
        self.id
    }

    /// Protocol, method, path, and the audited keys of the query.
    fn details(&self) -> Map<String, Value> {
        let mut details = Map::new();
        details.insert("protocol".to_owned(), "http".into());
        details.insert("method".to_owned(), one_line(self.method.as_str()).into());
        details.insert("path".to_owned(), one_line(self.uri.path()).into());
        details.extend(audited_query(self.uri.query()));
        details
    }
}

/// Returns the audited keys of the query. Of a repeated key it keeps all values, because the head decides which one
/// counts.
fn audited_query(query: Option<&str>) -> Map<String, Value> {
    let mut pairs: Map<String, Value> = Map::new();
    for part in query.unwrap_or_default().split('&') {
        // A pair that the relay cannot decode may still mean something to the head.
        let pair = query::pairs(Some(part)).unwrap_or_else(|_| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            vec![(name.to_owned(), value.to_owned())]
        });
        for (name, value) in pair {
            if !AUDITED_KEYS.contains(&name.as_str()) {
                continue;
            }
            match pairs.get_mut(&name) {
                Some(Value::Array(all)) => all.push(value.into()),
                Some(first) => *first = json!([first.take(), value]),
                None => _ = pairs.insert(name, value.into()),
            }
        }
    }
    pairs
}
