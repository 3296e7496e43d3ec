//! Fake workers: each a listener that speaks as much debugpy as a session needs to come up, and then
//! answers, sends or takes as much as it is asked to. One thread runs those that are measured and the fake head, and
//! another those of the bulk transfers beside them.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::client::Target;
use crate::frame::{FrameReader, field, frame, padded};
use crate::{BULK_SESSIONS, Result, SESSIONS, head};

/// Bytes of the answer to `stackTrace`.
pub(crate) const ANSWER: usize = 4096;
/// Bytes of the body of a frame in bulk transfers, both ways.
pub(crate) const BULK_FRAME: usize = 64 * 1024;

/// One fake worker, as the head lists it.
pub(crate) struct Worker {
    /// Hex, as Ray prints it.
    pub(crate) id: String,
    /// Its debug port.
    pub(crate) address: SocketAddr,
    /// Somebody finished an attach: the worker is no longer paused.
    pub(crate) attached: AtomicBool,
}

/// All of them, and the head that lists them.
pub(crate) struct Workers {
    pub(crate) list: Arc<Vec<Worker>>,
    /// The fake head's dashboard.
    pub(crate) head: SocketAddr,
}

impl Workers {
    pub(crate) fn start() -> Result<Self> {
        let mut listeners = Vec::new();
        let mut list = Vec::new();
        for index in 0..SESSIONS + BULK_SESSIONS {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            listener.set_nonblocking(true)?;
            list.push(Worker {
                id: format!("{:056x}", index + 1),
                address: listener.local_addr()?,
                attached: AtomicBool::new(false),
            });
            listeners.push(listener);
        }
        let dashboard = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        dashboard.set_nonblocking(true)?;
        let workers = Self {
            list: Arc::new(list),
            head: dashboard.local_addr()?,
        };
        let list = workers.list.clone();
        let bulk = listeners.split_off(SESSIONS);
        on_a_thread({
            let list = list.clone();
            async move {
                for (index, listener) in bulk.into_iter().enumerate() {
                    tokio::spawn(accept(listener, list.clone(), SESSIONS + index));
                }
                std::future::pending().await
            }
        })?;
        on_a_thread(async move {
            for (index, listener) in listeners.into_iter().enumerate() {
                tokio::spawn(accept(listener, list.clone(), index));
            }
            if let Err(error) = head::serve(dashboard, list).await {
                eprintln!("fake head: {error}");
            }
        })?;
        Ok(workers)
    }

    /// Straight to worker `index`.
    pub(crate) fn target(&self, index: usize) -> Target {
        Target {
            address: self.list[index].address,
            worker: None,
        }
    }
}

/// Lives as long as the process.
fn on_a_thread(work: impl Future<Output = ()> + Send + 'static) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::spawn(move || runtime.block_on(work));
    Ok(())
}

async fn accept(listener: TcpListener, list: Arc<Vec<Worker>>, index: usize) -> Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let list = list.clone();
        tokio::spawn(async move {
            // A client that goes away is the normal end.
            let _ = session(stream, &list[index]).await;
        });
    }
}

async fn session(mut stream: TcpStream, worker: &Worker) -> Result<()> {
    stream.set_nodelay(true)?;
    let (from, mut to) = stream.split();
    let mut requests = FrameReader::new(from);
    let mut attach = 0u64;
    let bulk = frame(&padded(
        r#""seq":1000000,"type":"event","event":"output","body":{"category":"stdout"}"#,
        BULK_FRAME,
    ));
    // debugpy speaks first.
    for package in ["ptvsd", "debugpy"] {
        let body = format!(
            r#"{{"seq":1,"type":"event","event":"output","body":{{"category":"telemetry","output":"{package}","data":{{"packageVersion":"1.8.22"}}}}}}"#
        );
        to.write_all(&frame(&body)).await?;
    }
    while let Some(request) = requests.next().await? {
        let seq: u64 = field(request, "seq")
            .ok_or("a request without seq")?
            .parse()?;
        match field(request, "command").unwrap_or_default() {
            "initialize" => {
                to.write_all(&response(
                    seq,
                    "initialize",
                    r#"{"supportsConfigurationDoneRequest":true}"#,
                ))
                .await?
            }
            "attach" => {
                attach = seq;
                to.write_all(&frame(r#"{"seq":3,"type":"event","event":"initialized"}"#))
                    .await?;
            }
            "configurationDone" => {
                worker.attached.store(true, Ordering::Relaxed);
                to.write_all(&response(seq, "configurationDone", "{}"))
                    .await?;
                to.write_all(&response(attach, "attach", "{}")).await?;
            }
            "stackTrace" => {
                let front = format!(
                    r#""seq":1000000,"type":"response","request_seq":{seq},"success":true,"command":"stackTrace""#
                );
                to.write_all(&frame(&padded(&front, ANSWER))).await?;
            }
            // `frameId` is how many frames of output are wanted before the answer.
            "variables" => {
                let count: usize = field(request, "frameId").ok_or("no frameId")?.parse()?;
                for _ in 0..count {
                    to.write_all(&bulk).await?;
                }
                to.write_all(&response(seq, "variables", "{}")).await?;
            }
            // Bulk towards the worker.
            "evaluate" => {}
            command => to.write_all(&response(seq, command, "{}")).await?,
        }
    }
    Ok(())
}

fn response(request: u64, command: &str, body: &str) -> Vec<u8> {
    frame(&format!(
        r#"{{"seq":1000000,"type":"response","request_seq":{request},"success":true,"command":"{command}","body":{body}}}"#
    ))
}
