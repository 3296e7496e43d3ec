//! Facts about one connection, logged in one line at its end: the user, the client, the target, the outcome.
//!
//! Code that learns a fact records it here; nothing is decided by it. Bounded: texts are shortened, and of failed
//! HTTP requests only the last one is stored. No credential and no value of a variable is ever recorded.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::{debug, info};

use crate::identity::Principal;
use crate::telemetry::metrics::{Editor, Outcome, Protocol, Route};
use crate::telemetry::request::RequestId;
use crate::telemetry::traces::{Trace, Traces};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::text::shortened;
use ray_relay_ray::ray::registry::Breakpoint;

const MAX_REASON_CHARS: usize = 300;

/// Failed requests of one connection that have a log line each. Further failures appear only in the connection's own
/// line.
const MAX_LOGGED_FAILURES: u32 = 16;

/// The facts of one connection. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Summary(Arc<Noted>);

#[derive(Debug)]
struct Noted {
    id: RequestId,
    peer: SocketAddr,
    began: Timestamp,
    facts: Mutex<Facts>,
}

/// The facts known so far.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The protocol of its first bytes.
    pub protocol: Option<Protocol>,
    /// Whether it is inside TLS.
    pub encrypted: bool,
    /// When the protocol was recognized, after TLS was removed.
    pub recognised: Option<Timestamp>,
    /// The principal. On an HTTP connection, that of the last request.
    pub principal: Option<Principal>,
    /// When a principal was first known.
    pub authenticated: Option<Timestamp>,
    /// The client's own name.
    pub client: Option<String>,
    /// The same, classified for statistics.
    pub editor: Option<Editor>,
    /// The breakpoint of its last session.
    pub breakpoint: Option<Arc<Breakpoint>>,
    /// When the worker of its last session was reached.
    pub attached: Option<Timestamp>,
    /// The outcome of its last session.
    pub outcome: Option<Outcome>,
    /// The last reason of a failure that the client was told.
    pub reason: Option<String>,
    /// Bytes of its session, from the client and to it.
    pub bytes: (u64, u64),
    /// Number of HTTP requests, and of failed ones.
    pub requests: u32,
    pub failed: u32,
}

impl Summary {
    /// Creates the summary of a connection from `peer` that begins now.
    pub fn new(peer: SocketAddr) -> Self {
        Self(Arc::new(Noted {
            id: RequestId::random(),
            peer,
            began: Timestamp::now(),
            facts: Mutex::default(),
        }))
    }

    /// Returns the id of the connection.
    pub fn id(&self) -> RequestId {
        self.0.id
    }

    /// Returns the client's address.
    pub fn peer(&self) -> SocketAddr {
        self.0.peer
    }

    /// Returns when it began.
    pub fn began(&self) -> Timestamp {
        self.0.began
    }

    /// Returns the facts known now.
    pub fn facts(&self) -> Facts {
        self.0.facts.lock().clone()
    }

    /// Records facts with `learned`.
    pub fn note(&self, learned: impl FnOnce(&mut Facts)) {
        learned(&mut self.0.facts.lock());
    }

    /// Records its protocol.
    pub fn recognised(&self, protocol: Protocol, encrypted: bool) {
        self.note(|facts| {
            facts.protocol = Some(protocol);
            facts.encrypted = encrypted;
            facts.recognised.get_or_insert_with(Timestamp::now);
        });
    }

    /// Records its principal.
    pub fn authenticated(&self, principal: &Principal) {
        self.note(|facts| {
            facts.principal = Some(principal.clone());
            facts.authenticated.get_or_insert_with(Timestamp::now);
        });
    }

    /// Records `sentence` as the reason of a refusal, and adds the id by which it can be found in the log.
    pub fn refusal(&self, sentence: &str) -> String {
        self.note(|facts| facts.reason = Some(shortened(sentence, MAX_REASON_CHARS)));
        format!("{sentence} (request {})", self.id())
    }

    /// Returns the id of the next HTTP request.
    pub fn request(&self) -> RequestId {
        let mut facts = self.0.facts.lock();
        facts.requests = facts.requests.saturating_add(1);
        self.id().of_request(facts.requests)
    }

