//! Messages that are incomplete, unanswered or unknown when a relay is lost.

use super::*;

#[tokio::test]
async fn pending_answers_and_partial_messages_are_dropped() {
    let mut scene = Scene::new(Some(keep("ada", minutes(15)))).await;
    scene.held().await;
    scene.client.request(9, "variables").await;
    let late = scene.debugger.receive().await.unwrap();
    let long =
        frame(&json!({"seq": 1, "type": "event", "event": "module", "body": "x".repeat(1 << 20)}));
    let (begun, rest) = long.split_at(1 << 19);
    scene.debugger.stream.write_all(begun).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    scene.lose().await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    scene.debugger.stream.write_all(rest).await.unwrap();
    assert!(scene.held().await.parked.is_some());
    let open = scene.open(Some("ada"));
    send(scene.second(), &open).await;
    let early = timeout(Duration::from_millis(300), scene.other.accept()).await;
    assert!(early.is_err(), "the debugger has not answered yet");
    scene.debugger.answer(&late).await;
    let (mut socket, _) = scene.other.accept().await;
    let first = next(&mut socket).await.into_text().unwrap();
    assert!(first.starts_with(r#"{"type":"resumed""#), "{first}");
    scene.client = Dap::new(Stream::new(socket));
    assert_eq!(scene.client.receive().await.unwrap()["event"], "stopped");
    scene.client.stream.shutdown().await.unwrap();
    scene.client = Dap::new(nobody().await);
    scene.debugger.expect_detach().await;
    scene.agent.end().await;
}

#[tokio::test]
async fn running_evaluation_of_a_lost_client_is_reported() {
    let mut scene = Scene::new(Some(keep("ada", minutes(15)))).await;
    scene.held().await;
    scene.client.request(9, "evaluate").await;
    let expression = scene.debugger.receive().await.unwrap();
    scene.lose().await;
    let evaluates = |row: HoldRow| row.parked.unwrap().evaluates;
    assert!(evaluates(scene.held().await));
    scene.debugger.answer(&expression).await;
    assert!(!evaluates(scene.held().await));
    drop(scene.debugger.stream);
    scene.agent.end().await;
}

/// An unknown message ends no session, and parks none.
#[tokio::test]
async fn unknown_message_does_not_park_a_session() {
    let mut scene = Scene::new(None).await;
    scene.client.stream.say("{}".to_owned()).await.unwrap();
    scene.client.request(1, "threads").await;
    scene.debugger.expect_request("threads").await;
    scene.client.receive().await.unwrap();
    scene.lose().await;
    scene.debugger.expect_detach().await;
    drop(scene.debugger.stream);
    scene.agent.end().await;
}

/// A half-sent message of the lost relay is dropped, and the next client is served.
#[tokio::test]
async fn relay_lost_mid_message_keeps_the_session() {
    let long = frame(
        &json!({"seq": 9, "type": "request", "command": "setBreakpoints", "arguments": "x".repeat(1 << 17)}),
    );
    for until in [10, long.len() - 1] {
        let mut scene = Scene::new(Some(keep("ada", minutes(15)))).await;
        scene.held().await;
        scene.client.stream.write_all(&long[..until]).await.unwrap();
        scene.client.stream.flush().await.unwrap();
        scene.debugger.expect_nothing().await;
        scene.lose().await;
        assert!(scene.held().await.parked.is_some());
        scene.resume().await;
        assert_eq!(scene.client.receive().await.unwrap()["event"], "stopped");
        // One message in two pieces, and the next one directly after it.
        let threads = json!({"seq": 10, "type": "request", "command": "threads"});
        let both = [&long[..], &frame(&threads)].concat();
        let writing = scene.client.stream.write_all(&both);
        timeout(SOON, writing).await.unwrap().unwrap();
        scene.client.stream.flush().await.unwrap();
        for command in ["setBreakpoints", "threads"] {
            scene.debugger.expect_request(command).await;
            scene.client.receive().await.unwrap();
        }
        drop(scene.debugger.stream);
        scene.agent.end().await;
    }
}
