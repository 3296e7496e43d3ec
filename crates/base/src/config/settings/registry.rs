//! `[registry]`: how paused workers are found.

use std::time::Duration;

use crate::config::kind::{SHORTEST, duration, flag};
use crate::config::units::{MINUTE, SECOND};

/// A shorter interval would load the head, and no person would notice the difference.
const SHORTEST_POLL: Duration = Duration::from_millis(100);

settings! {
    /// `[registry]`: how paused workers are found.
    pub struct Registry = "registry" {
        /// Interval of polls of the heads.
        poll_interval: Duration = SECOND, duration(SHORTEST_POLL..=MINUTE);
        /// The deadline of one request to the head.
        request_timeout: Duration = 5 * SECOND, duration(SHORTEST..=10 * MINUTE);
        /// Whether /worker/traceback is requested once for each newly paused worker.
        locations: bool = true, flag();
    } constants {
        /// Longest pause between polls of a head that does not answer.
        backoff_max: Duration = 30 * SECOND;
        /// Interval of node checks while anything is paused or attached: workers of a lost node stay "alive" in Ray's
        /// list for good, and only the node's state shows the loss.
        node_interval: Duration = 3 * SECOND;
    }
}
