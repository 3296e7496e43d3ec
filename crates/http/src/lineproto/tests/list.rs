//! Picking from the list.

use crate::lineproto::tests::*;

#[tokio::test]
async fn viewer_of_the_list_may_not_enter() {
    let relay = relay(true, |_| {});
    let pdb = Pdb::listed(&relay).await;
    let mut lou = Person::connect(&relay);
    lou.say(&format!("{}\n0\nq\n", token_of("lou"))).await;
    let rest = lou.rest().await;
    assert!(
        rest.contains("outer") && rest.contains("permission `terminal`"),
        "{rest}"
    );
    let mut eve = Person::connect(&relay);
    let enter = format!("enter {}\n{}\n", pdb.breakpoint.id, token_of("eve"));
    eve.say(&enter).await;
    let rest = eve.rest().await;
    assert!(
        rest.contains("no paused worker has the id") && !rest.contains("outer"),
        "{rest}"
    );
    assert!(relay.context.registry.snapshot().live[0].is_paused());
    pdb.heard_nothing();
}

#[tokio::test]
async fn prompt_on_the_loopback_of_a_node_is_not_dialled() {
    let relay = relay(false, |config| {
        config.clusters[0].ray_address = "http://10.0.0.1:8265".to_owned();
    });
    let pdb = Pdb::listed(&relay).await;
    let mut person = Person::connect(&relay);
    person.say("0\nq\n").await;
    let rest = person.rest().await;
    assert!(rest.contains("--ray-debugger-external"), "{rest}");
    pdb.heard_nothing();
}
