//! `[connect]`: the links of `ray-relay connect`.

use std::time::Duration;

use crate::config::kind::{count, duration};
use crate::config::units::{DAY, MINUTE};

settings! {
    /// `[connect]`: the links of `ray-relay connect`.
    pub struct Connect = "connect" {
        /// How long a link whose network is gone can be resumed; 0s: not at all.
        resume: Duration = 15 * MINUTE, duration(Duration::ZERO..=DAY);
        /// Connections through `ray-relay connect` at a time; a quarter for one principal.
        max_links: usize = 1024, count(1..=100_000);
    }
}
