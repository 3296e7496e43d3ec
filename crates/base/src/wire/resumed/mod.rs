//! Connections that outlive what carries them: the bytes of one, both ways, over one WebSocket after another.
//!
//! A person's `ray-relay connect` opens a link at the relay for each connection that it accepts. Either side counts the bytes that it
//! has written ([`offsets`]) and keeps those that the other has not taken; when a WebSocket is lost, the command opens another
//! and says how far it has received, the relay answers the same, and both go on from there. What is kept is bounded, and
//! a writer that is faster than the reader waits: nothing is lost, doubled or cut.
//!
//! [`LinkedStream`] is the end that is read and written, [`LinkHandle`] what lies behind it, and [`carry()`] moves the bytes over
//! one WebSocket until that is lost.

mod carry;
mod link;
pub mod messages;
pub mod offsets;

use std::time::Duration;

pub use self::carry::{Cut, carry};
pub use self::link::{LinkHandle, LinkedStream, Phase};

/// Where links are opened, at a relay; one that is resumed has its id behind it.
pub const CONNECT_PATH: &str = "/relay/v1/connect";

/// The subprotocol of a link.
pub const CONNECT_PROTOCOL: &str = "ray-relay-connect.v1";

/// The header in which a command says how far it has received.
pub const RECEIVED_HEADER: &str = "ray-relay-received";

/// The header in which a command says which one it is: an [`Opener`](messages::Opener).
pub const OPENER_HEADER: &str = "ray-relay-connect-from";

/// The header in which a relay that does not know a link says which relay it is.
pub const REPLICA_HEADER: &str = "ray-relay-replica";

/// Bytes towards the relay that it has not taken.
pub const UP: usize = 256 * 1024;

/// Bytes from the relay that the command has not taken: a large variable is one message of megabytes.
pub const DOWN: usize = 1024 * 1024;

/// How often either side asks whether the other is there.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(5);

/// Who was silent for so long is gone.
pub const SILENCE: Duration = Duration::from_secs(15);

/// The same of one whose presence is doubted, because the same person has come by another connection.
pub const DOUBTED: Duration = Duration::from_secs(4);

#[cfg(test)]
mod tests;
