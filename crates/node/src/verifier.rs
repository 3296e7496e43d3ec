//! Verifies a request before the agent dials: what Ray reports of the debugger, and which process owns the listening
//! socket.
//!
//! A relay names a worker and a port. The agent dials it only after Ray's registry has attributed that port to that
//! worker, alive and on a node of this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::machine;
use super::processes::{self, Processes, SocketOwner};
use ray_relay_base::config;
use ray_relay_base::wire::tunnel::messages::{FailedTask, HoldRow, Open, Refusal, Sentence};
use ray_relay_ray::ray::head::HeadConfigError;
use ray_relay_ray::ray::registry::{Attributed, Attribution, AttributionError, RayNode, Resident};

/// The deadline of one request to Ray.
const RAY_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an adapter may take to connect to its worker before its port counts as another process's.
const ADAPTER_SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause between two inspections of such an adapter.
const SETTLE_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Processes that share one connection and are looked up in Ray.
const MAX_FORKS: usize = 8;

/// How long the list of this machine's nodes is cached.
const NODE_CACHE_TTL: Duration = Duration::from_secs(10);

/// How to recognize the nodes of this machine.
#[derive(Debug, Clone)]
pub(super) struct NodeLocation {
    pub(super) node_id: Option<String>,
    /// The configured addresses. If empty, those of the machine.
    pub(super) configured: Vec<IpAddr>,
    /// A node at a loopback address counts as this machine's, because its head does.
    pub(super) loopback: bool,
}

impl NodeLocation {
    /// The current addresses of this machine.
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        let mut all = match self.configured.is_empty() {
            true => machine::addresses(),
            false => self.configured.clone(),
        };
        if self.loopback {
            all.extend([
                IpAddr::from(Ipv4Addr::LOCALHOST),
                Ipv6Addr::LOCALHOST.into(),
            ]);
        }
        all
    }

    fn is(&self, node: &RayNode, addresses: &[IpAddr]) -> bool {
        match &self.node_id {
            Some(id) => *node.node_id == **id,
            None => addresses.contains(&node.address),
        }
    }
}

/// Why the agent does not dial a debugger.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) kind: Refusal,
    pub(super) detail: Sentence,
    /// The holder of the worker, where that is the reason.
    pub(super) holder: Option<Box<HoldRow>>,
}

impl Refused {
    pub(super) fn new(kind: Refusal, detail: &str) -> Self {
        Self {
            kind,
            detail: detail.into(),
            holder: None,
        }
    }
}

impl From<AttributionError> for Refused {
    fn from(error: AttributionError) -> Self {
        Self::new(Refusal::Registry, &error.to_string())
    }
}

/// Why a peer that has dialled the agent is rejected. `Display` is for the log.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnverifiedPeer {
    #[error(
        "it cannot be seen which process it is of; run the agent as the workers' user and in their process namespace"
    )]
    Unseen,
    #[error("Ray lists no live worker of this node with the process {0}")]
    NotAWorker(u32),
    #[error("Ray lists several workers of this machine with that process")]
    Several,
    #[error(transparent)]
    Ray(#[from] AttributionError),
    #[error("{}", .0.detail)]
    Nodes(Refused),
}

/// An address where a debugger may be dialled, and the process that has to answer there.
#[derive(Debug, Clone)]
pub(super) struct DialTarget {
    pub(super) address: SocketAddr,
    debugger: Attributed,
    /// The owner of the socket could not be seen at the inspection.
    unseen: bool,
}

/// The findings of the inspection of some targets.
#[derive(Default)]
struct TargetScan {
    good: Vec<DialTarget>,
    wrong: Option<(u32, String)>,
    unsettled: bool,
    /// No process can be seen, so some owners are unknown.
    blind: bool,
}

/// Verifies targets against Ray and this machine.
pub(super) struct TargetVerifier {
    ray: Attribution,
    location: NodeLocation,
    processes: Arc<Processes>,
    nodes: Mutex<Option<(Instant, Arc<[RayNode]>)>>,
    /// Whether the warning that socket owners cannot be checked was logged.
    warned_blind: AtomicBool,
}

impl TargetVerifier {
    /// Asks the head of `cluster`; processes are those in `proc`.
    ///
    /// # Errors
    /// [`HeadConfigError`].
    pub(super) fn new(
        cluster: &config::Cluster,
        location: NodeLocation,
        proc: &Path,
    ) -> Result<Self, HeadConfigError> {
        Ok(Self {
            ray: Attribution::new(cluster, RAY_TIMEOUT)?,
            location,
            processes: Arc::new(Processes::new(proc)),
            nodes: Mutex::default(),
            warned_blind: AtomicBool::new(false),
        })
    }

