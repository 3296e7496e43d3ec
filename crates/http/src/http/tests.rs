//! The relay's HTTP server on real sockets, between a fake head and hyper clients.
#![allow(clippy::unwrap_used)]

mod agents;
mod api;
mod authentication;
mod authorisation;
mod awaited;
mod compare;
mod described;
mod endings;
mod jobs;
mod lifecycle;
mod list;
mod narrowed_admin;
mod origins;
mod page;
mod park;
mod pieces;
mod proxy;
mod release;
mod running;
mod sessions;
mod smuggling;
mod snapshot;
mod terminal;
mod websocket;
mod why;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::HOST;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::answer::{self, Body};
use super::serve_connection;
use ray_relay_access::audit::testing::{AuditLine, AuditSpy, spied};
use ray_relay_view::advertise;

use ray_relay_access::connection::ConnectionInfo;
use ray_relay_access::identity::testing::{
    authenticator, principal, revoke, token_of, token_until,
};
use ray_relay_access::identity::{Authenticator, Principal};
use ray_relay_base::config::{self, Config};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_ray::ray::registry::{Breakpoint, BreakpointId, Registry};
use ray_relay_ray::ray::testing::paused;
use ray_relay_session::context::Context;
use ray_relay_session::session::SessionRow;

/// A paused worker of the cluster `default`.
pub fn breakpoint(worker_id: &str) -> Breakpoint {
    let mut breakpoint = Breakpoint {
        id: BreakpointId::derive("default", worker_id),
        node_ip: [10, 88, 0, 10].into(),
        worker_id: worker_id.into(),
        pid: 495,
        port: 38645,
        first_seen: Timestamp::now(),
        ..paused("square", 1)
    };
    breakpoint.names_mut().job_id = Some("01000000".to_owned());
    breakpoint
}

pub fn config() -> Config {
    let second = Duration::from_secs(1);
    Config {
        auth: ray_relay_base::config::Auth::default(),
        listen: config::Listen {
            address: ([127, 0, 0, 1], 0).into(),
            insecure_no_auth: false,
            max_connections: 16,
            memory: None,
            handshake_timeout: 10 * second,
            keepalive: 15 * second,
            drain_timeout: 30 * second,
            keeper: None,
        },
        clusters: Vec::new(),
        registry: config::Registry {
            poll_interval: second,
            request_timeout: 5 * second,
            backoff_max: 30 * second,
            node_interval: 10 * second,
            locations: true,
        },
        dap: config::Dap {
            connect_timeout: 5 * second,
            max_frame: 1 << 26,
            allow_terminate: false,
            allow_attach: false,
        },
        http: config::Http {
            max_event_streams: 2,
            allowed_hosts: vec!["relay.example.com".to_owned()],
            dashboard_hosts: None,
            metrics_open: false,
        },
        advertise: config::Advertise::Single,
        log: config::Log {
            level: "info".to_owned(),
            format: config::LogFormat::Text,
        },
        ..Config::default()
    }
}

/// Action, outcome, subject and path of each entry of the audit log.
fn lines(entries: &[AuditLine]) -> Vec<String> {
    let line = |entry: &AuditLine| {
        let field = |key: &str| {
            entry
                .details
                .get(key)
                .and_then(|v| v.as_str())
                .unwrap_or("-")
        };
        let subject = entry.subject.as_deref().unwrap_or("-");
        format!(
            "{:?} {} {subject} {}",
            entry.action,
            field("outcome"),
            field("path")
        )
    };
    entries.iter().map(line).collect()
}

/// A principal with `rules` in the syntax of a policy file. Its token is [`token_of`].
pub(super) struct User {
    rules: String,
}

impl User {
    /// Creates a user with `scopes` (quoted words), limited by `narrowing` (lines of TOML).
    pub(super) fn new(subject: &str, scopes: &str, narrowing: &str) -> Self {
        let rules =
            format!("[[rule]]\nsubjects = [{subject:?}]\nscopes = [{scopes}]\n{narrowing}\n");
        Self { rules }
    }
}

/// Returns the value of the `authorization` header for `subject`.
fn bearer(subject: &str) -> String {
    format!("Bearer {}", token_of(subject))
}

/// A head that no client may contact. It accepts no connection.
struct UncontactedHead {
    address: SocketAddr,
    listener: TcpListener,
}

impl UncontactedHead {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self {
            address: listener.local_addr().unwrap(),
            listener,
        }
    }

    /// Fails if a client has connected.
    async fn expect_uncontacted(&self) {
        // A connection of the test itself comes after all others in the queue.
        let probe = TcpStream::connect(self.address).await.unwrap();
        let (_, first) = self.listener.accept().await.unwrap();
        assert_eq!(
            first,
            probe.local_addr().unwrap(),
            "somebody reached the head"
        );
    }
}

/// A relay on its own port, in front of its heads. Dropping it ends all tasks.
struct Relay {
    address: SocketAddr,
    registry: Registry,
    ctx: Arc<Context>,
    /// Its audit log.
    audit: AuditSpy,
    shutdown: CancellationToken,
    connections: tokio::sync::watch::Receiver<usize>,
    _tasks: JoinSet<()>,
}

impl Relay {
    /// A relay in front of `heads`, given as name and address.
    async fn start(heads: &[(&str, SocketAddr)], change: impl FnOnce(&mut Config)) -> Self {
        Self::with_auth(heads, Authenticator::open(), change).await
    }

    /// Starts a relay that authenticates `users` by the tokens of [`token_of`].
    async fn with_users(heads: &[(&str, SocketAddr)], users: &[&User]) -> Self {
        let policy: String = users.iter().map(|user| &*user.rules).collect();
        Self::with_auth(heads, authenticator(&policy), |_| {}).await
    }

