//! The agent's own look before it dials: what Ray says of the debugger, and whose the listening socket is.
//!
//! A relay names a worker and a port. Nothing that it says is dialled before Ray's registry has attributed that port to
//! that worker, alive and on a node that this machine is.

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

/// The deadline of one question to Ray.
const RAY_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an adapter may take to connect with its worker before its port is taken to be another's.
const SETTLES: Duration = Duration::from_secs(5);

/// The pause between two looks at such a one.
const AGAIN: Duration = Duration::from_millis(100);

/// Processes with the same connection that are asked about.
const MAX_FORKS: usize = 8;

/// How long the nodes that this machine is are taken for the same.
const NODES_KEPT: Duration = Duration::from_secs(10);

/// What tells which nodes this machine is.
#[derive(Debug, Clone)]
pub(super) struct NodeLocation {
    pub(super) node_id: Option<String>,
    /// The addresses that are given; where there are none, the machine's own.
    pub(super) given: Vec<IpAddr>,
    /// A node at a loopback address is this machine's, because its head is.
    pub(super) loopback: bool,
}

impl NodeLocation {
    /// The addresses of this machine at this moment.
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        let mut all = match self.given.is_empty() {
            true => machine::addresses(),
            false => self.given.clone(),
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

/// Why a debugger is not dialled.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) kind: Refusal,
    pub(super) detail: Sentence,
    /// Who holds the worker, where that is why.
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

/// Why who has dialled the agent is not heard. `Display` is for the log.
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

/// Where a debugger may be dialled, and whose the process has to be that answers.
#[derive(Debug, Clone)]
pub(super) struct DialTarget {
    pub(super) address: SocketAddr,
    debugger: Attributed,
    /// Nothing was seen at the look.
    unseen: bool,
}

/// What is seen of some ways.
#[derive(Default)]
struct TargetScan {
    good: Vec<DialTarget>,
    wrong: Option<(u32, String)>,
    unsettled: bool,
    /// No process can be seen, so that nothing is known of some of them.
    blind: bool,
}

/// Looks, at Ray and at this machine.
pub(super) struct TargetVerifier {
    ray: Attribution,
    place: NodeLocation,
    processes: Arc<Processes>,
    nodes: Mutex<Option<(Instant, Arc<[RayNode]>)>>,
    /// It was said that it cannot be checked whose a socket is.
    said: AtomicBool,
}

impl TargetVerifier {
    /// Asks the head of `cluster`; processes are those in `proc`.
    ///
    /// # Errors
    /// [`HeadConfigError`].
    pub(super) fn new(
        cluster: &config::Cluster,
        place: NodeLocation,
        proc: &Path,
    ) -> Result<Self, HeadConfigError> {
        Ok(Self {
            ray: Attribution::new(cluster, RAY_TIMEOUT)?,
            place,
            processes: Arc::new(Processes::new(proc)),
            nodes: Mutex::default(),
            said: AtomicBool::new(false),
        })
    }

    /// Whether it can be checked now whose a socket is.
    pub(super) async fn sees_processes(&self) -> bool {
        let processes = Arc::clone(&self.processes);
        let looked = tokio::task::spawn_blocking(move || processes.are_seen());
        looked.await.unwrap_or(false)
    }

    pub(super) fn place(&self) -> &NodeLocation {
        &self.place
    }

    /// Where the debugger that `open` asks for may be dialled, in this order.
    ///
    /// # Errors
    /// [`Refused`], for the relay.
    pub(super) async fn ways(&self, open: &Open) -> Result<Vec<DialTarget>, Refused> {
        let found = self.ray.debuggers(open.kind, &open.worker_id, open.port);
        let found = found.await?;
        let nodes = self.nodes(&found).await?;
        let addresses = self.place.addresses();
        let here = found.iter().filter_map(|debugger| {
            let node = nodes
                .iter()
                .find(|node| *node.node_id == *debugger.node_id())
                .map(|node| node.address);
            // Before Ray 2.40 the entry of a legacy debugger says an address, or none that helps.
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
            let ways = debugger.ways(&own);
            (!ways.is_empty()).then(|| (debugger.clone(), ways))
        });
        let here: Vec<_> = here.collect();
        if here.is_empty() {
            return Err(Refused::new(
                Refusal::NotAWorker,
                "Ray attributes that port to no live worker of the agent's node",
            ));
        }
        self.owned(here).await
    }

    /// The live worker of this machine's nodes whose process has the end at `peer` of a connection from there to `local`.
    ///
    /// # Errors
    /// [`UnverifiedPeer`]: whatever is not known to be a worker is none.
    pub(super) async fn caller(
        &self,
        peer: SocketAddr,
        local: SocketAddr,
    ) -> Result<Resident, UnverifiedPeer> {
        let processes = Arc::clone(&self.processes);
        let looked = tokio::task::spawn_blocking(move || processes.connected(peer, local));
        let mut pids = looked.await.unwrap_or_default();
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

    /// The job of the worker that has left `task`, by Ray's word: its process has to be that worker's, and the task that worker's.
    pub(super) async fn job_of(&self, task: &FailedTask) -> Option<String> {
        let residents = self.ray.residents(task.pid).await.ok()?;
        let is_it =
            |one: &Resident| *one.worker_id == *task.worker_id && *one.node_id == *task.node_id;
        let worker = residents.iter().find(|one| is_it(one))?;
        self.ray.job_of(worker, &task.task_id).await.ok()?
    }

    /// The nodes that this machine is and one of which `wanted` names; asked for anew where the last answer has none.
    async fn nodes(&self, wanted: &[Attributed]) -> Result<Arc<[RayNode]>, Refused> {
        let known = self.nodes.lock().clone();
        if let Some((at, nodes)) = known
            && at.elapsed() < NODES_KEPT
            && wanted
                .iter()
                .any(|one| nodes.iter().any(|node| *node.node_id == *one.node_id()))
        {
            return Ok(nodes);
        }
        self.own_nodes().await
    }

    async fn own_nodes(&self) -> Result<Arc<[RayNode]>, Refused> {
        let mut all = self.ray.nodes().await?;
        let addresses = self.place.addresses();
        all.retain(|node| self.place.is(node, &addresses));
        let nodes: Arc<[RayNode]> = all.into();
        *self.nodes.lock() = Some((Instant::now(), Arc::clone(&nodes)));
        Ok(nodes)
    }

    /// Of `here` those behind which no process is seen that is not the worker's. An adapter that has just begun to listen is
    /// waited for, until it is connected with its worker.
    async fn owned(
        &self,
        here: Vec<(Attributed, Vec<SocketAddr>)>,
    ) -> Result<Vec<DialTarget>, Refused> {
        let until = Instant::now() + SETTLES;
        let seen = loop {
            let (processes, here) = (Arc::clone(&self.processes), here.clone());
            let looked = tokio::task::spawn_blocking(move || seen(&processes, here));
            let Ok(seen) = looked.await else {
                return Err(Refused::new(Refusal::Busy, "the agent is about to end"));
            };
            if !seen.unsettled || Instant::now() >= until {
                break seen;
            }
            sleep(AGAIN).await;
        };
        let blind = seen.blind;
        if blind && !self.said.swap(true, Ordering::Relaxed) {
            warn!(
                "no other process is visible from here: only Ray's word says that a port is its worker's; run the agent as the workers' user and in their process namespace to have it checked"
            );
        }
        match seen.wrong {
            _ if !seen.good.is_empty() => Ok(seen.good),
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

    /// Whether the process that has taken `stream`, a connection to one of `ways`, is the one that was looked at: its port
    /// may have become another's since.
    ///
    /// # Errors
    /// [`Refused`]: nothing may be said to it.
    pub(super) async fn still(
        &self,
        ways: &[DialTarget],
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
        let way = ways.iter().find(|way| way.address == remote);
        let way = way.cloned().ok_or_else(gone)?;
        let unseen = way.unseen;
        let processes = Arc::clone(&self.processes);
        let looked = tokio::task::spawn_blocking(move || {
            processes.answers(local, remote, way.debugger.owner())
        });
        match looked.await {
            Ok(SocketOwner::Its) => Ok(()),
            Ok(SocketOwner::Unseen) if unseen => Ok(()),
            Ok(SocketOwner::Anothers(pid, title) | SocketOwner::Unsettled(pid, title)) => {
                Err(wrong_process(pid, &title))
            }
            Ok(SocketOwner::Unseen) => Err(Refused::new(
                Refusal::WrongProcess,
                "the debugger's port is no longer seen to be its worker's",
            )),
            Err(_) => Err(Refused::new(Refusal::Busy, "the agent is about to end")),
        }
    }

    /// The workers of this machine whose process calls itself `pid`, as `/proc` shows them: at least one.
    ///
    /// # Errors
    /// [`Refused`], for the relay.
    pub(super) async fn residents(&self, pid: u32) -> Result<Vec<processes::Resident>, Refused> {
        let processes = Arc::clone(&self.processes);
        let looked = tokio::task::spawn_blocking(move || {
            let found = processes.residents(pid);
            let blind = found.is_empty() && !processes.are_seen();
            (found, blind)
        });
        match looked.await {
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

    /// What RAY_RELAY_HOOK says in the environment with which `worker` was started.
    ///
    /// # Errors
    /// [`Refused`], for the relay: it cannot be told.
    pub(super) async fn may_of(&self, worker: u32) -> Result<String, Refused> {
        let processes = Arc::clone(&self.processes);
        let read = move || processes.started_with(worker, "RAY_RELAY_HOOK");
        let read = tokio::task::spawn_blocking(read).await;
        read.ok().flatten().ok_or_else(|| {
            Refused::new(
                Refusal::Other,
                "the node's agent cannot see whether its job forbids that: run it as the workers' user",
            )
        })
    }

    /// The sessions of Ray's on this machine.
    pub(super) async fn sessions(&self) -> Vec<processes::Session> {
        let processes = Arc::clone(&self.processes);
        let looked = tokio::task::spawn_blocking(move || processes.sessions());
        looked.await.unwrap_or_default()
    }

    /// The number by which the process `pid` calls itself, if `/proc` shows it to be a worker's, of the user `uid`.
    pub(super) async fn worker(&self, pid: u32, uid: u32) -> Option<u32> {
        let processes = Arc::clone(&self.processes);
        let looked = tokio::task::spawn_blocking(move || processes.worker_of(pid, uid));
        looked.await.ok().flatten()
    }

    /// Whether Ray lists `worker_id` as alive on a node of this machine, with the process `pid`.
    ///
    /// # Errors
    /// [`Refused`]: it does not, or cannot be asked.
    pub(super) async fn is_resident(&self, worker_id: &str, pid: u32) -> Result<(), Refused> {
        let found = self.ray.residents(pid).await?;
        let nodes = self.own_nodes().await?;
        let is_it = |one: &Resident| {
            one.worker_id == worker_id && nodes.iter().any(|node| *node.node_id == *one.node_id)
        };
        match found.iter().any(is_it) {
            true => Ok(()),
            false => Err(Refused::new(
                Refusal::NotAWorker,
                "Ray lists no such worker of its node with that process any more",
            )),
        }
    }

    /// Whether a process of Ray's with `title` listens on `port` of this machine, and on which node.
    pub(super) async fn locate(&self, port: u16, title: &str) -> Option<String> {
        let name = title.strip_prefix("ray::")?;
        let name = name.split('(').next().unwrap_or_default().to_owned();
        let nodes = self.own_nodes().await.ok()?;
        // Where several nodes are on one machine, it cannot be told which.
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

/// What is seen of each of `here`. It blocks.
fn seen(processes: &Processes, here: Vec<(Attributed, Vec<SocketAddr>)>) -> TargetScan {
    let (mut seen, mut any_unseen) = (TargetScan::default(), false);
    for (debugger, ways) in here {
        // Where Ray does not say the node, only the process's title tells that it is this one.
        let nameless = debugger.node_id().is_empty();
        for address in ways {
            let way = |unseen| DialTarget {
                address,
                debugger: debugger.clone(),
                unseen,
            };
            match processes.verdict(address, debugger.owner()) {
                SocketOwner::Its => seen.good.push(way(false)),
                SocketOwner::Unseen => {
                    any_unseen = true;
                    seen.good.extend((!nameless).then(|| way(true)));
                }
                SocketOwner::Unsettled(pid, title) => {
                    seen.unsettled = true;
                    seen.wrong = Some((pid, title));
                }
                SocketOwner::Anothers(pid, title) => seen.wrong = Some((pid, title)),
            }
        }
    }
    seen.blind = any_unseen && !processes.are_seen();
    seen
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
