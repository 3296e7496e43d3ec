//! Which link speaks for which node. No I/O and no clock; under the lock of [`super::Agents`].
//!
//! Invariants: at most one link speaks for a node; an agent has at most one link; no agent speaks for a contested node.
//! A link is in here from its claim to its end.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::end::AgentLinkEnd;
use super::link::Link;
use super::{MAX_INSPECTIONS, MAX_STREAMS, MAX_WAITING_STREAMS};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::tunnel::messages::Name;
use ray_relay_base::wire::tunnel::text::Hex;
use ray_relay_ray::ray::registry::RayNode;

/// How long a node stays contested after two agents claimed it.
const CONTEST_DURATION: Duration = Duration::from_secs(60);

/// Remembered nodes whose agent is gone.
const MAX_LOST_NODES: usize = 4096;

/// Cluster and id of a node.
pub(super) type NodeKey = (Arc<str>, Arc<str>);

/// Identifies an agent's process across its links.
pub(super) type Instance = Hex<16>;

/// State shared by the links of one agent process and its streams, which may outlive a link.
#[derive(Debug)]
pub(super) struct AgentProcess {
    /// A permit for each stream.
    pub(super) streams: Arc<Semaphore>,
    /// A permit for each stream that is requested and not open yet.
    pub(super) waiting: Arc<Semaphore>,
    /// A permit for each concurrent inspection.
    pub(super) inspections: Semaphore,
    /// Fires when the agent is no longer trusted: every stream breaks.
    pub(super) cut: CancellationToken,
    /// Breaks the stream of one session of this relay.
    pub(super) sessions: Mutex<HashMap<Name, CancellationToken>>,
}

/// When and why the agent of a node went.
#[derive(Debug, Clone)]
pub(super) struct Lost {
    pub(super) since: Timestamp,
    pub(super) why: String,
}

/// Links and the nodes that they speak for.
#[derive(Debug)]
pub(super) struct Table {
    /// Limit of links.
    most: usize,
    last: u64,
    links: HashMap<u64, Arc<Link>>,
    by_node: HashMap<NodeKey, u64>,
    contested: HashMap<NodeKey, Instant>,
    lost: HashMap<NodeKey, Lost>,
    processes: HashMap<Instance, Weak<AgentProcess>>,
}

/// Result of a claim.
#[derive(Debug)]
pub(super) enum ClaimOutcome {
    /// The link speaks for its nodes; the `replaced` links of the same agent must end.
    Taken { replaced: Vec<Arc<Link>> },
    /// Two agents claimed this node a short while ago.
    Contested(RayNode),
    /// These links of other agents speak for some of the nodes.
    Rivals(Vec<Arc<Link>>),
    /// The limit of links is reached.
    Full,
}

pub(super) fn key(node: &RayNode) -> NodeKey {
    (Arc::clone(&node.cluster), Arc::clone(&node.node_id))
}

