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
use crate::wire::tunnel::messages::{HoldRow, Replica};

/// How long the word of an agent stands whose link broke: as long as one that is silent is taken to be there.
pub(crate) const KEPT: Duration = Duration::from_secs(15);

/// How long the word of a process of this machine stands that has ended: the keeper gives what that has left to this relay.
const GIVEN_BACK: Duration = Duration::from_secs(5);

/// Cluster and id of a node.
type NodeKey = (Arc<str>, Arc<str>);

/// A worker that is held elsewhere than by this relay's own sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemoteHold {
    /// The node of the worker.
    pub(crate) node: RayNode,
    /// The worker, and who holds it.
    pub(crate) held: HoldRow,
    /// It is another relay process of this machine that says so.
    pub(crate) at_neighbour: bool,
}

/// The last word of each. Bounded by who may speak: so many agents, and the rows of one message for each.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug, Default)]
pub(crate) struct RemoteHolds {
    nodes: HashMap<NodeKey, HoldReport>,
    /// What other relay processes of this machine say.
    processes: HashMap<Replica, HoldReport>,
    /// What such a process has handed over, until a session of this relay has it: the process says so no longer.
    handed_over: Vec<RemoteHold>,
}

/// The last word of one of them.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
struct HoldReport {
    /// The link on which an agent has said it; `None`: it is a process's.
    link: Option<u64>,
    rows: Vec<RemoteHold>,
    /// Until when it stands, where the link broke or the process has ended.
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

    fn is_of(&self, cluster: &str, worker_id: &str) -> bool {
        *self.node.cluster == *cluster && *self.held.worker_id == *worker_id
    }

    /// What tells its session from all others.
    fn session(&self) -> ([u8; 8], &str, &str, u16) {
        let held = &self.held;
        (held.replica.0, &held.session, &held.worker_id, held.port)
    }
}

impl RemoteHolds {
    /// The agent of the link `link`, which speaks for `nodes`, says that `held` is held through it by others than this relay's
    /// sessions.
    pub(crate) fn hear(&mut self, link: u64, nodes: Vec<RayNode>, held: &[HoldRow]) -> Touched {
        let mut touched = forget(&mut self.nodes, |report| report.link == Some(link));
        for node in nodes {
            let key = (Arc::clone(&node.cluster), Arc::clone(&node.node_id));
            let rows = held.iter().map(|held| RemoteHold {
                node: node.clone(),
                held: held.clone(),
                at_neighbour: false,
            });
            let report = HoldReport {
                link: Some(link),
                rows: rows.collect(),
                until: None,
            };
            touched.extend_from_slice(&report.rows);
            if let Some(old) = self.nodes.insert(key, report) {
                touched.extend(old.rows);
            }
        }
        touched
    }

    /// The link `link` has ended at `now`; its agent's word `stands` for a while, or not.
    pub(crate) fn leave(&mut self, link: u64, stands: bool, now: Instant) -> Touched {
        if stands {
            for report in self
                .nodes
                .values_mut()
                .filter(|report| report.link == Some(link))
            {
                report.until = Some(now + KEPT);
            }
            return Touched::new();
        }
        forget(&mut self.nodes, |report| report.link == Some(link))
    }

    /// Takes back what no longer stands at `now`.
    pub(crate) fn expire(&mut self, now: Instant) -> Touched {
        let is_over = |report: &HoldReport| report.until.is_some_and(|until| until <= now);
        let mut touched = forget(&mut self.nodes, is_over);
        touched.extend(forget(&mut self.processes, is_over));
        touched
    }

    /// When something is to be [taken back](Self::expire) next.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        let reports = self.nodes.values().chain(self.processes.values());
        reports.filter_map(|report| report.until).min()
    }

    /// The relay process `replica` of this machine says what its sessions hold.
    pub(crate) fn hear_process(&mut self, replica: Replica, holds: Vec<RemoteHold>) -> Touched {
        let mut touched = holds.clone();
        let report = HoldReport {
            link: None,
            rows: holds,
            until: None,
        };
        let before = self.processes.insert(replica, report);
        touched.extend(before.into_iter().flat_map(|before| before.rows));
        touched
    }

    /// The relay process `replica` of this machine has ended at `now`; its word `stands` for a while, or not.
    pub(crate) fn lose_process(&mut self, replica: Replica, stands: bool, now: Instant) -> Touched {
        if stands {
            if let Some(report) = self.processes.get_mut(&replica) {
                report.until = Some(now + GIVEN_BACK);
            }
            return Touched::new();
        }
        let lost = self.processes.remove(&replica);
        lost.into_iter().flat_map(|lost| lost.rows).collect()
    }

    /// A process of this machine has handed over the worker `worker_id` of `cluster`, or has left it.
    pub(crate) fn hand_over(&mut self, cluster: &str, worker_id: &str) -> Touched {
        let mut said = self.processes.values().flat_map(|report| &report.rows);
        let held = said.find(|hold| hold.is_of(cluster, worker_id)).cloned();
        self.handed_over.extend(held);
        Touched::new()
    }

    /// A session of this relay has that worker, or it is not to be had.
    pub(crate) fn taken_up(&mut self, cluster: &str, worker_id: &str) -> Touched {
        let taken = |hold: &mut RemoteHold| hold.is_of(cluster, worker_id);
        let taken: Touched = self.handed_over.extract_if(.., taken).collect();
        // A process that has ended says it still.
        let is_taken = |row: &RemoteHold| taken.iter().any(|it| it.session() == row.session());
        for report in self.processes.values_mut() {
            report.rows.retain(|row| !is_taken(row));
        }
        taken
    }

    /// The other relay processes of this machine.
    pub(crate) fn processes(&self) -> impl Iterator<Item = Replica> {
        let there = self
            .processes
            .iter()
            .filter(|(_, report)| report.until.is_none());
        there.map(|(replica, _)| *replica)
    }

    /// Who else has `worker`. A process of this machine knows its own sessions better than an agent does.
    pub(crate) fn of(&self, worker: &Worker<'_>) -> Option<&RemoteHold> {
        let is_it = |hold: &&RemoteHold| worker.is(&hold.node, &hold.held);
        let by_process = self.by_processes().find(is_it);
        by_process.or_else(|| {
            // Before any rows are looked at.
            let reports = self.nodes.iter().filter(|((cluster, node_id), _)| {
                **cluster == *worker.cluster
                    && (worker.node_id.is_empty() || **node_id == *worker.node_id)
            });
            reports.flat_map(|(_, report)| &report.rows).find(is_it)
        })
    }

    /// All that is said, those of processes first. What is known by several names of its cluster, or said by several, is there
    /// as often.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &RemoteHold> {
        let by_nodes = self.nodes.values().flat_map(|report| &report.rows);
        self.by_processes().chain(by_nodes)
    }

    fn by_processes(&self) -> impl Iterator<Item = &RemoteHold> {
        let said = self.processes.values().flat_map(|report| &report.rows);
        said.chain(&self.handed_over)
    }

    /// The same, each session once.
    pub(crate) fn sessions(&self) -> Vec<RemoteHold> {
        let mut all: Vec<_> = self.iter().collect();
        all.sort_by(|a, b| a.session().cmp(&b.session()));
        all.dedup_by(|a, b| a.session() == b.session());
        all.into_iter().cloned().collect()
    }
}

/// Drops the reports that are over, and says what was in them.
fn forget<K>(
    reports: &mut HashMap<K, HoldReport>,
    is_over: impl Fn(&HoldReport) -> bool,
) -> Touched {
    let over = reports.extract_if(|_, report| is_over(report));
    over.flat_map(|(_, report)| report.rows).collect()
}
