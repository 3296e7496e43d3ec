//! What a cluster on this machine may take.

use std::time::Duration;

/// The deadline from start to all nodes alive; it takes about ten seconds on two quiet cores.
pub(crate) const UP_DEADLINE: Duration = Duration::from_secs(180);
