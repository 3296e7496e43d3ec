//! Which nodes of a cluster are lost: the rows of a lost node's workers say "paused" for good.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use super::query;
use super::shared::Shared;
use super::state::Cluster;
use crate::head::HeadClient;

/// Asks a head for its nodes, and when it did so last.
pub(super) struct Nodes<'a> {
    shared: &'a Shared,
    cluster: Cluster,
    head: &'a HeadClient,
    checked: Mutex<Option<Instant>>,
}

impl<'a> Nodes<'a> {
    pub(super) fn new(shared: &'a Shared, cluster: Cluster, head: &'a HeadClient) -> Self {
        Self {
            shared,
            cluster,
            head,
            checked: Mutex::default(),
        }
    }

    /// The last answer is older than `node_interval`.
    pub(super) fn are_due(&self) -> bool {
        let interval = self.shared.settings.node_interval;
        let checked = *self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        checked.is_none_or(|at| at.elapsed() >= interval)
    }

    /// Asks for all nodes and takes in the answer. Cancel safe: what is not answered is asked again.
    pub(super) async fn check(&self) {
        match query::nodes(self.head).await {
            Ok(list) => {
                *self.checked.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
                let rows = list.into_rows();
                self.shared
                    .change(|state, now| (state.apply_nodes(self.cluster, &rows, now), ()));
            }
            Err(error) => {
                let cluster = &self.shared.clusters[self.cluster].name;
                tracing::debug!(%cluster, %error, "the nodes are asked for again at the next poll");
            }
        }
    }
}
