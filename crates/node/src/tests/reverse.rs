use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::super::Agent;
use super::stand_ins::*;
use ray_relay_base::wire::tcp::free_port;
use ray_relay_base::wire::tunnel::messages::{
    FromAgent, FromRelay, Hex, Meeting, Refusal, RendezvousArrival,
};

const STEP_TIMEOUT: Duration = Duration::from_secs(10);

/// The command that resumes pydevd.
const RESUME_COMMAND: &[u8] = b"101\t1\t\n";

/// Returns an agent that may listen on `port`, sees the processes in `proc`, and is linked with `relay`.
async fn agent(port: u16, row: Value, proc: &str, relay: &Relay) -> (Arc<Agent>, Socket) {
    let nodes = vec![node(NODE, "127.0.0.1"), node("bbbb", "10.9.9.9")];
    let head = head(vec![row], nodes).await;
    let mut settings = settings(head);
    settings.reverse_ports = Some(port..=port);
    let agent = Agent::new(&settings, Path::new(proc)).unwrap();
    let following = Arc::clone(&agent).follow(relay.url(), Arc::clone(&settings.access));
    agent.tasks.spawn(following);
    let (link, announce) = relay.link().await;
    assert_eq!(announce.reverse_ports, Some((port, port)));
    (agent, link)
}

async fn listen(link: &mut Socket, rendezvous: u8, port: u16) -> Option<String> {
    let rendezvous = Hex([rendezvous; 8]);
    let all = vec![Meeting { rendezvous, port }];
    send(link, &FromRelay::Listen { rendezvous: all }).await;
    match next_message(link).await {
        FromAgent::Listening {
            rendezvous: answered,
            refused,
        } => {
            assert_eq!(answered, rendezvous);
            refused.map(|reason| reason.to_string())
        }
        other => panic!("{other:?}"),
    }
}

async fn dial(port: u16) -> TcpStream {
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpStream::connect(to).await.unwrap()
}

async fn next_arrival(link: &mut Socket) -> RendezvousArrival {
    match next_message(link).await {
        FromAgent::Arrived(next_arrival) => next_arrival,
        other => panic!("{other:?}"),
    }
}

/// Reads everything that a silent worker receives until the end of its connection.
async fn read_to_end(mut worker: TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let read = timeout(STEP_TIMEOUT, worker.read_to_end(&mut all)).await;
    // A reset is an end, too.
    let _ = read.expect("an end in time");
    all
}

async fn wait_until_closed(port: u16) {
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let refused = async { while TcpStream::connect(to).await.is_ok() {} };
    timeout(STEP_TIMEOUT, refused)
        .await
        .expect("closed in time");
}

#[tokio::test]
async fn dialling_worker_is_announced_and_fetched_by_a_stream() {
    let port = free_port().unwrap();
    let relay = Relay::start(1).await;
    let (agent, mut link) = agent(port, worker(4000), "/proc", &relay).await;
    let wrong_port = listen(&mut link, 8, 1).await.unwrap();
    assert!(
        wrong_port.contains("not in its --reverse-ports"),
        "{wrong_port}"
    );
    assert_eq!(listen(&mut link, 7, port).await, None);
    // The port belongs to another rendezvous.
    let refusal = listen(&mut link, 9, port).await.unwrap();
    assert!(refusal.contains("in use"), "{refusal}");

    let mut worker = dial(port).await;
    let notice = next_arrival(&mut link).await;
    assert_eq!((&*notice.worker_id, &*notice.node_id), (WORKER, NODE));
    assert_eq!(notice.rendezvous, Hex([7; 8]));
    worker.write_all(b"of the worker").await.unwrap();
    let receive = FromRelay::Receive {
        stream: Hex([1; 8]),
        secret: Hex([2; 16]),
        arrival: notice.arrival,
    };
    send(&mut link, &receive).await;
    let (mut stream, first) = relay.stream().await;
    assert_eq!(first, r#"{"type":"dialled"}"#);
    let mut bytes = [0; 13];
    stream.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"of the worker");
    stream.write_all(b"of the laptop").await.unwrap();
    worker.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"of the laptop");
    // Half of the connection is closed.
    stream.shutdown().await.unwrap();
    assert_eq!(worker.read(&mut bytes).await.unwrap(), 0);
    worker.write_all(b"last words...").await.unwrap();
    stream.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"last words...");
    drop(worker);
    assert_eq!(stream.read(&mut bytes).await.unwrap(), 0);

    // An arrival can be received only once.
    send(&mut link, &receive).await;
    match next_message(&mut link).await {
        FromAgent::Refused { kind, .. } => assert_eq!(kind, Refusal::NotAWorker),
        other => panic!("{other:?}"),
    }
    let rendezvous = Hex([7; 8]);
    send(&mut link, &FromRelay::Unlisten { rendezvous }).await;
    wait_until_closed(port).await;
    agent.end().await;
}

