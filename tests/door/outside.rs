//! The relay's own requests go through a company's proxy, if it is the only way out.

use std::net::SocketAddr;
use std::process::Stdio;

use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, BufStream};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::proxy::{Proxy, head};
use super::support::*;

/// A head with one paused task, which answers one request on each connection.
async fn head_with_a_task() -> (SocketAddr, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            let mut client = BufStream::new(client);
            let request = head(&mut client).await;
            let rows = match request.split([' ', '?']).nth(1).unwrap_or_default() {
                "/api/v0/workers" => json!([{"worker_id": "aa11", "is_alive": true,
                    "worker_type": "WORKER", "node_id": "n1", "ip": "10.0.0.7", "pid": 4711,
                    "debugger_port": 30001, "num_paused_threads": 1}]),
                "/api/v0/nodes" => {
                    json!([{"node_id": "n1", "node_ip": "10.0.0.7", "state": "ALIVE"}])
                }
                _ => json!([]),
            };
            let list = json!({"total": 1, "num_after_truncation": 1, "num_filtered": 1, "result": rows});
            let body = json!({"result": true, "msg": "", "data": {"result": list}, "ray_version": "2.60.0"});
            let body = body.to_string();
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            let _ = client.write_all(answer.as_bytes()).await;
            let _ = client.flush().await;
        }
    });
    (address, tasks)
}

#[tokio::test]
async fn relay_uses_the_proxy_for_external_hosts_and_never_for_a_head() {
    let closed_port = ([127, 0, 0, 1], 1).into();
    let mut proxy = Proxy::start(closed_port, Some("403 Forbidden")).await;
    let (head, _head) = head_with_a_task().await;
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["x".to_owned()]).unwrap();
    let authority = file("ca.pem", &params.self_signed(&key).unwrap().pem());
    let hook = file("hook", "https://hooks.example.com/s3cret");
    let config = format!(
        "[listen]\naddress = '127.0.0.1:0'\n\
         [jwks]\nurl = 'https://login.example.com/keys'\n\
         [notice]\nurl_file = '{}'\npaused_for = '1s'\n\
         [telemetry]\notlp = 'https://collector.example.com:4318'\n\
         [[cluster]]\nname = 'near'\nray_address = 'http://{head}'\ngcs_address = 'off'\n\
         [[cluster]]\nname = 'far'\nray_address = 'http://head.example.com:8265'\ngcs_address = 'off'\n",
        hook.display()
    );
    let mut serve = Command::new(env!("CARGO_BIN_EXE_ray-relay"));
    serve.env_clear().env("SSL_CERT_FILE", authority);
    serve.env("ALL_PROXY", format!("http://{}", proxy.address));
    serve.args(["serve", "--log-format", "json", "--config"]);
    serve.arg(file("relay.toml", &config)).kill_on_drop(true);
    let mut serve = serve
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(serve.stderr.take().unwrap()).lines();
    let listening = async {
        loop {
            let line = lines.next_line().await.unwrap().expect("it starts");
            let line: serde_json::Value = serde_json::from_str(&line).unwrap();
            if let Some(address) = line["address"].as_str() {
                break address.parse::<SocketAddr>().unwrap();
            }
        }
    };
    let address = timeout(TEST_TIMEOUT, listening).await.expect("in time");
    // Any use of the relay produces a trace.
    let (_dap, _refused) = attach(dial(address).await, &json!({"task": "square"})).await;
    let was_requested = |all: &Vec<String>, host: &str| {
        let expected = format!("CONNECT {host} HTTP/1.1\r\n");
        all.iter().any(|head| head.starts_with(&expected))
    };
    let outside = [
        "login.example.com:443",
        "hooks.example.com:443",
        "collector.example.com:4318",
    ];
    let all = proxy
        .requests
        .wait_for(|all| outside.iter().all(|host| was_requested(all, host)));
    let all = timeout(TEST_TIMEOUT, all)
        .await
        .expect("in time")
        .unwrap()
        .clone();
    assert!(
        all.iter().all(|head| !head.contains("head.example.com")),
        "{all:?}"
    );
}
