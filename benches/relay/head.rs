//! A fake Ray head: as much of the State API as names and lists the fake workers; 404 for the rest.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

use crate::Result;
use crate::worker::Worker;

const NODE: &str = "00000000000000000000000000000000000000000000000000000001";

/// Answers until the process ends.
pub(crate) async fn serve(listener: TcpListener, workers: Arc<Vec<Worker>>) -> Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let workers = workers.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                let answer = answer(request.uri().path(), &workers);
                async move { Ok::<_, Infallible>(answer) }
            });
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

fn answer(path: &str, workers: &[Worker]) -> Response<Full<Bytes>> {
    let body = match path {
        "/api/version" => json!({"version": "4", "ray_version": "2.60.0", "ray_commit": "bench"}),
        "/api/v0/workers" => rows(
            &workers
                .iter()
                .enumerate()
                .map(worker_row)
                .collect::<Vec<_>>(),
        ),
        "/api/v0/nodes" => rows(&[json!({
            "node_id": NODE, "node_ip": "127.0.0.1", "node_name": "127.0.0.1", "is_head_node": true, "state": "ALIVE",
            "state_message": null, "start_time_ms": 1, "end_time_ms": 0
        })]),
        "/api/v0/tasks" => rows(&workers.iter().enumerate().map(task_row).collect::<Vec<_>>()),
        "/api/v0/actors" => rows(&[]),
        _ => {
            let mut missing = Response::new(Full::new(Bytes::from_static(b"404: Not Found")));
            *missing.status_mut() = hyper::StatusCode::NOT_FOUND;
            return missing;
        }
    };
    let mut found = Response::new(Full::new(Bytes::from(body.to_string())));
    found.headers_mut().insert(
        "content-type",
        hyper::header::HeaderValue::from_static("application/json; charset=utf-8"),
    );
    found
}

fn rows(rows: &[Value]) -> Value {
    json!({"result": true, "msg": "", "data": {"result": {
        "total": rows.len(), "num_after_truncation": rows.len(), "num_filtered": rows.len(), "result": rows,
        "partial_failure_warning": "", "warnings": null
    }}})
}

fn worker_row((index, worker): (usize, &Worker)) -> Value {
    json!({
        "worker_id": worker.id, "is_alive": true, "worker_type": "WORKER", "exit_type": null, "node_id": NODE,
        "ip": "127.0.0.1", "pid": 1000 + index, "exit_detail": null, "worker_launch_time_ms": 1,
        "worker_launched_time_ms": 2, "start_time_ms": 3, "end_time_ms": 0, "debugger_port": worker.address.port(),
        "num_paused_threads": u32::from(!worker.attached.load(Ordering::Relaxed))
    })
}

fn task_row((index, worker): (usize, &Worker)) -> Value {
    json!({
        "task_id": format!("{:048x}", index + 1), "attempt_number": 0, "name": format!("bench_{index}"), "state": "RUNNING",
        "job_id": "01000000", "actor_id": null, "type": "NORMAL_TASK", "func_or_class_name": format!("bench_{index}"),
        "parent_task_id": null, "node_id": NODE, "worker_id": worker.id, "worker_pid": 1000 + index, "error_type": null
    })
}
