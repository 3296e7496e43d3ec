//! The dashboard in `docker/observability` has data of a busy relay in a real Prometheus.
//!
//! An hour of use in seconds: a head with two paused tasks, an editor, a terminal, the Ray dashboard, and a client
//! without a token.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ray_relay_base::config::AuditSink;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

use super::support::*;

const DASHBOARD: &str = include_str!("../../docker/observability/dashboard.json");

/// Panels that show nothing of this relay, and why.
const EMPTY: [(&str, &str); 5] = [
    ("Certificate", "it has no TLS"),
    ("TLS handshakes and reloads", "it has no TLS"),
    ("Links that ended, by cause", "it has no agents"),
    ("Connections through agents, by outcome", "it has no agents"),
    ("Traces for the collector", "it has none yet"),
];

/// A head with two paused workers, whose debuggers listen on `port`. Whatever else it is asked for is there and empty.
async fn head(port: u16) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answers(stream, port));
        }
    });
    address
}

async fn answers(mut stream: TcpStream, port: u16) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read_buf(&mut request).await {
            Ok(read) if read > 0 => {}
            _ => return,
        }
    }
    let request = String::from_utf8_lossy(&request).into_owned();
    let worker = |n: u32| format!("{n:02x}").repeat(28);
    let node = "ab".repeat(28);
    let rows: Vec<Value> = if request.starts_with("GET /api/v0/workers") {
        let row = |n: u32| {
            json!({"worker_id": worker(n), "is_alive": true, "worker_type": "WORKER", "node_id": node,
            "ip": "127.0.0.1", "pid": 100 + n, "debugger_port": port, "num_paused_threads": 1})
        };
        vec![row(1), row(2)]
    } else if request.starts_with("GET /api/v0/tasks") {
        let row = |n: u32| {
            json!({"task_id": format!("t{n}"), "name": format!("train_{n}"), "state": "RUNNING",
            "job_id": format!("0{n}000000"), "worker_id": worker(n), "required_resources": {"CPU": 4.0, "GPU": 1.0}})
        };
        let all = (1..3).filter(|n| request.contains(&worker(*n)));
        all.map(row).collect()
    } else if request.starts_with("GET /api/v0/nodes") {
        vec![json!({"node_id": node, "node_ip": "127.0.0.1", "state": "ALIVE"})]
    } else {
        Vec::new()
    };
    let list = json!({"total": rows.len(), "num_after_truncation": rows.len(), "result": rows});
    let mut body = json!({"result": true, "msg": "", "data": {"result": list}}).to_string();
    if request.starts_with("GET /api/jobs/") {
        body = "[]".to_owned();
    }
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.write_all(answer.as_bytes()).await;
}

/// A debugger that agrees with everything.
async fn debugger() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut dap =
                    ray_relay_base::wire::dap::conversation::Conversation::new(stream, 1 << 20);
                for name in ["ptvsd", "debugpy"] {
                    let body = json!({"category": "telemetry", "output": name, "data": {"packageVersion": "1.8.22"}});
                    let greeting =
                        json!({"seq": 1, "type": "event", "event": "output", "body": body});
                    dap.send(&greeting).await.unwrap();
                }
                while let Ok(request) = dap.read().await {
                    let command = request["command"].clone();
                    let answer = json!({"seq": 1, "type": "response", "request_seq": request["seq"], "success": true,
                        "command": command, "body": {}});
                    if command == "attach" {
                        let event = json!({"seq": 1, "type": "event", "event": "initialized"});
                        dap.send(&event).await.unwrap();
                    }
                    if dap.send(&answer).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

/// Ends with the test.
struct Prometheus {
    child: Child,
    at: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    /// One that scrapes `relay`; `None` where this machine has none.
    fn start(relay: SocketAddr) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let config = format!(
            "global: {{ scrape_interval: 500ms, scrape_timeout: 500ms }}\nscrape_configs:\n  - job_name: ray-relay\n    \
             metrics_path: /relay/metrics\n    static_configs: [{{ targets: [\"{relay}\"] }}]\n"
        );
        std::fs::write(folder.path().join("prometheus.yml"), config).unwrap();
        let at = closed_address();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let started = Command::new("prometheus")
            .arg(format!("--config.file={}", path("prometheus.yml")))
            .arg(format!("--storage.tsdb.path={}", path("data")))
            .arg(format!("--web.listen-address={at}"))
            .arg("--log.level=error")
            .stdout(Stdio::null())
            .spawn();
        match started {
            Ok(child) => Some(Self {
                child,
                at,
                _folder: folder,
            }),
            Err(why) => {
                assert!(std::env::var_os("CI").is_none(), "prometheus: {why}");
                eprintln!("SKIPPED: prometheus is missing (Debian package prometheus): {why}");
                None
            }
        }
    }

    /// Returns the results of `expression`, by their labels.
    async fn finds(&mut self, expression: &str) -> Vec<(Value, f64)> {
        let bytes = expression.bytes();
        let query: String = bytes.map(|byte| format!("%{byte:02x}")).collect();
        let path = format!("/api/v1/query?query={query}");
        let Ok(mut stream) = TcpStream::connect(self.at).await else {
            let ended = self.child.try_wait().unwrap();
            assert_eq!(ended, None, "Prometheus ended; its stderr says why");
            return Vec::new();
        };
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = rest(&mut stream).await;
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        // Prometheus is not ready yet.
        let Ok(body) = serde_json::from_str::<Value>(body) else {
            return Vec::new();
        };
        assert_eq!(body["status"], "success", "{expression}: {body}");
        let found = body["data"]["result"].as_array().unwrap().iter();
        let value = |one: &Value| one["value"][1].as_str().unwrap().parse().unwrap();
        found
            .map(|one| (one["metric"].clone(), value(one)))
            .collect()
    }
}

