use std::net::Ipv4Addr;
use std::time::Duration;

use futures_util::SinkExt as _;
use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::stand_ins::*;
use ray_relay_base::wire::tcp::free_port;
use ray_relay_base::wire::tunnel::ByteStream;
use ray_relay_base::wire::tunnel::messages::{FromAgent, FromRelay, Hex, Kind, Refusal};
use ray_relay_ray::ray::testing::assert_not_dialled;

const STEP_TIMEOUT: Duration = Duration::from_secs(10);

async fn held_workers(link: &mut Socket) -> Vec<String> {
    match next_message(link).await {
        FromAgent::Held { workers } => workers
            .iter()
            .map(|row| format!("{} {} {}", row.worker_id, row.name, row.session))
            .collect(),
        other => panic!("{other:?}"),
    }
}

async fn expect_refusal(link: &mut Socket) -> (Refusal, String) {
    match next_message(link).await {
        FromAgent::Refused {
            kind,
            detail,
            stream,
            holder,
        } => {
            assert_eq!(stream, Hex([1; 8]));
            assert_eq!(holder.is_some(), kind == Refusal::Held);
            (kind, detail.to_string())
        }
        other => panic!("{other:?}"),
    }
}

/// Sends the attach, and waits until the debugger has received it.
async fn attach(stream: &mut ByteStream<TcpStream>) {
    stream.write_all(&request("attach")).await.unwrap();
    let mut text = String::new();
    while !text.contains(r#""initialized""#) {
        let mut buffer = [0; 1024];
        let n = timeout(STEP_TIMEOUT, stream.read(&mut buffer))
            .await
            .unwrap()
            .unwrap();
        text += &String::from_utf8_lossy(&buffer[..n]);
    }
}

