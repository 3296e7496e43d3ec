//! How many workers an agent keeps for one owner.

use super::*;

/// Returns how many of ten workers are parked for `ada` when their relay is lost. All have reported this cluster
/// session.
async fn kept_of_ten(cluster_session: Option<Hex<8>>) -> usize {
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
        let by = ParkTerms {
            cluster_session,
            ..keep("ada", minutes(15))
        };
        stream.say(written(&by)).await.unwrap();
        let mut client = Dap::new(stream);
        for (seq, command) in ["attach", "configurationDone"].into_iter().enumerate() {
            client.request(seq as u64, command).await;
            while client.receive().await.unwrap()["command"] != command {}
        }
        clients.push(client);
    }
    drop((first, clients));
    // Sessions that are not parked are detached.
    let kept = loop {
        if let FromAgent::Held { workers } = next_message(&mut second).await
            && workers.iter().all(|row| row.parked.is_some())
        {
            break workers.len();
        }
    };
    agent.end().await;
    kept
}

#[tokio::test]
async fn ranks_of_a_lost_cluster_session_share_one_slot() {
    assert_eq!(kept_of_ten(Some(Hex([5; 8]))).await, 10);
    assert_eq!(kept_of_ten(None).await, 8);
}
