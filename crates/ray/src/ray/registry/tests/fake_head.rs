//! A stand-in for a head on a real socket. It answers the State API from rows that the test sets, filters like the GCS,
//! and records its requests.
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
    /// Status and text of all answers, if set.
    pub(super) broken: Option<(u16, &'static str)>,
    /// Fails requests for workers.
    pub(super) broken_polls: bool,
    /// Text of /worker/traceback. `None` answers 403, the default since Ray 2.56.
    pub(super) stack: Option<&'static str>,
    /// Tasks are only found by `job_id`, like beyond 10,000 tasks before Ray 2.38.
    pub(super) exceeds_task_limit: bool,
    /// Number of workers beyond the limit of the head.
    pub(super) omitted_workers: u64,
    /// Holds answers about workers until `FakeHead::release`.
    pub(super) hold_answers: bool,
    /// Delay of every answer.
    pub(super) latency: Duration,
    /// Delay of answers to paths that contain this text.
    pub(super) slow_path: Option<(&'static str, Duration)>,
    pub(super) requests: Vec<(Instant, String)>,
}

#[derive(Clone)]
pub(super) struct FakeHead {
    pub(super) address: SocketAddr,
    world: Arc<Mutex<World>>,
    gate: Arc<Notify>,
    held_answer: Arc<Notify>,
    stop: Arc<Mutex<CancellationToken>>,
}

impl FakeHead {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let head = Self {
            address: listener.local_addr().unwrap(),
            world: Arc::default(),
            gate: Arc::default(),
            held_answer: Arc::default(),
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

    pub(super) async fn restart(&self) {
        *self.stop.lock().unwrap() = CancellationToken::new();
        self.serve(TcpListener::bind(self.address).await.unwrap());
    }

    /// Waits until an answer is held.
    pub(super) async fn wait_for_held_answer(&self) {
        self.held_answer.notified().await;
    }

    /// Sends the held answer, unchanged since its request.
    pub(super) fn release(&self) {
        self.with(|world| world.hold_answers = false);
        self.gate.notify_one();
    }

    /// Returns the times of all requests whose path contains `part`.
    pub(super) fn requests(&self, part: &str) -> Vec<Instant> {
        self.with(|world| {
            let matching = world
                .requests
                .iter()
                .filter(|(_, path)| path.contains(part));
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
            // The behaviour of the dashboard of Ray 2.9.
            let message = "500 Internal Server Error\n\nServer got itself in trouble";
            return Ok(Response::builder()
                .status(500)
                .body(Full::new(message.into()))
                .unwrap());
        }
        let (status, text, latency, hold_answers) = self.with(|world| {
            world.requests.push((Instant::now(), path.clone()));
            let (status, text) = world.answer(&path);
            (
                status,
                text,
                world.latency_of(&path),
                world.hold_answers && path.starts_with("/api/v0/workers"),
            )
        });
        if hold_answers {
            self.held_answer.notify_one();
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
    fn latency_of(&self, path: &str) -> Duration {
        let slow_path = self.slow_path.filter(|(part, _)| path.contains(part));
        slow_path.map_or(self.latency, |(_, latency)| latency)
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
        let exceeds_task_limit = self.exceeds_task_limit && path.ends_with("tasks");
        let omits_tasks = exceeds_task_limit && !filters.iter().any(|(key, ..)| key == "job_id");
        let rows: Vec<_> = rows
            .iter()
            .filter(|row| !omits_tasks && matches_filters(row, &filters))
            .collect();
        let total = match exceeds_task_limit {
            true => 20_000,
            false if path.ends_with("workers") && self.omitted_workers > 0 => {
                10_000 + self.omitted_workers
            }
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

fn matches_filters(row: &Value, filters: &[(String, bool, String)]) -> bool {
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
    // A missing token file keeps the tests independent of the environment.
    config::Cluster {
        name: "default".to_owned(),
        ray_address: address.to_owned(),
        token_file: Some("/nonexistent/token".into()),
        gcs_address: config::Gcs::Off,
        ..config::Cluster::default()
    }
}

/// Returns a registry that polls `head` until the guard is dropped.
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

/// Waits up to a minute for a snapshot that meets the condition.
pub(super) async fn wait_for_list(
    registry: &Registry,
    condition: impl FnMut(&Arc<Snapshot>) -> bool,
) -> Arc<Snapshot> {
    let mut watch = registry.watch();
    let found = tokio::time::timeout(Duration::from_secs(60), watch.wait_for(condition)).await;
    Arc::clone(&found.expect("nothing fitting within a minute").unwrap())
}

/// Waits for a live breakpoint that meets the condition.
pub(super) async fn live(
    registry: &Registry,
    condition: impl Fn(&Breakpoint) -> bool,
) -> Arc<Breakpoint> {
    let snapshot = wait_for_list(registry, |snapshot| {
        snapshot.live.iter().any(|b| condition(b))
    })
    .await;
    Arc::clone(snapshot.live.iter().find(|b| condition(b)).unwrap())
}

pub(super) fn holder(session: u64) -> Holder {
    Holder::here(session, None, "test", Some(([127, 0, 0, 1], 1).into()))
}

pub(super) const SECOND: Duration = Duration::from_secs(1);

/// Waits up to a minute for the next event of this kind.
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

/// Returns the cause of a breakpoint's death.
pub(super) fn death_cause(event: &Event) -> String {
    match &event.breakpoint.state {
        State::Died {
            why: death_cause, ..
        } => death_cause.to_string(),
        other => panic!("{other:?}"),
    }
}
