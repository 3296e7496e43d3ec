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

const SOON: Duration = Duration::from_secs(10);

/// What frees pydevd.
const RUN: &[u8] = b"101\t1\t\n";

/// An agent that may listen on `port`, sees the processes in `proc`, and is linked with `relay`.
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
    tell(link, &FromRelay::Listen { rendezvous: all }).await;
    match heard(link).await {
        FromAgent::Listening {
            rendezvous: of,
            refused,
        } => {
            assert_eq!(of, rendezvous);
            refused.map(|why| why.to_string())
        }
        other => panic!("{other:?}"),
    }
}

async fn dial(port: u16) -> TcpStream {
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpStream::connect(to).await.unwrap()
}

async fn arrived(link: &mut Socket) -> RendezvousArrival {
    match heard(link).await {
        FromAgent::Arrived(arrived) => arrived,
        other => panic!("{other:?}"),
    }
}

/// What a worker hears to its end, which says nothing itself.
async fn all_heard(mut worker: TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let read = timeout(SOON, worker.read_to_end(&mut all)).await;
    // A reset is an end, too.
    let _ = read.expect("an end in time");
    all
}

async fn closed(port: u16) {
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let refused = async { while TcpStream::connect(to).await.is_ok() {} };
    timeout(SOON, refused).await.expect("closed in time");
}

#[tokio::test]
async fn a_worker_that_dials_is_told_of_and_goes_on_by_the_stream_that_is_asked_for() {
    let port = free_port().unwrap();
    let relay = Relay::start(1).await;
    let (agent, mut link) = agent(port, worker(4000), "/proc", &relay).await;
    let none_of = listen(&mut link, 8, 1).await.unwrap();
    assert!(none_of.contains("not in its --reverse-ports"), "{none_of}");
    assert_eq!(listen(&mut link, 7, port).await, None);
    // Another rendezvous, or another relay's.
    let in_use = listen(&mut link, 9, port).await.unwrap();
    assert!(in_use.contains("in use"), "{in_use}");

    let mut worker = dial(port).await;
    let told = arrived(&mut link).await;
    assert_eq!((&*told.worker_id, &*told.node_id), (WORKER, NODE));
    assert_eq!(told.rendezvous, Hex([7; 8]));
    worker.write_all(b"of the worker").await.unwrap();
    let receive = FromRelay::Receive {
        stream: Hex([1; 8]),
        secret: Hex([2; 16]),
        arrival: told.arrival,
    };
    tell(&mut link, &receive).await;
    let (mut stream, first) = relay.stream().await;
    assert_eq!(first, r#"{"type":"dialled"}"#);
    let mut bytes = [0; 13];
    stream.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"of the worker");
    stream.write_all(b"of the laptop").await.unwrap();
    worker.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"of the laptop");
    // Half of it.
    stream.shutdown().await.unwrap();
    assert_eq!(worker.read(&mut bytes).await.unwrap(), 0);
    worker.write_all(b"last words...").await.unwrap();
    stream.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"last words...");
    drop(worker);
    assert_eq!(stream.read(&mut bytes).await.unwrap(), 0);

    // What is asked for twice is not there.
    tell(&mut link, &receive).await;
    match heard(&mut link).await {
        FromAgent::Refused { kind, .. } => assert_eq!(kind, Refusal::NotAWorker),
        other => panic!("{other:?}"),
    }
    let rendezvous = Hex([7; 8]);
    tell(&mut link, &FromRelay::Unlisten { rendezvous }).await;
    closed(port).await;
    agent.end().await;
}

