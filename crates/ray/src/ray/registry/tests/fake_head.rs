//! A head of the test's own making on a real socket: answers the State API from rows that the
//! test sets, filters as the GCS does, and keeps a record of what it was asked.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::sync::broadcast::Receiver;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::ray::registry::{Breakpoint, Change, Event, Holder, Registry, Snapshot, State};
use ray_relay_base::config;

pub(super) const NODE: &str = "aaaa";

/// The head's data and behaviour.
#[derive(Default)]
pub(super) struct World {
    pub(super) workers: Vec<Value>,
    pub(super) nodes: Vec<Value>,
    pub(super) tasks: Vec<Value>,
    pub(super) actors: Vec<Value>,
    pub(super) jobs: Vec<Value>,
    pub(super) train_runs: Vec<Value>,
    /// Answer with this status and text instead.
    pub(super) broken: Option<(u16, &'static str)>,
    /// Questions about workers are answered with an error, all others as ever.
    pub(super) broken_polls: bool,
    /// Text of /worker/traceback; `None`: 403, as by default from Ray 2.56.
    pub(super) stack: Option<&'static str>,
    /// Only filters with `job_id` find tasks, as before Ray 2.38 beyond 10,000 tasks.
    pub(super) crowded: bool,
    /// So many workers more than the head looks at.
    pub(super) unseen: u64,
    /// Answers about workers wait for `FakeHead::release`.
    pub(super) hold: bool,
    /// How long every answer takes.
    pub(super) latency: Duration,
    /// How long answers to paths take that hold this.
    pub(super) slow: Option<(&'static str, Duration)>,
    pub(super) asked: Vec<(Instant, String)>,
}

#[derive(Clone)]
pub(super) struct FakeHead {
    pub(super) address: SocketAddr,
    world: Arc<Mutex<World>>,
    gate: Arc<Notify>,
    held: Arc<Notify>,
    stop: Arc<Mutex<CancellationToken>>,
}

impl FakeHead {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let head = Self {
            address: listener.local_addr().unwrap(),
            world: Arc::default(),
            gate: Arc::default(),
            held: Arc::default(),
            stop: Arc::default(),
        };
        head.with(|world| world.nodes.push(node(NODE, "ALIVE")));
        head.serve(listener);
        head
    }

    pub(super) fn with<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        change(&mut self.world.lock().unwrap())
    }

    /// Closes the listener and every connection.
    pub(super) fn stop(&self) {
        self.stop.lock().unwrap().cancel();
    }

    pub(super) async fn start_again(&self) {
        *self.stop.lock().unwrap() = CancellationToken::new();
        self.serve(TcpListener::bind(self.address).await.unwrap());
    }

    /// Waits until an answer is being held.
    pub(super) async fn holds(&self) {
        self.held.notified().await;
    }

    /// Lets the held answer out, as it was when it was asked for.
    pub(super) fn release(&self) {
        self.with(|world| world.hold = false);
        self.gate.notify_one();
    }

    /// Requests so far whose path holds `part`.
    pub(super) fn asked(&self, part: &str) -> Vec<Instant> {
        self.with(|world| {
            let matching = world.asked.iter().filter(|(_, path)| path.contains(part));
            matching.map(|(at, _)| *at).collect()
        })
    }

