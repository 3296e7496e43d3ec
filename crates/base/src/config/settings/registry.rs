//! `[registry]`: how paused workers are found.

use std::time::Duration;

use crate::config::kind::{SHORTEST, choice, duration, flag};
use crate::config::units::{DAY, HOUR, MINUTE, SECOND};

/// More often would be a load on the head, and no person would notice.
const SHORTEST_POLL: Duration = Duration::from_millis(100);

settings! {
    /// `[registry]`: how paused workers are found.
    pub struct Registry = "registry" {
        /// How often the heads are asked.
        poll_interval: Duration = SECOND, duration(SHORTEST_POLL..=MINUTE);
        /// The deadline of one request to the head.
        request_timeout: Duration = 5 * SECOND, duration(SHORTEST..=10 * MINUTE);
        /// Longest pause between polls of a head that does not answer.
        backoff_max: Duration = 30 * SECOND, duration(SHORTEST..=HOUR);
        /// How often the nodes are checked while anything is paused or attached.
        node_interval: Duration = 3 * SECOND, duration(SHORTEST_POLL..=HOUR);
        /// A snapshot older than this makes /relay/readyz?cluster=NAME fail.
        stale_after: Duration = 10 * SECOND, duration(SHORTEST..=HOUR);
        /// Asks /worker/traceback once for each newly paused worker.
        locations: bool = true, flag();
        /// How long ended breakpoints are remembered.
        keep_ended: Duration = 10 * MINUTE, duration(SHORTEST..=DAY);
        /// Whom to ask for paused workers.
        discovery: Discovery = Discovery::Http, choice();
    }
}

words! {
    /// Where paused workers are found.
    pub enum Discovery {
        /// The dashboard, port 8265.
        Http = "http",
        /// The global control store (GCS), port 6379.
        Gcs = "gcs",
    }
}
