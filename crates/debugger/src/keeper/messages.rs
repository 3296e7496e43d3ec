//! What a relay and its keeper say to each other. Types that are not known are passed over: the other side may be newer.

use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use ray_relay_base::wire::tunnel::text::Hex;

/// The version of what is said here.
pub(super) const PROTOCOL: u32 = 1;

/// Tells one kept connection from another.
pub(super) type KeepKey = Hex<16>;

/// A connection and its record.
pub(super) type KeptPair = (KeepKey, OwnedFd, OwnedFd);

/// See the module.
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
        /// Which.
        key: KeepKey,
    },
    /// The descriptor is the [record](super::record) of a connection that was said before.
    Record {
        /// Which.
        key: KeepKey,
    },
    /// The relay needs a connection no longer.
    Remove {
        /// Which.
        key: KeepKey,
    },
    /// The keeper has said everything that was unclaimed when the relay came.
    All,
    /// Something that this version does not know.
    #[serde(other, skip_serializing)]
    Unknown,
}
