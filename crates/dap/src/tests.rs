//! Sessions over real sockets, with a worker that misbehaves on demand. End-to-end tests cover real debugpy.
#![allow(clippy::unwrap_used)]

mod attaching;
mod ending;
mod family;
mod group;
mod identity;
mod leaving;
mod limits;
mod linger;
mod memory;
mod message_filter;
mod parking;
mod recorded;
mod recording;
mod restored;
mod rewriting;
mod subprocesses;
mod through_agent;
mod wall;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::*;
use ray_relay_access::audit::Audit;
use ray_relay_access::connection::summary::Summary;
use ray_relay_access::identity::{Authenticator, Principal};
use ray_relay_base::config::Config;
use ray_relay_base::wire::dap::{codec, message};
use ray_relay_ray::ray::registry::Breakpoint;
use ray_relay_ray::ray::testing::{assert_not_dialled, listening, paused};

const TEST_TIMEOUT: Duration = Duration::from_secs(10);

fn context(adapt: impl FnOnce(&mut Config)) -> Arc<Context> {
    context_with(Authenticator::open(), Audit::off(), adapt)
}

fn context_with(
    auth: Arc<Authenticator>,
    audit: Arc<Audit>,
    adapt: impl FnOnce(&mut Config),
) -> Arc<Context> {
    let mut config = Config::default();
    // Only tests of this timeout set a shorter one.
    config.dap.connect_timeout = TEST_TIMEOUT;
    // In these tests, a client that closes its connection detaches by default.
    config.park.r#for = Duration::ZERO;
    adapt(&mut config);
    Context::offline(config, auth, audit)
}

/// Returns both ends of a connection, and the address of the first end.
async fn connection() -> (TcpStream, TcpStream, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let (accepted, peer) = listener.accept().await.unwrap();
    (stream, accepted, peer)
}

/// A client with a session of its own.
struct Debugger {
    dap: Conversation<TcpStream>,
    seq: u64,
    ended: JoinHandle<()>,
}

impl Debugger {
    async fn connect(context: &Arc<Context>) -> Self {
        Self::connect_with(context, None).await
    }

    /// Connects with a certificate of this principal.
    async fn connect_with(context: &Arc<Context>, certificate: Option<Principal>) -> Self {
        let (stream, accepted, peer) = connection().await;
        let context = context.clone();
        let session = context.sessions.table.open(&Summary::new(peer));
        let connection = ConnectionInfo {
            certificate,
            ..ConnectionInfo::plain(peer)
        };
        let ended =
            tokio::spawn(async move { serve(context, session, accepted, connection).await });
        Self {
            dap: Conversation::new(stream, 1 << 26),
            seq: 0,
            ended,
        }
    }

    /// Connects, sends `initialize` and `attach`, and returns the `seq` of `attach`.
    async fn attaching(context: &Arc<Context>, arguments: Value) -> (Self, u64) {
        let mut debugger = Self::connect(context).await;
        let seq = debugger.attach(arguments).await;
        (debugger, seq)
    }

    async fn send(&mut self, command: &str, arguments: Value) -> u64 {
        self.seq += 1;
        let request =
            json!({"command": command, "arguments": arguments, "type": "request", "seq": self.seq});
        self.dap.send(&request).await.unwrap();
        self.seq
    }

    async fn read(&mut self) -> Value {
        timeout(TEST_TIMEOUT, self.dap.read())
            .await
            .expect("an answer in time")
            .unwrap()
    }

    /// Returns whether a message was read before the end of the connection.
    async fn read_some(&mut self) -> bool {
        let message = timeout(TEST_TIMEOUT, self.dap.read()).await;
        message.expect("the end in time").is_ok()
    }

    async fn until(&mut self, matches: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self.read().await;
            if matches(&message) {
                return message;
            }
        }
    }

    /// Returns the next event with this name.
    async fn event(&mut self, name: &str) -> Value {
        self.until(|m| m["event"] == name).await
    }

    /// Returns the next output that contains `words`.
    async fn output(&mut self, words: &str) -> Value {
        let contains = |text: &str| text.contains(words);
        self.until(|m| m["body"]["output"].as_str().is_some_and(contains))
            .await
    }

    /// Returns the response to the request `seq`.
    async fn answer(&mut self, seq: u64) -> Value {
        self.until(|m| m["type"] == "response" && m["request_seq"] == seq)
            .await
    }

    async fn ask(&mut self, command: &str, arguments: Value) -> Value {
        let seq = self.send(command, arguments).await;
        self.answer(seq).await
    }

    /// Sends `initialize` and `attach`, and returns the `seq` of `attach`.
    async fn attach(&mut self, arguments: Value) -> u64 {
        let initialize = json!({"adapterID": "debugpy", "clientID": "vscode", "clientName": "Visual Studio Code", "supportsStartDebuggingRequest": true});
        assert_eq!(self.ask("initialize", initialize).await["success"], true);
        self.send("attach", arguments).await
    }

    async fn closed(mut self) {
        assert!(
            matches!(
                timeout(TEST_TIMEOUT, self.dap.read()).await,
                Ok(Err(Closed::ByPeer))
            ),
            "the relay closes"
        );
        drop(self.dap);
        timeout(TEST_TIMEOUT, self.ended)
            .await
            .expect("the session ends")
            .unwrap();
    }
}

