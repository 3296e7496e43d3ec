//! Stand-ins for the head, a debugger and a relay, as far as an agent uses them.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use http_body_util::Full;
use hyper::header::HeaderValue;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server;
use tokio_tungstenite::{WebSocketStream, accept_hdr_async};

use super::super::{Agent, RelayAccess, Settings};
use ray_relay_base::config;
use ray_relay_base::wire::dap::codec::{Frames, frame, parse};
use ray_relay_base::wire::relay_url::RelayUrl;
use ray_relay_base::wire::tunnel::ByteStream;
use ray_relay_base::wire::tunnel::messages::{
    Announce, FromAgent, FromRelay, Hex, Kind, Node, Open, PROTOCOL, WorkerTaker, read, written,
};

/// How long a peer may take. A machine with other work is ten times as slow.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) const NODE: &str = "aaaa";
pub(super) const WORKER: &str = "beef";

/// Answers the State API with the same rows for every query.
pub(super) async fn head(workers: Vec<Value>, nodes: Vec<Value>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (workers, nodes) = (workers.clone(), nodes.clone());
            let answer = service_fn(move |request: Request<hyper::body::Incoming>| {
                let rows = match request.uri().path() {
                    "/api/v0/nodes" => nodes.clone(),
                    _ => workers.clone(),
                };
                let total = rows.len();
                let list = json!({"total": total, "num_after_truncation": total, "result": rows});
                let body = json!({"result": true, "msg": "", "data": {"result": list}});
                async move {
                    Ok::<_, Infallible>(Response::new(Full::<bytes::Bytes>::from(body.to_string())))
                }
            });
            tokio::spawn(async move {
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), answer)
                    .await;
            });
        }
    });
    address
}

/// Returns the worker row of this test's own process, with a debugger on `port`.
pub(super) fn worker(port: u16) -> Value {
    json!({"worker_id": WORKER, "is_alive": true, "node_id": NODE, "ip": "127.0.0.1",
        "pid": std::process::id(), "debugger_port": port, "num_paused_threads": 1})
}

pub(super) fn node(node_id: &str, ip: &str) -> Value {
    json!({"node_id": node_id, "node_ip": ip, "state": "ALIVE"})
}

/// Sends a token over plain text.
struct Plain;

impl RelayAccess for Plain {
    fn tls(&self, _: &RelayUrl) -> Result<ClientConfig, String> {
        Err("no TLS here".to_owned())
    }

    fn authorization(&self, _: &RelayUrl) -> Result<Option<HeaderValue>, String> {
        Ok(Some(HeaderValue::from_static("Bearer of-the-node")))
    }
}

pub(super) fn settings(head: SocketAddr) -> Settings {
    Settings {
        relays: Vec::new(),
        cluster: config::Cluster {
            name: "default".to_owned(),
            ray_address: format!("http://{head}"),
            token_file: None,
            gcs_address: config::Gcs::Off,
            ..config::Cluster::default()
        },
        node_id: None,
        node_addresses: Vec::new(),
        reverse_ports: None,
        access: Arc::new(Plain),
    }
}

/// A `/proc` in which this test's own process is the child of process 1.
pub(super) struct Proc(tempfile::TempDir);

impl Proc {
    /// Makes process 1 a raylet.
    pub(super) fn new() -> Self {
        let proc = Self(tempfile::tempdir().unwrap());
        let (root, own_pid) = (proc.0.path(), std::process::id().to_string());
        symlink("/proc/net", root.join("net")).unwrap();
        std::fs::create_dir(root.join("1")).unwrap();
        std::fs::create_dir(root.join(&own_pid)).unwrap();
        symlink("/proc/self/fd", root.join(&own_pid).join("fd")).unwrap();
        std::fs::write(root.join(&own_pid).join("status"), "PPid:\t1\n").unwrap();
        std::fs::write(root.join(&own_pid).join("cmdline"), "ray::square()").unwrap();
        proc.parent("/x/raylet\0--raylet_socket_name=/x/raylet.sock");
        proc
    }

    /// Assigns the port to a debugpy adapter, a separate process without a client.
    pub(super) fn adapter(&self) {
        let (adapter, own_dir) = (self.0.path().join("2"), self.own_dir());
        std::fs::create_dir(&adapter).unwrap();
        std::fs::rename(own_dir.join("fd"), adapter.join("fd")).unwrap();
        std::fs::create_dir(own_dir.join("fd")).unwrap();
        std::fs::write(adapter.join("status"), "PPid:\t0\n").unwrap();
        let line = "python\0/v/debugpy/adapter\0--for-server";
        std::fs::write(adapter.join("cmdline"), line).unwrap();
    }

