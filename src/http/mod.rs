//! HTTP on the relay's port: its own API below `/relay/`, the Ray dashboard everywhere else.
//!
//! Called by the listener with each connection that speaks HTTP/1.1 or HTTP/2 (prior knowledge).
//! A request meets, in this order: [`guard`] (is it for this relay, and not from somebody else's web
//! page?), `route`, `caller` (who is it, by which `credential`, and is it allowed, by what `need` says?), and
//! then `api`, `events`, or `dashboard`, which leaves out rows (`filter`), rewrites (`rewrite`, [`advertise`])
//! or becomes a WebSocket (`websocket`).
//!
//! Invariants: nothing of a request reaches a head before it is allowed, but for the dashboard's empty page; no client's
//! credential goes upstream and none of Ray's comes back; no address of a debugger leaves; nothing but the answers that are
//! rewritten is ever held as a whole; what streams ends with its principal.

pub mod advertise;
mod answer;
pub(crate) mod api;
mod caller;
mod connection;
mod credential;
mod dashboard;
mod events;
mod filter;
pub mod guard;
mod hop;
mod moving;
mod need;
mod query;
mod release;
mod revocations;
#[cfg_attr(not(feature = "fuzzing"), allow(unreachable_pub))]
pub(crate) mod rewrite;
mod route;
pub mod spelling;
mod websocket;

use std::net::SocketAddr;
use std::sync::Arc;

use serde::Serialize;
use tokio_util::task::TaskTracker;

pub(crate) use connection::IDLE_WEIGHT;
pub use connection::serve_connection;

use crate::audit::Audit;
use crate::config::Config;
use crate::identity::Authenticator;
use crate::moment::Moment;
use crate::registry::{BreakpointId, Registry};
use crate::session::shares::Shares;
use crate::telemetry::Metrics;

/// One live session, as `/relay/v1/sessions` shows it.
#[derive(Debug, Clone, Serialize)]
pub struct SessionRow {
    /// Counts the sessions of this process.
    pub id: u64,
    /// `dap`, `dap_cluster`, `terminal` or `websocket`.
    pub protocol: &'static str,
    /// A word for how far it got.
    pub state: &'static str,
    /// Where the client connected from.
    pub peer: SocketAddr,
    /// Who: the subject of its principal, once that is known.
    pub subject: Option<String>,
    /// What the client calls itself, cleaned for display.
    pub client: Option<String>,
    /// The breakpoint it holds.
    pub breakpoint: Option<BreakpointId>,
    /// Readable name of that breakpoint.
    pub name: Option<String>,
    /// Cluster of that breakpoint.
    pub cluster: Option<String>,
    /// When it began, in seconds since 1970.
    pub since: Moment,
    /// Bytes from the client.
    pub bytes_up: u64,
    /// Bytes to the client.
    pub bytes_down: u64,
}

/// Where the live sessions are known.
pub trait SessionList: Send + Sync {
    /// All of them, the oldest first.
    fn rows(&self) -> Vec<SessionRow>;
}

/// What every request may need. One for the process.
pub struct HttpContext {
    config: Arc<Config>,
    auth: Arc<Authenticator>,
    audit: Arc<Audit>,
    registry: Registry,
    metrics: Arc<Metrics>,
    sessions: Arc<dyn SessionList>,
    advertised: Arc<advertise::Table>,
    event_streams: Arc<Shares>,
    /// A token for each request in progress.
    busy: TaskTracker,
    /// What was to be put on record.
    #[cfg(test)]
    heard: tests::Heard,
}

impl HttpContext {
    /// The clusters and their heads are the registry's.
    pub fn new(
        config: Arc<Config>,
        auth: Arc<Authenticator>,
        audit: Arc<Audit>,
        registry: Registry,
        metrics: Arc<Metrics>,
        sessions: Arc<dyn SessionList>,
        advertised: Arc<advertise::Table>,
    ) -> Arc<Self> {
        let most = config.http.max_event_streams;
        let event_streams = Shares::new(most, (most / 4).max(1));
        Arc::new(Self {
            config,
            auth,
            audit,
            registry,
            metrics,
            sessions,
            advertised,
            event_streams,
            busy: TaskTracker::new(),
            #[cfg(test)]
            heard: tests::Heard::default(),
        })
    }
}

impl HttpContext {
    /// Requests in progress, which draining waits for.
    pub(crate) fn busy(&self) -> &TaskTracker {
        &self.busy
    }
}

#[cfg(test)]
pub(crate) mod tests;