/// Ray lists no worker with this test's process on this node, or no process is seen: that may be a worker, which is let
/// run.
#[tokio::test]
async fn who_is_no_worker_is_not_heard_and_hears_nothing() {
    let empty = tempfile::tempdir().unwrap();
    let unseen = empty.path().to_str().unwrap();
    let cases = [
        ("pid", Value::from(1), "/proc", &b""[..]),
        ("node_id", "bbbb".into(), "/proc", b""),
        ("is_alive", false.into(), "/proc", b""),
        ("pid", std::process::id().into(), unseen, RUN),
    ];
    // Each is looked for as long as one may be that has just begun: side by side.
    let all = cases.map(|(key, value, proc, begins)| async move {
        let port = free_port().unwrap();
        let relay = Relay::start(1).await;
        let mut row = worker(4000);
        row[key] = value;
        let (agent, mut link) = agent(port, row, proc, &relay).await;
        assert_eq!(listen(&mut link, 7, port).await, None);
        let mut stranger = dial(port).await;
        stranger.write_all(b"hello").await.unwrap();
        let heard = all_heard(stranger).await;
        assert!(heard.starts_with(begins) && heard.is_empty() == begins.is_empty());
        // Nor is the relay told.
        let in_use = listen(&mut link, 9, port).await;
        assert!(in_use.is_some());
        agent.end().await;
    });
    join_all(all).await;
}

#[tokio::test]
async fn a_worker_that_is_taken_to_nobody_is_let_run() {
    let port = free_port().unwrap();
    let relay = Relay::start(1).await;
    let (agent, mut link) = agent(port, worker(4000), "/proc", &relay).await;
    assert_eq!(listen(&mut link, 7, port).await, None);
    let worker = dial(port).await;
    let arrival = arrived(&mut link).await.arrival;
    tell(&mut link, &FromRelay::Dismiss { arrival }).await;
    let heard = all_heard(worker).await;
    assert!(heard.starts_with(RUN));
    let heard = String::from_utf8(heard).unwrap();
    let at = |word: &str| heard.find(word).unwrap();
    assert!(at(r#""attach""#) < at(r#""configurationDone""#));
    assert!(at(r#""configurationDone""#) < at(r#""disconnect""#));

    // pydevd answers, and gets no more.
    let mut worker = dial(port).await;
    let arrival = arrived(&mut link).await.arrival;
    tell(&mut link, &FromRelay::Dismiss { arrival }).await;
    let mut run = [0; 7];
    worker.read_exact(&mut run).await.unwrap();
    worker.write_all(b"103\t2\t\n105\t4\t\n").await.unwrap();
    assert_eq!(all_heard(worker).await, b"");

    // A stream on which no word has come, and a link that is lost.
    let worker = dial(port).await;
    let arrival = arrived(&mut link).await.arrival;
    let receive = FromRelay::Receive {
        stream: Hex([1; 8]),
        secret: Hex([2; 16]),
        arrival,
    };
    tell(&mut link, &receive).await;
    drop(relay.stream().await);
    assert!(all_heard(worker).await.starts_with(RUN));
    let worker = dial(port).await;
    arrived(&mut link).await;
    drop(link);
    assert!(all_heard(worker).await.starts_with(RUN));
    closed(port).await;
    agent.end().await;
}

#[tokio::test]
async fn more_workers_than_may_wait_at_once_are_told_of_all_the_same() {
    let port = free_port().unwrap();
    let relay = Relay::start(1).await;
    let (agent, mut link) = agent(port, worker(4000), "/proc", &relay).await;
    assert_eq!(listen(&mut link, 7, port).await, None);
    let mut workers = Vec::new();
    for _ in 0..20 {
        workers.push(dial(port).await);
    }
    let mut told = Vec::new();
    for _ in 0..16 {
        told.push(arrived(&mut link).await.arrival);
    }
    // The rest come as these go.
    while let Some(arrival) = told.pop() {
        tell(&mut link, &FromRelay::Dismiss { arrival }).await;
    }
    for _ in 16..20 {
        let arrival = arrived(&mut link).await.arrival;
        tell(&mut link, &FromRelay::Dismiss { arrival }).await;
    }
    for worker in workers {
        assert!(all_heard(worker).await.starts_with(RUN));
    }
    agent.end().await;
}
