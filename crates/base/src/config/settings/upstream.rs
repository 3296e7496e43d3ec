//! `[upstream]`: the path to the workers.

use crate::config::kind::{choice, count};

settings! {
    /// `[upstream]`: the path to the workers.
    pub struct Upstream = "upstream" {
        /// The path to workers whose cluster sets none.
        path: UpstreamPath = UpstreamPath::PreferAgent, choice();
        /// Links of agents at a time.
        max_agents: usize = 4096, count(1..=100_000);
    }
}

words! {
    /// The path to workers.
    pub enum UpstreamPath {
        /// Through the agent of their node if one is linked, otherwise directly.
        PreferAgent = "prefer-agent",
        /// Through the agent of their node only.
        Agent = "agent",
        /// Directly, even if agents are linked.
        Direct = "direct",
    }
}
