//! What others say that they have: the agents of nodes, of sessions of any relay, and the other relay processes of this
//! machine, of their own.
//!
//! An agent says with each change which workers are held through it, and by whom; for its own nodes alone it is believed.
//! A link that breaks, or whose credential has expired, leaves the agent's last word standing for [`KEPT`], or until the next
//! link of the node says another; an agent that has left, or is not to be trusted, leaves none.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::row::{Holder, RayNode, Worker};
use crate::wire::tunnel::messages::{Held, Replica};

/// How long the word of an agent stands whose link broke: as long as one that is silent is taken to be there.
pub(crate) const KEPT: Duration = Duration::from_secs(15);

/// Cluster and id of a node.
type NodeKey = (Arc<str>, Arc<str>);

/// A worker that somebody else than this relay's own sessions has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemoteHold {
    /// The node of the worker.
    pub(crate) node: RayNode,
    /// The worker, and who holds it.
    pub(crate) held: Held,
    /// It is another relay process of this machine that says so.
    pub(crate) at_neighbour: bool,
}

/// The last word of everybody. Bounded by who may speak: so many agents, and the rows of one message for each.
#[derive(Debug, Default)]
pub(crate) struct RemoteHolds {
    nodes: HashMap<NodeKey, NodeReport>,
    /// What other relay processes of this machine say.
    processes: HashMap<Replica, Vec<RemoteHold>>,
}

/// The last word of the agent of one node.
#[derive(Debug)]
struct NodeReport {
    link: u64,
    node: RayNode,
    held: Arc<[Held]>,
    /// Until when it stands, where its link broke.
    until: Option<Instant>,
}

/// Of which workers something else is said than before: to be looked up anew.
pub(crate) type Touched = Vec<RemoteHold>;

impl RemoteHold {
    /// Who has it.
    pub(crate) fn holder(&self) -> Holder {
        Holder {
            at_neighbour: self.at_neighbour,
            ..Holder::from(&self.held)
        }
    }

    /// Whether the worker was held all the time since `before`: by the same session, or by one that goes on with what was
    /// parked.
    pub(super) fn goes_on_with(&self, before: &Self) -> bool {
        let session = |hold: &Self| (hold.held.replica, hold.held.session.clone());
        before.held.parked.is_some() || session(self) == session(before)
    }

    /// What tells its session from all others.
    pub(crate) fn session(&self) -> ([u8; 8], &str, &str, u16) {
        let held = &self.held;
        (held.replica.0, &held.session, &held.worker_id, held.port)
    }
}

impl NodeReport {
    fn rows(&self) -> impl Iterator<Item = RemoteHold> {
        self.held.iter().map(|held| RemoteHold {
            node: self.node.clone(),
            held: held.clone(),
            at_neighbour: false,
        })
    }
}

impl RemoteHolds {
    /// The agent of the link `link`, which speaks for `nodes`, says that `held` is held through it by others than this relay's
    /// sessions.
    pub(crate) fn hear(&mut self, link: u64, nodes: Vec<RayNode>, held: &Arc<[Held]>) -> Touched {
        let mut touched = Touched::new();
        let old = self.nodes.extract_if(|_, report| report.link == link);
        touched.extend(old.flat_map(|(_, report)| report.rows().collect::<Vec<_>>()));
        for node in nodes {
            let report = NodeReport {
                link,
                held: Arc::clone(held),
                until: None,
                node,
            };
            touched.extend(report.rows());
            let key = (
                Arc::clone(&report.node.cluster),
                Arc::clone(&report.node.node_id),
            );
            if let Some(old) = self.nodes.insert(key, report) {
                touched.extend(old.rows());
            }
        }
        touched
    }

    /// The link `link` has ended at `now`; its agent's word `stands` for a while, or not.
    pub(crate) fn leave(&mut self, link: u64, stands: bool, now: Instant) -> Touched {
        if stands {
            for report in self.nodes.values_mut().filter(|report| report.link == link) {
                report.until = Some(now + KEPT);
            }
            return Touched::new();
        }
        self.forget(|report| report.link == link)
    }

    /// Takes back what no longer stands at `now`.
    pub(crate) fn expire(&mut self, now: Instant) -> Touched {
        self.forget(|report| report.until.is_some_and(|until| until <= now))
    }

    /// When something is to be [taken back](Self::expire) next.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        self.nodes.values().filter_map(|report| report.until).min()
    }

    fn forget(&mut self, is_over: impl Fn(&NodeReport) -> bool) -> Touched {
        let over = self.nodes.extract_if(|_, report| is_over(report));
        over.flat_map(|(_, report)| report.rows().collect::<Vec<_>>())
            .collect()
    }

    /// The relay process `replica` of this machine says what its sessions hold.
    pub(crate) fn hear_process(&mut self, replica: Replica, holds: Vec<RemoteHold>) -> Touched {
        let mut touched = holds.clone();
        touched.extend(self.processes.insert(replica, holds).unwrap_or_default());
        touched
    }

    /// The relay process `replica` of this machine has ended.
    pub(crate) fn lose_process(&mut self, replica: Replica) -> Touched {
        self.processes.remove(&replica).unwrap_or_default()
    }

    /// The other relay processes of this machine.
    pub(crate) fn processes(&self) -> impl Iterator<Item = Replica> {
        self.processes.keys().copied()
    }

    /// Who else has `worker`. A process of this machine knows its own sessions better than an agent does.
    pub(crate) fn of(&self, worker: &Worker<'_>) -> Option<RemoteHold> {
        let mut said = self.processes.values().flatten();
        if let Some(hold) = said.find(|hold| worker.is(&hold.node, &hold.held)) {
            return Some(hold.clone());
        }
        self.nodes.values().find_map(|report| {
            // Before all its rows are looked at.
            if *report.node.cluster != *worker.cluster
                || !worker.node_id.is_empty() && *report.node.node_id != *worker.node_id
            {
                return None;
            }
            let mut rows = report.held.iter();
            let held = rows.find(|held| worker.is(&report.node, held))?;
            Some(RemoteHold {
                node: report.node.clone(),
                held: held.clone(),
                at_neighbour: false,
            })
        })
    }

    /// All, each session once: a node may be known by several names of its cluster.
    pub(crate) fn all(&self) -> Vec<RemoteHold> {
        let said = self.processes.values().flatten().cloned();
        let mut all: Vec<_> = said
            .chain(self.nodes.values().flat_map(NodeReport::rows))
            .collect();
        all.sort_by(|a, b| a.session().cmp(&b.session()));
        all.dedup_by(|a, b| a.session() == b.session());
        all
    }
}
