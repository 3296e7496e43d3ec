//! Holds reported by the agents of nodes, of sessions of any relay.
//!
//! An agent reports with each change which workers are held through it, and by whom; it is believed for its own nodes
//! alone. A link that breaks, or whose credential has expired, leaves the agent's last report valid for
//! [`REPORT_VALIDITY`], or until the next link of the node reports another. An agent that has detached, or is not to be
//! trusted, leaves none.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::row::{Holder, RayNode, Worker};
use ray_relay_base::wire::tunnel::messages::HoldRow;

/// How long an agent's last report stays valid after its link broke: as long as a silent agent is considered alive.
pub const REPORT_VALIDITY: Duration = Duration::from_secs(15);

/// Cluster and id of a node.
type NodeKey = (Arc<str>, Arc<str>);

/// A worker that is held, but not by a session of this relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteHold {
    /// The node of the worker.
    pub node: RayNode,
    /// The worker, and its holder.
    pub held: HoldRow,
}

/// The last report of each agent, bounded by the number of agents, and the rows of one message for each.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug, Default)]
pub struct RemoteHolds {
    nodes: HashMap<NodeKey, HoldReport>,
}

/// The last report of an agent.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
struct HoldReport {
    /// The link of the report.
    link: u64,
    rows: Vec<RemoteHold>,
    /// End of its validity, if the link broke.
    until: Option<Instant>,
}

/// Workers whose reports have changed, to be merged anew.
pub type Touched = Vec<RemoteHold>;

impl RemoteHold {
    /// The holder.
    pub fn holder(&self) -> Holder {
        Holder::from(&self.held)
    }

    /// Whether the worker was held without a gap since `before`: by the same session, or by one that resumes its park.
    pub(super) fn continues(&self, before: &Self) -> bool {
        let session = |hold: &Self| (hold.held.replica, hold.held.session.clone());
        before.held.parked.is_some() || session(self) == session(before)
    }

    /// The identity of its session.
    fn session(&self) -> ([u8; 8], &str, &str, u16) {
        let held = &self.held;
        (held.replica.0, &held.session, &held.worker_id, held.port)
    }
}

