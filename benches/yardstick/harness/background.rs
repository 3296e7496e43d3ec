//! Background transfers with separate sessions, threads and workers, so that only the proxy is shared with the measurement.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::{mpsc, oneshot};

use crate::Result;
use crate::harness::client::{SET, Session, Target};

/// Bytes that are asked for at once, and of a frame.
const PORTION_BYTES: usize = 2 << 20;
const FRAME_BYTES: usize = 64 << 10;

/// Sessions that transfer bytes on request.
pub(crate) struct Bulk {
    runs: mpsc::Sender<Run>,
}

/// A run under way.
pub(crate) struct Running {
    stop: Arc<AtomicBool>,
    bytes: Arc<AtomicUsize>,
    ended: oneshot::Receiver<Result<()>>,
}

struct Run {
    stop: Arc<AtomicBool>,
    bytes: Arc<AtomicUsize>,
    ended: oneshot::Sender<Result<()>>,
}

impl Bulk {
    /// Opens a session to each target, of which the last `senders` send and the others are sent to. The thread ends when this
    /// is dropped.
    pub(crate) async fn open(targets: Vec<Target>, senders: usize) -> Result<Self> {
        let (runs, orders) = mpsc::channel(1);
        let (opened, ready) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        std::thread::spawn(move || runtime.block_on(serve(targets, senders, opened, orders)));
        ready.await??;
        Ok(Self { runs })
    }

    /// Starts all transfers; they continue until [`Running::stop`].
    pub(crate) async fn run(&self) -> Result<Running> {
        let stop = Arc::new(AtomicBool::new(false));
        let bytes = Arc::new(AtomicUsize::new(0));
        let (ended, end) = oneshot::channel();
        let run = Run {
            stop: stop.clone(),
            bytes: bytes.clone(),
            ended,
        };
        self.runs.send(run).await.map_err(|_| "no bulk thread")?;
        Ok(Running {
            stop,
            bytes,
            ended: end,
        })
    }
}

impl Running {
    /// Bytes transferred so far.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns once the last portion is here.
    pub(crate) async fn stop(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.ended.await?
    }
}

async fn serve(
    targets: Vec<Target>,
    senders: usize,
    opened: oneshot::Sender<Result<()>>,
    mut orders: mpsc::Receiver<Run>,
) {
    let mut sessions = Vec::new();
    for target in targets {
        match Session::open(&target).await {
            Ok(session) => sessions.push(session),
            Err(error) => return drop(opened.send(Err(error))),
        }
    }
    let _ = opened.send(Ok(()));
    while let Some(run) = orders.recv().await {
        let (stop, bytes) = (&*run.stop, &*run.bytes);
        let receivers = sessions.len() - senders;
        let transfers = sessions
            .iter_mut()
            .enumerate()
            .map(|(index, session)| async move {
                while !stop.load(Ordering::Relaxed) {
                    match index < receivers {
                        true => session.download(PORTION_BYTES, FRAME_BYTES).await?,
                        false => session.upload(PORTION_BYTES, FRAME_BYTES, SET).await?,
                    }
                    bytes.fetch_add(PORTION_BYTES, Ordering::Relaxed);
                }
                Result::Ok(())
            });
        let result = futures_util::future::try_join_all(transfers).await;
        let _ = run.ended.send(result.map(drop));
    }
}
