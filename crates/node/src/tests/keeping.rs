//! Workers whose relay is lost, and the clients that resume their sessions.

mod limits;
mod subprocess;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::stand_ins::*;
use ray_relay_base::wire::dap::codec::{Frames, frame, parse};
use ray_relay_base::wire::tunnel::messages::{
    FromAgent, FromRelay, Hex, HoldRow, LetRun, ParkTerms, Refusal, StreamGreeting, read, written,
};

const SOON: Duration = Duration::from_secs(10);

fn keep(owner: &str, keeps: Duration) -> ParkTerms {
    ParkTerms {
        owner: owner.into(),
        credential: None,
        keeps_ms: keeps.as_millis() as u64,
        at_least_ms: None,
        at_most_ms: None,
        lasted_ms: 60_000,
        capabilities: "{}".into(),
        attach: 7,
        cluster_session: None,
        entered: None,
    }
}

fn minutes(n: u64) -> Duration {
    Duration::from_secs(60 * n)
}

/// One end of a DAP connection.
struct Dap<S> {
    stream: S,
    frames: Frames,
}

impl<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin> Dap<S> {
    fn new(stream: S) -> Self {
        Self {
            stream,
            frames: Frames::new(1 << 26),
        }
    }

    async fn send(&mut self, message: &Value) {
        self.stream.write_all(&frame(message)).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Reads the next message. Returns `None` at the end.
    async fn receive(&mut self) -> Option<Value> {
        loop {
            if let Some(body) = self.frames.next_body().unwrap() {
                return Some(parse(&body).unwrap());
            }
            let more = self.stream.read_buf(self.frames.buffer());
            if timeout(SOON, more).await.expect("in time").unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    async fn request(&mut self, seq: u64, command: &str) {
        let request = json!({"seq": seq, "type": "request", "command": command, "arguments": {}});
        self.send(&request).await;
    }

    async fn answer(&mut self, request: &Value) {
        let answer = json!({"seq": 1, "type": "response", "request_seq": request["seq"],
            "success": true, "command": request["command"]});
        self.send(&answer).await;
    }

    async fn event(&mut self, name: &str, body: Value) {
        self.send(&json!({"seq": 1, "type": "event", "event": name, "body": body}))
            .await;
    }

    /// Expects the request `command`, and answers it.
    async fn expect_request(&mut self, command: &str) {
        let request = self.receive().await.unwrap();
        assert_eq!(request["command"], command);
        self.answer(&request).await;
    }

    /// Expects an orderly detach until the end of the connection.
    async fn expect_detach(&mut self) {
        self.expect_request("setFunctionBreakpoints").await;
        self.expect_request("disconnect").await;
    }

    /// Expects that nothing is received.
    async fn expect_nothing(&mut self) {
        let more = self.stream.read_buf(self.frames.buffer());
        let result = timeout(Duration::from_millis(200), more).await;
        assert!(result.is_err(), "{result:?}");
    }
}

/// The relay's end of a stream.
type Stream = ray_relay_base::wire::tunnel::ByteStream<TcpStream>;

/// An agent with two relays. The first has a session that is parked by `keep` and paused in thread 3.
struct Scene {
    agent: Seeing,
    one: Relay,
    other: Relay,
    links: Vec<Socket>,
    /// The port of the debugger.
    listener: TcpListener,
    debugger: Dap<TcpStream>,
    client: Dap<Stream>,
    port: u16,
    /// Number of requested streams.
    streams: u8,
}

impl Scene {
    async fn new(keep: Option<ParkTerms>) -> Self {
        Self::opened(None, keep).await
    }

    /// The same with the terms `first` in the request for the stream.
    async fn opened(first: Option<ParkTerms>, keep: Option<ParkTerms>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let head = head(vec![worker(port)], vec![node(NODE, "127.0.0.1")]).await;
        let (one, other) = (Relay::start(1).await, Relay::start(2).await);
        let agent = agent(head, &[&one, &other]);
        let ((mut link, announced), (second, _)) = tokio::join!(one.link(), other.link());
        assert!(announced.keeps);
        let mut open = open(WORKER, port);
        open.keep = first.map(Box::new);
        send(&mut link, &FromRelay::Open(open)).await;
        let (mut stream, _) = one.stream().await;
        let (debugger, _) = listener.accept().await.unwrap();
        let mut debugger = Dap::new(debugger);
        debugger.event("output", json!({})).await;
        if let Some(keep) = keep {
            stream.say(written(&keep)).await.unwrap();
        }
        let mut client = Dap::new(stream);
        assert_eq!(client.receive().await.unwrap()["event"], "output");
        for (seq, command) in ["attach", "configurationDone"].into_iter().enumerate() {
            client.request(seq as u64, command).await;
            debugger.expect_request(command).await;
            client.receive().await.unwrap();
        }
        for thread in [4, 3] {
            let body = json!({"threadId": thread, "reason": "breakpoint"});
            debugger.event("stopped", body).await;
        }
        let runs = json!({"threadId": 4, "allThreadsContinued": false});
        debugger.event("continued", runs).await;
        for _ in 0..3 {
            client.receive().await.unwrap();
        }
        Self {
            agent,
            one,
            other,
            links: vec![link, second],
            listener,
            debugger,
            client,
            port,
            streams: 1,
        }
    }

    /// Loses the first relay, and waits until the second one knows that the worker is parked.
    async fn kept() -> Self {
        let mut scene = Self::new(Some(keep("ada", minutes(15)))).await;
        assert!(scene.held().await.parked.is_none());
        scene.lose().await;
        let parked = scene.held().await.parked.unwrap();
        assert_eq!(&*parked.owner, "ada");
        scene
    }

    /// Closes the link of the session's relay.
    async fn lose(&mut self) {
        self.links.remove(0);
        let lost = std::mem::replace(&mut self.client, Dap::new(nobody().await));
        drop(lost);
    }

    fn second(&mut self) -> &mut Socket {
        self.links.last_mut().unwrap()
    }

    /// Returns the only row of the next list that the second relay receives.
    async fn held(&mut self) -> HoldRow {
        match next_message(self.second()).await {
            FromAgent::Held { mut workers } => workers.pop().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn open(&mut self, owner: Option<&str>) -> FromRelay {
        let mut open = open(WORKER, self.port);
        self.streams += 1;
        open.stream = Hex([self.streams; 8]);
        open.resume = owner.map(Into::into);
        if let Some(holder) = &mut open.holder {
            holder.session = "8".into();
        }
        FromRelay::Open(open)
    }

    /// Lets the second relay resume the session for `ada`.
    async fn resume(&mut self) -> ParkTerms {
        let open = self.open(Some("ada"));
        send(self.second(), &open).await;
        let (mut socket, _) = self.other.accept().await;
        let first = next(&mut socket).await.into_text().unwrap();
        self.client = Dap::new(Stream::new(socket));
        match read(&first).unwrap() {
            StreamGreeting::Resumed(keep) => *keep,
            other => panic!("{other:?}"),
        }
    }
}

/// Returns a stream without a reader.
async fn nobody() -> Stream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let role = tokio_tungstenite::tungstenite::protocol::Role::Client;
    let socket = tokio_tungstenite::WebSocketStream::from_raw_socket(stream, role, None).await;
    ray_relay_base::wire::tunnel::ByteStream::new(socket)
}

#[tokio::test]
async fn worker_of_a_lost_relay_waits_for_its_owner() {
    let mut scene = Scene::kept().await;
    scene.debugger.expect_nothing().await;
    // Messages during the pause are passed to the next client.
    scene
        .debugger
        .event("output", json!({"output": "meanwhile"}))
        .await;
    for owner in [None, Some("bob"), Some("")] {
        let open = scene.open(owner);
        send(scene.second(), &open).await;
        let FromAgent::Refused { kind, holder, .. } = next_message(scene.second()).await else {
            panic!("not refused");
        };
        assert_eq!(kind == Refusal::Held, owner.is_none());
        assert_eq!(holder.is_some(), owner.is_none());
    }
    let kept = scene.resume().await;
    assert_eq!((kept.attach, &*kept.capabilities), (7, "{}"));
    assert!((60_000..90_000).contains(&kept.lasted_ms));
    let row = scene.held().await;
    assert_eq!((row.replica, &*row.session), (Hex([2; 8]), "8"));
    assert!(row.parked.is_none());
    let output = scene.client.receive().await.unwrap();
    assert_eq!(output["body"]["output"], "meanwhile");
    let stop = scene.client.receive().await.unwrap();
    assert_eq!(
        (&stop["event"], &stop["body"]["threadId"]),
        (&"stopped".into(), &3.into())
    );
    scene.client.request(1, "threads").await;
    scene.debugger.expect_request("threads").await;
    assert_eq!(scene.client.receive().await.unwrap()["command"], "threads");
    // The next relay is lost before it has sent a message: the session is parked as before.
    scene.client = Dap::new(nobody().await);
    assert!(scene.held().await.parked.is_some());
    scene.debugger.expect_nothing().await;
    scene.resume().await;
    let stop = scene.client.receive().await.unwrap();
    assert_eq!(stop["body"]["threadId"], 3);
    scene.held().await;
    // An orderly detach.
    scene.client.request(2, "disconnect").await;
    scene.debugger.expect_request("disconnect").await;
    drop(scene.debugger);
    scene.client.receive().await.unwrap();
    assert!(scene.client.receive().await.is_none());
    scene.client = Dap::new(nobody().await);
    match next_message(scene.links.last_mut().unwrap()).await {
        FromAgent::Held { workers } => assert_eq!(workers, []),
        other => panic!("{other:?}"),
    }
    scene.agent.end().await;
    drop(scene.one);
}

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
    assert!(early.is_err(), "the debugger is still works");
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

#[tokio::test]
async fn kept_worker_is_detached_at_its_limit_or_on_request() {
    for end in ["time", "most", "let_run", "agent"] {
        let mut by = keep("ada", minutes(15));
        match end {
            "time" => by.keeps_ms = 300,
            "most" => by.at_most_ms = Some(300),
            _ => {}
        }
        let mut scene = Scene::new(Some(by)).await;
        scene.held().await;
        scene.lose().await;
        let held = scene.held().await;
        assert!(held.parked.is_some());
        if end == "let_run" {
            let let_run = LetRun::of(&held);
            send(scene.second(), &FromRelay::LetRun(let_run)).await;
        }
        let agent = std::sync::Arc::clone(&scene.agent);
        let ending = (end == "agent").then(|| tokio::spawn(async move { agent.end().await }));
        scene.debugger.expect_detach().await;
        drop(scene.debugger.stream);
        match ending {
            Some(ending) => ending.await.unwrap(),
            None => {
                let gone = next_message(scene.links.last_mut().unwrap()).await;
                assert_eq!(gone, FromAgent::Held { workers: vec![] }, "{end}");
                scene.agent.end().await;
            }
        }
    }
}

#[tokio::test]
async fn clean_end_or_no_park_terms_keeps_no_worker() {
    let by = |keeps| Some(keep("ada", keeps));
    for (first, by, in_order) in [
        (None, None, false),
        (None, by(minutes(15)), true),
        (by(minutes(15)), by(Duration::ZERO), false),
    ] {
        let mut scene = Scene::opened(first, by).await;
        if in_order {
            scene.client.stream.shutdown().await.unwrap();
        }
        scene.lose().await;
        scene.debugger.expect_detach().await;
        drop(scene.debugger.stream);
        scene.agent.end().await;
    }
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

/// Its streams are as silent, and a session that seems alive for long would keep all others away.
#[tokio::test]
async fn worker_of_a_silent_relay_is_kept() {
    // The terms of the request for the stream apply until a message changes them.
    let mut scene = Scene::opened(Some(keep("ada", minutes(15))), None).await;
    let mut held = scene.agent.held.watch();
    assert!(held.borrow().iter().all(|row| row.parked.is_none()));
    tokio::time::pause();
    let kept = held.wait_for(|held| held.iter().any(|row| row.parked.is_some()));
    let kept = timeout(minutes(1), kept).await;
    kept.expect("in time").unwrap();
    tokio::time::resume();
    scene.debugger.expect_nothing().await;
    drop(scene.debugger.stream);
    scene.agent.end().await;
}

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
