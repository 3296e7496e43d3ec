//! The connection to a worker's debugger, debugpy or the legacy one, and its end in the order that the debugger
//! survives. It knows neither sessions nor users: a relay opens one with a permit, an agent by Ray's attribution.
//!
//! [`Worker`] is the connection to debugpy, over a [`Stream`]; `protocol_tracker` follows its traffic; `detach`
//! detaches, and reports the progress to the [`Tenant`]. [`let_run`] attaches only to detach. [`legacy`] is the
//! counterpart for Ray's older debugger, [`unattended`] is a debugger of either kind without a client, [`waiting`] the
//! park of relays and agents alike, and [`at_node`] the part for agents.

pub mod at_node;
mod connection;
mod detach;
pub mod kept;
pub mod legacy;
pub mod let_run;
mod progress;
mod protocol_tracker;
mod resync;
mod stream;
mod tenant;
pub mod unattended;
pub mod waiting;
mod worker;

pub use self::detach::settled;
pub use self::stream::{Direct, Stream, Tunnelled};
pub use self::tenant::Tenant;
pub use self::worker::Worker;

use std::time::Duration;

/// Idle time before keepalive probes of a worker's node.
pub const PROBE_AFTER: Duration = Duration::from_secs(10);
