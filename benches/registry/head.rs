//! The stand-in for a head: a process of its own, so that its work is not counted as the registry's. Its answers are made
//! when it starts, once with all workers paused and once with the odd ones let go.

use std::convert::Infallible;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::Result;

/// The argument that makes this program the head.
pub(crate) const ROLE: &str = "--head";

const NODE: &str = "b33d556f9b56cb0ac73db2bfdc214db09cf4243e3f60f2f9b8548323";

/// The process, ended when dropped.
pub(crate) struct Head {
    pub(crate) address: SocketAddr,
    child: Child,
}

impl Head {
    pub(crate) fn start(rows: usize) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([ROLE, &rows.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let out = child.stdout.take().ok_or("no output")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        let address = line.trim().parse()?;
        Ok(Self { address, child })
    }

    /// The odd half of the workers is let go.
    pub(crate) fn half_leave(&self) -> Result<()> {
        let mut stdin = self.child.stdin.as_ref().ok_or("no input")?;
        Ok(stdin.write_all(b"half\n")?)
    }
}

impl Drop for Head {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Answers {
    paused: [Bytes; 2],
    stopped: [Bytes; 2],
    tasks: Bytes,
    nodes: Bytes,
    none: Bytes,
    half: AtomicBool,
}

/// Serves until standard input ends.
pub(crate) fn serve(rows: usize) -> Result<()> {
    let workers: Vec<Value> = (0..rows).map(worker).collect();
    let even: Vec<Value> = workers.iter().step_by(2).cloned().collect();
    let mut remaining = workers.clone();
    for row in remaining.iter_mut().skip(1).step_by(2) {
        row["num_paused_threads"] = 0.into();
    }
    let node = json!({"node_id": NODE, "node_ip": "10.88.0.10", "state": "ALIVE"});
    let answers = Arc::new(Answers {
        paused: [list(&workers), list(&even)],
        stopped: [list(&workers), list(&remaining)],
        tasks: list(&(0..rows).map(task).collect::<Vec<_>>()),
        nodes: list(&[node]),
        none: list(&[]),
        half: AtomicBool::new(false),
    });
    let shared_answers = Arc::clone(&answers);
    std::thread::spawn(move || {
        let mut line = String::new();
        while std::io::stdin().read_line(&mut line).is_ok_and(|n| n > 0) {
            shared_answers.half.store(true, Ordering::Relaxed);
        }
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async move {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await?;
            let answers = Arc::clone(&answers);
            tokio::spawn(async move {
                let answer = service_fn(move |request| {
                    let answer = answers.to(&request);
                    async move { Ok::<_, Infallible>(answer) }
                });
                let http = hyper::server::conn::http1::Builder::new();
                let _ = http.serve_connection(TokioIo::new(stream), answer).await;
            });
        }
    })
}

impl Answers {
    fn to<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let query = request.uri().query().unwrap_or_default();
        let half = usize::from(self.half.load(Ordering::Relaxed));
        let text = match request.uri().path() {
            "/api/v0/workers" if query.contains("num_paused_threads") => self.paused[half].clone(),
            "/api/v0/workers" => self.stopped[half].clone(),
            "/api/v0/tasks" => self.tasks.clone(),
            "/api/v0/nodes" => self.nodes.clone(),
            "/api/v0/actors" => self.none.clone(),
            "/api/version" => Bytes::from_static(br#"{"ray_version": "2.60.0"}"#),
            "/api/jobs/" => Bytes::from_static(b"[]"),
            _ => {
                // As Ray 2.59 and later do unless told otherwise.
                let mut refused =
                    Response::new(Full::new(Bytes::from_static(b"Profiling is disabled")));
                *refused.status_mut() = hyper::StatusCode::FORBIDDEN;
                return refused;
            }
        };
        Response::new(Full::new(text))
    }
}

fn list(rows: &[Value]) -> Bytes {
    let list = json!({"total": rows.len(), "num_after_truncation": rows.len(), "num_filtered": rows.len(),
        "result": rows, "partial_failure_warning": "", "warnings": null});
    json!({"result": true, "msg": "", "data": {"result": list}})
        .to_string()
        .into()
}

fn worker_id(index: usize) -> String {
    // As scattered as Ray's own.
    format!(
        "{:016x}{index:040x}",
        (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    )
}

fn worker(index: usize) -> Value {
    json!({"worker_id": worker_id(index), "is_alive": true, "worker_type": "WORKER", "exit_type": null, "node_id": NODE,
        "ip": "10.88.0.10", "pid": 1000 + index, "exit_detail": null, "worker_launch_time_ms": 1_795_236_353_301_u64,
        "worker_launched_time_ms": 1_795_236_353_972_u64, "start_time_ms": 1_795_236_353_972_u64, "end_time_ms": 0,
        "debugger_port": 20_000 + index % 40_000, "num_paused_threads": 1})
}

fn task(index: usize) -> Value {
    let environment =
        r#"{"working_dir": "gcs://_ray_pkg_0123456789abcdef.zip", "env_vars": {"A": "1"}}"#;
    let event = |name: &str| json!({"start_time": 1_795_236_353_974.814, "end_time": 1_795_236_353_974.817, "extra_data": {}, "event_name": name});
    let state = |name: &str| json!({"state": name, "created_ms": 1_795_236_353_301.0});
    json!({"task_id": format!("{:048x}", index), "attempt_number": 0, "name": format!("step-{index}"), "state": "RUNNING",
        "job_id": "0a000000", "actor_id": null, "type": "NORMAL_TASK", "func_or_class_name": "train.step",
        "parent_task_id": format!("{:048x}", 7), "node_id": NODE, "worker_id": worker_id(index), "worker_pid": 1000 + index,
        "error_type": null, "language": "PYTHON", "required_resources": {"CPU": 1.0},
        "runtime_env_info": {"serialized_runtime_env": environment,
            "runtime_env_config": {"setup_timeout_seconds": 600, "eager_install": true, "log_files": []}},
        "placement_group_id": null,
        "events": [state("PENDING_ARGS_AVAIL"), state("PENDING_NODE_ASSIGNMENT"), state("SUBMITTED_TO_WORKER"), state("RUNNING")],
        "profiling_data": {"component_type": "worker", "component_id": worker_id(index), "node_ip_address": "10.88.0.10",
            "events": [event("task:deserialize_arguments")]},
        "creation_time_ms": 1_795_236_353_301_u64, "start_time_ms": 1_795_236_353_974_u64, "end_time_ms": null,
        "task_log_info": {"stdout_file": "/tmp/ray/session/logs/worker-0.out", "stderr_file": "/tmp/ray/session/logs/worker-0.err",
            "stdout_start": 0, "stderr_start": 0, "stdout_end": null, "stderr_end": null},
        "error_message": null, "is_debugger_paused": null, "call_site": null, "label_selector": {}})
}
