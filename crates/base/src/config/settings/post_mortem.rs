//! `[post_mortem]`: black boxes of tasks that fail.

use std::time::Duration;

use crate::config::kind::{count, duration, flag, size};
use crate::config::units::{DAY, HOUR, KIB, MIB, SECOND};
use crate::wire::tunnel::messages::MOST_FAILED;

settings! {
    /// `[post_mortem]`: what is kept of tasks that raise an exception, by the agents of their nodes.
    pub struct PostMortem = "post_mortem" {
        /// Whether stack and variables of such a task are kept. It takes the hook in the worker and an agent on its node.
        enabled: bool = false, flag();
        /// Tasks of which one node's agent keeps something; beyond, the oldest of the job that has most give way.
        max_tasks: usize = 64, count(1..=MOST_FAILED);
        /// Bytes of all that one agent keeps.
        max_bytes: usize = 16 * MIB, size(512 * KIB..=256 * MIB);
        /// For how long.
        keep_for: Duration = 24 * HOUR, duration(10 * SECOND..=30 * DAY);
    }
}
