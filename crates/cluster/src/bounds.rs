//! Limits of a cluster on this machine.

use std::time::Duration;

/// Time limit from start until all nodes are alive; it takes about ten seconds on two quiet cores.
pub(crate) const UP_DEADLINE: Duration = Duration::from_secs(180);
