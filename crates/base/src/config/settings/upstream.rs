//! `[upstream]`: the way to the workers.

use crate::config::kind::{choice, count};

settings! {
    /// `[upstream]`: the way to the workers.
    pub struct Upstream = "upstream" {
        /// By which way workers are reached, where their cluster says nothing else.
        path: UpstreamPath = UpstreamPath::PreferAgent, choice();
        /// Links of agents at a time.
        max_agents: usize = 4096, count(1..=100_000);
    }
}

words! {
    /// By which way workers are reached.
    pub enum UpstreamPath {
        /// Through the agent of their node where one is linked, otherwise directly.
        PreferAgent = "prefer-agent",
        /// Through the agent of their node and no other way.
        Agent = "agent",
        /// Directly, whatever agents there are.
        Direct = "direct",
    }
}
