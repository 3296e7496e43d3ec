//! A Ray head that has one paused worker.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The path of a request, and its `Authorization`.
pub(super) async fn request(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut request).await.ok()? == 0 {
            return None;
        }
    }
    let request = String::from_utf8(request).unwrap();
    let path = request.split(' ').nth(1)?.to_owned();
    let header = |line: &&str| line.to_ascii_lowercase().starts_with("authorization:");
    let authorization = request.lines().find(header).unwrap_or_default();
    Some((
        path,
        authorization
            .split_once(": ")
            .unwrap_or_default()
            .1
            .to_owned(),
    ))
}

pub(super) async fn answer(stream: &mut TcpStream, status: u16, body: &Value) {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all((head + &body).as_bytes()).await;
}

/// A Ray head.
pub(super) struct Head {
    pub(super) address: SocketAddr,
    state: Arc<Mutex<HeadState>>,
}

#[derive(Default)]
struct HeadState {
    token: Option<String>,
    paths: Vec<String>,
}

impl Head {
    /// A head with a worker whose id begins with `worker`, without a debugger.
    pub(super) async fn start(worker: &str) -> Self {
        Self::with_debugger(worker, 1).await
    }

    /// A head with a worker whose debugger listens on `port`.
    pub(super) async fn with_debugger(worker: &str, port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<Mutex<HeadState>>::default();
        let (shared, worker) = (state.clone(), worker.repeat(28));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (state, worker) = (state.clone(), worker.clone());
                tokio::spawn(async move {
                    let Some((path, authorization)) = request(&mut stream).await else {
                        return;
                    };
                    let required_token = {
                        let mut state = state.lock().unwrap();
                        state.paths.push(path.clone());
                        state.token.as_ref().map(|token| format!("Bearer {token}"))
                    };
                    if required_token.is_some_and(|required_token| required_token != authorization)
                    {
                        let why = json!({"msg": "Unauthorized: Invalid authentication token"});
                        return answer(&mut stream, 401, &why).await;
                    }
                    answer(&mut stream, 200, &ray(&path, &worker, port)).await;
                });
            }
        });
        Self {
            address,
            state: shared,
        }
    }

    /// Takes this token alone from now on.
    pub(super) fn require_token(&self, token: &str) {
        self.state.lock().unwrap().token = Some(token.to_owned());
    }

    /// The paths that were requested.
    pub(super) fn paths(&self) -> Vec<String> {
        self.state.lock().unwrap().paths.clone()
    }
}

/// The answers of Ray 2.53, reduced to the fields that the relay reads.
fn ray(path: &str, worker: &str, debugger: u16) -> Value {
    if path.ends_with("/api/version") {
        return json!({"ray_version": "2.53.0"});
    }
    let row = json!({"worker_id": worker, "is_alive": true, "worker_type": "WORKER", "exit_type": null, "node_id": "aaaa",
        "ip": "127.0.0.1", "pid": 4711, "exit_detail": null, "worker_launch_time_ms": 1, "debugger_port": debugger, "num_paused_threads": 1});
    let node =
        json!({"node_id": "aaaa", "node_ip": "127.0.0.1", "state": "ALIVE", "state_message": null});
    let rows = match path {
        path if path.contains("/api/v0/workers") => vec![row],
        path if path.contains("/api/v0/nodes") => vec![node],
        _ => Vec::new(),
    };
    let (total, result) = (rows.len(), json!(rows));
    json!({"result": true, "msg": "", "data": {"result": {"result": result, "total": total,
        "num_after_truncation": total, "num_filtered": total}}})
}