    /// Whether the owners of sockets can be checked now.
    pub(super) async fn sees_processes(&self) -> bool {
        let processes = Arc::clone(&self.processes);
        let inspection = tokio::task::spawn_blocking(move || processes.are_visible());
        inspection.await.unwrap_or(false)
    }

    pub(super) fn location(&self) -> &NodeLocation {
        &self.location
    }

    /// Returns the addresses where the debugger that `open` requests may be dialled, in this order.
    ///
    /// # Errors
    /// [`Refused`], for the relay.
    pub(super) async fn targets(&self, open: &Open) -> Result<Vec<DialTarget>, Refused> {
        let found = self.ray.debuggers(open.kind, &open.worker_id, open.port);
        let found = found.await?;
        let nodes = self.nodes(&found).await?;
        let addresses = self.location.addresses();
        let here = found.iter().filter_map(|debugger| {
            let node = nodes
                .iter()
                .find(|node| *node.node_id == *debugger.node_id())
                .map(|node| node.address);
            // Before Ray 2.40 the entry of a legacy debugger has an address, or nothing of use.
            let nameless = debugger.node_id().is_empty() && !nodes.is_empty();
            let own: Vec<IpAddr> = match node {
                Some(address) => addresses.iter().copied().chain([address]).collect(),
                None if nameless => addresses
                    .iter()
                    .copied()
                    .chain(nodes.iter().map(|node| node.address))
                    .collect(),
                None => return None,
            };
            let targets = debugger.ways(&own);
            (!targets.is_empty()).then(|| (debugger.clone(), targets))
        });
        let here: Vec<_> = here.collect();
        if here.is_empty() {
            return Err(Refused::new(
                Refusal::NotAWorker,
                "Ray attributes that port to no live worker of the agent's node",
            ));
        }
        self.verified_targets(here).await
    }

    /// Returns the live worker of this machine's nodes whose process owns the end at `peer` of the connection from
    /// there to `local`.
    ///
    /// # Errors
    /// [`UnverifiedPeer`]: a peer that is not known to be a worker is rejected.
    pub(super) async fn identify_peer(
        &self,
        peer: SocketAddr,
        local: SocketAddr,
    ) -> Result<Resident, UnverifiedPeer> {
        let processes = Arc::clone(&self.processes);
        let inspection = tokio::task::spawn_blocking(move || processes.connected_pids(peer, local));
        let mut pids = inspection.await.unwrap_or_default();
        pids.retain(|pid| *pid != 0);
        pids.truncate(MAX_FORKS);
        let first = *pids.first().ok_or(UnverifiedPeer::Unseen)?;
        let mut found = Vec::new();
        for pid in pids {
            found.extend(self.ray.residents(pid).await?);
        }
        let nodes = self.own_nodes().await.map_err(UnverifiedPeer::Nodes)?;
        found.retain(|one| nodes.iter().any(|node| *node.node_id == *one.node_id));
        match (found.pop(), found.pop()) {
            (Some(one), None) => Ok(one),
            (None, _) => Err(UnverifiedPeer::NotAWorker(first)),
            (Some(_), Some(_)) => Err(UnverifiedPeer::Several),
        }
    }

    /// Returns the job of the worker that left `task`, from Ray: both the process and the task have to be that
    /// worker's.
    pub(super) async fn job_of(&self, task: &FailedTask) -> Option<String> {
        let residents = self.ray.residents(task.pid).await.ok()?;
        let matches =
            |one: &Resident| *one.worker_id == *task.worker_id && *one.node_id == *task.node_id;
        let worker = residents.iter().find(|one| matches(one))?;
        self.ray.job_of(worker, &task.task_id).await.ok()?
    }

    /// Returns this machine's nodes. Ray is asked again where the cached list names no node of `debuggers`.
    async fn nodes(&self, debuggers: &[Attributed]) -> Result<Arc<[RayNode]>, Refused> {
        let cached = self.nodes.lock().clone();
        if let Some((at, nodes)) = cached
            && at.elapsed() < NODE_CACHE_TTL
            && debuggers
                .iter()
                .any(|one| nodes.iter().any(|node| *node.node_id == *one.node_id()))
        {
            return Ok(nodes);
        }
        self.own_nodes().await
    }

