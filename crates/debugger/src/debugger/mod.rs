//! The connection to a worker's debugger, debugpy or the legacy one, and how it is led to its end in the order that the
//! debugger survives. It knows neither sessions nor people: a relay opens one for a permit, an agent for what Ray attributes.
//!
//! [`Worker`] is the connection to debugpy, over a [`Stream`]; `protocol_tracker` follows what passes over it; `goodbye` ends it, and
//! tells the [`Tenant`] how far it is. [`let_run`] attaches for no other purpose than to leave. [`legacy`] is the same for
//! Ray's older debugger, [`unattended`] is a debugger of either kind without a client, [`waiting`] the park of relays and agents
//! alike, and [`at_node`] what an agent needs of all that.

pub mod at_node;
mod goodbye;
pub mod kept;
pub mod legacy;
pub mod let_run;
mod line;
mod progress;
mod protocol_tracker;
mod resync;
mod stream;
mod tenant;
pub mod unattended;
pub mod waiting;
mod worker;

pub use self::goodbye::settled;
pub use self::stream::{Direct, Stream, Tunnelled};
pub use self::tenant::Tenant;
pub use self::worker::Worker;

use std::time::Duration;

/// Idle time before a worker's node is asked whether it is still there.
pub const PROBE_AFTER: Duration = Duration::from_secs(10);