/// A dozen rounds of typical use.
async fn use_it(relay: SocketAddr, keys: &Keys) {
    let token = keys.token(|_| {});
    for round in 0..12 {
        // After the last session the task waits again, once the head reports it.
        let until = Instant::now() + TEST_TIMEOUT;
        let mut dap = loop {
            let named = json!({"token": token, "task": "train_1"});
            let (dap, answer) = attach(dial(relay).await, &named).await;
            if answer["event"] == "initialized" {
                break dap;
            }
            assert!(Instant::now() < until, "{answer}");
            sleep(Duration::from_millis(50)).await;
        };
        let done = request(3, "configurationDone", &json!({}));
        dap.send(&done).await.unwrap();
        dap.send(&request(4, "disconnect", &json!({})))
            .await
            .unwrap();
        while let Ok(message) = dap.read().await {
            if message["command"] == "disconnect" {
                break;
            }
        }
        drop(dap);
        for (path, shown) in [
            ("/relay/v1/breakpoints", &*token),
            ("/api/version", &token),
            ("/relay/v1/breakpoints", "x.y.z"),
        ] {
            let mut stream = dial(relay).await;
            let ask = format!(
                "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {shown}\r\nConnection: close\r\n\r\n"
            );
            stream.write_all(ask.as_bytes()).await.unwrap();
            let answer = rest(&mut stream).await;
            assert!(answer.contains("x-request-id: "), "{answer}");
        }
        let mut terminal = dial(relay).await;
        let typed = format!("\n{token}\nq\n");
        terminal.write_all(typed.as_bytes()).await.unwrap();
        let shown = rest(&mut terminal).await;
        assert!(shown.contains("train_"), "round {round}: {shown}");
        sleep(Duration::from_millis(300)).await;
    }
}

#[tokio::test]
async fn dashboard_panels_have_data_of_a_busy_relay() {
    let keys = Keys::new();
    let folder = tempfile::tempdir().unwrap();
    let head = head(debugger().await).await;
    let relay = start(|config| {
        config.clusters[0].ray_address = format!("http://{head}");
        config.auth.keys = vec![keys.public()];
        config.http.metrics_open = true;
        config.registry.poll_interval = Duration::from_millis(200);
        config.audit.sink = AuditSink::File;
        config.audit.file = Some(folder.path().join("audit.log"));
    })
    .await;
    let Some(mut prometheus) = Prometheus::start(relay.local_addr()) else {
        return relay.abort().await;
    };
    let mut events = relay.registry().watch();
    let named = events.wait_for(|list| {
        let names = list.live.iter().map(|b| b.name());
        names.filter(|name| name.starts_with("train_")).count() == 2
    });
    tokio::time::timeout(TEST_TIMEOUT, named)
        .await
        .unwrap()
        .unwrap();
    use_it(relay.local_addr(), &keys).await;

    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let until = Instant::now() + TEST_TIMEOUT;
    let mut empty = Vec::new();
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let title = panel["title"].as_str().unwrap();
        for target in panel["targets"].as_array().unwrap() {
            let request = target["expr"].as_str().unwrap();
            let request = request.replace("$__rate_interval", "1m");
            let request = request.replace("$instance", ".*").replace("$cluster", ".*");
            let mut found = prometheus.finds(&request).await;
            while found.is_empty() && !is_empty(title) && Instant::now() < until {
                sleep(Duration::from_millis(250)).await;
                found = prometheus.finds(&request).await;
            }
            if found.is_empty() {
                empty.push(title);
            }
        }
    }
    empty.dedup();
    let expected: Vec<_> = EMPTY.iter().map(|(title, _)| *title).collect();
    let strange: Vec<_> = empty.iter().filter(|t| !expected.contains(t)).collect();
    assert!(strange.is_empty(), "panels without data: {strange:?}");
    let full: Vec<_> = expected.iter().filter(|t| !empty.contains(t)).collect();
    assert!(full.is_empty(), "panels with data after all: {full:?}");

    // And what is shown is what was done.
    for (request, minimum) in [
        ("sum(ray_relay_held_gpus)", 1.0),
        ("sum(ray_relay_held_gpu_seconds_total)", 1.0),
        (
            "sum(ray_relay_sessions_total{client=\"vscode\",outcome=\"client\"})",
            12.0,
        ),
        ("sum(ray_relay_sessions_total{client=\"terminal\"})", 12.0),
        ("sum(ray_relay_attached_seconds_count)", 12.0),
        ("sum(ray_relay_refusals_total{kind=\"forbidden\"})", 12.0),
        ("process_resident_memory_bytes", 1e6),
    ] {
        let mut found = Vec::new();
        while Instant::now() < until {
            found = prometheus.finds(request).await;
            if found.first().is_some_and(|(_, value)| *value >= minimum) {
                break;
            }
            sleep(Duration::from_millis(250)).await;
        }
        let value = found.first().map(|(_, value)| *value);
        assert!(
            value.is_some_and(|value| value >= minimum),
            "{request}: {value:?}"
        );
    }
    drop(prometheus);
    relay.abort().await;
}

fn is_empty(title: &str) -> bool {
    EMPTY.iter().any(|(empty, _)| *empty == title)
}
