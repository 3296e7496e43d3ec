//! Nodes from which a worker has vanished without a report from Ray ([`crate::ray::registry::nodes`]).

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long a node stays suspected: longer than Ray takes to notice a cut cable (about 64 s).
const SUSPICION_PERIOD: Duration = Duration::from_secs(75);

/// Most nodes under suspicion at a time.
const MAX_SUSPECTED_NODES: usize = 64;

/// Nodes of one cluster under suspicion.
#[derive(Default)]
pub(super) struct Suspects {
    until: Mutex<HashMap<String, Instant>>,
    news: Notify,
}

impl Suspects {
    /// Marks `node_id`: a worker there has vanished without a report from Ray.
    pub(super) fn add(&self, node_id: &str) {
        let mut until = self.until.lock();
        if until.len() < MAX_SUSPECTED_NODES || until.contains_key(node_id) {
            until.insert(node_id.to_owned(), Instant::now() + SUSPICION_PERIOD);
            self.news.notify_one();
        }
    }

    /// The current ones.
    pub(super) fn now(&self) -> Vec<String> {
        let mut until = self.until.lock();
        let now = Instant::now();
        until.retain(|_, until| *until > now);
        until.keys().cloned().collect()
    }

    /// Resolves when there is a new one. Cancel safe.
    pub(super) async fn news(&self) {
        self.news.notified().await;
    }
}
