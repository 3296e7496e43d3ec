//! Fixtures for tests of agents.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use ray_relay_base::wire::tunnel::messages::{Announce, PROTOCOL};
use ray_relay_base::wire::tunnel::text::Hex;
use ray_relay_ray::ray::registry::RayNode;

/// Returns an announcement with a nonce of zeros.
pub fn announcement(node_id: Option<&str>, addresses: &[&str]) -> Announce {
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
        reverse_ports: None,
        keeps: true,
        keeps_prompts: true,
        keeps_subprocesses: true,
        inspects: true,
        arms: true,
    }
}

pub fn node(node_id: &str, address: &str) -> RayNode {
    RayNode {
        cluster: "default".into(),
        node_id: node_id.into(),
        address: address.parse().unwrap(),
    }
}
