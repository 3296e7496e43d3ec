//! One request, as its handler knows it: the connection that it came on, where it has arrived, and what the record says of it.

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

/// What the handlers know of the connection that a request came on.
pub(super) struct Connection {
    /// The client's address.
    pub peer: SocketAddr,
    /// How it came in.
    pub info: ConnectionInfo,
    /// Owns what outlives a request: upgraded connections.
    pub tasks: TaskTracker,
    /// Fires when the relay drains, and when the connection is given up.
    pub closing: CancellationToken,
    /// The span of every request, where authentication is off.
    pub(super) span: Option<Span>,
}

/// One request that has passed the guard.
pub(super) struct Exchange<'a> {
    pub ctx: &'a Arc<Context>,
    pub connection: &'a Connection,
    pub arrived: &'a RequestOrigin,
    pub asked: RecordedRequest,
    /// What it may make the relay hold.
    pub(super) in_progress: InProgress,
    /// What its path has in place of the words in capitals of its route's, in their order.
    pub words: [Option<&'a str>; 2],
}

impl Exchange<'_> {
    /// A line of the record about what `principal` asks for.
    pub(super) fn entry(&self, action: EntryKind, principal: &Principal, outcome: &str) -> Entry {
        let mut entry = Entry::new(action);
        entry.details = self.asked.details();
        entry.peer = Some(self.connection.peer);
        entry.request = Some(self.asked.id);
        entry.principal = Some(principal.clone());
        entry.with("outcome", outcome)
    }
}

/// What a permitted principal posts. Of the body not a byte is read yet.
pub(super) struct Post<'a> {
    pub exchange: &'a Exchange<'a>,
    pub principal: &'a Principal,
    pub parts: &'a Parts,
    pub body: Incoming,
}

/// What the record says of a request.
#[derive(Debug, Clone)]
pub(super) struct RecordedRequest {
    id: RequestId,
    method: Method,
    uri: Uri,
}

impl RecordedRequest {
    /// What `parts` ask for, as the client sent them, in the request `id`.
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
