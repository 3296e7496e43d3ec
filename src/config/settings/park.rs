//! `[park]`: sessions whose client is lost.

use std::time::Duration;

use crate::config::kind::duration;
use crate::config::units::{DAY, HOUR, MINUTE};

settings! {
    /// `[park]`: what becomes of a session whose client is lost without a goodbye.
    pub struct Park = "park" {
        /// How long the task stays stopped for the same person to come again; nothing: not at all. A policy rule may say
        /// otherwise.
        r#for: Duration = 15 * MINUTE, duration(Duration::ZERO..=DAY);
        /// The longest time for which somebody may ask who leaves a task stopped on purpose: `ray-relay park ID --for 12h`, or
        /// `parkFor` in `rayRelay`. Where `for` or the policy's `park` is longer, that; where the policy has none, none may.
        max: Duration = 12 * HOUR, duration(Duration::ZERO..=DAY);
    }
}
