//! `running WORKER REASON`: a prompt on a running task.

use serde_json::json;

use crate::lineproto::tests::*;
use ray_relay_base::wire::dap::conversation::Conversation;

#[tokio::test]
async fn running_task_is_stopped_through_a_linked_session() {
    let relay = relay(true, |_| {});
    let mut client = Client::connect(&relay);
    let input = format!(
        "running 1f2e3d4c5b no progress since noon\n{}\n",
        token_of("ed")
    );
    client.send(&input).await;
    let links = &relay.context.peers.links;
    let connection = timeout(TEST_TIMEOUT, links.arrived()).await;
    let connection = connection.expect("a session is opened");
    // The linked session belongs to the same user.
    assert_eq!(connection.principal.subject(), "ed");
    let mut session = Conversation::new(connection.stream, 1 << 20);
    let request = session.read().await.unwrap();
    assert_eq!(request["command"], "initialize");
    let answer = json!({"seq": 1, "type": "response", "request_seq": request["seq"], "command": "initialize", "success": true, "body": {}});
    session.send(&answer).await.unwrap();
    let request = session.read().await.unwrap();
    assert_eq!(
        request["arguments"]["rayRelay"],
        json!({"running": true, "worker": "1f2e3d4c5b", "reason": "no progress since noon"})
    );

    // Input before the prompt is not sent to it.
    client.send("p 1\n").await;
    client.until("`quit` leaves it running").await;
    let refused = json!({"seq": 2, "type": "response", "request_seq": request["seq"], "command": "attach", "success": false,
        "message": "ed may not open a debugger there"});
    session.send(&refused).await.unwrap();
    let output = client.read_all().await;
    assert!(
        output.contains("*** ed may not open a debugger there"),
        "{output}"
    );
}

#[tokio::test]
async fn quit_before_the_stop_closes_the_linked_session() {
    let relay = relay(false, |_| {});
    let mut client = Client::connect(&relay);
    client.send("running 1f2e3d4c5b\n").await;
    let links = &relay.context.peers.links;
    let connection = timeout(TEST_TIMEOUT, links.arrived()).await.unwrap();
    let mut session = Conversation::new(connection.stream, 1 << 20);
    assert_eq!(session.read().await.unwrap()["command"], "initialize");
    client.send("quit\n").await;
    client.read_all().await;
    let closed = timeout(TEST_TIMEOUT, session.read()).await;
    assert!(closed.expect("it is told").is_err());
}

/// A task name in the list may begin with `running`, and is not a worker id.
#[tokio::test]
async fn running_accepts_only_a_worker_id() {
    let relay = relay(false, |_| {});
    let mut client = Client::connect(&relay);
    client.send("running late\nq\n").await;
    let output = client.read_all().await;
    assert!(
        output.contains("*** ") && !output.contains("`quit` leaves"),
        "{output}"
    );
}
