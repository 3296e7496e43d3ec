//! Agents as their stand-ins see a relay.
#![allow(clippy::unwrap_used)]

use crate::wire::tunnel::messages::{Announce, PROTOCOL};
use crate::wire::tunnel::text::Hex;

/// What an agent says of itself, with a nonce of zeros.
pub(super) fn announcement(node_id: Option<&str>, addresses: &[&str]) -> Announce {
    Announce {
        protocol: PROTOCOL,
        version: "0.1.0".into(),
        nonce: Hex([0; 16]),
        instance: Hex([1; 16]),
        node_id: node_id.map(Into::into),
        addresses: addresses.iter().map(|ip| ip.parse().unwrap()).collect(),
        hostname: "box".into(),
        architecture: "x86_64".into(),
        pid: 7,
        sees_processes: true,
    }
}