/// Ray lists no worker with this test's process on this node, or no process is visible: that may be a worker, which
/// is resumed.
#[tokio::test]
async fn non_worker_is_ignored_and_unidentified_one_is_resumed() {
    let empty = tempfile::tempdir().unwrap();
    let empty_proc = empty.path().to_str().unwrap();
    let cases = [
        ("pid", Value::from(1), "/proc", &b""[..]),
        ("node_id", "bbbb".into(), "/proc", b""),
        ("is_alive", false.into(), "/proc", b""),
        ("pid", std::process::id().into(), empty_proc, RESUME_COMMAND),
    ];
    // Each lookup lasts as long as for a worker that has just started, so all run at the same time.
    let all = cases.map(|(key, value, proc, expected_prefix)| async move {
        let port = free_port().unwrap();
        let relay = Relay::start(1).await;
        let mut row = worker(4000);
        row[key] = value;
        let (agent, mut link) = agent(port, row, proc, &relay).await;
        assert_eq!(listen(&mut link, 7, port).await, None);
        let mut connection = dial(port).await;
        connection.write_all(b"hello").await.unwrap();
        let received = read_to_end(connection).await;
        assert!(
            received.starts_with(expected_prefix)
                && received.is_empty() == expected_prefix.is_empty()
        );
        // The relay is not notified either.
        let refusal = listen(&mut link, 9, port).await;
        assert!(refusal.is_some());
        agent.end().await;
    });
    join_all(all).await;
}

#[tokio::test]
async fn worker_that_no_relay_fetches_is_resumed() {
    let port = free_port().unwrap();
    let relay = Relay::start(1).await;
    let (agent, mut link) = agent(port, worker(4000), "/proc", &relay).await;
    assert_eq!(listen(&mut link, 7, port).await, None);
    let worker = dial(port).await;
    let arrival = next_arrival(&mut link).await.arrival;
    send(&mut link, &FromRelay::Dismiss { arrival }).await;
    let received = read_to_end(worker).await;
    assert!(received.starts_with(RESUME_COMMAND));
    let received = String::from_utf8(received).unwrap();
    let position = |command: &str| received.find(command).unwrap();
    assert!(position(r#""attach""#) < position(r#""configurationDone""#));
    assert!(position(r#""configurationDone""#) < position(r#""disconnect""#));

    // pydevd answers, and receives nothing more.
    let mut worker = dial(port).await;
    let arrival = next_arrival(&mut link).await.arrival;
    send(&mut link, &FromRelay::Dismiss { arrival }).await;
    let mut command = [0; 7];
    worker.read_exact(&mut command).await.unwrap();
    worker.write_all(b"103\t2\t\n105\t4\t\n").await.unwrap();
    assert_eq!(read_to_end(worker).await, b"");

    // The worker is also resumed if the relay drops the stream or loses the link.
    let worker = dial(port).await;
    let arrival = next_arrival(&mut link).await.arrival;
    let receive = FromRelay::Receive {
        stream: Hex([1; 8]),
        secret: Hex([2; 16]),
        arrival,
    };
    send(&mut link, &receive).await;
    drop(relay.stream().await);
    assert!(read_to_end(worker).await.starts_with(RESUME_COMMAND));
    let worker = dial(port).await;
    next_arrival(&mut link).await;
    drop(link);
    assert!(read_to_end(worker).await.starts_with(RESUME_COMMAND));
    wait_until_closed(port).await;
    agent.end().await;
}

#[tokio::test]
async fn every_worker_beyond_the_limit_is_announced_later() {
    let port = free_port().unwrap();
    let relay = Relay::start(1).await;
    let (agent, mut link) = agent(port, worker(4000), "/proc", &relay).await;
    assert_eq!(listen(&mut link, 7, port).await, None);
    let mut workers = Vec::new();
    for _ in 0..20 {
        workers.push(dial(port).await);
    }
    let mut arrivals = Vec::new();
    for _ in 0..16 {
        arrivals.push(next_arrival(&mut link).await.arrival);
    }
    // The rest arrive as these are dismissed.
    while let Some(arrival) = arrivals.pop() {
        send(&mut link, &FromRelay::Dismiss { arrival }).await;
    }
    for _ in 16..20 {
        let arrival = next_arrival(&mut link).await.arrival;
        send(&mut link, &FromRelay::Dismiss { arrival }).await;
    }
    for worker in workers {
        assert!(read_to_end(worker).await.starts_with(RESUME_COMMAND));
    }
    agent.end().await;
}
