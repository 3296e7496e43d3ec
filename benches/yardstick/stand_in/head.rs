//! A Ray head: as much of the State API as names and lists the workers, and one small page of the dashboard.
//!
//! Lists are made once for each change of the workers, so that a question costs it little.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;

use super::{Cluster, node_id, worker_id};
use crate::Result;

/// The small page.
const PAGE_BYTES: usize = 1024;

/// The lists as of one version of the cluster.
#[derive(Default)]
struct Lists {
    version: Option<u64>,
    paused: Bytes,
    all: Bytes,
    tasks: Bytes,
}

struct Head {
    cluster: Arc<Cluster>,
    lists: Mutex<Lists>,
}

/// Answers until the process ends.
pub(super) async fn serve(listener: TcpListener, cluster: Arc<Cluster>) -> Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let head = Arc::new(Head {
        cluster,
        lists: Mutex::default(),
    });
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let head = Arc::clone(&head);
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let answer = head.answer(&request);
                async move { Ok::<_, Infallible>(answer) }
            });
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

impl Head {
    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let query = request.uri().query().unwrap_or_default();
        let body = match request.uri().path() {
            "/api/version" => Bytes::from_static(
                br#"{"version": "4", "ray_version": "2.60.0", "ray_commit": "bench"}"#,
            ),
            "/api/v0/workers" => self.workers(query),
            "/api/v0/tasks" => self.tasks(query),
            "/api/v0/nodes" => rows(
                &(0..=self.cluster.size.nodes)
                    .map(node_row)
                    .collect::<Vec<_>>(),
            ),
            "/api/v0/actors" => rows(&[]),
            "/api/jobs/" => Bytes::from_static(b"[]"),
            "/api/cluster_status" => Bytes::from(format!(
                r#"{{"result":true,"data":{{"clusterStatus":"{}"}}}}"#,
                "x".repeat(PAGE_BYTES)
            )),
            _ => {
                let mut missing = Response::new(Full::new(Bytes::from_static(b"404: Not Found")));
                *missing.status_mut() = StatusCode::NOT_FOUND;
                return missing;
            }
        };
        let mut found = Response::new(Full::new(body));
        let json = HeaderValue::from_static("application/json; charset=utf-8");
        found.headers_mut().insert(CONTENT_TYPE, json);
        found
    }

    fn workers(&self, query: &str) -> Bytes {
        match self.task_index(query) {
            Some(index) => rows(&[self.worker_row(index)]),
            None if query.contains("num_paused_threads") => self.lists(|lists| &lists.paused),
            None => self.lists(|lists| &lists.all),
        }
    }

    fn tasks(&self, query: &str) -> Bytes {
        match self.task_index(query) {
            Some(index) => rows(&[task_row(index)]),
            None => self.lists(|lists| &lists.tasks),
        }
    }

    /// The worker that a question is about, where it names one.
    fn task_index(&self, query: &str) -> Option<usize> {
        let id = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("filter_values="))
            .filter(|id| query.contains("filter_keys=worker_id") && id.len() == 56)?;
        let index = usize::from_str_radix(&id[16..], 16).ok()?;
        (index < self.cluster.listed()).then_some(index)
    }

    fn worker_row(&self, index: usize) -> String {
        let worker = self.cluster.workers.get(index);
        let paused = worker.is_none_or(|worker| worker.is_paused());
        let port = worker.map_or(20_000 + (index % 40_000) as u16, |worker| {
            worker.address.port()
        });
        format!(
            r#"{{"worker_id":"{}","is_alive":true,"worker_type":"WORKER","exit_type":null,"node_id":"{}","ip":"127.0.0.1","pid":{},"exit_detail":null,"worker_launch_time_ms":1795236353301,"worker_launched_time_ms":1795236353972,"start_time_ms":1795236353972,"end_time_ms":0,"debugger_port":{port},"num_paused_threads":{}}}"#,
            worker_id(index),
            node_id(0),
            // An agent checks the owner of the listening socket.
            std::process::id(),
            u8::from(paused)
        )
    }

    /// One of the lists, made anew where the cluster has changed.
    fn lists(&self, which: impl Fn(&Lists) -> &Bytes) -> Bytes {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let version = self.cluster.version.load(Ordering::Relaxed);
        if lists.version != Some(version) {
            let listed = 0..self.cluster.listed();
            let all: Vec<String> = listed.clone().map(|index| self.worker_row(index)).collect();
            let is_paused = |row: &&String| row.ends_with("\"num_paused_threads\":1}");
            let paused: Vec<String> = all.iter().filter(is_paused).cloned().collect();
            *lists = Lists {
                version: Some(version),
                paused: rows(&paused),
                all: rows(&all),
                tasks: rows(&listed.map(task_row).collect::<Vec<_>>()),
            };
        }
        which(&lists).clone()
    }
}

impl Cluster {
    fn listed(&self) -> usize {
        self.workers.len() + self.shown.load(Ordering::Relaxed).min(self.size.rows)
    }
}

fn node_row(index: usize) -> String {
    format!(
        r#"{{"node_id":"{}","node_ip":"127.0.0.1","node_name":"127.0.0.1","is_head_node":{},"state":"ALIVE","state_message":null,"start_time_ms":1,"end_time_ms":0}}"#,
        node_id(index),
        index == 0
    )
}

fn task_row(index: usize) -> String {
    format!(
        r#"{{"task_id":"{index:048x}","attempt_number":0,"name":"step-{index}","state":"RUNNING","job_id":"01000000","actor_id":null,"type":"NORMAL_TASK","func_or_class_name":"train.step","parent_task_id":null,"node_id":"{}","worker_id":"{}","worker_pid":{},"error_type":null}}"#,
        node_id(0),
        worker_id(index),
        1000 + index
    )
}

fn rows(rows: &[String]) -> Bytes {
    let mut text = String::with_capacity(rows.iter().map(|row| row.len() + 1).sum::<usize>() + 256);
    let count = rows.len();
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        r#"{{"result":true,"msg":"","data":{{"result":{{"total":{count},"num_after_truncation":{count},"num_filtered":{count},"result":["#
    );
    for (index, row) in rows.iter().enumerate() {
        text.push_str(if index == 0 { "" } else { "," });
        text.push_str(row);
    }
    text.push_str(r#"],"partial_failure_warning":"","warnings":null}}}"#);
    text.into()
}
