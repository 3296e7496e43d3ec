//! Connections that outlive their transport: both directions of one, over one WebSocket after another.
//!
//! A user's `ray-relay connect` opens a link at the relay for each connection that it accepts. Each side counts the
//! bytes that it has written ([`offsets`]) and stores those that the peer has not acknowledged. When a WebSocket is
//! lost, the command opens another and reports how far it has received, the relay does the same, and both continue
//! from there. The store is bounded, and a writer that is faster than the reader waits: nothing is lost, doubled or
//! cut.
//!
//! `protocol.md` has the protocol, for those who write another opener of links; `editors/vscode` has one.
//!
//! [`LinkedStream`] is the end that is read and written, [`LinkHandle`] its counterpart, and [`carry()`] moves the
//! bytes over one WebSocket until that is lost.

mod carry;
mod link;
pub mod messages;
pub mod offsets;

use std::time::Duration;

pub use self::carry::{Cut, carry};
pub use self::link::{LinkHandle, LinkedStream, Phase};

/// Path at which a relay opens links; the id of a link to resume is appended.
pub const CONNECT_PATH: &str = "/relay/v1/connect";

/// The subprotocol of a link.
pub const CONNECT_PROTOCOL: &str = "ray-relay-connect.v1";

/// The header with the position up to which a command has received.
pub const RECEIVED_HEADER: &str = "ray-relay-received";

/// The header by which a command identifies itself: an [`Opener`](messages::Opener).
pub const OPENER_HEADER: &str = "ray-relay-connect-from";

/// The header by which a relay that does not know a link identifies itself.
pub const REPLICA_HEADER: &str = "ray-relay-replica";

/// Unacknowledged bytes towards the relay.
pub const UP_WINDOW_BYTES: usize = 256 * 1024;

/// Unacknowledged bytes from the relay: a large variable is one message of megabytes.
pub const DOWN_WINDOW_BYTES: usize = 1024 * 1024;

/// Interval of pings by either side.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(5);

/// Silence after which the peer is considered gone.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(15);

/// The same for a peer that is doubted, because its user has connected in another way.
pub const DOUBT_TIMEOUT: Duration = Duration::from_secs(4);

#[cfg(test)]
mod tests;
