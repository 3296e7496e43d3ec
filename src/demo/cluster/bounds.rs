//! What a cluster on this machine may take.

use std::time::Duration;

/// The deadline from start to all nodes alive; it takes about ten seconds on two quiet cores.
pub(super) const UP_DEADLINE: Duration = Duration::from_secs(180);

/// Ports that the system does not hand out by itself on Linux (from 32768) or macOS (from 49152).
pub(super) const PORTS: std::ops::Range<u16> = 20_000..32_000;