    async fn own_nodes(&self) -> Result<Arc<[RayNode]>, Refused> {
        let mut all = self.ray.nodes().await?;
        let addresses = self.location.addresses();
        all.retain(|node| self.location.is(node, &addresses));
        let nodes: Arc<[RayNode]> = all.into();
        *self.nodes.lock() = Some((Instant::now(), Arc::clone(&nodes)));
        Ok(nodes)
    }

    /// Drops from `here` each target behind which a process other than the worker is seen. Waits for an adapter that
    /// has just begun to listen, until it is connected to its worker.
    async fn verified_targets(
        &self,
        here: Vec<(Attributed, Vec<SocketAddr>)>,
    ) -> Result<Vec<DialTarget>, Refused> {
        let until = Instant::now() + ADAPTER_SETTLE_TIMEOUT;
        let scan = loop {
            let (processes, here) = (Arc::clone(&self.processes), here.clone());
            let inspection = tokio::task::spawn_blocking(move || scan(&processes, here));
            let Ok(scan) = inspection.await else {
                return Err(Refused::new(Refusal::Busy, "the agent is about to end"));
            };
            if !scan.unsettled || Instant::now() >= until {
                break scan;
            }
            sleep(SETTLE_POLL_INTERVAL).await;
        };
        let blind = scan.blind;
        if blind && !self.warned_blind.swap(true, Ordering::Relaxed) {
            warn!(
                "no other process is visible from here: only Ray's word says that a port is its worker's; run the agent as the workers' user and in their process namespace to have it checked"
            );
        }
        match scan.wrong {
            _ if !scan.good.is_empty() => Ok(scan.good),
            Some((pid, title)) => Err(wrong_process(pid, &title)),
            None if blind => Err(Refused::new(
                Refusal::WrongProcess,
                "Ray does not say on which node that prompt is, and the agent cannot see whose the port is",
            )),
            None => Err(Refused::new(
                Refusal::NotAWorker,
                "no process of that task listens there",
            )),
        }
    }

    /// Checks that the process that accepted `stream`, a connection to one of `targets`, is the one inspected before:
    /// the port may have changed hands since.
    ///
    /// # Errors
    /// [`Refused`]: nothing may be sent to it.
    pub(super) async fn verify_unchanged(
        &self,
        targets: &[DialTarget],
        stream: &TcpStream,
    ) -> Result<(), Refused> {
        let gone = || {
            Refused::new(
                Refusal::NotAWorker,
                "the debugger's connection broke at once",
            )
        };
        let local = stream.local_addr().map_err(|_| gone())?;
        let remote = stream.peer_addr().map_err(|_| gone())?;
        let target = targets.iter().find(|target| target.address == remote);
        let target = target.cloned().ok_or_else(gone)?;
        let unseen = target.unseen;
        let processes = Arc::clone(&self.processes);
        let inspection = tokio::task::spawn_blocking(move || {
            processes.answering_owner(local, remote, target.debugger.owner())
        });
        match inspection.await {
            Ok(SocketOwner::Expected) => Ok(()),
            Ok(SocketOwner::Unknown) if unseen => Ok(()),
            Ok(SocketOwner::Other(pid, title) | SocketOwner::Unsettled(pid, title)) => {
                Err(wrong_process(pid, &title))
            }
            Ok(SocketOwner::Unknown) => Err(Refused::new(
                Refusal::WrongProcess,
                "the debugger's port is no longer seen to be its worker's",
            )),
            Err(_) => Err(Refused::new(Refusal::Busy, "the agent is about to end")),
        }
    }

    /// Returns the workers of this machine whose process has `pid` in its own namespace, from `/proc`: at least one.
    ///
    /// # Errors
    /// [`Refused`], for the relay.
    pub(super) async fn residents(&self, pid: u32) -> Result<Vec<processes::Resident>, Refused> {
        let processes = Arc::clone(&self.processes);
        let inspection = tokio::task::spawn_blocking(move || {
            let found = processes.residents(pid);
            let blind = found.is_empty() && !processes.are_visible();
            (found, blind)
        });
        match inspection.await {
            Ok((found, _)) if !found.is_empty() => Ok(found),
            Ok((_, true)) => Err(Refused::new(
                Refusal::WrongProcess,
                "the node's agent sees no other process: run it as the workers' user and in their process namespace",
            )),
            Ok(_) => Err(Refused::new(
                Refusal::NotAWorker,
                "no worker on its node has that process any more",
            )),
            Err(_) => Err(Refused::new(Refusal::Busy, "the agent is about to end")),
        }
    }

