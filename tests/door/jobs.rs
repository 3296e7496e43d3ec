//! One job under each of its names, in every command that takes `--job`.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::time::timeout;

use super::support::*;

/// A head with a paused worker of `raysubmit_1`. `raysubmit_2` runs, and waits at no breakpoint.
async fn head() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answers(stream));
        }
    });
    address
}

async fn answers(mut stream: TcpStream) {
    let mut asked = Vec::new();
    while !asked.ends_with(b"\r\n\r\n") {
        match stream.read_buf(&mut asked).await {
            Ok(read) if read > 0 => {}
            _ => return,
        }
    }
    let asked = String::from_utf8_lossy(&asked).into_owned();
    let (worker, node) = ("01".repeat(28), "ab".repeat(28));
    let rows: Vec<Value> = if asked.starts_with("GET /api/v0/workers") {
        vec![
            json!({"worker_id": worker, "is_alive": true, "worker_type": "WORKER", "node_id": node, "ip": "127.0.0.1",
            "pid": 101, "debugger_port": 1, "num_paused_threads": 1}),
        ]
    } else if asked.starts_with("GET /api/v0/tasks") && !asked.contains("02000000") {
        vec![
            json!({"task_id": "t1", "name": "train", "state": "RUNNING", "job_id": "01000000", "worker_id": worker}),
        ]
    } else if asked.starts_with("GET /api/v0/nodes") {
        vec![json!({"node_id": node, "node_ip": "127.0.0.1", "state": "ALIVE"})]
    } else {
        Vec::new()
    };
    let list = json!({"total": rows.len(), "num_after_truncation": rows.len(), "result": rows});
    let mut body = json!({"result": true, "msg": "", "data": {"result": list}});
    if asked.starts_with("GET /api/jobs/") {
        let job = |n: u32| {
            json!({"job_id": format!("0{n}000000"), "submission_id": format!("raysubmit_{n}"), "status": "RUNNING",
                "metadata": {"ray_relay_submitter": "ann"}})
        };
        body = json!([job(1), job(2)]);
    }
    if asked.starts_with("GET /api/train/") {
        let run = json!({"name": "nightly", "job_id": "01000000", "attempts": []});
        body = json!({ "train_runs": [run] });
    }
    let body = body.to_string();
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.write_all(answer.as_bytes()).await;
}

async fn ray_relay(relay: SocketAddr, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ray-relay"));
    let url = format!("http://{relay}");
    command.env_clear().env("RAY_RELAY_URL", url).args(words);
    let output = timeout(TEST_TIMEOUT * 3, command.output()).await;
    let output = output.expect("in time").unwrap();
    let text = [&*output.stdout, &output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_takes_each_name_of_a_job_and_no_other() {
    let head = head().await;
    let relay = start(|config| config.clusters[0].ray_address = format!("http://{head}")).await;
    let address = relay.local_addr();
    let mut list = relay.registry().watch();
    let named = list.wait_for(|list| {
        let mut live = list.live.iter();
        live.any(|stop| stop.names.submission_id.is_some())
    });
    timeout(TEST_TIMEOUT, named).await.unwrap().unwrap();
    for name in ["01000000", "raysubmit_1", "nightly"] {
        let (code, text) = ray_relay(address, &["list", "--job", name]).await;
        assert_eq!(code, Some(0), "{text}");
        assert!(
            text.contains("JOB          TASK") && text.contains("raysubmit_1  train"),
            "{text}"
        );
        let (code, text) = ray_relay(address, &["tasks", "--job", name]).await;
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("raysubmit_1  train"), "{text}");
        // Nothing listens on the port of its debugger.
        for words in [
            &["exec", "--job", name, "--", "where"][..],
            &["diff", "--job", name],
            &["park", "train", "--job", name],
            &["release", "train", "--job", name],
        ] {
            let (code, text) = ray_relay(address, words).await;
            assert!(
                matches!(code, Some(1 | 69 | 77)),
                "{words:?}: {code:?} {text}"
            );
        }
    }
    let of = |job: &'static str| -> [Vec<&'static str>; 9] {
        [
            vec!["list", "--job", job],
            vec!["list", "--running", "--job", job],
            vec!["list", "--failed", "--job", job],
            vec!["tasks", "--job", job],
            vec!["exec", "--job", job, "--", "where"],
            vec!["debug", "--job", job],
            vec!["diff", "--job", job],
            vec!["snapshot", "--job", job],
            vec!["release", "--all", "--job", job],
        ]
    };
    for words in of("raysubmit_2") {
        let (code, text) = ray_relay(address, &words).await;
        assert_eq!(code, Some(0), "{words:?}: {text}");
        let text = text.to_lowercase();
        assert!(
            text.contains("no") && !text.contains("train"),
            "{words:?}: {text}"
        );
    }
    for words in of("nosuch")
        .into_iter()
        .chain([vec!["park", "train", "--job", "nosuch"]])
    {
        let (code, text) = ray_relay(address, &words).await;
        assert_eq!(code, Some(66), "{words:?}: {text}");
        assert!(
            text.contains("no job is called nosuch"),
            "{words:?}: {text}"
        );
    }
    let (code, text) = ray_relay(address, &["park", "train", "--job", "raysubmit_2"]).await;
    assert_eq!(code, Some(66), "{text}");
    // What a script reads.
    let (code, text) = ray_relay(address, &["list", "--json"]).await;
    assert_eq!(code, Some(0), "{text}");
    let list: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(list["breakpoints"][0]["submitter"], "ann", "{text}");
    let (code, text) =
        ray_relay(address, &["exec", "--json", "--job", "02000000", "--", "w"]).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.starts_with("{\n  \"members\": [],\n  \"commands\": []\n}\n"),
        "{text}"
    );
    let (_, text) = ray_relay(address, &["list", "--json", "--job", "nightly"]).await;
    let list: Value = serde_json::from_str(&text).unwrap();
    let row = &list["breakpoints"][0];
    assert_eq!(
        (&row["job_id"], &row["submission_id"]),
        (&json!("01000000"), &json!("raysubmit_1"))
    );
    relay.abort().await;
}