#[tokio::test]
async fn bytes_pass_both_ways_and_all_relays_know_the_holder() {
    let (debugger, port) = Debugger::start().await;
    let head = head(vec![worker(port)], vec![node(NODE, "127.0.0.1")]).await;
    let (one, other) = (Relay::start(1).await, Relay::start(2).await);
    let agent = agent(head, &[&one, &other]);
    let ((mut link, announce), (mut second, _)) = tokio::join!(one.link(), other.link());
    assert!(announce.addresses.contains(&"127.0.0.1".parse().unwrap()));
    let debugger_task = tokio::spawn(debugger.serve());

    send(&mut link, &FromRelay::Open(open(WORKER, port))).await;
    let (mut stream, first) = one.stream().await;
    assert_eq!(first, r#"{"type":"dialled"}"#);
    for link in [&mut link, &mut second] {
        assert_eq!(held_workers(link).await, ["beef ada 7"]);
    }
    send(&mut second, &FromRelay::Open(open(WORKER, port))).await;
    let (kind, detail) = expect_refusal(&mut second).await;
    assert_eq!(kind, Refusal::Held);
    assert_eq!(detail, "ada holds it through another relay");

    let mut greeting = [0; 16];
    stream.read_exact(&mut greeting).await.unwrap();
    assert_eq!(&greeting, b"Content-Length: ");
    stream.write_all(&request("attach")).await.unwrap();
    stream.write_all(&request("disconnect")).await.unwrap();
    let mut rest = Vec::new();
    timeout(STEP_TIMEOUT, stream.read_to_end(&mut rest))
        .await
        .unwrap()
        .unwrap();
    assert!(stream.ended_in_order());
    assert!(String::from_utf8_lossy(&rest).contains(r#""command":"disconnect""#));
    drop(stream);
    assert_eq!(debugger_task.await.unwrap(), ["attach", "disconnect"]);
    for link in [&mut link, &mut second] {
        assert_eq!(held_workers(link).await, [""; 0]);
    }
    agent.end().await;
}

/// The relay's machine disappears in the middle of a session: the agent detaches the debugger for it.
#[tokio::test]
async fn debugger_is_detached_when_its_relay_vanishes() {
    let (debugger, port) = Debugger::start().await;
    let head = head(vec![worker(port)], vec![node(NODE, "127.0.0.1")]).await;
    let relay = Relay::start(1).await;
    let agent = agent(head, &[&relay]);
    let (mut link, _) = relay.link().await;
    let debugger_task = tokio::spawn(debugger.serve());
    send(&mut link, &FromRelay::Open(open(WORKER, port))).await;
    let (mut stream, _) = relay.stream().await;
    attach(&mut stream).await;
    drop((stream, link));
    let commands = timeout(STEP_TIMEOUT, debugger_task).await.unwrap().unwrap();
    assert_eq!(commands, ["attach", "setFunctionBreakpoints", "disconnect"]);
    agent.end().await;
}

#[tokio::test]
async fn ending_agent_detaches_its_debuggers() {
    let (debugger, port) = Debugger::start().await;
    let head = head(vec![worker(port)], vec![node(NODE, "127.0.0.1")]).await;
    let relay = Relay::start(1).await;
    let agent = agent(head, &[&relay]);
    let (mut link, _) = relay.link().await;
    let debugger_task = tokio::spawn(debugger.serve());
    send(&mut link, &FromRelay::Open(open(WORKER, port))).await;
    let (mut stream, _) = relay.stream().await;
    attach(&mut stream).await;
    agent.end().await;
    let commands = debugger_task.await.unwrap();
    assert_eq!(commands.last().unwrap(), "disconnect", "{commands:?}");
    let mut rest = Vec::new();
    let ended = timeout(STEP_TIMEOUT, stream.read_to_end(&mut rest)).await;
    assert!(ended.is_ok());
}

/// A new link replaces it with the current content of the token file, and the session goes on.
#[tokio::test]
async fn a_link_is_renewed_before_its_credential_expires() {
    let (debugger, port) = Debugger::start().await;
    let head = head(vec![worker(port)], vec![node(NODE, "127.0.0.1")]).await;
    let relay = Relay::start(1).await;
    let agent = agent(head, &[&relay]);
    let (mut old, announced) = relay.link_for(Some(3300)).await;
    let debugger_task = tokio::spawn(debugger.serve());
    send(&mut old, &FromRelay::Open(open(WORKER, port))).await;
    let (mut stream, _) = relay.stream().await;
    attach(&mut stream).await;
    assert_eq!(held_workers(&mut old).await, ["beef ada 7"]);
    let started = std::time::Instant::now();
    let (mut newer, path) = relay.accept().await;
    assert_eq!(path, "/relay/v1/nodes/link");
    assert!(started.elapsed() < Duration::from_millis(3300));
    send(&mut newer, &hello(Hex([1; 8]))).await;
    let FromAgent::Announce(reannounced) = next_message(&mut newer).await else {
        panic!("no announcement");
    };
    assert_eq!(reannounced.instance, announced.instance);
    // The older link is served until the relay closes it, which it does before it sends the welcome.
    let locate = FromRelay::Locate {
        query: Hex([4; 8]),
        port: 1,
        title: "ray::x".into(),
    };
    send(&mut old, &locate).await;
    assert!(matches!(
        next_message(&mut old).await,
        FromAgent::Located { .. }
    ));
    old.close(None).await.unwrap();
    let welcome = FromRelay::Welcome {
        nodes: vec![],
        good_for_ms: None,
    };
    send(&mut newer, &welcome).await;
    assert_eq!(held_workers(&mut newer).await, ["beef ada 7"]);
    stream.write_all(&request("threads")).await.unwrap();
    let mut buffer = [0; 1024];
    assert!(
        timeout(STEP_TIMEOUT, stream.read(&mut buffer))
            .await
            .unwrap()
            .unwrap()
            > 0
    );
    agent.end().await;
    let commands = debugger_task.await.unwrap();
    assert_eq!(commands[1], "threads");
    assert_eq!(commands.last().unwrap(), "disconnect");
}

/// An address that Ray does not attribute to a live worker of this node is never dialled, whatever a relay requests.
#[tokio::test]
async fn agent_dials_no_address_outside_its_workers() {
    let victim = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = victim.local_addr().unwrap().port();
    let row = |change: &[(&str, serde_json::Value)]| {
        let mut row = worker(port);
        for (key, value) in change {
            row[*key] = value.clone();
        }
        row
    };
    let nodes = || vec![node(NODE, "127.0.0.1"), node("bbbb", "10.9.9.9")];
    let cases = [
        (vec![], nodes(), (WORKER, port), Refusal::NotAWorker),
        (vec![row(&[])], nodes(), ("cafe", port), Refusal::NotAWorker),
        (vec![row(&[])], nodes(), (WORKER, 22), Refusal::NotAWorker),
        (vec![row(&[])], vec![], (WORKER, port), Refusal::NotAWorker),
        (
            vec![row(&[("is_alive", false.into())])],
            nodes(),
            (WORKER, port),
            Refusal::NotAWorker,
        ),
        (
            vec![row(&[("debugger_port", 0.into())])],
            nodes(),
            (WORKER, port),
            Refusal::NotAWorker,
        ),
        (
            vec![row(&[("node_id", "bbbb".into())])],
            nodes(),
            (WORKER, port),
            Refusal::NotAWorker,
        ),
        (
            vec![row(&[("ip", "192.0.2.1".into())])],
            nodes(),
            (WORKER, port),
            Refusal::NotAWorker,
        ),
        (
            vec![row(&[("pid", 1.into())])],
            nodes(),
            (WORKER, port),
            Refusal::WrongProcess,
        ),
    ];
    // Some lookups last as long as for a worker that has just started, so all run at the same time.
    let all = cases.map(|(rows, nodes, target, expected)| async move {
        let head = head(rows.clone(), nodes).await;
        let relay = Relay::start(1).await;
        let agent = agent(head, &[&relay]);
        let (mut link, _) = relay.link().await;
        // An address is not part of the request, and changes nothing.
        let mut question = serde_json::to_value(FromRelay::Open(open(target.0, target.1))).unwrap();
        question["address"] = "127.0.0.1".into();
        let text = question.to_string();
        link.send(text.into()).await.unwrap();
        let (kind, detail) = expect_refusal(&mut link).await;
        assert_eq!(kind, expected, "{rows:?} {detail}");
        agent.end().await;
    });
    join_all(all).await;
    assert_not_dialled(victim);
}

/// A row of the registry can name any process: `/proc` shows which are workers.
#[tokio::test]
async fn listed_service_that_is_no_worker_is_not_dialled() {
    let (debugger, port) = Debugger::start().await;
    let head = head(vec![worker(port)], vec![node(NODE, "127.0.0.1")]).await;
    let relay = Relay::start(1).await;
    let agent = agent(head, &[&relay]);
    let (mut link, _) = relay.link().await;
    for parent in ["/usr/lib/systemd/systemd", "/x/raylet"] {
        agent.proc.parent(parent);
        send(&mut link, &FromRelay::Open(open(WORKER, port))).await;
        let (kind, detail) = expect_refusal(&mut link).await;
        assert_eq!(kind, Refusal::WrongProcess, "{detail}");
    }
    agent.end().await;
    assert_not_dialled(debugger.0);
}

/// On a busy machine a debugger listens for some time before it connects to its worker.
#[tokio::test]
async fn adapter_not_yet_connected_to_its_worker_is_awaited() {
    let (debugger, port) = Debugger::start().await;
    let head = head(vec![worker(port)], vec![node(NODE, "127.0.0.1")]).await;
    let relay = Relay::start(1).await;
    let agent = agent(head, &[&relay]);
    let (mut link, _) = relay.link().await;
    agent.proc.adapter();
    send(&mut link, &FromRelay::Open(open(WORKER, port))).await;
    let premature = timeout(Duration::from_millis(500), expect_refusal(&mut link)).await;
    assert!(premature.is_err(), "{premature:?}");
    let proxy_listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let adapter = TcpStream::connect(proxy_listener.local_addr().unwrap()).await;
    let (worker_end, _) = proxy_listener.accept().await.unwrap();
    agent.proc.adapter_connects_with(&worker_end);
    let (_stream, first) = relay.stream().await;
    assert_eq!(first, r#"{"type":"dialled"}"#);
    agent.end().await;
    drop((debugger, adapter));
}

#[tokio::test]
async fn port_reused_before_the_dial_receives_nothing() {
    let (debugger, port) = Debugger::start().await;
    let head = head(vec![worker(port)], vec![node(NODE, "127.0.0.1")]).await;
    let relay = Relay::start(1).await;
    let agent = agent(head, &[&relay]);
    let (mut link, _) = relay.link().await;
    send(&mut link, &FromRelay::Open(open(WORKER, port))).await;
    let change_parent = || agent.proc.parent("/usr/lib/systemd/systemd");
    let (_stream, first) = relay.stream_after(change_parent).await;
    assert!(first.contains("which is not the worker"), "{first}");
    let (mut dialled, _) = debugger.0.accept().await.unwrap();
    let mut received = Vec::new();
    let read = timeout(STEP_TIMEOUT, dialled.read_to_end(&mut received)).await;
    assert_eq!(read.unwrap().unwrap(), 0);
    agent.end().await;
}

#[tokio::test]
async fn unreachable_head_or_gcs_is_refused_as_registry() {
    let closed_address = (Ipv4Addr::LOCALHOST, free_port().unwrap()).into();
    let relay = Relay::start(1).await;
    let agent = agent(closed_address, &[&relay]);
    let (mut link, _) = relay.link().await;
    for kind in [Kind::Debugpy, Kind::Pdb] {
        let request = ray_relay_base::wire::tunnel::messages::Open {
            kind,
            ..open(WORKER, 4000)
        };
        send(&mut link, &FromRelay::Open(request)).await;
        assert_eq!(expect_refusal(&mut link).await.0, Refusal::Registry);
    }
    agent.end().await;
}

#[tokio::test]
async fn refused_dial_is_reported_on_the_stream() {
    let port = free_port().unwrap();
    let head = head(vec![worker(port)], vec![node(NODE, "127.0.0.1")]).await;
    let relay = Relay::start(1).await;
    let agent = agent(head, &[&relay]);
    let (mut link, _) = relay.link().await;
    send(&mut link, &FromRelay::Open(open(WORKER, port))).await;
    let (mut stream, first) = relay.stream().await;
    assert!(
        first.starts_with(r#"{"type":"failed","kind":"refused""#),
        "{first}"
    );
    assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0);
    assert_eq!(held_workers(&mut link).await, ["beef ada 7"]);
    assert_eq!(held_workers(&mut link).await, [""; 0]);
    agent.end().await;
}
