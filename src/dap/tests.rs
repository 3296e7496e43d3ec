//! Sessions over real sockets with a worker that misbehaves on demand. What real debugpy does is
//! tested end to end.
#![allow(clippy::unwrap_used)]

mod attaching;
mod ending;
mod family;
mod farewell;
mod identity;
mod leaving;
mod limits;
mod message_filter;
mod recorded;
mod recording;
mod rewriting;
mod subprocesses;

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::testing::{listening, paused};
use super::*;
use crate::audit::Audit;
use crate::config::Config;
use crate::identity::{Authenticator, Principal};
use crate::ray::registry::Breakpoint;
use crate::wire::dap::{codec, message};

const PATIENCE: Duration = Duration::from_secs(10);

fn context(adapt: impl FnOnce(&mut Config)) -> Arc<Context> {
    guarded(Authenticator::open(), Audit::off(), adapt)
}

fn guarded(
    auth: Arc<Authenticator>,
    audit: Arc<Audit>,
    adapt: impl FnOnce(&mut Config),
) -> Arc<Context> {
    let mut config = Config::default();
    config.dap.connect_timeout = Duration::from_millis(300);
    adapt(&mut config);
    Context::offline(config, auth, audit)
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

    /// A client with a certificate of this principal.
    async fn connect_with(context: &Arc<Context>, certificate: Option<Principal>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (accepted, peer) = listener.accept().await.unwrap();
        let context = context.clone();
        let session = context.sessions.open(peer);
        let connection = ConnectionInfo {
            certificate,
            ..ConnectionInfo::plain(peer)
        };
        let ended =
            tokio::spawn(async move { serve(&context, session, accepted, connection).await });
        Self {
            dap: Conversation::new(stream, 1 << 26),
            seq: 0,
            ended,
        }
    }

    async fn send(&mut self, command: &str, arguments: Value) -> u64 {
        self.seq += 1;
        let request =
            json!({"command": command, "arguments": arguments, "type": "request", "seq": self.seq});
        self.dap.send(&request).await.unwrap();
        self.seq
    }

    async fn read(&mut self) -> Value {
        timeout(PATIENCE, self.dap.read())
            .await
            .expect("an answer in time")
            .unwrap()
    }

    /// Whether something came before the end.
    async fn read_some(&mut self) -> bool {
        let message = timeout(PATIENCE, self.dap.read()).await;
        message.expect("the end in time").is_ok()
    }

    async fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self.read().await;
            if wanted(&message) {
                return message;
            }
        }
    }

    async fn ask(&mut self, command: &str, arguments: Value) -> Value {
        let seq = self.send(command, arguments).await;
        self.until(|m| m["type"] == "response" && m["request_seq"] == seq)
            .await
    }

    /// `initialize` and `attach`.
    async fn attach(&mut self, arguments: Value) -> u64 {
        let initialize = json!({"adapterID": "debugpy", "clientID": "vscode", "clientName": "Visual Studio Code", "supportsStartDebuggingRequest": true});
        assert_eq!(self.ask("initialize", initialize).await["success"], true);
        self.send("attach", arguments).await
    }

    async fn closed(mut self) {
        assert!(
            matches!(
                timeout(PATIENCE, self.dap.read()).await,
                Ok(Err(Closed::ByPeer))
            ),
            "the relay closes"
        );
        drop(self.dap);
        timeout(PATIENCE, self.ended)
            .await
            .expect("the session ends")
            .unwrap();
    }
}

/// A worker's debugger whose part the test plays.
struct Worker {
    listener: TcpListener,
    breakpoint: Breakpoint,
}

impl Worker {
    async fn listen() -> Self {
        Self::listening(paused("square", 1)).await
    }

    async fn listening(breakpoint: Breakpoint) -> Self {
        let (listener, breakpoint) = listening(breakpoint).await;
        Self {
            listener,
            breakpoint,
        }
    }

    async fn accept(&self) -> Conversation<TcpStream> {
        let (stream, _) = timeout(PATIENCE, self.listener.accept())
            .await
            .expect("the relay dials")
            .unwrap();
        Conversation::new(stream, 1 << 26)
    }

    /// The greeting, the answer to `initialize`, and the `attach` that came.
    async fn attached(&self) -> (Conversation<TcpStream>, Value) {
        self.attached_as(json!({})).await
    }

    /// The same of a debugger with these capabilities.
    async fn attached_as(&self, capabilities: Value) -> (Conversation<TcpStream>, Value) {
        let mut dap = self.accept().await;
        let output = json!({"category": "telemetry", "output": "ptvsd"});
        dap.send(&message::event("output", output)).await.unwrap();
        let mut initialize = dap.read().await.unwrap();
        let initialize = Request::read(&mut initialize).unwrap();
        dap.send(&initialize.success(capabilities)).await.unwrap();
        let attach = dap.read().await.unwrap();
        assert_eq!(attach["command"], "attach");
        (dap, attach)
    }
}

/// A client that attached to `worker` with these arguments, and its debugger, which has come to `initialized`: before that
/// it is not left.
async fn attached_with(
    context: &Arc<Context>,
    worker: &Worker,
    arguments: Value,
) -> (Debugger, Conversation<TcpStream>) {
    context.registry.insert(worker.breakpoint.clone());
    let mut debugger = Debugger::connect(context).await;
    debugger.attach(arguments).await;
    let (mut dap, _) = worker.attached().await;
    dap.send(&message::event("initialized", Value::Null))
        .await
        .unwrap();
    debugger.until(|m| m["event"] == "initialized").await;
    (debugger, dap)
}

/// The next request to the worker is this one; it is answered.
async fn asked(dap: &mut Conversation<TcpStream>, command: &str) -> Value {
    let mut message = timeout(PATIENCE, dap.read()).await.unwrap().unwrap();
    let whole = message.clone();
    let request = Request::read(&mut message).unwrap();
    assert_eq!(request.command, command);
    dap.send(&request.success(json!({}))).await.unwrap();
    whole
}

fn sentence(response: &Value) -> &str {
    assert_eq!(response["success"], false, "{response}");
    assert_eq!(response["body"]["error"]["showUser"], true);
    response["message"].as_str().unwrap()
}
