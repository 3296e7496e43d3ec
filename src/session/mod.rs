//! Live sessions, and the permit without which no worker is reached.

pub mod family;
pub mod permit;
pub(crate) mod shares;
pub mod table;
pub mod task_end;
pub mod worker_end;

use std::sync::Arc;

pub use family::{Families, Founder, Member, Parent};
pub use permit::Permit;
pub use table::{Session, SessionTable};
pub use task_end::TaskEnd;
pub use worker_end::WorkerEnd;

use self::shares::Shares;
use crate::audit::Audit;
use crate::config::Config;
use crate::http::{HttpContext, advertise};
use crate::identity::Authenticator;
use crate::masking::Masking;
use crate::recording::Recording;
use crate::registry::Registry;
use crate::release::Means;
use crate::shutdown::Shutdown;
use crate::telemetry::Metrics;

/// Cluster sessions that one principal may have at a time. Each opens sessions of its own for everything that pauses.
const CLUSTER_SESSIONS_OF_ONE: usize = 16;

/// What every session works with.
pub struct Context {
    /// Resolved configuration.
    pub config: Arc<Config>,
    /// Recognises principals.
    pub auth: Arc<Authenticator>,
    /// The record.
    pub audit: Arc<Audit>,
    /// Makes recordings of sessions.
    pub recording: Arc<Recording>,
    /// What is hidden of values; `None`: nothing.
    pub masking: Arc<Masking>,
    /// Breakpoints.
    pub registry: Registry,
    /// Live sessions.
    pub sessions: Arc<SessionTable>,
    /// Cluster sessions.
    pub families: Arc<Families>,
    /// Cluster sessions of each principal.
    pub(crate) cluster_sessions: Arc<Shares>,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Addresses under which breakpoints were advertised.
    pub advertised: Arc<advertise::Table>,
    /// The HTTP side.
    pub http: Arc<HttpContext>,
    /// Port that the relay listens on.
    pub port: u16,
    /// The end.
    pub shutdown: Shutdown,
}

impl Context {
    /// For a relay on `port` that serves `registry`; nothing runs yet.
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
        let advertised = Arc::new(advertise::Table::new(config.advertise.clone()));
        let http = HttpContext::new(
            config.clone(),
            auth.clone(),
            audit.clone(),
            registry.clone(),
            metrics.clone(),
            sessions.clone(),
            advertised.clone(),
        );
        let recording = Recording::new(config.recording.clone(), metrics.clone());
        Self {
            masking: Arc::new(Masking::new(&config.masking)),
            config,
            auth,
            audit,
            recording,
            registry,
            sessions,
            families: Arc::default(),
            cluster_sessions: Shares::new(usize::MAX, CLUSTER_SESSIONS_OF_ONE),
            metrics,
            advertised,
            http,
            port,
            shutdown,
        }
    }

    /// What releasing works with.
    pub fn means(&self) -> Means {
        Means {
            registry: self.registry.clone(),
            config: self.config.clone(),
            tasks: self.shutdown.tasks.clone(),
        }
    }
}
