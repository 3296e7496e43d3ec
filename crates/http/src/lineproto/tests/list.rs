//! Selecting from the list.

use crate::lineproto::tests::*;

#[tokio::test]
async fn viewer_of_the_list_may_not_enter() {
    let relay = relay(true, |_| {});
    let pdb = Pdb::listed(&relay).await;
    let mut lou = Client::connect(&relay);
    lou.send(&format!("{}\n0\nq\n", token_of("lou"))).await;
    let output = lou.read_all().await;
    assert!(
        output.contains("outer") && output.contains("permission `terminal`"),
        "{output}"
    );
    let mut eve = Client::connect(&relay);
    let enter = format!("enter {}\n{}\n", pdb.breakpoint.id, token_of("eve"));
    eve.send(&enter).await;
    let output = eve.read_all().await;
    assert!(
        output.contains("no paused worker has the id") && !output.contains("outer"),
        "{output}"
    );
    assert!(relay.context.registry.snapshot().live[0].is_paused());
    pdb.expect_not_dialled();
}

#[tokio::test]
async fn prompt_on_the_loopback_of_a_node_is_not_dialled() {
    let relay = relay(false, |config| {
        config.clusters[0].ray_address = "http://10.0.0.1:8265".to_owned();
    });
    let pdb = Pdb::listed(&relay).await;
    let mut client = Client::connect(&relay);
    client.send("0\nq\n").await;
    let output = client.read_all().await;
    assert!(output.contains("--ray-debugger-external"), "{output}");
    pdb.expect_not_dialled();
}
