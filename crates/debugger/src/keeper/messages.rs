//! The protocol between a relay and its keeper. Unknown types are ignored: the other side may be newer.

use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use ray_relay_base::wire::tunnel::text::Hex;

/// The version of this protocol.
pub(super) const PROTOCOL: u32 = 1;

/// The id of a kept connection.
pub(super) type KeepKey = Hex<16>;

/// A connection and its record.
pub(super) type KeptPair = (KeepKey, OwnedFd, OwnedFd);

/// A message between a relay and its keeper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum KeeperMessage {
    /// The first message of both sides.
    Hello {
        /// [`PROTOCOL`].
        protocol: u32,
    },
    /// The descriptor is a connection to a debugger.
    Debugger {
        /// Its id.
        key: KeepKey,
    },
    /// The descriptor is the [record](super::record) of a connection that was announced before.
    Record {
        /// Its id.
        key: KeepKey,
    },
    /// The relay no longer needs a connection.
    Remove {
        /// Its id.
        key: KeepKey,
    },
    /// The keeper has sent everything that was unclaimed when the relay connected.
    All,
    /// A message that this version does not know.
    #[serde(other, skip_serializing)]
    Unknown,
}
