//! `[park]`: sessions whose client is lost.

use std::time::Duration;

use crate::config::kind::duration;
use crate::config::units::{DAY, HOUR, MINUTE};

settings! {
    /// `[park]`: what becomes of a session whose client is lost without a goodbye.
    pub struct Park = "park" {
        /// How long the task of a lost session stays stopped for the same person; `0s`: not at all. A policy rule's `park` goes
        /// before it.
        r#for: Duration = 15 * MINUTE, duration(Duration::ZERO..=DAY);
        /// The longest time that `ray-relay park ID --for 16h` or `parkFor` may ask for. A policy rule's `park_max` goes before
        /// it, and without one its `park`.
        max: Duration = 16 * HOUR, duration(Duration::ZERO..=DAY);
    }
}
