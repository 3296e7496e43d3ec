//! `running WORKER REASON`: a prompt on a task that runs.

use serde_json::json;

use crate::lineproto::tests::*;
use ray_relay_base::wire::dap::conversation::Conversation;

#[tokio::test]
async fn running_task_is_stopped_through_a_linked_session() {
    let relay = relay(true, |_| {});
    let mut person = Person::connect(&relay);
    let said = format!(
        "running 1f2e3d4c5b no progress since noon\n{}\n",
        token_of("ed")
    );
    person.say(&said).await;
    let links = &relay.context.peers.links;
    let arrived = timeout(TEST_TIMEOUT, links.arrived()).await;
    let arrived = arrived.expect("a session is opened");
    // Who asks is who is asked of.
    assert_eq!(arrived.principal.subject(), "ed");
    let mut session = Conversation::new(arrived.stream, 1 << 20);
    let asked = session.read().await.unwrap();
    assert_eq!(asked["command"], "initialize");
    let answer = json!({"seq": 1, "type": "response", "request_seq": asked["seq"], "command": "initialize", "success": true, "body": {}});
    session.send(&answer).await.unwrap();
    let asked = session.read().await.unwrap();
    assert_eq!(
        asked["arguments"]["rayRelay"],
        json!({"running": true, "worker": "1f2e3d4c5b", "reason": "no progress since noon"})
    );

    // Nothing is typed at a prompt that is not there yet.
    person.say("p 1\n").await;
    person.until("`quit` leaves it running").await;
    let refused = json!({"seq": 2, "type": "response", "request_seq": asked["seq"], "command": "attach", "success": false,
        "message": "ed may not open a debugger there"});
    session.send(&refused).await.unwrap();
    let rest = person.rest().await;
    assert!(
        rest.contains("*** ed may not open a debugger there"),
        "{rest}"
    );
}

#[tokio::test]
async fn quit_before_the_stop_closes_the_linked_session() {
    let relay = relay(false, |_| {});
    let mut person = Person::connect(&relay);
    person.say("running 1f2e3d4c5b\n").await;
    let links = &relay.context.peers.links;
    let arrived = timeout(TEST_TIMEOUT, links.arrived()).await.unwrap();
    let mut session = Conversation::new(arrived.stream, 1 << 20);
    assert_eq!(session.read().await.unwrap()["command"], "initialize");
    person.say("quit\n").await;
    person.rest().await;
    let over = timeout(TEST_TIMEOUT, session.read()).await;
    assert!(over.expect("it is told").is_err());
}

/// A name in the list may begin with the word, and is no worker.
#[tokio::test]
async fn running_accepts_only_a_worker_id() {
    let relay = relay(false, |_| {});
    let mut person = Person::connect(&relay);
    person.say("running late\nq\n").await;
    let rest = person.rest().await;
    assert!(
        rest.contains("*** ") && !rest.contains("`quit` leaves"),
        "{rest}"
    );
}
