//! Attacks by an untrusted head with its lists, which the relay polls each second.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::shipped::Shipped;

/// How a head answers a poll.
#[derive(Clone, Copy, Debug)]
enum Manner {
    /// With one paused worker, another one each time.
    Well,
    /// With so many rows, all of them new each time.
    Many(usize),
    /// With names of a megabyte in rows as many as were asked for at most.
    LongNames,
    /// With a body of hundreds of megabytes, and one value in it after the other.
    Huge,
    /// With a few bytes each second.
    Slowly,
    /// With one row that is an array of millions of numbers.
    OddRow,
}

/// A head that answers in a manner, until the test ends.
async fn head(manner: Manner) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let polls = Arc::new(AtomicUsize::new(0));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, manner, Arc::clone(&polls)));
        }
    });
    address
}

async fn serve(mut stream: TcpStream, manner: Manner, polls: Arc<AtomicUsize>) {
    let mut request = Vec::new();
    loop {
        while !request.ends_with(b"\r\n\r\n") {
            match stream.read_buf(&mut request).await {
                Ok(read) if read > 0 => {}
                _ => return,
            }
        }
        let path = String::from_utf8_lossy(&request).into_owned();
        request.clear();
        let sent = match path.split_once("/api/v0/").map(|(_, rest)| rest) {
            Some(rest) if rest.starts_with("workers") => {
                let poll = polls.fetch_add(1, Ordering::Relaxed);
                workers(&mut stream, manner, poll).await
            }
            Some(rest) if rest.starts_with("nodes") => {
                let row = json!({"node_id": "aa", "node_ip": "10.0.0.7", "state": "ALIVE"});
                respond(&mut stream, &list(&row.to_string(), 1)).await
            }
            Some(_) => respond(&mut stream, &list("", 0)).await,
            None if path.contains("/api/version") => {
                respond(&mut stream, r#"{"ray_version": "2.60.0"}"#).await
            }
            None => respond(&mut stream, "[]").await,
        };
        if sent.is_err() {
            return;
        }
    }
}

fn row(id: &str, name: &str) -> String {
    json!({"worker_id": id, "is_alive": true, "worker_type": "WORKER", "node_id": "aa", "ip": "10.0.0.7",
        "pid": 4711, "exit_type": name, "exit_detail": name, "debugger_port": 30_001, "num_paused_threads": 1})
    .to_string()
}

/// A list of rows, made by another thread than those that serve the heads and measure the attaches: 100,000 of them held
/// up a thread of these for seconds, which looked as if the relay did.
async fn rows(poll: usize, count: usize, name: String) -> String {
    let made = move || {
        let any = row("ID", &name);
        let id = |n: usize| format!("{name}{poll:08x}{n:016x}");
        let rows: Vec<_> = (0..count).map(|n| any.replacen("ID", &id(n), 1)).collect();
        list(&rows.join(","), count)
    };
    tokio::task::spawn_blocking(made).await.unwrap()
}

async fn workers(stream: &mut TcpStream, manner: Manner, poll: usize) -> std::io::Result<()> {
    match manner {
        Manner::Well => respond(stream, &rows(poll, 1, String::new()).await).await,
        Manner::Many(count) => respond(stream, &rows(poll, count, String::new()).await).await,
        Manner::LongNames => respond(stream, &rows(poll, 15, "n".repeat(300_000)).await).await,
        Manner::OddRow => {
            respond(stream, &list(&format!("[{}0]", "0,".repeat(6_000_000)), 1)).await
        }
        Manner::Huge => {
            let part = format!("{},", row("0", &"n".repeat(1000))).repeat(500);
            stream.write_all(HEAD.as_bytes()).await?;
            let mut stream = stream;
            chunk(
                &mut stream,
                r#"{"result": true, "data": {"result": {"result": ["#,
            )
            .await?;
            for _ in 0..300 {
                chunk(&mut stream, &part).await?;
            }
            chunk(&mut stream, "{}]}}}").await?;
            stream.write_all(b"0\r\n\r\n").await
        }
        Manner::Slowly => {
            stream.write_all(HEAD.as_bytes()).await?;
            let mut stream = stream;
            loop {
                chunk(&mut stream, r#"{"result":                  "#).await?;
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        }
    }
}

const HEAD: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";

async fn chunk(stream: &mut &mut TcpStream, text: &str) -> std::io::Result<()> {
    let length = format!("{:x}\r\n", text.len());
    stream.write_all(length.as_bytes()).await?;
    stream.write_all(text.as_bytes()).await?;
    stream.write_all(b"\r\n").await
}

fn list(rows: &str, count: usize) -> String {
    format!(
        r#"{{"result": true, "msg": "", "data": {{"result": {{"total": {count}, "num_after_truncation": {count}, "result": [{rows}]}}}}}}"#
    )
}

async fn respond(stream: &mut TcpStream, body: &str) -> std::io::Result<()> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await
}

/// How long a health probe may take: a kubelet waits for one second.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(1);

/// The same, of a single one on a machine that has much else to do.
const LOSS_TIMEOUT: Duration = Duration::from_secs(10);

/// How long each head is polled.
const OBSERVATION: Duration = Duration::from_secs(8);
/// The same, on a machine that has much else to do.
const BUSY_WATCH_PERIOD: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn head_with_a_long_list_blocks_no_client() {
    for manner in [
        Manner::Many(100_000),
        Manner::LongNames,
        Manner::Huge,
        Manner::Slowly,
        Manner::OddRow,
    ] {
        let heads = [
            ("good", head(Manner::Well).await),
            ("bad", head(manner).await),
        ];
        let shipped = Shipped::start(&heads).await;
        let relay = &shipped.relay;
        let token = relay.token("ann");
        let narrow = json!({"sub": "bob", "scope": "list", "ray_relay": {"clusters": ["good"]}});
        let narrow = relay.token_with(&narrow);
        let (began, mut waits, mut listed) = (Instant::now(), Vec::new(), 0);
        let (mut last, mut ready) = (Value::Null, false);
        // The other one has something new each second; a busy machine needs longer for it.
        while began.elapsed() < OBSERVATION || (listed <= 4 && began.elapsed() < BUSY_WATCH_PERIOD)
        {
            let started = Instant::now();
            let (_stream, answer) = relay.get("/relay/healthz", "").await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            waits.push(started.elapsed());
            let (_stream, answer) = relay.get("/relay/readyz?cluster=good", &token).await;
            let is_ready = answer.starts_with("HTTP/1.1 200");
            assert!(is_ready || !ready, "{manner:?}: {answer}");
            ready |= is_ready;
            let list = relay.json("/relay/v1/breakpoints", &narrow).await;
            let row = list["breakpoints"][0]["id"].clone();
            listed += usize::from(row != last);
            last = row;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        shipped.somebody(&format!("{manner:?}")).await;
        let peak = relay.memory("VmHWM") >> 20;
        waits.sort();
        let (middle, slowest) = (waits[waits.len() / 2], waits[waits.len() - 1]);
        eprintln!(
            "{manner:?}: healthz {middle:?} in the middle, {slowest:?} at most, {listed} lists of the other head, {peak} MiB at most"
        );
        assert!(
            middle < HEALTH_TIMEOUT && slowest < LOSS_TIMEOUT,
            "{manner:?}: healthz took {middle:?} in the middle, {slowest:?} at most"
        );
        assert!(
            ready && listed > 4,
            "{manner:?}: {listed} lists in {:?}",
            began.elapsed()
        );
        assert!(peak < 200, "{manner:?}: {peak} MiB");
        // A busy machine takes longer to read the list and refuse it.
        let began = Instant::now();
        let bad = loop {
            let list = relay.json("/relay/v1/breakpoints?limit=1", &token).await;
            let mut clusters = list["clusters"].as_array().unwrap().iter();
            let bad = clusters.find(|cluster| cluster["name"] == "bad").unwrap();
            if bad["trouble"].is_string() || began.elapsed() > BUSY_WATCH_PERIOD {
                break bad.clone();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        eprintln!("{}", bad["trouble"]);
        assert!(bad["trouble"].is_string(), "{manner:?}: {bad}");
    }
}
