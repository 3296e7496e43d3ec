//! The id of a breakpoint, as people type it.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use ray_relay_base::wire::text::{BASE32, base32};

/// Short stable name of one worker's debugger: eight characters, derived from the name of the cluster and Ray's worker
/// id alone, so every replica of the relay computes the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BreakpointId(u64);

impl BreakpointId {
    /// Characters of an id.
    pub const LEN: usize = 8;

    /// The id of the worker `worker_id` (hex, as Ray prints it) of `cluster`.
    pub fn derive(cluster: &str, worker_id: &str) -> Self {
        // FNV-1a, 64 bits folded to 40: stable across releases, unlike std's hasher. It keeps
        // nothing secret; an id is a name, never a permission.
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        for byte in cluster.bytes().chain([0]).chain(worker_id.bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Self((hash ^ (hash >> 40)) & 0xff_ffff_ffff)
    }

    /// The 40 bits behind the text, for deriving further names from an id.
    pub fn bits(self) -> u64 {
        self.0
    }
}

impl fmt::Display for BreakpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = base32::<{ Self::LEN }>(self.0);
        f.pad(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for BreakpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not eight characters of the id alphabet.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "a breakpoint id is {} characters of 0-9 and a-z without i, l, o, u",
    BreakpointId::LEN
)]
pub struct BadBreakpointId;

impl FromStr for BreakpointId {
    type Err = BadBreakpointId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() != Self::LEN {
            return Err(BadBreakpointId);
        }
        let mut bits = 0u64;
        for byte in text.bytes() {
            let digit = BASE32
                .iter()
                .position(|a| *a == byte.to_ascii_lowercase())
                .ok_or(BadBreakpointId)?;
            bits = bits << 5 | digit as u64;
        }
        Ok(Self(bits))
    }
}

impl Serialize for BreakpointId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breakpoint_id_is_stable_and_unique_to_its_worker() {
        let id = BreakpointId::derive("east", "01ab");
        // The id must be stable: users note it down, and other replicas derive the same id.
        assert_eq!(id.to_string(), "cgvem00x");
        for (cluster, worker) in [("west", "01ab"), ("east", "01ac"), ("east0", "1ab")] {
            let other = BreakpointId::derive(cluster, worker);
            assert_ne!(id, other, "{cluster} {worker}");
        }
    }
}