    /// Assigns the socket `worker`, the other end of a connection of the adapter, to the worker.
    pub(super) fn adapter_connects_with(&self, worker: &TcpStream) {
        let fd = worker.as_raw_fd();
        let socket = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
        symlink(socket, self.own_dir().join("fd/3")).unwrap();
    }

    fn own_dir(&self) -> PathBuf {
        self.0.path().join(std::process::id().to_string())
    }

    pub(super) fn path(&self) -> &std::path::Path {
        self.0.path()
    }

    /// Adds the process `pid` as another worker of process 1, run by this test's user.
    pub(crate) fn worker(&self, pid: u32) {
        let (worker_dir, uid) = (
            self.0.path().join(pid.to_string()),
            rustix::process::geteuid().as_raw(),
        );
        std::fs::create_dir(&worker_dir).unwrap();
        std::fs::create_dir(worker_dir.join("fd")).unwrap();
        symlink("socket:[1]", worker_dir.join("fd/3")).unwrap();
        let ids = format!("Uid:\t{uid}\t{uid}\t0\t0\nGid:\t0\t0\t0\t0\n");
        std::fs::write(worker_dir.join("status"), format!("PPid:\t1\n{ids}")).unwrap();
        std::fs::write(worker_dir.join("cmdline"), "ray::rank()").unwrap();
        std::fs::write(self.0.path().join("1/status"), format!("PPid:\t0\n{ids}")).unwrap();
    }

    /// Writes the environment of the process `pid`.
    pub(crate) fn environment(&self, pid: u32, variables: &str) {
        std::fs::write(self.0.path().join(format!("{pid}/environ")), variables).unwrap();
    }

    /// Makes process 1 the raylet of the Ray session that has its sockets in `folder`.
    pub(crate) fn session(&self, folder: &std::path::Path) {
        let socket = folder.join("raylet");
        self.parent(&format!(
            "/x/raylet\0--raylet_socket_name={}",
            socket.display()
        ));
    }

    /// Changes the command line of process 1.
    pub(crate) fn parent(&self, cmdline: &str) {
        std::fs::write(self.0.path().join("1/cmdline"), cmdline).unwrap();
    }
}

/// An agent that sees the processes of a [`Proc`].
pub(super) struct AgentWithProc {
    agent: Arc<Agent>,
    pub(super) proc: Proc,
}

impl Deref for AgentWithProc {
    type Target = Arc<Agent>;

    fn deref(&self) -> &Arc<Agent> {
        &self.agent
    }
}

/// Returns an agent for `head` that links to the relays at `relays`.
pub(super) fn agent(head: SocketAddr, relays: &[&Relay]) -> AgentWithProc {
    let settings = settings(head);
    let proc = Proc::new();
    let agent = Agent::new(&settings, proc.0.path()).unwrap();
    for relay in relays {
        let following = Arc::clone(&agent).follow(relay.url(), Arc::clone(&settings.access));
        agent.tasks.spawn(following);
    }
    AgentWithProc { agent, proc }
}

/// The listening port of a relay.
pub(super) struct Relay {
    listener: TcpListener,
    pub(super) replica: Hex<8>,
}

pub(super) type Socket = WebSocketStream<TcpStream>;

impl Relay {
    pub(super) async fn start(replica: u8) -> Self {
        Self {
            listener: TcpListener::bind("127.0.0.1:0").await.unwrap(),
            replica: Hex([replica; 8]),
        }
    }

    pub(super) fn url(&self) -> RelayUrl {
        let address = self.listener.local_addr().unwrap();
        format!("http://{address}").parse().unwrap()
    }

    /// Accepts the next WebSocket, and returns it with the path of its request.
    pub(super) async fn accept(&self) -> (Socket, String) {
        self.accept_after(|| ()).await
    }

    /// The same, with `action` called between the connection and the handshake.
    async fn accept_after(&self, action: impl FnOnce()) -> (Socket, String) {
        let accepting = async {
            let (stream, _) = self.listener.accept().await.unwrap();
            action();
            let mut path = String::new();
            #[allow(clippy::result_large_err, reason = "it is the library's")]
            let check_request = |request: &server::Request, mut response: server::Response| {
                path = request.uri().path().to_owned();
                let headers = request.headers();
                assert_eq!(headers["authorization"], "Bearer of-the-node");
                assert!(headers["host"].to_str().unwrap().starts_with("127.0.0.1:"));
                if path.contains("/stream/") {
                    assert_eq!(headers["ray-relay-stream-secret"], "02".repeat(16));
                }
                let protocol = headers["sec-websocket-protocol"].clone();
                response
                    .headers_mut()
                    .insert("sec-websocket-protocol", protocol);
                Ok(response)
            };
            let socket = accept_hdr_async(stream, check_request).await.unwrap();
            (socket, path)
        };
        timeout(TEST_TIMEOUT, accepting).await.unwrap()
    }