impl Table {
    /// Creates a table for at most `most` links.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            last: 0,
            links: HashMap::new(),
            by_node: HashMap::new(),
            contested: HashMap::new(),
            lost: HashMap::new(),
            processes: HashMap::new(),
        }
    }

    /// Allocates the id of a new link.
    pub(super) fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The shared state of the links and streams of `instance`.
    pub(super) fn process(&mut self, instance: Instance) -> Arc<AgentProcess> {
        let known = self.processes.get(&instance).and_then(Weak::upgrade);
        if let Some(process) = known.filter(|process| !process.cut.is_cancelled()) {
            return process;
        }
        self.processes.retain(|_, known| known.strong_count() > 0);
        let process = Arc::new(AgentProcess {
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            waiting: Arc::new(Semaphore::new(MAX_WAITING_STREAMS)),
            inspections: Semaphore::new(MAX_INSPECTIONS),
            cut: CancellationToken::new(),
            sessions: Mutex::default(),
        });
        self.processes.insert(instance, Arc::downgrade(&process));
        process
    }

    /// Claims `nodes`, and no others, for `link`.
    pub(super) fn claim(
        &mut self,
        link: &Arc<Link>,
        nodes: &[RayNode],
        now: Instant,
    ) -> ClaimOutcome {
        self.contested.retain(|_, until| *until > now);
        let is_contested = |node: &&RayNode| self.contested.contains_key(&key(node));
        if let Some(node) = nodes.iter().find(is_contested) {
            return ClaimOutcome::Contested(node.clone());
        }
        let mut rivals: Vec<Arc<Link>> = Vec::new();
        for node in nodes {
            let other = self
                .by_node
                .get(&key(node))
                .and_then(|id| self.links.get(id));
            if let Some(other) = other.filter(|other| !other.is_of_same_agent(link))
                && rivals.iter().all(|known| known.id != other.id)
            {
                rivals.push(Arc::clone(other));
            }
        }
        if !rivals.is_empty() {
            return ClaimOutcome::Rivals(rivals);
        }
        let of_same_agent =
            |other: &&Arc<Link>| other.id != link.id && other.is_of_same_agent(link);
        let replaced: Vec<_> = self.links.values().filter(of_same_agent).cloned().collect();
        let stays = self.links.contains_key(&link.id) || !replaced.is_empty();
        if !stays && self.links.len() >= self.most {
            return ClaimOutcome::Full;
        }
        let gone = |id: &u64| *id == link.id || replaced.iter().any(|old| old.id == *id);
        self.by_node.retain(|_, id| !gone(id));
        for old in &replaced {
            self.links.remove(&old.id);
        }
        self.links.insert(link.id, Arc::clone(link));
        for node in nodes {
            self.lost.remove(&key(node));
            self.by_node.insert(key(node), link.id);
        }
        link.set_nodes(nodes);
        ClaimOutcome::Taken { replaced }
    }

    /// Marks `nodes` as contested: no agent speaks for them for a while.
    pub(super) fn contest<'a>(
        &mut self,
        nodes: impl IntoIterator<Item = &'a RayNode>,
        now: Instant,
    ) {
        for node in nodes {
            self.contested.insert(key(node), now + CONTEST_DURATION);
        }
    }

    /// Removes `link`, which ended by `end`; returns whether it was still in here.
    pub(super) fn leave(&mut self, link: &Link, end: &AgentLinkEnd, now: Timestamp) -> bool {
        if self.links.remove(&link.id).is_none() {
            return false;
        }
        self.by_node.retain(|_, id| *id != link.id);
        for node in link.nodes().iter() {
            self.lose(key(node), end, now);
        }
        true
    }

    fn lose(&mut self, node: NodeKey, end: &AgentLinkEnd, now: Timestamp) {
        if self.lost.len() >= MAX_LOST_NODES && !self.lost.contains_key(&node) {
            let oldest = self.lost.iter().min_by_key(|(_, lost)| lost.since);
            if let Some(oldest) = oldest.map(|(node, _)| node.clone()) {
                self.lost.remove(&oldest);
            }
        }
        let why = end.to_string();
        self.lost.insert(node, Lost { since: now, why });
    }

    /// The link that speaks for the node `node_id` of `cluster`.
    pub(super) fn of_node(&self, cluster: &str, node_id: &str) -> Option<&Arc<Link>> {
        let id = self.by_node.get(&(cluster.into(), node_id.into()))?;
        self.links.get(id)
    }

    /// All links.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Link>> {
        self.links.values()
    }

    /// All links that speak for a node of `cluster`.
    pub(super) fn of_cluster(&self, cluster: &str) -> Vec<Arc<Link>> {
        let speaks = |link: &&Arc<Link>| link.nodes().iter().any(|node| *node.cluster == *cluster);
        self.links.values().filter(speaks).cloned().collect()
    }

    /// The link of the agent process `instance` whose principal is valid and has this `subject`.
    pub(super) fn vouches(&self, instance: &Instance, subject: &str) -> Option<Arc<Link>> {
        let of_it = |link: &&Arc<Link>| {
            let principal = &link.principal;
            link.about.instance == *instance
                && principal.subject() == subject
                && principal.is_over().is_none()
        };
        self.links.values().find(of_it).cloned()
    }

    /// When and why the agent of that node went.
    pub(super) fn lost(&self, cluster: &str, node_id: &str) -> Option<&Lost> {
        self.lost.get(&(cluster.into(), node_id.into()))
    }

    /// Whether two agents claim that node.
    pub(super) fn is_contested(&self, cluster: &str, node_id: &str, now: Instant) -> bool {
        let until = self.contested.get(&(cluster.into(), node_id.into()));
        until.is_some_and(|until| *until > now)
    }

    /// Whether there is no link.
    pub(super) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }
}
