//! On which node an agent is.

use super::*;

#[test]
fn agent_matches_its_node_by_id_or_else_by_address() {
    let node = |node_id: &str, last: u8| RayNode {
        cluster: "default".into(),
        node_id: node_id.into(),
        address: [10, 0, 0, last].into(),
    };
    let place = |node_id: Option<&str>| NodeLocation {
        node_id: node_id.map(str::to_owned),
        configured: Vec::new(),
        loopback: false,
    };
    let here = [IpAddr::from([10, 0, 0, 1])];
    let told = place(Some("a1"));
    assert!(told.is(&node("a1", 2), &here));
    assert!(
        !told.is(&node("b2", 1), &here),
        "another at the same address"
    );
    let untold = place(None);
    assert!(untold.is(&node("b2", 1), &here));
    assert!(!untold.is(&node("a1", 2), &here));
}
