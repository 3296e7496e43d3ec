//! `[park]`: sessions whose client is lost.

use std::time::Duration;

use crate::config::kind::duration;
use crate::config::units::{DAY, MINUTE};

settings! {
    /// `[park]`: what becomes of a session whose client is lost without a goodbye.
    pub struct Park = "park" {
        /// How long the task stays stopped for the same person to come again; nothing: not at all. A policy rule may say
        /// otherwise.
        r#for: Duration = 15 * MINUTE, duration(Duration::ZERO..=DAY);
    }
}