    fn serve(&self, listener: TcpListener) {
        let stop = self.stop.lock().unwrap().clone();
        let head = self.clone();
        tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let stream = tokio::select! {
                    accepted = listener.accept() => accepted.unwrap().0,
                    () = stop.cancelled() => return,
                };
                let head = head.clone();
                connections.spawn(async move {
                    let answer = service_fn(|request| head.answer(request));
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), answer)
                        .await;
                });
            }
        });
    }

    async fn answer<B>(&self, request: Request<B>) -> Result<Response<Full<Bytes>>, Infallible> {
        let path = request.uri().path_and_query().unwrap().as_str().to_owned();
        if !request.headers().contains_key("user-agent") {
            // As Ray 2.9's dashboard does.
            let trouble = "500 Internal Server Error\n\nServer got itself in trouble";
            return Ok(Response::builder()
                .status(500)
                .body(Full::new(trouble.into()))
                .unwrap());
        }
        let (status, text, latency, hold) = self.with(|world| {
            world.asked.push((Instant::now(), path.clone()));
            let (status, text) = world.answer(&path);
            (
                status,
                text,
                world.slowness(&path),
                world.hold && path.starts_with("/api/v0/workers"),
            )
        });
        if hold {
            self.held.notify_one();
            self.gate.notified().await;
        }
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        let answer = Response::builder()
            .status(status)
            .body(Full::new(text.into()));
        Ok(answer.unwrap())
    }
}

impl World {
    fn slowness(&self, path: &str) -> Duration {
        let slow = self.slow.filter(|(part, _)| path.contains(part));
        slow.map_or(self.latency, |(_, latency)| latency)
    }

    fn answer(&self, path: &str) -> (u16, String) {
        if let Some((status, text)) = self.broken {
            return (status, text.to_owned());
        }
        if self.broken_polls && path.starts_with("/api/v0/workers") {
            return (500, "the GCS is away".to_owned());
        }
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let rows = match path {
            "/api/version" => return (200, json!({"ray_version": "2.60.0"}).to_string()),
            "/api/jobs/" => return (200, Value::from(self.jobs.clone()).to_string()),
            "/api/train/v2/runs/v1" if self.train_runs.is_empty() => {
                return (500, "Train state data is not available.".to_owned());
            }
            "/api/train/v2/runs/v1" => {
                return (200, json!({"train_runs": self.train_runs}).to_string());
            }
            "/worker/traceback" => match self.stack {
                Some(stack) => return (200, stack.to_owned()),
                None => return (403, "Profiling is disabled by default".to_owned()),
            },
            "/api/v0/workers" => &self.workers,
            "/api/v0/nodes" => &self.nodes,
            "/api/v0/tasks" => &self.tasks,
            "/api/v0/actors" => &self.actors,
            _ => return (404, "404: Not Found".to_owned()),
        };
        let filters = filters(query);
        let crowded = self.crowded && path.ends_with("tasks");
        let cut = crowded && !filters.iter().any(|(key, ..)| key == "job_id");
        let rows: Vec<_> = rows
            .iter()
            .filter(|row| !cut && passes(row, &filters))
            .collect();
        let total = match crowded {
            true => 20_000,
            false if path.ends_with("workers") && self.unseen > 0 => 10_000 + self.unseen,
            false => rows.len() as u64,
        };
        let list = json!({"total": total, "num_after_truncation": total.min(10_000), "num_filtered": rows.len(), "result": rows});
        (
            200,
            json!({"result": true, "msg": "", "data": {"result": list}}).to_string(),
        )
    }
}

fn filters(query: &str) -> Vec<(String, bool, String)> {
    let mut columns: HashMap<&str, Vec<&str>> = HashMap::new();
    for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        columns.entry(key).or_default().push(value);
    }
    let column = |name| columns.get(name).cloned().unwrap_or_default();
    let all = column("filter_keys")
        .into_iter()
        .zip(column("filter_predicates"))
        .zip(column("filter_values"));
    all.map(|((key, predicate), value)| (key.to_owned(), predicate == "%3D", value.to_owned()))
        .collect()
}

fn passes(row: &Value, filters: &[(String, bool, String)]) -> bool {
    filters.iter().all(|(key, equal, value)| {
        let found = match &row[key] {
            Value::String(text) => text.clone(),
            Value::Null => return false,
            other => other.to_string(),
        };
        found.eq_ignore_ascii_case(value) == *equal
    })
}

pub(super) fn worker(id: &str, paused: u32) -> Value {
    json!({"worker_id": id, "is_alive": true, "worker_type": "WORKER", "exit_type": null, "node_id": NODE,
        "ip": "10.0.0.7", "pid": 4711, "exit_detail": null, "worker_launch_time_ms": u64::MAX,
        "debugger_port": 30_001, "num_paused_threads": paused})
}

