//! A Ray head with few workers or none, a large page and a long list.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// About as large as the script of Ray's dashboard.
pub(crate) const SCRIPT_BYTES: usize = 8 << 20;

/// The path of a list that is as large as the relay accepts.
pub(crate) const LIST_PATH: &str = "/api/v0/tasks?everything";

/// About as large.
const LIST_BYTES: usize = 60 << 20;

/// Serves until the test ends.
pub(crate) async fn start() -> SocketAddr {
    start_with(&[]).await
}

/// The same, with a paused worker for each of these ports of its debugger, on the node [`NODE`].
pub(crate) async fn start_with(ports: &[u16]) -> SocketAddr {
    let worker = |(n, port): (usize, &u16)| {
        json!({"worker_id": format!("{n:056x}"), "is_alive": true, "worker_type": "WORKER", "node_id": NODE, "ip": "127.0.0.1",
            "pid": 4711 + n, "debugger_port": port, "num_paused_threads": 1})
    };
    let workers = list_of(&ports.iter().enumerate().map(worker).collect::<Vec<_>>());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let chunk: Arc<[u8]> = vec![b'x'; 64 * 1024].into();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&chunk), workers.clone()));
        }
    });
    address
}

/// The one node, at this machine's loopback address.
pub(crate) const NODE: &str = "aa";

/// `rows` as the State API has them.
fn list_of(rows: &[Value]) -> String {
    let total = rows.len();
    json!({"result": true, "msg": "", "data": {"result": {"result": rows, "total": total, "num_after_truncation": total}}})
        .to_string()
}

async fn serve(mut stream: TcpStream, chunk: Arc<[u8]>, workers: String) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read_buf(&mut request).await {
            Ok(read) if read > 0 => {}
            _ => return,
        }
    }
    if request.starts_with(format!("GET {LIST_PATH} ").as_bytes()) {
        let _ = list(stream).await;
        return;
    }
    let (kind, length) = match request.starts_with(b"GET /static/") {
        true => ("text/javascript", SCRIPT_BYTES),
        false => ("application/json", 0),
    };
    let is_request_for = |path: &str| request.starts_with(format!("GET /api/{path}").as_bytes());
    let body = if is_request_for("v0/workers") {
        workers
    } else if is_request_for("v0/nodes") {
        list_of(&[json!({"node_id": NODE, "node_ip": "127.0.0.1", "state": "ALIVE"})])
    } else if is_request_for("version") {
        json!({"ray_version": "2.60.0"}).to_string()
    } else {
        list_of(&[])
    };
    let announced = if length > 0 { length } else { body.len() };
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {announced}\r\nConnection: close\r\n\r\n"
    );
    if stream.write_all(answer.as_bytes()).await.is_err() {
        return;
    }
    if length == 0 {
        let _ = stream.write_all(body.as_bytes()).await;
        return;
    }
    for _ in 0..length / chunk.len() {
        if stream.write_all(&chunk).await.is_err() {
            return;
        }
    }
}

/// Rows of tasks, without end but for [`LIST_BYTES`].
async fn list(mut stream: TcpStream) -> std::io::Result<()> {
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n";
    stream.write_all(head).await?;
    stream
        .write_all(b"{\"result\": true, \"data\": {\"result\": {\"result\": [")
        .await?;
    let row = format!(
        "{{\"task_id\": \"{}\", \"name\": \"{}\"}},",
        "a".repeat(48),
        "b".repeat(400)
    );
    let rows = row.repeat(128);
    for _ in 0..LIST_BYTES / rows.len() {
        stream.write_all(rows.as_bytes()).await?;
    }
    let last = row.trim_end_matches(',');
    let end = "], \"total\": 1, \"num_after_truncation\": 1}}}";
    stream.write_all(format!("{last}{end}").as_bytes()).await?;
    stream.shutdown().await
}
