//! The Ray nodes that heads list as alive, with their addresses.
//!
//! Derived from the same response that tells which nodes are lost ([`crate::ray::registry::nodes`]), and published
//! separately from the list of breakpoints: nodes seldom change, and few parts need them.

use std::sync::Arc;

use tokio::sync::watch;

use crate::hold::RayNode;
use crate::ray::registry::rows::NodeRow;

/// The nodes of `cluster` in `rows`. A row without a valid address is skipped.
pub(super) fn alive(cluster: &Arc<str>, rows: &[NodeRow]) -> Vec<RayNode> {
    let node = |row: &NodeRow| {
        let ip = row.node_ip.trim_start_matches('[').trim_end_matches(']');
        let is_alive = row.state.eq_ignore_ascii_case("ALIVE") && !row.node_id.is_empty();
        Some(RayNode {
            cluster: Arc::clone(cluster),
            node_id: is_alive.then(|| row.node_id.as_str().into())?,
            address: ip.parse().ok()?,
        })
    };
    let mut nodes: Vec<_> = rows.iter().filter_map(node).collect();
    nodes.sort_unstable();
    nodes.dedup_by(|a, b| a.node_id == b.node_id);
    nodes
}

/// Replaces the published nodes of `cluster` by `now`; wakes no task if they are the same.
pub(super) fn publish(
    published: &watch::Sender<Arc<[RayNode]>>,
    cluster: &Arc<str>,
    now: Vec<RayNode>,
) {
    published.send_if_modified(|all| {
        let of_it = |node: &&RayNode| node.cluster == *cluster;
        if all.iter().filter(of_it).eq(&now) {
            return false;
        }
        let others = all.iter().filter(|node| !of_it(node)).cloned();
        let mut next: Vec<_> = others.chain(now).collect();
        next.sort_unstable();
        *all = next.into();
        true
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(node_id: &str, node_ip: &str, state: &str) -> NodeRow {
        NodeRow {
            node_id: node_id.to_owned(),
            node_ip: node_ip.to_owned(),
            state: state.to_owned(),
            state_message: String::new(),
        }
    }

    #[test]
    fn live_nodes_are_replaced_without_redundant_wakeups() {
        let (east, west) = (Arc::from("east"), Arc::from("west"));
        let published = watch::Sender::new(Arc::from([]));
        let mut watcher = published.subscribe();
        let rows = [
            row("b2", "10.0.0.2", "ALIVE"),
            row("a1", "fd00::1", "ALIVE"),
            row("c3", "10.0.0.3", "DEAD"),
            row("", "10.0.0.4", "ALIVE"),
            row("d4", "node.example.com", "ALIVE"),
        ];
        publish(&published, &west, alive(&west, &rows[..1]));
        publish(&published, &east, alive(&east, &rows));
        let summaries = |all: &[RayNode]| {
            let summaries = all
                .iter()
                .map(|n| format!("{} {} {}", n.cluster, n.node_id, n.address));
            summaries.collect::<Vec<_>>()
        };
        assert_eq!(
            summaries(&watcher.borrow_and_update()),
            ["east a1 fd00::1", "east b2 10.0.0.2", "west b2 10.0.0.2"]
        );
        publish(&published, &east, alive(&east, &rows));
        assert!(!watcher.has_changed().unwrap_or(true));
        publish(&published, &east, Vec::new());
        assert_eq!(
            summaries(&watcher.borrow_and_update()),
            ["west b2 10.0.0.2"]
        );
    }
}