    /// Accepts the next link, and sends the welcome.
    pub(super) async fn link(&self) -> (Socket, Announce) {
        self.link_for(None).await
    }

    /// The same, with a credential that is valid for this many milliseconds.
    pub(super) async fn link_for(&self, good_for_ms: Option<u64>) -> (Socket, Announce) {
        let (mut link, path) = self.accept().await;
        assert_eq!(path, "/relay/v1/nodes/link");
        send(&mut link, &hello(self.replica)).await;
        let FromAgent::Announce(announce) = next_message(&mut link).await else {
            panic!("no announcement");
        };
        assert_eq!(announce.nonce, Hex([9; 16]));
        let nodes = vec![Node {
            cluster: "default".into(),
            node_id: NODE.into(),
            address: "127.0.0.1".parse().unwrap(),
        }];
        send(&mut link, &FromRelay::Welcome { nodes, good_for_ms }).await;
        let FromAgent::Held { workers } = next_message(&mut link).await else {
            panic!("no list of what is held");
        };
        assert_eq!(workers, []);
        (link, announce)
    }

    /// Accepts the next stream, and returns it with its first message.
    pub(super) async fn stream(&self) -> (ByteStream<TcpStream>, String) {
        self.stream_after(|| ()).await
    }

    /// The same, with `action` called after the agent has looked up the worker and before it dials.
    pub(super) async fn stream_after(
        &self,
        action: impl FnOnce(),
    ) -> (ByteStream<TcpStream>, String) {
        let (mut socket, path) = self.accept_after(action).await;
        assert_eq!(path, format!("/relay/v1/nodes/stream/{}", "01".repeat(8)));
        let first = next(&mut socket).await.into_text().unwrap().to_string();
        (ByteStream::new(socket), first)
    }
}

pub(super) fn hello(replica: Hex<8>) -> FromRelay {
    FromRelay::Hello {
        protocol: PROTOCOL,
        version: "0".into(),
        replica,
        nonce: Hex([9; 16]),
    }
}

pub(super) fn open(worker_id: &str, port: u16) -> Open {
    Open {
        stream: Hex([1; 8]),
        secret: Hex([2; 16]),
        cluster: "default".into(),
        node_id: NODE.into(),
        worker_id: worker_id.into(),
        kind: Kind::Debugpy,
        port,
        holder: Some(WorkerTaker {
            name: "ada".into(),
            session: "7".into(),
            client: "nvim".into(),
            peer: None,
        }),
        resume: None,
        process: None,
        keep: None,
    }
}

pub(super) async fn send(link: &mut Socket, message: &FromRelay) {
    link.send(Message::text(written(message))).await.unwrap();
}

pub(super) async fn next(socket: &mut Socket) -> Message {
    let next = timeout(TEST_TIMEOUT, socket.next()).await;
    next.unwrap().unwrap().unwrap()
}

/// Returns the next message, except lists of relays.
pub(super) async fn next_message(link: &mut Socket) -> FromAgent {
    loop {
        let message = read(next(link).await.to_text().unwrap()).unwrap();
        if !matches!(message, FromAgent::Relays { .. }) {
            return message;
        }
    }
}

/// A stand-in for debugpy, with its order of messages.
pub(super) struct Debugger(pub(super) TcpListener);

impl Debugger {
    pub(super) async fn start() -> (Self, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        (Self(listener), port)
    }

    /// Greets each client and answers everything. Returns the commands in order when the client has sent `disconnect`
    /// or has closed.
    pub(super) async fn serve(self) -> Vec<String> {
        let (mut stream, _) = self.0.accept().await.unwrap();
        for event in ["output", "debugpySockets"] {
            stream.write_all(&event_of(event)).await.unwrap();
        }
        let mut frames = Frames::new(1 << 20);
        let mut commands = Vec::new();
        loop {
            while let Some(body) = frames.next_body().unwrap() {
                let request = parse(&body).unwrap();
                let command = request["command"].as_str().unwrap().to_owned();
                let answer = json!({"seq": 1, "type": "response", "request_seq": request["seq"],
                    "success": true, "command": command});
                stream.write_all(&frame(&answer)).await.unwrap();
                if command == "attach" {
                    stream.write_all(&event_of("initialized")).await.unwrap();
                }
                commands.push(command);
                if commands.last().unwrap() == "disconnect" {
                    return commands;
                }
            }
            if stream.read_buf(frames.buffer()).await.unwrap_or(0) == 0 {
                commands.push("(gone)".to_owned());
                return commands;
            }
        }
    }
}

fn event_of(event: &str) -> Vec<u8> {
    frame(&json!({"seq": 1, "type": "event", "event": event, "body": {}}))
}

pub(super) fn request(command: &str) -> Vec<u8> {
    frame(&json!({"seq": 1, "type": "request", "command": command, "arguments": {}}))
}
