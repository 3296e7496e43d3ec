//! Shared state of all protocols: one for the process, created before the relay listens.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::agents::Agents;
use crate::connect::Links;
use crate::hangs::Hangs;
use crate::session::authenticate::{Authentication, Purpose};
use crate::session::live::Services;
use crate::session::shares::Quotas;
use crate::session::{Families, Parks, SessionTable};
use ray_relay_access::audit::Audit;
use ray_relay_access::connection::ConnectionInfo;
use ray_relay_access::identity::{Authenticator, Principal};
use ray_relay_access::policy::Scopes;
use ray_relay_access::recording::CaptureStore;
use ray_relay_access::telemetry::Metrics;
use ray_relay_access::telemetry::traces::Traces;
use ray_relay_base::config::Config;
use ray_relay_base::memory::{Account, Memory};
use ray_relay_base::shutdown::Shutdown;
use ray_relay_debugger::keeper::Keeper;
use ray_relay_ray::ray::registry::Registry;
use ray_relay_view::advertise;
use ray_relay_view::listing::shared::SharedRows;

/// Concurrent cluster sessions of one principal. Each opens a session for every task that pauses.
const MAX_CLUSTER_SESSIONS_PER_PRINCIPAL: usize = 16;

/// Concurrent snapshots of paused tasks, all principals together; one principal has a quarter. Each takes some
/// megabytes.
const MAX_SNAPSHOTS: usize = 16;

/// Shared state of all sessions.
pub struct Context {
    /// The resolved configuration.
    pub config: Arc<Config>,
    /// Authenticates clients: maps a credential to a principal.
    pub auth: Arc<Authenticator>,
    /// The audit log.
    pub audit: Arc<Audit>,
    /// Makes recordings of sessions.
    pub recording: Arc<CaptureStore>,
    /// The registry of breakpoints.
    pub registry: Registry,
    /// The process that keeps debugger connections beyond this one, if any.
    pub keeper: Option<Arc<Keeper>>,
    /// Memory budget for data held for clients.
    pub memory: Memory,
    /// Live and parked sessions.
    pub sessions: Sessions,
    /// Agents and commands linked with this relay.
    pub peers: Peers,
    /// Views of breakpoints.
    pub shown: Shown,
    /// Jobs that were seen to hang.
    pub hangs: Hangs,
    /// The metrics of the relay.
    pub metrics: Arc<Metrics>,
    /// Quota of event streams, for each principal.
    pub event_streams: Arc<Quotas>,
    /// Quota of snapshots of paused tasks, for each principal and in total.
    pub snapshots: Arc<Quotas>,
    /// Traces of connections, if a collector is configured.
    pub traces: Option<Arc<Traces>>,
    /// A token for each HTTP request in progress, which draining waits for.
    pub requests: TaskTracker,
    /// Port that the relay listens on.
    pub port: u16,
    /// Stages of the shutdown.
    pub shutdown: Shutdown,
}

/// Live and parked sessions.
pub struct Sessions {
    /// The table of live sessions.
    pub table: Arc<SessionTable>,
    /// The cluster sessions, each with the sessions that belong to it.
    pub families: Arc<Families>,
    /// Parked sessions.
    pub parks: Arc<Parks>,
    /// Quota of cluster sessions, for each principal.
    pub cluster_sessions: Arc<Quotas>,
}

/// Agents and commands linked with this relay.
pub struct Peers {
    /// The agents of nodes.
    pub agents: Arc<Agents>,
    /// The links of `ray-relay connect`.
    pub links: Arc<Links>,
}

/// Views of breakpoints.
pub struct Shown {
    /// The JSON of breakpoints, shared by all lists and event streams.
    pub rows: Arc<SharedRows>,
    /// Addresses under which breakpoints were advertised.
    pub advertised: Arc<advertise::AdvertisedAddresses>,
}