impl RemoteHolds {
    /// Replaces the report of the agent on the link `link`, which serves `nodes`: it reports `held`, without this
    /// relay's own sessions.
    pub fn set_report(&mut self, link: u64, nodes: Vec<RayNode>, held: &[HoldRow]) -> Touched {
        let mut touched = forget(&mut self.nodes, |report| report.link == link);
        for node in nodes {
            let key = (Arc::clone(&node.cluster), Arc::clone(&node.node_id));
            let rows = held.iter().map(|held| RemoteHold {
                node: node.clone(),
                held: held.clone(),
            });
            let report = HoldReport {
                link,
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

    /// Handles the end of the link `link` at `now`. If its report `stays_valid`, it does so for a while; otherwise it
    /// is dropped.
    pub fn end_link(&mut self, link: u64, stays_valid: bool, now: Instant) -> Touched {
        if stays_valid {
            for report in self.nodes.values_mut().filter(|report| report.link == link) {
                report.until = Some(now + REPORT_VALIDITY);
            }
            return Touched::new();
        }
        forget(&mut self.nodes, |report| report.link == link)
    }

    /// Drops reports that are no longer valid at `now`.
    pub fn expire(&mut self, now: Instant) -> Touched {
        let is_over = |report: &HoldReport| report.until.is_some_and(|until| until <= now);
        forget(&mut self.nodes, is_over)
    }

    /// The time of the next [expiry](Self::expire).
    pub fn next_expiry(&self) -> Option<Instant> {
        self.nodes.values().filter_map(|report| report.until).min()
    }

    /// The remote hold of `worker`.
    pub fn of(&self, worker: &Worker<'_>) -> Option<&RemoteHold> {
        let is_it = |hold: &&RemoteHold| worker.is(&hold.node, &hold.held);
        // By node first, before any rows are compared.
        let reports = self.nodes.iter().filter(|((cluster, node_id), _)| {
            **cluster == *worker.cluster
                && (worker.node_id.is_empty() || **node_id == *worker.node_id)
        });
        reports.flat_map(|(_, report)| &report.rows).find(is_it)
    }

    /// Every reported hold. A worker under several names of its cluster, or reported by several agents, is included as
    /// often.
    pub fn iter(&self) -> impl Iterator<Item = &RemoteHold> {
        self.nodes.values().flat_map(|report| &report.rows)
    }

    /// The same, with each session once.
    pub fn sessions(&self) -> Vec<RemoteHold> {
        let mut all: Vec<_> = self.iter().collect();
        all.sort_by(|a, b| a.session().cmp(&b.session()));
        all.dedup_by(|a, b| a.session() == b.session());
        all.into_iter().cloned().collect()
    }
}

/// Drops the reports that are over, and returns their rows.
fn forget(
    reports: &mut HashMap<NodeKey, HoldReport>,
    is_over: impl Fn(&HoldReport) -> bool,
) -> Touched {
    let over = reports.extract_if(|_, report| is_over(report));
    over.flat_map(|(_, report)| report.rows).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use ray_relay_base::wire::tunnel::messages::{Hex, Kind};

    fn node(cluster: &str, node_id: &str) -> RayNode {
        RayNode {
            cluster: cluster.into(),
            node_id: node_id.into(),
            address: [10, 0, 0, 1].into(),
        }
    }

    /// Returns a report about the worker `w`.
    fn hold_row() -> HoldRow {
        HoldRow {
            worker_id: "w".into(),
            kind: Kind::Debugpy,
            port: 4000,
            name: "ada".into(),
            session: "7".into(),
            client: "nvim".into(),
            peer: None,
            replica: Hex([1; 8]),
            since_unix_ms: 1,
            parked: None,
        }
    }

    /// Returns the worker `w` as the registry lists it on that node.
    fn worker<'a>(cluster: &'a str, node_id: &'a str) -> Worker<'a> {
        Worker {
            cluster,
            node_id,
            node_ip: [10, 0, 0, 1].into(),
            worker_id: "w",
            kind: Kind::Debugpy,
            port: 4000,
        }
    }

    #[test]
    fn agent_reports_count_for_its_own_nodes_only() {
        let mut reports = RemoteHolds::default();
        reports.set_report(1, vec![node("east", "a1")], &[hold_row()]);
        assert!(reports.of(&worker("east", "a1")).is_some());
        for (cluster, node_id) in [("east", "b2"), ("west", "a1")] {
            assert_eq!(
                reports.of(&worker(cluster, node_id)),
                None,
                "{cluster} {node_id}"
            );
        }
        let another = Worker {
            worker_id: "v",
            ..worker("east", "a1")
        };
        assert_eq!(reports.of(&another), None);
    }

    #[tokio::test(start_paused = true)]
    async fn report_outlives_a_broken_link_but_not_a_detached_agent() {
        let now = Instant::now();
        for is_held in [true, false] {
            let mut reports = RemoteHolds::default();
            reports.set_report(1, vec![node("east", "a1")], &[hold_row()]);
            reports.set_report(2, vec![node("east", "b2")], &[hold_row()]);
            reports.end_link(1, is_held, now);
            let before_expiry = now + REPORT_VALIDITY - Duration::from_millis(1);
            assert!(reports.expire(before_expiry).is_empty());
            assert_eq!(reports.of(&worker("east", "a1")).is_some(), is_held);
            assert_eq!(
                reports.next_expiry(),
                is_held.then_some(now + REPORT_VALIDITY)
            );
            assert_eq!(
                reports.expire(now + REPORT_VALIDITY).len(),
                usize::from(is_held)
            );
            assert_eq!(reports.of(&worker("east", "a1")), None);
            assert!(
                reports.of(&worker("east", "b2")).is_some(),
                "another's word"
            );
        }
    }
}