pub(super) fn dead(id: &str, exit_type: &str, detail: &str) -> Value {
    let mut row = worker(id, 1);
    row["is_alive"] = false.into();
    row["exit_type"] = exit_type.into();
    row["exit_detail"] = detail.into();
    row
}

pub(super) fn node(id: &str, state: &str) -> Value {
    json!({"node_id": id, "node_ip": "10.0.0.7", "state": state, "state_message": null})
}

pub(super) fn task(worker: &str, name: &str) -> Value {
    json!({"task_id": format!("task-{name}"), "name": name, "state": "RUNNING", "job_id": "01000000",
        "actor_id": null, "worker_id": worker})
}

pub(super) fn settings() -> config::Registry {
    config::Registry {
        poll_interval: Duration::from_secs(1),
        request_timeout: Duration::from_secs(5),
        backoff_max: Duration::from_secs(30),
        node_interval: Duration::from_secs(10),
        locations: false,
    }
}

pub(super) fn cluster(address: &str) -> config::Cluster {
    // A token file that is not there: the tests must not depend on the environment's.
    config::Cluster {
        name: "default".to_owned(),
        ray_address: address.to_owned(),
        token_file: Some("/nonexistent/token".into()),
        gcs_address: config::Gcs::Off,
        ..config::Cluster::default()
    }
}

/// A registry that polls `head` until the guard is dropped.
pub(super) fn watch(head: &FakeHead, settings: &config::Registry) -> (Registry, DropGuard) {
    watch_with(head, config::Gcs::Off, settings)
}

/// The same, with the GCS at `gcs`.
pub(super) fn watch_with(
    head: &FakeHead,
    gcs: config::Gcs,
    settings: &config::Registry,
) -> (Registry, DropGuard) {
    let mut cluster = cluster(&format!("http://{}", head.address));
    cluster.gcs_address = gcs;
    let registry = Registry::new(&[cluster], settings).unwrap();
    let shutdown = CancellationToken::new();
    let (running, token) = (registry.clone(), shutdown.clone());
    tokio::spawn(async move { running.run(token).await });
    (registry, shutdown.drop_guard())
}

/// The first snapshot that fits; a minute without one fails the test.
pub(super) async fn until(
    registry: &Registry,
    fits: impl FnMut(&Arc<Snapshot>) -> bool,
) -> Arc<Snapshot> {
    let mut watch = registry.watch();
    let found = tokio::time::timeout(Duration::from_secs(60), watch.wait_for(fits)).await;
    Arc::clone(&found.expect("nothing fitting within a minute").unwrap())
}

/// The first live breakpoint that fits.
pub(super) async fn live(
    registry: &Registry,
    fits: impl Fn(&Breakpoint) -> bool,
) -> Arc<Breakpoint> {
    let snapshot = until(registry, |snapshot| snapshot.live.iter().any(|b| fits(b))).await;
    Arc::clone(snapshot.live.iter().find(|b| fits(b)).unwrap())
}

pub(super) fn holder(session: u64) -> Holder {
    Holder::here(session, None, "test", Some(([127, 0, 0, 1], 1).into()))
}

pub(super) const SECOND: Duration = Duration::from_secs(1);

/// The next event of a kind; a minute without one fails the test.
pub(super) async fn next(events: &mut Receiver<Event>, change: Change) -> Event {
    let found = async {
        loop {
            let event = events.recv().await.unwrap();
            if event.change == change {
                return event;
            }
        }
    };
    tokio::time::timeout(60 * SECOND, found)
        .await
        .unwrap_or_else(|_| panic!("no {change:?} within a minute"))
}

/// Why a breakpoint died.
pub(super) fn why(event: &Event) -> String {
    match &event.breakpoint.state {
        State::Died { why, .. } => why.to_string(),
        other => panic!("{other:?}"),
    }
}
