//! `[release]`

use std::time::Duration;

/// When tasks that wait at a breakpoint are let go by themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// `after`, default `off`: a breakpoint that has waited for so long is released.
    pub after: Option<Duration>,
    /// `announce`, default 5 min: so long before, it is announced in the event stream and the audit log.
    pub announce: Duration,
    /// `clusters`: names of those for which it holds; empty, the default: for all.
    pub clusters: Vec<String>,
}

impl Release {
    /// How long a breakpoint of `cluster` may wait; `None`: as long as it likes.
    pub fn after_on(&self, cluster: &str) -> Option<Duration> {
        let holds = self.clusters.is_empty() || self.clusters.iter().any(|name| name == cluster);
        self.after.filter(|_| holds)
    }
}

impl Default for Release {
    fn default() -> Self {
        Self {
            after: None,
            announce: Duration::from_secs(300),
            clusters: Vec::new(),
        }
    }
}