impl Context {
    /// Creates the context of a relay on `port` that serves `registry`; starts nothing.
    pub fn new(
        config: Arc<Config>,
        auth: Arc<Authenticator>,
        audit: Arc<Audit>,
        registry: Registry,
        metrics: Arc<Metrics>,
        port: u16,
        shutdown: Shutdown,
    ) -> Self {
        let sessions = Arc::new(SessionTable::new(metrics.clone()));
        let advertised = Arc::new(advertise::AdvertisedAddresses::new(
            config.advertise.clone(),
        ));
        let most = config.http.max_event_streams;
        let agents = Arc::new(Agents::new(
            &config,
            registry.clone(),
            auth.clone(),
            audit.clone(),
            metrics.clone(),
            shutdown.closed.clone(),
        ));
        let families = Arc::<Families>::default();
        let memory = Memory::new(config.memory().divided());
        registry.count(&memory);
        let links = Links::new(
            &config.connect,
            agents.replica(),
            memory.clone(),
            shutdown.clone(),
        );
        let recording = CaptureStore::new(config.recording.clone(), metrics.clone());
        let shown = Shown {
            rows: Arc::default(),
            advertised,
        };
        let sessions = Sessions {
            table: sessions,
            families,
            parks: Arc::default(),
            cluster_sessions: Quotas::new(usize::MAX, MAX_CLUSTER_SESSIONS_PER_PRINCIPAL),
        };
        let peers = Peers {
            agents,
            links: Arc::new(links),
        };
        Self {
            config,
            auth,
            audit,
            recording,
            registry,
            keeper: None,
            memory,
            sessions,
            peers,
            shown,
            hangs: Hangs::default(),
            metrics,
            event_streams: Quotas::new(most, (most / 4).max(1)),
            snapshots: Quotas::new(MAX_SNAPSHOTS, MAX_SNAPSHOTS / 4),
            traces: None,
            requests: TaskTracker::new(),
            port,
            shutdown,
        }
    }

    /// Authentication of the client of `connection`, bounded by `deadline`.
    pub fn authentication<'a>(
        &'a self,
        connection: &'a ConnectionInfo,
        purpose: Purpose<'a>,
        deadline: Instant,
    ) -> Authentication<'a> {
        Authentication {
            auth: &self.auth,
            audit: &self.audit,
            metrics: &self.metrics,
            connection,
            purpose,
            deadline,
        }
    }

    /// The memory account of `principal`.
    pub fn account(&self, principal: &Principal) -> Account {
        self.memory.account(principal.known_subject().as_deref())
    }

    /// Whether a principal with `scopes` may end a worker process on this relay. The only reader of
    /// `dap.allow_terminate`.
    pub fn may_end_worker(&self, scopes: Scopes) -> bool {
        scopes.may_end_worker(self.config.dap.allow_terminate)
    }

    /// Whether a principal with `scopes` may open a debugger in a running task that asked for none, on this relay. The
    /// only reader of `dap.allow_attach`.
    pub fn may_open_debugger(&self, scopes: Scopes) -> bool {
        scopes.may_open_debugger(self.config.dap.allow_attach)
    }

    /// The services that a session uses.
    pub fn services(&self) -> Services<'_> {
        Services {
            audit: &self.audit,
            agents: &self.peers.agents,
            recording: &self.recording,
            shutdown: &self.shutdown,
            drain_timeout: self.config.listen.drain_timeout,
        }
    }

    /// A context whose registry is fed by hand.
    #[cfg(any(test, feature = "testing"))]
    #[allow(clippy::unwrap_used)]
    pub fn offline(config: Config, auth: Arc<Authenticator>, audit: Arc<Audit>) -> Arc<Self> {
        let registry = Registry::offline(&["default"], &config.registry);
        Self::watching(registry, config, auth, audit)
    }

    /// A context with this registry.
    #[cfg(any(test, feature = "testing"))]
    #[allow(clippy::unwrap_used)]
    pub fn watching(
        registry: Registry,
        config: Config,
        auth: Arc<Authenticator>,
        audit: Arc<Audit>,
    ) -> Arc<Self> {
        Arc::new(Self::new(
            Arc::new(config),
            auth,
            audit,
            registry,
            Metrics::new().unwrap(),
            5678,
            Shutdown::default(),
        ))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use ray_relay_access::audit::testing::spied;

    fn relay(adapt: impl FnOnce(&mut Config)) -> Arc<Context> {
        let mut config = Config::default();
        adapt(&mut config);
        Context::offline(config, Authenticator::open(), spied(false).0)
    }

    #[tokio::test]
    async fn allow_terminate_gives_debug_the_terminate_permission() {
        let [debug, terminate] = ["debug", "terminate"].map(|scope| scope.parse().unwrap());
        let default_relay = relay(|_| {});
        assert!(!default_relay.may_end_worker(debug) && default_relay.may_end_worker(terminate));
        let open = relay(|config| config.dap.allow_terminate = true);
        assert!(open.may_end_worker(debug) && open.may_end_worker(terminate));
        assert!(!open.may_open_debugger(debug), "that is another key");
    }

    #[tokio::test]
    async fn allow_attach_gives_debug_the_attach_permission() {
        let [debug, debug_and_attach] =
            ["debug", "debug,attach"].map(|scopes| scopes.parse().unwrap());
        let default_relay = relay(|_| {});
        assert!(
            !default_relay.may_open_debugger(debug)
                && default_relay.may_open_debugger(debug_and_attach)
        );
        let open = relay(|config| config.dap.allow_attach = true);
        assert!(open.may_open_debugger(debug));
        assert!(!open.may_end_worker(debug), "that is another key");
    }
}