/// The debugger of a worker, whose part the test plays.
struct Worker {
    listener: TcpListener,
    breakpoint: Breakpoint,
}

impl Worker {
    async fn listen() -> Self {
        Self::listening(paused("square", 1)).await
    }

    /// Creates a worker that is listed in `context`.
    async fn listed(context: &Context) -> Self {
        let worker = Self::listen().await;
        context.registry.insert(worker.breakpoint.clone());
        worker
    }

    async fn listening(breakpoint: Breakpoint) -> Self {
        let (listener, breakpoint) = listening(breakpoint).await;
        Self {
            listener,
            breakpoint,
        }
    }

    async fn accept(&self) -> Conversation<TcpStream> {
        let (stream, _) = timeout(TEST_TIMEOUT, self.listener.accept())
            .await
            .expect("the relay dials")
            .unwrap();
        Conversation::new(stream, 1 << 26)
    }

    /// Sends the greeting and the answer to `initialize`, and returns the received `attach`.
    async fn attached(&self) -> (Conversation<TcpStream>, Value) {
        self.attached_as(json!({})).await
    }

    /// Like [`Self::attached`], for a debugger with these capabilities.
    async fn attached_as(&self, capabilities: Value) -> (Conversation<TcpStream>, Value) {
        let mut dap = self.accept().await;
        greet(&mut dap).await;
        let initialize = expect_request(&mut dap, "initialize").await;
        dap.send(&initialize.success(capabilities)).await.unwrap();
        let attach = dap.read().await.unwrap();
        assert_eq!(attach["command"], "attach");
        (dap, attach)
    }
}

/// Lists a worker and attaches a client with these arguments. Returns both and the worker's debugger, which was dialled.
async fn session(
    context: &Arc<Context>,
    arguments: Value,
) -> (Worker, Debugger, Conversation<TcpStream>) {
    let worker = Worker::listed(context).await;
    let (debugger, _) = Debugger::attaching(context, arguments).await;
    let (dap, _) = worker.attached().await;
    (worker, debugger, dap)
}

/// A client that attached with these arguments, and its worker's debugger after `initialized`: before that it must not
/// be detached, which would kill the adapter.
async fn configurable(
    context: &Arc<Context>,
    arguments: Value,
) -> (Debugger, Conversation<TcpStream>) {
    let (_, mut debugger, mut dap) = session(context, arguments).await;
    initialized(&mut dap).await;
    debugger.event("initialized").await;
    (debugger, dap)
}

/// Sends the greeting of a worker's debugger.
async fn greet(dap: &mut Conversation<TcpStream>) {
    let output = json!({"category": "telemetry", "output": "ptvsd"});
    dap.send(&message::event("output", output)).await.unwrap();
}

/// Sends `initialized` from the worker's debugger.
async fn initialized(dap: &mut Conversation<TcpStream>) {
    let initialized = message::event("initialized", Value::Null);
    dap.send(&initialized).await.unwrap();
}

/// Expects `command` as the next request to the worker.
async fn expect_request(dap: &mut Conversation<TcpStream>, command: &str) -> Request {
    let mut message = timeout(TEST_TIMEOUT, dap.read()).await.unwrap().unwrap();
    let request = Request::read(&mut message).unwrap();
    assert_eq!(request.command, command);
    request
}

/// Expects `command` as the next request to the worker, and answers it.
async fn answer_request(dap: &mut Conversation<TcpStream>, command: &str) -> Request {
    let request = expect_request(dap, command).await;
    dap.send(&request.success(json!({}))).await.unwrap();
    request
}

/// Expects that the worker gets the detach sequence and resumes.
async fn expect_detach(dap: &mut Conversation<TcpStream>) {
    answer_request(dap, "setFunctionBreakpoints").await;
    let disconnect = answer_request(dap, "disconnect").await;
    assert_eq!(disconnect.arguments["terminateDebuggee"], false);
}

/// Expects that the worker gets no further message and its connection closes cleanly.
async fn expect_close(dap: &mut Conversation<TcpStream>) {
    let end = timeout(TEST_TIMEOUT, dap.read()).await;
    assert!(matches!(end, Ok(Err(Closed::ByPeer))), "{end:?}");
}

fn assert_output(message: &Value, words: &str) {
    let text = message["body"]["output"].as_str().unwrap();
    assert!(text.contains(words), "{message}");
}

/// Returns the message without the request id, which differs each time.
fn refusal_message(response: &Value) -> &str {
    assert_eq!(response["success"], false, "{response}");
    assert_eq!(response["body"]["error"]["showUser"], true);
    let message = response["message"].as_str().unwrap();
    message.split(" (request ").next().unwrap()
}

/// Attaches and returns the refusal. The connection then closes.
async fn refusal(context: &Arc<Context>, arguments: Value) -> String {
    let (mut debugger, seq) = Debugger::attaching(context, arguments).await;
    let message = refusal_message(&debugger.answer(seq).await).to_owned();
    debugger.closed().await;
    message
}

fn assert_refused(response: &Value, words: &str) {
    assert!(refusal_message(response).contains(words), "{response}");
}
