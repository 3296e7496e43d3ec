//! The nodes of a cluster, and the lost ones among them: the rows of a lost node's workers say "paused" for good.
//!
//! Ray itself notices at once if a raylet shut down, after about 13 s if it was killed, and after about a minute if
//! the cable was cut. The first part to notice that a worker has vanished without a report from Ray marks its node as
//! suspected: it is queried each second from then on.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::ray::head::HeadClient;
use crate::ray::registry::shared::Shared;
use crate::ray::registry::state::Cluster;
use crate::ray::registry::{live_nodes, query};

/// The shortest time between two queries for a node that another part knows.
const MIN_QUERY_INTERVAL: Duration = Duration::from_secs(1);

/// Queries a head for its nodes, and remembers when.
pub(super) struct Nodes<'a> {
    shared: &'a Shared,
    cluster: Cluster,
    head: &'a HeadClient,
    checked: Mutex<Option<Instant>>,
    /// When the head was last queried, whether it responded or not.
    queried: Mutex<Option<Instant>>,
}

impl<'a> Nodes<'a> {
    pub(super) fn new(shared: &'a Shared, cluster: Cluster, head: &'a HeadClient) -> Self {
        Self {
            shared,
            cluster,
            head,
            checked: Mutex::default(),
            queried: Mutex::default(),
        }
    }

    /// Whether the last response is older than `node_interval`.
    pub(super) fn are_due(&self) -> bool {
        let interval = self.shared.settings.node_interval;
        let checked = *self.checked.lock();
        checked.is_none_or(|at| at.elapsed() >= interval)
    }

    /// When the head may be queried out of turn.
    pub(super) fn next_query_at(&self) -> Instant {
        let queried = *self.queried.lock();
        queried.map_or_else(Instant::now, |at| at + MIN_QUERY_INTERVAL)
    }

    /// Queries all nodes and applies the response. Cancel safe: an unanswered query is sent again.
    pub(super) async fn check(&self) {
        let handle = self.shared.clusters.at(self.cluster);
        let sent = Instant::now();
        *self.queried.lock() = Some(sent);
        match query::nodes(self.head).await {
            Ok(list) => {
                *self.checked.lock() = Some(Instant::now());
                let rows = list.into_rows();
                self.shared
                    .change(|state, now| (state.apply_nodes(self.cluster, &rows, now), ()));
                let alive = live_nodes::alive(&handle.name, &rows);
                live_nodes::publish(&self.shared.nodes, &handle.name, alive);
                handle.nodes_answered(sent);
            }
            Err(error) => {
                let cluster = &handle.name;
                tracing::debug!(%cluster, %error, "the nodes are asked for again at the next poll");
            }
        }
    }
}
