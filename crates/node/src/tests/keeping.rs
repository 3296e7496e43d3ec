//! Tests workers whose relay is lost, and clients that resume their sessions.

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

const STEP_TIMEOUT: Duration = Duration::from_secs(10);

fn keep(owner: &str, keep_time: Duration) -> ParkTerms {
    ParkTerms {
        owner: owner.into(),
        credential: None,
        keeps_ms: keep_time.as_millis() as u64,
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
            let received = self.stream.read_buf(self.frames.buffer());
            if timeout(STEP_TIMEOUT, received)
                .await
                .expect("in time")
                .unwrap_or(0)
                == 0
            {
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
        let received = self.stream.read_buf(self.frames.buffer());
        let result = timeout(Duration::from_millis(200), received).await;
        assert!(result.is_err(), "{result:?}");
    }
}

/// The relay's end of a stream.
type Stream = ray_relay_base::wire::tunnel::ByteStream<TcpStream>;

/// An agent with two relays. The first has a session that is parked by `keep` and paused in thread 3.
struct Scene {
    agent: AgentWithProc,
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
        let continued = json!({"threadId": 4, "allThreadsContinued": false});
        debugger.event("continued", continued).await;
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
    async fn parked() -> Self {
        let mut scene = Self::new(Some(keep("ada", minutes(15)))).await;
        assert!(scene.held().await.parked.is_none());
        scene.lose().await;
        let park = scene.held().await.parked.unwrap();
        assert_eq!(&*park.owner, "ada");
        scene
    }

    /// Closes the link of the session's relay.
    async fn lose(&mut self) {
        self.links.remove(0);
        let closed = std::mem::replace(&mut self.client, Dap::new(unread_stream().await));
        drop(closed);
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
async fn unread_stream() -> Stream {
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
    let mut scene = Scene::parked().await;
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
    let terms = scene.resume().await;
    assert_eq!((terms.attach, &*terms.capabilities), (7, "{}"));
    assert!((60_000..90_000).contains(&terms.lasted_ms));
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
    scene.client = Dap::new(unread_stream().await);
    assert!(scene.held().await.parked.is_some());
    scene.debugger.expect_nothing().await;
    scene.resume().await;
    let stop = scene.client.receive().await.unwrap();
    assert_eq!(stop["body"]["threadId"], 3);
    scene.held().await;
    // A client that disconnects is not parked.
    scene.client.request(2, "disconnect").await;
    scene.debugger.expect_request("disconnect").await;
    drop(scene.debugger);
    scene.client.receive().await.unwrap();
    assert!(scene.client.receive().await.is_none());
    scene.client = Dap::new(unread_stream().await);
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
    let leftover = scene.debugger.receive().await.unwrap();
    let long_message =
        frame(&json!({"seq": 1, "type": "event", "event": "module", "body": "x".repeat(1 << 20)}));
    let (head_bytes, tail) = long_message.split_at(1 << 19);
    scene.debugger.stream.write_all(head_bytes).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    scene.lose().await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    scene.debugger.stream.write_all(tail).await.unwrap();
    assert!(scene.held().await.parked.is_some());
    let open = scene.open(Some("ada"));
    send(scene.second(), &open).await;
    let premature = timeout(Duration::from_millis(300), scene.other.accept()).await;
    assert!(premature.is_err(), "the debugger is still works");
    scene.debugger.answer(&leftover).await;
    let (mut socket, _) = scene.other.accept().await;
    let first = next(&mut socket).await.into_text().unwrap();
    assert!(first.starts_with(r#"{"type":"resumed""#), "{first}");
    scene.client = Dap::new(Stream::new(socket));
    assert_eq!(scene.client.receive().await.unwrap()["event"], "stopped");
    scene.client.stream.shutdown().await.unwrap();
    scene.client = Dap::new(unread_stream().await);
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
    for trigger in ["time", "most", "let_run", "agent"] {
        let mut terms = keep("ada", minutes(15));
        match trigger {
            "time" => terms.keeps_ms = 300,
            "most" => terms.at_most_ms = Some(300),
            _ => {}
        }
        let mut scene = Scene::new(Some(terms)).await;
        scene.held().await;
        scene.lose().await;
        let held = scene.held().await;
        assert!(held.parked.is_some());
        if trigger == "let_run" {
            let request = LetRun::of(&held);
            send(scene.second(), &FromRelay::LetRun(request)).await;
        }
        let agent = std::sync::Arc::clone(&scene.agent);
        let shutdown = (trigger == "agent").then(|| tokio::spawn(async move { agent.end().await }));
        scene.debugger.expect_detach().await;
        drop(scene.debugger.stream);
        match shutdown {
            Some(shutdown) => shutdown.await.unwrap(),
            None => {
                let released = next_message(scene.links.last_mut().unwrap()).await;
                assert_eq!(released, FromAgent::Held { workers: vec![] }, "{trigger}");
                scene.agent.end().await;
            }
        }
    }
}

#[tokio::test]
async fn clean_end_or_no_park_terms_keeps_no_worker() {
    let terms = |keep_time| Some(keep("ada", keep_time));
    for (first, terms, is_clean) in [
        (None, None, false),
        (None, terms(minutes(15)), true),
        (terms(minutes(15)), terms(Duration::ZERO), false),
    ] {
        let mut scene = Scene::opened(first, terms).await;
        if is_clean {
            scene.client.stream.shutdown().await.unwrap();
        }
        scene.lose().await;
        scene.debugger.expect_detach().await;
        drop(scene.debugger.stream);
        scene.agent.end().await;
    }
}

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
    let long_message = frame(
        &json!({"seq": 9, "type": "request", "command": "setBreakpoints", "arguments": "x".repeat(1 << 17)}),
    );
    for cut in [10, long_message.len() - 1] {
        let mut scene = Scene::new(Some(keep("ada", minutes(15)))).await;
        scene.held().await;
        scene
            .client
            .stream
            .write_all(&long_message[..cut])
            .await
            .unwrap();
        scene.client.stream.flush().await.unwrap();
        scene.debugger.expect_nothing().await;
        scene.lose().await;
        assert!(scene.held().await.parked.is_some());
        scene.resume().await;
        assert_eq!(scene.client.receive().await.unwrap()["event"], "stopped");
        // One message in two pieces, and the next one directly after it.
        let threads = json!({"seq": 10, "type": "request", "command": "threads"});
        let messages = [&long_message[..], &frame(&threads)].concat();
        let writing = scene.client.stream.write_all(&messages);
        timeout(STEP_TIMEOUT, writing).await.unwrap().unwrap();
        scene.client.stream.flush().await.unwrap();
        for command in ["setBreakpoints", "threads"] {
            scene.debugger.expect_request(command).await;
            scene.client.receive().await.unwrap();
        }
        drop(scene.debugger.stream);
        scene.agent.end().await;
    }
}

/// The silence of a relay is noticed on the link, because its streams are silent too.
#[tokio::test]
async fn worker_of_a_silent_relay_is_kept() {
    // The terms of the request for the stream apply until a message changes them.
    let mut scene = Scene::opened(Some(keep("ada", minutes(15))), None).await;
    let mut held = scene.agent.held.watch();
    assert!(held.borrow().iter().all(|row| row.parked.is_none()));
    tokio::time::pause();
    let is_parked = held.wait_for(|held| held.iter().any(|row| row.parked.is_some()));
    let is_parked = timeout(minutes(1), is_parked).await;
    is_parked.expect("in time").unwrap();
    tokio::time::resume();
    scene.debugger.expect_nothing().await;
    drop(scene.debugger.stream);
    scene.agent.end().await;
}
