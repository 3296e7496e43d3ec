//! Recordings of sessions: all messages, as the client saw them.
//!
//! A session whose policy requires it ([`crate::policy::SessionObligations`]) obtains a [`CaptureWriter`] from
//! [`CaptureStore::begin`] before anything is relayed. Through a [`CaptureTee`] it passes every message in the order
//! in which the client sent or saw it, so after the message filter. A separate thread writes them; the session never
//! waits for the disk. A message that cannot be recorded is not relayed: the session ends, unless
//! `recording.on_failure` is `allow`. Other sessions are not affected.

pub mod format;
mod meta;
mod storage;
mod tee;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tracing::error;

use self::meta::CaptureProgress;
pub use self::meta::{Meta, Protocol};
pub use self::tee::CaptureTee;
use self::writer::Writer;
use crate::telemetry::Metrics;
pub use crate::telemetry::metrics::Direction;
use ray_relay_base::config::{self, OnFailure};

/// Messages that may be queued for the disk.
const MAX_QUEUED_MESSAGES: usize = 4096;

/// Bytes that may be queued for the disk. A single message may have more.
const MAX_QUEUED_BYTES: usize = 16 << 20;

/// The deadline of opening a recording, and of writing its last lines.
const DISK_TIMEOUT: Duration = Duration::from_secs(2);

/// A session that has to be recorded cannot be, or no further. `Display` is a sentence for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the session has to be recorded, and the relay cannot record it: {0}")]
pub struct CaptureError(pub String);

/// The folder of recordings: creates a file for each session, and limits their total size. One for the process.
#[derive(Debug)]
pub struct CaptureStore {
    config: config::Recording,
    metrics: Arc<Metrics>,
}

impl CaptureStore {
    /// Creates the store of `config`; opens nothing yet.
    pub fn new(config: config::Recording, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { config, metrics })
    }

    /// Creates the folder if it is missing, and checks that it is writable.
    ///
    /// # Errors
    /// A sentence about the fault.
    pub fn prepare(&self) -> Result<(), String> {
        match &self.config.dir {
            Some(dir) => storage::prepare(dir)
                .map_err(|why| format!("recording.dir {}: {why}", dir.display())),
            None => Ok(()),
        }
    }

    /// Begins the recording of a session, and removes the oldest ones if all together exceed `recording.keep`. Waits
    /// for the disk, for two seconds at most. `None`: the session goes on unrecorded.
    ///
    /// # Errors
    /// [`CaptureError`]: the session must not go on.
    pub async fn begin(&self, meta: &Meta<'_>) -> Result<Option<CaptureWriter>, CaptureError> {
        let Some(dir) = &self.config.dir else {
            return Err(CaptureError("recording.dir is not set".to_owned()));
        };
        match self.start(dir, meta).await {
            Ok(writer) => Ok(Some(writer)),
            Err(why) => {
                self.metrics.recording_failure();
                error!(%why, "NOT RECORDED: a session that has to be");
                match self.config.on_failure {
                    OnFailure::Deny => Err(CaptureError(why)),
                    OnFailure::Allow => Ok(None),
                }
            }
        }
    }

    async fn start(&self, dir: &Path, meta: &Meta<'_>) -> Result<CaptureWriter, String> {
        let path = dir.join(storage::name(meta));
        let (queue, waiting) = mpsc::channel(MAX_QUEUED_MESSAGES);
        let (progress_sender, mut state) = watch::channel(CaptureProgress::Opening);
        let queued = Arc::new(AtomicUsize::new(0));
        let writer = Writer {
            path: path.clone(),
            keep: self.config.keep as u64,
            max_bytes: self.config.max_size as u64,
            queued: queued.clone(),
            progress_sender,
        };
        let header = format::header(meta);
        std::thread::Builder::new()
            .name("recording".to_owned())
            .spawn(move || writer.run(&header, waiting))
            .map_err(|why| format!("no thread for it: {why}"))?;
        let opened = timeout(
            DISK_TIMEOUT,
            state.wait_for(|state| *state != CaptureProgress::Opening),
        );
        match opened.await.map(|state| state.map(|state| state.clone())) {
            Ok(Ok(CaptureProgress::Failed(why))) => return Err(why),
            Ok(Ok(_)) => {}
            Ok(Err(_)) => return Err("its thread ended".to_owned()),
            Err(_) => return Err("the disk does not answer".to_owned()),
        }
        Ok(CaptureWriter {
            path,
            began: Instant::now(),
            queue: Mutex::new(Some(queue)),
            queued,
            state,
            on_failure: self.config.on_failure,
            failed: watch::Sender::new(None),
            metrics: self.metrics.clone(),
        })
    }
}

