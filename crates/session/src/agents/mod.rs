//! The agents of Ray nodes that are linked to this relay, and the streams that they open to debuggers.
//!
//! An agent (`ray-relay node`) stands beside the workers of a node and dials the relay. On its link ([`serve`], [`link`]) it says which
//! node it stands on; which nodes it may speak for is decided by its credential, the address that it comes from and what
//! the head lists ([`trust`]), and by no other agent speaking for them ([`table`]). For each connection to a debugger it is
//! asked for a stream ([`open`]), which becomes a [`Tunnel`]. Workers that dial out are met at a [`reverse`] rendezvous. [`way`] says by which way a breakpoint is reached, [`inspect`] what a worker does that
//! waits at no breakpoint, [`failures`] what agents keep of tasks that failed.
//!
//! Relays that are linked with the same agents know through them what each other's sessions hold ([`peers`]), and what
//! is revoked ([`revoked`]).
//!
//! Bounds: links in all (`upstream.max_agents`), those that are not believed yet ([`newcomers`]), [`STREAMS`] and
//! [`MAX_WAITING_STREAMS`] for each agent, what it may say in a second ([`link`](ray_relay_base::wire::link)), one message
//! ([`MAX_MESSAGE_BYTES`](ray_relay_base::wire::tunnel::messages::MAX_MESSAGE_BYTES)). Where anything is in
//! doubt, no agent speaks for the node.

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
mod rows;
mod serve;
mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod trust;
mod tunnel;
mod way;

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
pub use self::rows::SessionElsewhere;
pub use self::tunnel::Tunnel;
pub use self::way::{NoAgentReason, NoRoute, WorkerRoute};

use self::newcomers::{Newcomer, Newcomers};
use self::open::{AskedAgent, OpenResult};
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

/// Streams that one agent may have at a time.
const STREAMS: usize = 256;

/// Streams that one agent may be waited for at a time.
pub const MAX_WAITING_STREAMS: usize = 64;

/// Workers that one agent is asked about at a time.
pub const INSPECTIONS: usize = 16;

/// A WebSocket of an agent's.
pub type Socket = WebSocketStream<Carrier>;

/// What is below it.
pub type Carrier = Counted<TokioIo<Upgraded>>;

/// All agents. One for the process.
pub struct Agents {
    /// What tells this process from other relays.
    replica: Replica,
    clusters: HashMap<String, Cluster>,
    /// Of clusters that are not in the configuration.
    usual_path: UpstreamPath,
    registry: Registry,
    auth: Arc<Authenticator>,
    audit: Arc<Audit>,
    metrics: Arc<Metrics>,
    /// Other relays.
    elsewhere: RelayPeers,
    /// What other relays have said that is revoked.
    heard: Mutex<SeenRevocations>,
    newcomers: Arc<Newcomers>,
    table: Mutex<Table>,
    /// Streams that were asked for and have not come.
    streams: Awaited<AskedAgent, OpenResult>,
    /// Where workers meet debuggers that listen.
    reverse: reverse::ReverseLinks,
    /// Whether agents are to keep something of tasks that fail, and what they keep.
    keeps_failures: bool,
    failures: failures::Failures,
    /// A token for everybody who has a worker to leave, or to look after.
    leaving: TaskTracker,
    /// The relay ends, and nothing is in progress.
    closed: CancellationToken,
}

/// The agents, for who has a worker to leave and perhaps to reach once more: links stay for it when the relay ends.
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

/// How the workers of a cluster are reached.
struct Cluster {
    path: UpstreamPath,
    /// The head is on the relay's machine.
    is_local: bool,
}

impl Agents {
    /// None yet. Links end after `closed`, as soon as none is needed to leave a worker.
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
            let is_local = way::is_local(&cluster.ray_address);
            (cluster.name.clone(), Cluster { path, is_local })
        });
        Self {
            // A name and no secret.
            replica: Hex(rand::random()),
            clusters: clusters.collect(),
            usual_path: config.upstream.path,
            registry,
            auth,
            audit,
            metrics,
            elsewhere: RelayPeers::default(),
            heard: Mutex::default(),
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

    /// The relay ends, and nothing is in progress. Cancel safe.
    pub async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// For who is about to have a worker.
    pub fn needed(self: &Arc<Self>) -> Needed {
        Needed {
            agents: Arc::clone(self),
            _token: self.leaving.token(),
        }
    }

    /// One more link of `principal` from `peer`, of which nothing else is known; `None`: there are as many of those as there may
    /// be.
    pub fn newcomer(&self, principal: &Principal, peer: SocketAddr) -> Option<Newcomer> {
        self.newcomers.add(principal, peer.ip())
    }

    /// What tells this process from other relays.
    pub fn replica(&self) -> Replica {
        self.replica
    }

    /// Shares with other relays what there is to share, until `shutdown`.
    pub async fn share(&self, shutdown: CancellationToken) {
        tokio::join!(
            self.follow_holds(shutdown.clone()),
            self.tell_revocations(shutdown.clone()),
            self.name_failures(shutdown)
        );
    }

    fn path(&self, cluster: &str) -> UpstreamPath {
        // One that was found has no way of its own.
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
