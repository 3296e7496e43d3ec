//! A worker's debugger: as much of debugpy as a session needs to come up, and then it answers, sends or takes as much as it
//! is asked to.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::Cluster;
use super::frame::{FrameReader, field, frame, output, stack};
use crate::Result;

/// Bytes of the answer to `stackTrace`.
pub(crate) const ANSWER_BYTES: usize = 4096;

/// Answers of debugpy 1.8.22 at a stop, a line each: a stack of six frames, its scopes, and three lists of variables.
pub(crate) static RECORDED: LazyLock<Vec<&str>> =
    LazyLock::new(|| include_str!("recorded.jsonl").lines().collect());

pub(super) struct Worker {
    pub(super) address: SocketAddr,
    /// Sessions that have finished their attach; the worker is paused while there is none.
    attached: AtomicUsize,
}

impl Worker {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            attached: AtomicUsize::new(0),
        }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.attached.load(Ordering::Relaxed) == 0
    }
}

/// A session that has finished its attach. As a task in a loop does, the worker stops anew when it ends.
struct Attached<'a> {
    cluster: &'a Cluster,
    worker: &'a Worker,
}

impl<'a> Attached<'a> {
    fn new(cluster: &'a Cluster, worker: &'a Worker) -> Self {
        worker.attached.fetch_add(1, Ordering::Relaxed);
        cluster.version.fetch_add(1, Ordering::Relaxed);
        Self { cluster, worker }
    }
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        self.worker.attached.fetch_sub(1, Ordering::Relaxed);
        self.cluster.version.fetch_add(1, Ordering::Relaxed);
    }
}

pub(super) async fn accept(
    listener: TcpListener,
    cluster: Arc<Cluster>,
    index: usize,
) -> Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let cluster = Arc::clone(&cluster);
        tokio::spawn(async move {
            // A client that goes away is the normal end.
            let _ = session(stream, &cluster, &cluster.workers[index]).await;
        });
    }
}

async fn session(mut stream: TcpStream, cluster: &Cluster, worker: &Worker) -> Result<()> {
    stream.set_nodelay(true)?;
    let (from, mut to) = stream.split();
    let mut requests = FrameReader::new(from);
    let (mut attach, mut attached) = (0, None);
    // debugpy speaks first.
    for package in ["ptvsd", "debugpy"] {
        let body = format!(
            r#"{{"seq":1,"type":"event","event":"output","body":{{"category":"telemetry","output":"{package}","data":{{"packageVersion":"1.8.22"}}}}}}"#
        );
        to.write_all(&frame(&body)).await?;
    }
    while let Some(request) = requests.next().await? {
        let number = |key| -> Result<usize> {
            let text = field(request, key).ok_or_else(|| format!("a request without {key}"))?;
            Ok(text.parse()?)
        };
        let seq = number("seq")?;
        match field(request, "command").unwrap_or_default() {
            "initialize" => {
                let able = r#"{"supportsConfigurationDoneRequest":true}"#;
                to.write_all(&response(seq, "initialize", able)).await?;
            }
            "attach" => {
                attach = seq;
                let initialized = r#"{"seq":3,"type":"event","event":"initialized"}"#;
                to.write_all(&frame(initialized)).await?;
            }
            "configurationDone" => {
                attached.get_or_insert_with(|| Attached::new(cluster, worker));
                to.write_all(&response(seq, "configurationDone", "{}"))
                    .await?;
                to.write_all(&response(attach, "attach", "{}")).await?;
                let stopped = r#"{"seq":4,"type":"event","event":"stopped","body":{"reason":"breakpoint","threadId":1}}"#;
                to.write_all(&frame(stopped)).await?;
            }
            _ if field(request, "recorded").is_some() => {
                let answer = RECORDED.get(number("recorded")?);
                let answer = answer.ok_or("an answer that was not recorded")?;
                to.write_all(&frame(&numbered(answer, seq)?)).await?;
            }
            "stackTrace" => {
                let is_odd = field(request, "kind") == Some("odd");
                to.write_all(&frame(&stack(seq, ANSWER_BYTES, is_odd)))
                    .await?;
            }
            // Bulk towards the client: so many frames of output, of so many bytes each, before the answer.
            "modules" => {
                let bulk = frame(&output(number("startModule")?));
                for _ in 0..number("moduleCount")? {
                    to.write_all(&bulk).await?;
                }
                to.write_all(&response(seq, "modules", "{}")).await?;
            }
            // Bulk towards the worker.
            "setVariable" | "evaluate" => {}
            "disconnect" => {
                drop(attached.take());
                to.write_all(&response(seq, "disconnect", "{}")).await?;
                return Ok(());
            }
            command => to.write_all(&response(seq, command, "{}")).await?,
        }
    }
    Ok(())
}

/// `answer` with another number of its request.
fn numbered(answer: &str, request: usize) -> Result<String> {
    let key = r#""request_seq": "#;
    let (front, rest) = answer.split_once(key).ok_or("an answer to no request")?;
    let (_, rest) = rest.split_once(',').ok_or("nothing behind its number")?;
    Ok(format!("{front}{key}{request},{rest}"))
}

fn response(request: usize, command: &str, body: &str) -> Vec<u8> {
    frame(&format!(
        r#"{{"seq":1000000,"type":"response","request_seq":{request},"success":true,"command":"{command}","body":{body}}}"#
    ))
}