/// Records the messages of one session. Dropping it ends the recording without a last line.
#[derive(Debug)]
pub struct CaptureWriter {
    path: PathBuf,
    began: Instant,
    /// `None` once it is finished.
    queue: Mutex<Option<mpsc::Sender<String>>>,
    /// Bytes in `queue`.
    queued: Arc<AtomicUsize>,
    state: watch::Receiver<CaptureProgress>,
    on_failure: OnFailure,
    /// Why recording has stopped, if so.
    failed: watch::Sender<Option<String>>,
    metrics: Arc<Metrics>,
}

impl CaptureWriter {
    /// Returns the name of the file, for the audit log.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Records one whole message, or some bytes of a terminal. Never waits.
    ///
    /// # Errors
    /// [`CaptureError`], for this and every later message: the session has to end, which [`CaptureWriter::failed`]
    /// signals too. Never with `on_failure = "allow"`.
    pub fn frame(&self, direction: Direction, bytes: &[u8]) -> Result<(), CaptureError> {
        if self.failed.borrow().is_none() {
            let line = format::frame(self.began.elapsed(), direction, bytes);
            if let Err(why) = self.enqueue(line) {
                self.fail(why);
            }
        }
        match (&*self.failed.borrow(), self.on_failure) {
            (Some(why), OnFailure::Deny) => Err(CaptureError(why.clone())),
            _ => Ok(()),
        }
    }

    fn enqueue(&self, line: String) -> Result<(), String> {
        let length = line.len();
        let waiting = self.queued.fetch_add(length, Ordering::Relaxed);
        let queue = self.queue.lock();
        let sent = match &*queue {
            Some(queue) if waiting == 0 || waiting + length <= MAX_QUEUED_BYTES => {
                queue.try_send(line).ok()
            }
            _ => None,
        };
        if sent.is_some() {
            return Ok(());
        }
        self.queued.fetch_sub(length, Ordering::Relaxed);
        Err(match &*self.state.borrow() {
            CaptureProgress::Failed(why) => why.clone(),
            CaptureProgress::Opening | CaptureProgress::Running | CaptureProgress::Finished => {
                "the disk does not keep up with the session".to_owned()
            }
        })
    }

    /// Records the failure. The first reason stays.
    fn fail(&self, why: String) {
        self.failed.send_if_modified(|failed| {
            let first = failed.is_none();
            if first {
                self.metrics.recording_failure();
                error!(file = %self.path.display(), %why, "NOT RECORDED any further: a session that has to be");
                *failed = Some(why);
            }
            first
        });
    }

    /// Resolves when recording has stopped and the session has to end. Cancel safe. Never resolves with `on_failure =
    /// "allow"`.
    pub async fn failed(&self) -> CaptureError {
        let (mut failed, mut state) = (self.failed.subscribe(), self.state.clone());
        let on_disk = async {
            let broke = |progress: &CaptureProgress| matches!(progress, CaptureProgress::Failed(_));
            // Without such a state the thread just ended; the next message detects it.
            if let Ok(CaptureProgress::Failed(why)) = state.wait_for(broke).await.as_deref() {
                self.fail(why.clone());
            }
            std::future::pending().await
        };
        let why = tokio::select! {
            why = failed.wait_for(Option::is_some) => why.ok().and_then(|why| why.clone()),
            never = on_disk => never,
        };
        match (why, self.on_failure) {
            (Some(why), OnFailure::Deny) => CaptureError(why),
            _ => std::future::pending().await,
        }
    }

    /// Writes the last line, and waits until everything is on the disk, for two seconds at most.
    pub async fn finish(&self, how: &str) {
        let line = format::end(self.began.elapsed(), how);
        if self.failed.borrow().is_none()
            && let Err(why) = self.enqueue(line)
        {
            self.fail(why);
        }
        drop(self.queue.lock().take());
        let mut state = self.state.clone();
        let finished = state.wait_for(|state| *state != CaptureProgress::Running);
        _ = timeout(DISK_TIMEOUT, finished).await;
    }
}

#[cfg(test)]
mod tests;
