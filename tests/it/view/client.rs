//! A debugger client with the relay's rules between it and the process.

use std::collections::VecDeque;
use std::time::Duration;

use ray_relay_base::wire::dap::conversation::Conversation;
use ray_relay_dap::message_filter::{Action, MessageFilter};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::watched::Watched;
use crate::support::dap_client::TEST_TIMEOUT;

/// A debugger client behind the rules.
pub(super) struct Client {
    worker: Conversation<TcpStream>,
    filter: MessageFilter,
    pub(super) inbox: VecDeque<Value>,
    seq: u64,
    pub(super) thread: u64,
    pub(super) frame: u64,
}

impl Client {
    /// Attached with `arguments`, and stopped for the first time.
    pub(super) async fn attach(to: &Watched, filter: MessageFilter, arguments: Value) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", to.port)).await.unwrap();
        let mut worker = Conversation::new(stream, 64 << 20);
        worker
            .send(&json!({"seq": 1, "type": "request", "command": "initialize", "arguments": {"adapterID": "debugpy"}}))
            .await
            .unwrap();
        let arguments = filter.attach_arguments(arguments);
        worker
            .send(
                &json!({"seq": 2, "type": "request", "command": "attach", "arguments": arguments}),
            )
            .await
            .unwrap();
        let mut client = Self {
            worker,
            filter,
            inbox: VecDeque::new(),
            seq: 2,
            thread: 0,
            frame: 0,
        };
        client.event("initialized").await;
        client.request("configurationDone", Value::Null).await;
        client.stopped().await;
        client
    }

    /// Waits for the next stop, in `work`.
    pub(super) async fn stopped(&mut self) {
        let stopped = self.event("stopped").await;
        self.thread = stopped["body"]["threadId"].as_u64().unwrap();
        let stack = self
            .request("stackTrace", json!({"threadId": self.thread}))
            .await;
        self.frame = stack["body"]["stackFrames"][0]["id"].as_u64().unwrap();
    }

    async fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::ToWorker(message) | Action::Ask(message) => {
                    self.worker.send(&message).await.unwrap()
                }
                Action::ToClient(message)
                | Action::Refuse {
                    answer: message, ..
                } => {
                    self.inbox.push_back(message);
                }
            }
        }
    }

    async fn say(&mut self, message: Value) {
        let actions = self.filter.on_client(message);
        self.act(actions).await;
    }

    async fn find(&mut self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        loop {
            if let Some(at) = self.inbox.iter().position(&is) {
                return self.inbox.remove(at).unwrap();
            }
            let read = timeout(TEST_TIMEOUT, self.worker.read()).await;
            let message = read
                .unwrap_or_else(|_| panic!("{what}: nothing came; had {:?}", self.inbox))
                .unwrap();
            let actions = self.filter.on_worker(message);
            self.act(actions).await;
        }
    }

    pub(super) async fn event(&mut self, name: &str) -> Value {
        self.find(name, |m| m["event"] == *name).await
    }

    pub(super) async fn request(&mut self, command: &str, arguments: Value) -> Value {
        self.seq += 1;
        let seq = self.seq;
        self.say(
            json!({"seq": seq, "type": "request", "command": command, "arguments": arguments}),
        )
        .await;
        self.find(command, |m| {
            m["type"] == "response" && m["request_seq"] == seq
        })
        .await
    }

    /// Leaves, and waits until debugpy's session is over: a client that comes before that ends the thread that accepts
    /// connections. Its log says so, and nothing else does.
    pub(super) async fn leave(mut self, from: &Watched) {
        let over = from.sessions_over();
        self.request("disconnect", json!({"terminateDebuggee": false}))
            .await;
        let end = async {
            while from.sessions_over() == over {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(TEST_TIMEOUT, end).await.expect("the session ends");
    }

    /// Lets the program run to its next stop.
    pub(super) async fn go_on(&mut self) {
        let answer = self
            .request("continue", json!({"threadId": self.thread}))
            .await;
        assert_eq!(answer["success"], true, "{answer}");
        self.stopped().await;
    }

    pub(super) async fn watch(&mut self, name: &str) -> Value {
        let frame = self.frame;
        self.request(
            "evaluate",
            json!({"expression": name, "frameId": frame, "context": "watch"}),
        )
        .await
    }
}

pub(super) fn attach_arguments() -> Value {
    json!({"justMyCode": false, "connect": {"host": "127.0.0.1", "port": 5678}})
}
