//! Linked agents of Ray nodes, and the streams that they open to debuggers.
//!
//! An agent (`ray-relay node`) runs next to the workers of a node and dials the relay. On its link ([`serve`],
//! [`link`]) it announces its node. Its credential, its source address and the head's list decide which nodes it may
//! speak for ([`trust`]), and no other agent may speak for the same node ([`table`]). The relay requests a stream for
//! each debugger connection ([`open`]), which becomes a [`Tunnel`]. Workers that dial out are met at a [`reverse`]
//! rendezvous. [`route`] picks the route to a breakpoint, [`inspect`] takes snapshots of running workers, [`arm`] arms
//! lines in them, [`failures`] lists the failed tasks that agents keep.
//!
//! Relays linked with the same agents learn through them what each other's sessions hold ([`peers`]), and which
//! credentials are revoked ([`revoked`]).
//!
//! Bounds: all links (`upstream.max_agents`), links not yet trusted ([`newcomers`]), [`MAX_STREAMS`] and
//! [`MAX_WAITING_STREAMS`] for each agent, its message rate ([`link`](ray_relay_base::wire::link)), the size of one
//! message ([`MAX_MESSAGE_BYTES`](ray_relay_base::wire::tunnel::messages::MAX_MESSAGE_BYTES)). In doubt, no agent
//! speaks for the node.

pub mod arm;
pub mod end;
mod failed;
mod failures;
pub mod inspect;
mod link;
mod newcomers;
mod open;
mod peers;
pub mod reverse;
mod revoked;
mod route;
mod rows;
mod serve;
mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod trust;
mod tunnel;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio_tungstenite::WebSocketStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

pub use self::failures::Failed;
pub use self::inspect::{NotInspected, WorkerAt};
pub use self::open::{NoStream, OpenRequest};
pub use self::route::{NoAgentReason, NoRoute, WorkerRoute};
pub use self::rows::SessionElsewhere;
pub use self::tunnel::Tunnel;

use self::newcomers::{Newcomer, Newcomers};
use self::open::{OpenResult, PendingStream};
use self::peers::RelayPeers;
use self::revoked::SeenRevocations;
use self::table::Table;
use ray_relay_access::audit::Audit;
use ray_relay_access::identity::{Authenticator, Principal};
use ray_relay_access::telemetry::Metrics;
use ray_relay_base::config::{Config, UpstreamPath};
use ray_relay_base::wire::counted::Counted;
use ray_relay_base::wire::tunnel::awaited::Awaited;
use ray_relay_base::wire::tunnel::messages::Replica;
use ray_relay_base::wire::tunnel::text::Hex;
use ray_relay_ray::ray::registry::Registry;

/// Open streams of one agent.
const MAX_STREAMS: usize = 256;

/// Streams of one agent that are requested and not open yet.
pub const MAX_WAITING_STREAMS: usize = 64;

/// Concurrent inspections of one agent.
pub const MAX_INSPECTIONS: usize = 16;

/// An agent's WebSocket.
pub type Socket = WebSocketStream<Carrier>;

/// The transport below it.
pub type Carrier = Counted<TokioIo<Upgraded>>;

/// All linked agents; one for the process.
pub struct Agents {
    /// Identifies this process among relays.
    replica: Replica,
    clusters: HashMap<String, Cluster>,
    /// Default for clusters that are not in the configuration.
    usual_path: UpstreamPath,
    registry: Registry,
    auth: Arc<Authenticator>,
    audit: Arc<Audit>,
    metrics: Arc<Metrics>,
    /// Other relays.
    elsewhere: RelayPeers,
    /// Revocations received from other relays.
    revocations: Mutex<SeenRevocations>,
    newcomers: Arc<Newcomers>,
    table: Mutex<Table>,
    /// Requested streams that have not arrived.
    streams: Awaited<PendingStream, OpenResult>,
    /// Rendezvous of workers with listening debuggers.
    reverse: reverse::ReverseLinks,
    /// Whether agents keep failed tasks.
    keeps_failures: bool,
    failures: failures::Failures,
    /// Holds a token for each caller that still has a worker to detach from or to watch.
    leaving: TaskTracker,
    /// The relay shuts down, and nothing is in progress.
    closed: CancellationToken,
}

/// Keeps the agents linked during a shutdown, for a caller that has a worker to detach from and may need to reach it
/// again.
#[derive(Debug, Clone)]
pub struct Needed {
    agents: Arc<Agents>,
    _token: TaskTrackerToken,
}

impl Deref for Needed {
    type Target = Arc<Agents>;

    fn deref(&self) -> &Arc<Agents> {
        &self.agents
    }
}

/// Route to the workers of a cluster.
struct Cluster {
    path: UpstreamPath,
    /// Whether the head is on the relay's machine.
    is_local: bool,
}

impl Agents {
    /// Creates the registry of agents, empty. Links end after `closed`, as soon as no caller needs one to detach from a
    /// worker.
    pub fn new(
        config: &Config,
        registry: Registry,
        auth: Arc<Authenticator>,
        audit: Arc<Audit>,
        metrics: Arc<Metrics>,
        closed: CancellationToken,
    ) -> Self {
        let clusters = config.clusters.iter().map(|cluster| {
            let path = cluster.path.unwrap_or(config.upstream.path);
            let is_local = route::is_local(&cluster.ray_address);
            (cluster.name.clone(), Cluster { path, is_local })
        });
        Self {
            // An identifier, not a secret.
            replica: Hex(rand::random()),
            clusters: clusters.collect(),
            usual_path: config.upstream.path,
            registry,
            auth,
            audit,
            metrics,
            elsewhere: RelayPeers::default(),
            revocations: Mutex::default(),
            newcomers: Arc::default(),
            table: Mutex::new(Table::new(config.upstream.max_agents)),
            streams: Awaited::default(),
            reverse: reverse::ReverseLinks::default(),
            keeps_failures: config.post_mortem.enabled,
            failures: failures::Failures::default(),
            leaving: TaskTracker::new(),
            closed,
        }
    }

    /// The relay shuts down, and nothing is in progress. Cancel safe.
    pub async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// For a caller that is about to hold a worker.
    pub fn needed(self: &Arc<Self>) -> Needed {
        Needed {
            agents: Arc::clone(self),
            _token: self.leaving.token(),
        }
    }

    /// Counts a link of `principal` from `peer` that has not announced itself; `None`: the limit is reached.
    pub fn newcomer(&self, principal: &Principal, peer: SocketAddr) -> Option<Newcomer> {
        self.newcomers.add(principal, peer.ip())
    }

    /// Identifies this process among relays.
    pub fn replica(&self) -> Replica {
        self.replica
    }

    /// Until `shutdown`, follows the holds of other relays, sends them revocations, and asks Ray to name failed tasks.
    pub async fn share(&self, shutdown: CancellationToken) {
        tokio::join!(
            self.follow_holds(shutdown.clone()),
            self.broadcast_revocations(shutdown.clone()),
            self.name_failures(shutdown)
        );
    }

    fn path(&self, cluster: &str) -> UpstreamPath {
        // A discovered cluster has no setting of its own.
        self.clusters
            .get(cluster)
            .map_or(self.usual_path, |cluster| cluster.path)
    }
}

impl std::fmt::Debug for Agents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agents").finish_non_exhaustive()
    }
}
