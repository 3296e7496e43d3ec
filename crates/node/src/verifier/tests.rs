//! Tests how an agent recognises its own node.

use super::*;

#[test]
fn agent_matches_its_node_by_id_or_else_by_address() {
    let node = |node_id: &str, last: u8| RayNode {
        cluster: "default".into(),
        node_id: node_id.into(),
        address: [10, 0, 0, last].into(),
    };
    let location = |node_id: Option<&str>| NodeLocation {
        node_id: node_id.map(str::to_owned),
        configured: Vec::new(),
        loopback: false,
    };
    let addresses = [IpAddr::from([10, 0, 0, 1])];
    let with_id = location(Some("a1"));
    assert!(with_id.is(&node("a1", 2), &addresses));
    assert!(
        !with_id.is(&node("b2", 1), &addresses),
        "another at the same address"
    );
    let without_id = location(None);
    assert!(without_id.is(&node("b2", 1), &addresses));
    assert!(!without_id.is(&node("a1", 2), &addresses));
}