    async fn with_auth(
        heads: &[(&str, SocketAddr)],
        auth: Arc<Authenticator>,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let mut config = config();
        for (name, address) in heads {
            config.clusters.push(config::Cluster {
                name: (*name).to_owned(),
                ray_address: format!("http://{address}"),
                token_file: None,
                gcs_address: config::Gcs::Off,
                ..config::Cluster::default()
            });
        }
        change(&mut config);
        let registry = match config.clusters.is_empty() {
            true => Registry::offline(&["default"], &config.registry),
            false => Registry::new(&config.clusters, &config.registry).unwrap(),
        };
        let (audit, spy) = spied(false);
        let ctx = Context::watching(registry.clone(), config, auth, audit);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let (count, connections) = tokio::sync::watch::channel(0);
        let mut tasks = JoinSet::new();
        let (context, stop) = (Arc::clone(&ctx), shutdown.clone());
        tasks.spawn(async move {
            let mut connections_open = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        let (stream, peer) = accepted.unwrap();
                        connections_open.spawn(serve_connection(stream, ConnectionInfo::plain(peer), Arc::clone(&context), stop.clone()));
                    }
                    Some(ended) = connections_open.join_next() => ended.unwrap(),
                }
                count.send_replace(connections_open.len());
            }
        });
        Self {
            address,
            registry,
            ctx,
            audit: spy,
            shutdown,
            connections,
            _tasks: tasks,
        }
    }

    async fn client(&self) -> Client {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (send, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { _ = connection.with_upgrades().await });
        Client {
            send,
            _tasks: tasks,
        }
    }

    /// Sends a GET with the relay's address as the host.
    async fn get(&self, path: &str) -> Response<Incoming> {
        let request = self.request("GET", path).body(answer::empty()).unwrap();
        self.client().await.send(request).await
    }

    /// Sends a GET with `token`.
    async fn get_as(&self, token: &str, path: &str) -> Response<Incoming> {
        self.ask_as(token, "GET", path).await
    }

    async fn ask_as(&self, token: &str, method: &str, path: &str) -> Response<Incoming> {
        let request = self
            .request(method, path)
            .header("authorization", format!("Bearer {token}"));
        self.client()
            .await
            .send(request.body(answer::empty()).unwrap())
            .await
    }

    fn request(&self, method: &str, path: &str) -> hyper::http::request::Builder {
        Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.address.to_string())
    }

    /// Waits until all connections are closed.
    async fn until_disconnected(&mut self) {
        self.connections
            .wait_for(|count| *count == 0)
            .await
            .unwrap();
    }
}

/// One HTTP/1.1 connection.
struct Client {
    send: hyper::client::conn::http1::SendRequest<Body>,
    _tasks: JoinSet<()>,
}

impl Client {
    async fn send(mut self, request: Request<Body>) -> Response<Incoming> {
        let response = self.send.send_request(request).await.unwrap();
        // The connection must outlive the body of the response.
        tokio::spawn(async move {
            let mut client = self;
            while client._tasks.join_next().await.is_some() {}
        });
        response
    }
}

async fn text(response: Response<Incoming>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

async fn json(response: Response<Incoming>) -> serde_json::Value {
    serde_json::from_str(&text(response).await).unwrap()
}

/// Posts `body` to `path` as `subject`, and returns the status and body of the answer.
async fn post(relay: &Relay, path: &str, subject: &str, body: &str) -> (u16, serde_json::Value) {
    let request = relay
        .request("POST", path)
        .header("authorization", bearer(subject));
    let request = request.body(answer::full(body.to_owned())).unwrap();
    let response = relay.client().await.send(request).await;
    (response.status().as_u16(), json(response).await)
}

/// Like [`post`], and returns the error message instead of the body.
async fn post_error(relay: &Relay, path: &str, subject: &str, body: &str) -> (u16, String) {
    let (status, answer) = post(relay, path, subject, body).await;
    let error = answer["error"].as_str().unwrap_or_default();
    (status, error.to_owned())
}

/// Starts a head that answers requests with `handler`.
async fn head<H, F>(handler: H) -> (SocketAddr, JoinSet<()>)
where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let handler = handler.clone();
            connections.spawn(async move {
                let service = service_fn(|request| {
                    let answered = handler(request);
                    async move { Ok::<_, Infallible>(answered.await) }
                });
                let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                _ = builder
                    .serve_connection_with_upgrades(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    (address, tasks)
}

/// A request as received by the head.
#[derive(Debug)]
struct HeadRequest {
    method: Method,
    uri: String,
    headers: HeaderMap,
}

/// Starts a head that reports its requests and answers with `answered`.
async fn test_head(
    answered: fn() -> Response<Body>,
) -> (
    SocketAddr,
    mpsc::UnboundedReceiver<HeadRequest>,
    JoinSet<()>,
) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let (address, tasks) = head(move |request: Request<Incoming>| {
        let (parts, _) = request.into_parts();
        _ = sender.send(HeadRequest {
            method: parts.method,
            uri: parts.uri.to_string(),
            headers: parts.headers,
        });
        async move { answered() }
    })
    .await;
    (address, receiver, tasks)
}

fn ok(body: impl Into<Bytes>) -> Response<Body> {
    Response::new(answer::full(body))
}

fn with(mut response: Response<Body>, headers: &[(&'static str, &'static str)]) -> Response<Body> {
    for (name, value) in headers {
        response.headers_mut().append(*name, value.parse().unwrap());
    }
    response
}

fn status(code: u16) -> Response<Body> {
    let mut response = ok("");
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}