    /// Records that the request `id` was answered with `status`.
    pub fn answered(&self, id: RequestId, route: Route, status: u16) {
        // Probes fail all the time, harmlessly.
        if status < 400 || route == Route::Health {
            return;
        }
        let failed = {
            let facts = &mut *self.0.facts.lock();
            facts.failed = facts.failed.saturating_add(1);
            facts.reason = Some(format!("{status} of {}", route.label()));
            facts.failed
        };
        if failed <= MAX_LOGGED_FAILURES {
            info!(request = %id, route = route.label(), status, "request failed");
        }
    }

    /// Logs all facts, and offers them to `traces`, if there was a session or a failure. Otherwise logs at debug
    /// level only.
    pub fn log_end(&self, traces: Option<&Traces>) {
        let facts = self.facts();
        let aloud = facts.outcome.is_some() || facts.reason.is_some();
        let seconds = |until: Option<Timestamp>| Some(self.began().until(until?).as_secs_f64());
        macro_rules! log_line {
            ($level:ident) => {
                $level!(
                    request = %self.id(),
                    peer = %self.peer(),
                    protocol = facts.protocol.map(Protocol::label),
                    tls = facts.encrypted,
                    client = facts.client.as_deref(),
                    editor = facts.editor.map(Editor::label),
                    subject = facts.principal.as_ref().map(Principal::subject),
                    cluster = facts.breakpoint.as_ref().map(|b| &*b.cluster),
                    breakpoint = facts.breakpoint.as_ref().map(|b| tracing::field::display(b.id)),
                    task = facts.breakpoint.as_ref().map(|b| b.name()),
                    outcome = facts.outcome.map(Outcome::label),
                    reason = facts.reason.as_deref(),
                    bytes_up = facts.bytes.0,
                    bytes_down = facts.bytes.1,
                    requests = facts.requests,
                    failed = facts.failed,
                    recognised_seconds = seconds(facts.recognised),
                    authenticated_seconds = seconds(facts.authenticated),
                    attached_seconds = seconds(facts.attached),
                    seconds = self.began().until(Timestamp::now()).as_secs_f64(),
                    "connection ended"
                )
            };
        }
        match aloud {
            true => log_line!(info),
            false => log_line!(debug),
        }
        if let Some(traces) = traces.filter(|_| aloud) {
            traces.offer(self.trace(&facts));
        }
    }

    /// Converts the facts to spans: the connection, and its consecutive phases.
    fn trace(&self, facts: &Facts) -> Trace {
        let (began, ended) = (self.began(), Timestamp::now());
        let mut trace = Trace::new("connection", began, ended);
        let mut from = began;
        for (name, to) in [
            ("handshake", facts.recognised),
            ("authentication", facts.authenticated),
            ("attach", facts.attached),
            ("session", facts.attached.map(|_| ended)),
        ] {
            if let Some(to) = to {
                trace.part(name, from, to);
                from = to;
            }
        }
        let breakpoint = facts.breakpoint.as_ref();
        trace.attribute("ray_relay.request", Some(self.id().to_string()));
        trace.attribute("client.address", Some(self.peer().ip().to_string()));
        trace.attribute("client.port", Some(u64::from(self.peer().port())));
        trace.attribute("ray_relay.protocol", facts.protocol.map(Protocol::label));
        trace.attribute("ray_relay.tls", Some(facts.encrypted));
        trace.attribute("ray_relay.client", facts.editor.map(Editor::label));
        let subject = facts.principal.as_ref().map(Principal::subject);
        trace.attribute("enduser.id", subject);
        trace.attribute("ray_relay.cluster", breakpoint.map(|b| &*b.cluster));
        trace.attribute("ray_relay.breakpoint", breakpoint.map(|b| b.id.to_string()));
        trace.attribute("ray_relay.outcome", facts.outcome.map(Outcome::label));
        trace.attribute("ray_relay.bytes_up", Some(facts.bytes.0));
        trace.attribute("ray_relay.bytes_down", Some(facts.bytes.1));
        let failed = matches!(
            facts.outcome,
            Some(Outcome::Failed | Outcome::Refused | Outcome::Died)
        );
        match &facts.reason {
            Some(reason) => trace.failed(reason),
            None if failed => trace.failed(facts.outcome.map_or("", Outcome::label)),
            None => {}
        }
        trace
    }
}