    /// Returns the value of RAY_RELAY_HOOK in the environment with which `worker` was started.
    ///
    /// # Errors
    /// [`Refused`], for the relay: the environment cannot be read.
    pub(super) async fn hook_policy(&self, worker: u32) -> Result<String, Refused> {
        let processes = Arc::clone(&self.processes);
        let read = move || processes.environment_variable(worker, "RAY_RELAY_HOOK");
        let read = tokio::task::spawn_blocking(read).await;
        read.ok().flatten().ok_or_else(|| {
            Refused::new(
                Refusal::Other,
                "the node's agent cannot see whether its job forbids that: run it as the workers' user",
            )
        })
    }

    /// Returns the Ray sessions on this machine.
    pub(super) async fn sessions(&self) -> Vec<processes::Session> {
        let processes = Arc::clone(&self.processes);
        let inspection = tokio::task::spawn_blocking(move || processes.sessions());
        inspection.await.unwrap_or_default()
    }

    /// Returns the pid in its own namespace of the process `pid`, if `/proc` shows it to be a worker of the user
    /// `uid`.
    pub(super) async fn worker(&self, pid: u32, uid: u32) -> Option<u32> {
        let processes = Arc::clone(&self.processes);
        let inspection = tokio::task::spawn_blocking(move || processes.worker_of(pid, uid));
        inspection.await.ok().flatten()
    }

    /// Returns the workers, by their own pids, of which a process accepts connections to `port` from other machines.
    pub(super) async fn serving(&self, port: u16) -> Vec<u32> {
        let processes = Arc::clone(&self.processes);
        let inspection = tokio::task::spawn_blocking(move || processes.serving(port));
        inspection.await.unwrap_or_default()
    }

    /// Whether Ray lists `worker_id` as alive on a node of this machine, with the process `pid`.
    ///
    /// # Errors
    /// [`Refused`]: it does not, or cannot be asked.
    pub(super) async fn is_resident(&self, worker_id: &str, pid: u32) -> Result<(), Refused> {
        let found = self.ray.residents(pid).await?;
        let nodes = self.own_nodes().await?;
        let matches = |one: &Resident| {
            one.worker_id == worker_id && nodes.iter().any(|node| *node.node_id == *one.node_id)
        };
        match found.iter().any(matches) {
            true => Ok(()),
            false => Err(Refused::new(
                Refusal::NotAWorker,
                "Ray lists no such worker of its node with that process any more",
            )),
        }
    }

    /// Returns the node on which a Ray process with `title` listens on `port` of this machine, if any.
    pub(super) async fn locate(&self, port: u16, title: &str) -> Option<String> {
        let name = title.strip_prefix("ray::")?;
        let name = name.split('(').next().unwrap_or_default().to_owned();
        let nodes = self.own_nodes().await.ok()?;
        // With several nodes on one machine, the right one is unknown.
        let [node] = &*nodes else { return None };
        let mut at = vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        at.push(node.address);
        let processes = Arc::clone(&self.processes);
        let found = tokio::task::spawn_blocking(move || processes.listens(&name, port, &at));
        found
            .await
            .unwrap_or(false)
            .then(|| node.node_id.to_string())
    }
}

/// Inspects each of `here`. Blocks.
fn scan(processes: &Processes, here: Vec<(Attributed, Vec<SocketAddr>)>) -> TargetScan {
    let (mut scan, mut any_unseen) = (TargetScan::default(), false);
    for (debugger, targets) in here {
        // Where Ray names no node, only the process's title proves that it is this one.
        let nameless = debugger.node_id().is_empty();
        for address in targets {
            let target = |unseen| DialTarget {
                address,
                debugger: debugger.clone(),
                unseen,
            };
            match processes.listener_owner(address, debugger.owner()) {
                SocketOwner::Expected => scan.good.push(target(false)),
                SocketOwner::Unknown => {
                    any_unseen = true;
                    scan.good.extend((!nameless).then(|| target(true)));
                }
                SocketOwner::Unsettled(pid, title) => {
                    scan.unsettled = true;
                    scan.wrong = Some((pid, title));
                }
                SocketOwner::Other(pid, title) => scan.wrong = Some((pid, title)),
            }
        }
    }
    scan.blind = any_unseen && !processes.are_visible();
    scan
}

fn wrong_process(pid: u32, title: &str) -> Refused {
    warn!(
        pid,
        title, "a port that Ray attributes to a worker belongs to another process"
    );
    Refused::new(
        Refusal::WrongProcess,
        &format!("the port belongs to process {pid} ({title}), which is not the worker"),
    )
}

#[cfg(test)]
mod tests;
