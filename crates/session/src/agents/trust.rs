//! Decides which nodes an agent may speak for. Pure.

use std::net::IpAddr;

use ray_relay_access::policy::{Access, NodeVoice};
use ray_relay_base::wire::tunnel::messages::{Announce, MAX_ROWS};
use ray_relay_ray::ray::registry::RayNode;

/// The `live` nodes that match the agent's announcement and that it may speak for: its credential names them, or it
/// connects from their address.
pub(super) fn nodes(
    announced: &Announce,
    live: &[RayNode],
    peer: IpAddr,
    access: &Access,
) -> Vec<RayNode> {
    let stands_on = |node: &RayNode| match &announced.node_id {
        Some(id) => *node.node_id == **id,
        None => {
            let mut addresses = announced.addresses.iter();
            addresses.any(|address| is_same(*address, node.address))
        }
    };
    let may = |node: &RayNode| {
        let voice = access.voice_of(&node.cluster, &node.node_id, node.address);
        match voice {
            Some(NodeVoice::ByName) => true,
            Some(NodeVoice::AtItsAddress) => is_same(peer, node.address),
            None => false,
        }
    };
    let mine = live.iter().filter(|node| stands_on(node) && may(node));
    mine.take(MAX_ROWS).cloned().collect()
}

/// Why there are none. Does not reveal whether the node is missing or the credential insufficient.
pub(super) fn none(announced: &Announce, peer: IpAddr) -> String {
    let where_it_is = match &announced.node_id {
        Some(id) => format!("with the id {id}"),
        None if announced.addresses.is_empty() => "at no address".to_owned(),
        None => {
            let addresses = announced.addresses.iter().take(8).map(IpAddr::to_string);
            format!("at {}", addresses.collect::<Vec<_>>().join(" or "))
        }
    };
    format!(
        "there is no live Ray node {where_it_is} that this credential may speak for. The head has to list the node as alive, and the credential needs the permission `node`: with `nodes` that name the node, or with a link from the node's address (this one comes from {})",
        peer.to_canonical()
    )
}

fn is_same(a: IpAddr, b: IpAddr) -> bool {
    a.to_canonical() == b.to_canonical()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::agents::testing::announcement;
    use ray_relay_access::identity::Principal;
    use ray_relay_access::policy::{BreakpointSelector, Pattern, Rule};

    fn node(cluster: &str, node_id: &str, address: &str) -> RayNode {
        RayNode {
            cluster: cluster.into(),
            node_id: node_id.into(),
            address: address.parse().unwrap(),
        }
    }

    fn access(nodes: &[&str]) -> Access {
        let rule = Rule {
            scopes: "node".parse().unwrap(),
            selector: BreakpointSelector {
                nodes: nodes.iter().map(|node| Pattern::new(*node)).collect(),
                ..BreakpointSelector::default()
            },
            ..Rule::default()
        };
        Access::new(vec![Arc::new(rule)])
    }

    #[test]
    fn agent_is_trusted_for_its_own_node_by_name_or_address() {
        let live = [
            node("east", "a1", "10.0.0.1"),
            node("east", "b2", "10.0.0.2"),
            node("west", "c3", "10.0.0.1"),
        ];
        let ids = |announced: &Announce, peer: &str, access: &Access| {
            let own_nodes = nodes(announced, &live, peer.parse().unwrap(), access);
            let ids: Vec<_> = own_nodes
                .iter()
                .map(|node| node.node_id.to_string())
                .collect();
            ids.join(" ")
        };
        let by_id = |id: &str| announcement(Some(id), &[]);
        let by_address = |address: &str| announcement(None, &[address]);
        let unnamed = access(&[]);
        // The agent connects from the address of its node.
        assert_eq!(ids(&by_address("10.0.0.1"), "10.0.0.1", &unnamed), "a1 c3");
        assert_eq!(ids(&by_id("a1"), "::ffff:10.0.0.1", &unnamed), "a1");
        // The agent announces another node than that of its address.
        assert_eq!(ids(&by_id("b2"), "10.0.0.1", &unnamed), "");
        assert_eq!(ids(&by_address("10.0.0.2"), "10.0.0.1", &unnamed), "");
        assert_eq!(ids(&by_id("b2"), "10.0.0.1", &access(&["a1"])), "");
        // A node named by a rule may connect from any address.
        assert_eq!(ids(&by_id("b2"), "192.0.2.1", &access(&["b2", "c3"])), "b2");
        assert_eq!(
            ids(&by_address("10.0.0.2"), "192.0.2.1", &access(&["10.0.0.*"])),
            "b2"
        );
        assert_eq!(
            ids(&by_id("d4"), "192.0.2.1", &access(&["*"])),
            "",
            "it is not alive"
        );
        assert_eq!(
            ids(&announcement(None, &[]), "10.0.0.1", &access(&["*"])),
            ""
        );
        // An unauthenticated agent needs the address of its node.
        let anonymous = Principal::anonymous();
        assert_eq!(ids(&by_id("b2"), "10.0.0.1", anonymous.access()), "");
        assert_eq!(ids(&by_id("b2"), "10.0.0.2", anonymous.access()), "b2");
    }
}
