//! `[park]`: sessions that lost their client.

use std::time::Duration;

use crate::config::kind::duration;
use crate::config::units::{DAY, HOUR, MINUTE};

settings! {
    /// `[park]`: the handling of a session whose client is lost without a disconnect.
    pub struct Park = "park" {
        /// How long the task of a lost session stays stopped for the same principal; `0s`: not at all. A policy rule's
        /// `park` overrides it.
        r#for: Duration = 15 * MINUTE, duration(Duration::ZERO..=DAY);
        /// The longest time that `ray-relay park ID --for 16h` or `parkFor` may request. A policy rule's `park_max`
        /// overrides it, or, without one, its `park`.
        max: Duration = 16 * HOUR, duration(Duration::ZERO..=DAY);
    }
}
