//! Tests the limits on the time for which an agent keeps a worker.

use std::time::SystemTime;

use super::*;
use ray_relay_base::timestamp::unix_ms;

#[tokio::test]
async fn agent_keeps_a_worker_for_a_day_at_most() {
    let mut scene = Scene::new(Some(keep("ada", minutes(3 * 24 * 60)))).await;
    scene.held().await;
    scene.lose().await;
    let parked_until = scene.held().await.parked.unwrap().until_unix_ms;
    let tomorrow = SystemTime::now() + minutes(24 * 60);
    assert!(parked_until <= unix_ms(tomorrow));
    drop(scene.debugger.stream);
    scene.agent.end().await;
}

#[tokio::test]
async fn credential_limit_does_not_restart_at_the_next_relay() {
    let mut terms = keep("ada", minutes(15));
    terms.at_most_ms = Some(600_000);
    let mut scene = Scene::new(Some(terms)).await;
    scene.held().await;
    scene.lose().await;
    assert!(scene.held().await.parked.is_some());
    let terms = scene.resume().await;
    assert!(terms.at_most_ms.unwrap() < 600_000);
    assert!(terms.lasted_ms > 60_000);
    drop(scene.debugger.stream);
    scene.agent.end().await;
}

/// Returns how many of ten workers are parked for `ada` when their relay is lost. All have reported this cluster
/// session.
async fn parked_of_ten(cluster_session: Option<Hex<8>>) -> usize {
    let mut workers = Vec::new();
    let mut debuggers = Vec::new();
    for n in 0..10 {
        let (debugger, port) = Debugger::start().await;
        let mut row = worker(port);
        row["worker_id"] = format!("{n:04x}").into();
        workers.push(row);
        debuggers.push((port, debugger));
    }
    let head = head(workers, vec![node(NODE, "127.0.0.1")]).await;
    let (one, other) = (Relay::start(1).await, Relay::start(2).await);
    let agent = agent(head, &[&one, &other]);
    let ((mut first, _), (mut second, _)) = tokio::join!(one.link(), other.link());
    let mut clients = Vec::new();
    for (n, (port, debugger)) in (0_u8..).zip(debuggers) {
        tokio::spawn(debugger.serve());
        let mut open = open(&format!("{n:04x}"), port);
        open.stream = Hex([n; 8]);
        send(&mut first, &FromRelay::Open(open)).await;
        let (mut socket, _) = one.accept().await;
        assert_eq!(
            next(&mut socket).await.to_text().unwrap(),
            written(&StreamGreeting::Dialled)
        );
        let mut stream = Stream::new(socket);
        let terms = ParkTerms {
            cluster_session,
            ..keep("ada", minutes(15))
        };
        stream.say(written(&terms)).await.unwrap();
        let mut client = Dap::new(stream);
        for (seq, command) in ["attach", "configurationDone"].into_iter().enumerate() {
            client.request(seq as u64, command).await;
            while client.receive().await.unwrap()["command"] != command {}
        }
        clients.push(client);
    }
    drop((first, clients));
    // Sessions that are not parked are detached.
    let count = loop {
        if let FromAgent::Held { workers } = next_message(&mut second).await
            && workers.iter().all(|row| row.parked.is_some())
        {
            break workers.len();
        }
    };
    agent.end().await;
    count
}

#[tokio::test]
async fn ranks_of_a_lost_cluster_session_share_one_slot() {
    assert_eq!(parked_of_ten(Some(Hex([5; 8]))).await, 10);
    assert_eq!(parked_of_ten(None).await, 8);
}
