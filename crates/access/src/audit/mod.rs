//! The audit log: the record of decisions and actions.
//!
//! One [`Entry`] for each decision and each session. [`Audit::write`] returns once the line is stored or sent, and
//! only then the recorded action happens: no record, no access.
//!
//! An entry becomes the members of a JSON object (`line`, bounded), and waits in a queue for the only writing thread
//! (`writer`). It is sealed with the hash of the line before ([`chain`]) and goes to the sink (`sink`). [`verify`]
//! finds later changes; [`files`] reads rotated files in order.

pub mod chain;
mod complaint;
mod entry;
pub mod files;
mod line;
mod owed;
mod restraint;
mod sink;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod time;
pub mod verify;
mod writer;

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

pub use self::entry::{Entry, EntryKind, OpenError, Unavailable};

use self::chain::{ChainHead, Hashing};
use self::owed::Owed;
use self::restraint::{RefusalCounts, Restrained, SUMMARY_INTERVAL};
use self::sink::Sink;
use self::sink::line_sink::not_taken_within;
use self::writer::{Writer, WriterJob};
use crate::telemetry::Metrics;
use ray_relay_base::config::{self, OnFailure};
use ray_relay_base::key_mode::{Holds, warn_if_open};

/// Lines that may be queued for the thread. Beyond that, callers wait for a slot.
const MAX_QUEUED_LINES: usize = 1024;

/// How often the log reports the head of the audit log, so that a truncated end is noticed.
const ANCHOR_INTERVAL: Duration = Duration::from_secs(600);

/// How often owed entries are retried.
const CATCH_UP_INTERVAL: Duration = Duration::from_secs(5);

const MAX_KEY_BYTES: u64 = 64 << 10;

/// The deadline of writing one line.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// The audit log of the process.
pub struct Audit {
    /// `None`: `audit.sink` is `off`.
    running: Option<Running>,
}

struct Running {
    jobs: mpsc::Sender<WriterJob>,
    heads: watch::Receiver<ChainHead>,
    /// Failures that the thread does not know of.
    unreported: Arc<AtomicU64>,
    on_failure: OnFailure,
    commands: bool,
    metrics: Arc<Metrics>,
    /// When the last failure was logged, in milliseconds since `began`, and how many have not been logged.
    last_complaint_ms: AtomicU64,
    suppressed_complaints: AtomicU64,
    began: Instant,
    restraint: Mutex<RefusalCounts>,
    /// Why the last entry was not written, if so.
    failing: Mutex<Option<String>>,
    owed: Owed,
}

impl Audit {
    /// Returns an audit log that accepts every entry and stores none.
    pub fn off() -> Arc<Self> {
        Arc::new(Self { running: None })
    }

    /// Opens the sink of `config`, writes the first line, and starts the writing thread.
    ///
    /// # Errors
    /// [`OpenError`] if the sink or the key cannot be opened, regardless of `on_failure`.
    pub fn open(config: &config::Audit, metrics: Arc<Metrics>) -> Result<Arc<Self>, OpenError> {
        let Some(sink) = Sink::new(config)? else {
            return Ok(Self::off());
        };
        let hashing = hashing(config.key_file.as_deref())?;
        if let Some(path) = &config.key_file {
            warn_if_open(path, Holds::Secret);
        }
        let name = sink.name();
        let (audit, writer, jobs) = Self::start(sink, hashing, config, metrics)?;
        std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writer.run(jobs))
            .map_err(|why| OpenError(format!("no thread for it: {why}")))?;
        if let Some(running) = &audit.running {
            let head = *running.heads.borrow();
            info!(sink = name, seq = head.seq, hash = %head.hash, "audit log begun");
        }
        Ok(audit)
    }

    /// Builds the audit log over `sink`, which is opened and gets its first line. Also returns the writer of all
    /// further lines, and its queue.
    fn start(
        sink: Sink,
        hashing: Hashing,
        config: &config::Audit,
        metrics: Arc<Metrics>,
    ) -> Result<(Arc<Self>, Writer, mpsc::Receiver<WriterJob>), OpenError> {
        let unreported = Arc::new(AtomicU64::new(0));
        let (writer, heads) = Writer::start(
            sink,
            hashing,
            config.on_failure,
            unreported.clone(),
            metrics.clone(),
        )
        .map_err(OpenError)?;
        let (jobs, queue) = mpsc::channel(MAX_QUEUED_LINES);
        let running = Running {
            jobs,
            heads,
            unreported,
            on_failure: config.on_failure,
            commands: config.commands,
            metrics,
            last_complaint_ms: AtomicU64::new(0),
            suppressed_complaints: AtomicU64::new(0),
            began: Instant::now(),
            restraint: Mutex::default(),
            failing: Mutex::default(),
            owed: Owed::default(),
        };
        let audit = Arc::new(Self {
            running: Some(running),
        });
        Ok((audit, writer, queue))
    }

    /// Whether [`EntryKind::Command`] entries are recorded.
    pub fn wants_commands(&self) -> bool {
        self.running
            .as_ref()
            .is_some_and(|running| running.commands)
    }

    /// Returns why the last entry was not written, if so.
    pub fn failing(&self) -> Option<String> {
        self.running.as_ref()?.failing.lock().clone()
    }

    /// Writes `entry`, and returns once the line is stored or sent, at the latest after [`WRITE_TIMEOUT`].
    ///
    /// If it is cancelled, the line may or may not be written. Lines of one task keep their order. Refusals too
    /// frequent for a line each are summarized in one later line.
    ///
    /// # Errors
    /// [`Unavailable`]: it is not known to be written. Never with `on_failure = "allow"`.
    pub async fn write(&self, entry: Entry) -> Result<(), Unavailable> {
        let Some(running) = &self.running else {
            return Ok(());
        };
        if entry.action == EntryKind::Command && !running.commands {
            return Ok(());
        }
        let verdict = running
            .restraint
            .lock()
            .judge(&entry, now(), SystemTime::now());
        let sum = match verdict {
            Restrained::Suppressed => return Ok(()),
            Restrained::Write(sum) => sum,
        };
        let deadline = Instant::now() + WRITE_TIMEOUT;
        if let Some(sum) = sum {
            // If it cannot be written, neither can the entry after it, which reports the error.
            let _ = Box::pin(running.put(&sum, deadline)).await;
        }
        running.put(&entry, deadline).await
    }

    /// Queues `entry`, of an action that happened although it could not be written. It is written as soon as the sink
    /// works again, before all others.
    pub fn owe(&self, entry: Entry) {
        if let Some(running) = &self.running {
            running.owed.add(entry);
        }
    }

    /// Periodically logs the head of the audit log, and writes summaries and owed entries, until `shutdown`. Returns
    /// earlier only if the writing thread has ended.
    pub async fn run(&self, shutdown: CancellationToken) {
        let Some(running) = &self.running else {
            return shutdown.cancelled().await;
        };
        let mut logged_head = *running.heads.borrow();
        let mut tick = interval(ANCHOR_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut sum_up = interval(SUMMARY_INTERVAL);
        sum_up.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut catch_up = interval(CATCH_UP_INTERVAL);
        catch_up.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                _ = catch_up.tick() => {
                    if !running.owed.is_empty() {
                        let caught_up = running.catch_up().await;
                        running.publish_failing(caught_up.err());
                    }
                    continue;
                }
                _ = sum_up.tick() => {
                    running.sum_up(false).await;
                    continue;
                }
                () = running.jobs.closed() => return,
                () = shutdown.cancelled() => return,
            }
            let head = *running.heads.borrow();
            if head != logged_head {
                logged_head = head;
                info!(seq = head.seq, hash = %head.hash, "the audit log is here (`ray-relay audit verify --expect HASH` checks that it still is)");
            }
        }
    }

    /// Writes the last line and ends the thread, after everything queued is written. Later entries fail. Waits for
    /// [`WRITE_TIMEOUT`] at most.
    pub async fn close(&self) {
        let Some(running) = &self.running else {
            return;
        };
        let (done, closed) = oneshot::channel();
        let close = async {
            // Failures from here on are counted in no line.
            let _ = running.catch_up().await;
            running.sum_up(true).await;
            if running.jobs.send(WriterJob::Close(done)).await.is_err() {
                return Ok(());
            }
            closed
                .await
                .unwrap_or_else(|_| Err(CLOSED_MESSAGE.to_owned()))
        };
        let why = match timeout(WRITE_TIMEOUT, close).await {
            Ok(Ok(())) => return,
            Ok(Err(why)) => why,
            Err(_) => not_taken_within(WRITE_TIMEOUT),
        };
        error!(why, "the audit log has no last line");
    }
}

const CLOSED_MESSAGE: &str = "the relay is ending, and its audit log is closed";

/// Returns the monotonic time, which a test may have paused.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}

impl Running {
    /// Writes owed entries, in order.
    ///
    /// # Errors
    /// Why they cannot be written yet.
    pub(super) async fn catch_up(&self) -> Result<(), String> {
        if self.owed.is_empty() {
            return Ok(());
        }
        let _turn = self.owed.turn.lock().await;
        while let Some(entry) = self.owed.first() {
            self.write(&entry, Instant::now() + WRITE_TIMEOUT).await?;
            self.owed.entries.lock().pop_front();
        }
        Ok(())
    }

    /// Writes summaries that are due, or all of them.
    async fn sum_up(&self, all: bool) {
        let sums = self.restraint.lock().sums(now(), all);
        for sum in sums {
            // A failure is reported by the call itself.
            let _ = self.put(&sum, Instant::now() + WRITE_TIMEOUT).await;
        }
    }

    /// Implements [`Audit::write`] for an entry that gets a line, until `deadline`.
    async fn put(&self, entry: &Entry, deadline: Instant) -> Result<(), Unavailable> {
        // Earlier actions come first. One whose writing is cut off here is still owed.
        let caught_up = timeout_at(deadline, self.catch_up()).await;
        let written = match caught_up.unwrap_or_else(|_| Err(not_taken_within(WRITE_TIMEOUT))) {
            Ok(()) => self.write(entry, deadline).await,
            Err(why) => {
                self.unreported.fetch_add(1, Ordering::Relaxed);
                Err(why)
            }
        };
        self.publish_failing(written.as_ref().err().cloned());
        let Err(why) = written else {
            return Ok(());
        };
        self.metrics.audit_failure();
        self.complain(entry, &why);
        match self.on_failure {
            OnFailure::Deny => Err(Unavailable(why)),
            OnFailure::Allow => Ok(()),
        }
    }

    /// Publishes whether lines are written, for health checks.
    fn publish_failing(&self, failing: Option<String>) {
        self.metrics.audit_failing(failing.is_some());
        *self.failing.lock() = failing;
    }

    async fn write(&self, entry: &Entry, deadline: Instant) -> Result<(), String> {
        let (done, written) = oneshot::channel();
        let job = WriterJob::Line {
            time: SystemTime::now(),
            members: line::members(entry),
            done,
        };
        let write = async {
            if self.jobs.send(job).await.is_err() {
                return Err(CLOSED_MESSAGE.to_owned());
            }
            written
                .await
                .unwrap_or_else(|_| Err(CLOSED_MESSAGE.to_owned()))
        };
        match timeout_at(deadline, write).await {
            Ok(result) => result,
            Err(_) => {
                self.unreported.fetch_add(1, Ordering::Relaxed);
                Err(not_taken_within(WRITE_TIMEOUT))
            }
        }
    }
}

/// Returns the hashing with the key in `file`.
///
/// # Errors
/// [`OpenError`] if the key cannot be read or is invalid.
pub fn hashing(file: Option<&Path>) -> Result<Hashing, OpenError> {
    let Some(path) = file else {
        return Ok(Hashing::Plain);
    };
    let bad = |why: String| OpenError(format!("audit.key_file {}: {why}", path.display()));
    let mut secret = zeroize::Zeroizing::new(Vec::new());
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_KEY_BYTES).read_to_end(&mut secret))
        .map_err(|why| bad(why.to_string()))?;
    Hashing::new(Some(&secret)).map_err(|why| bad(why.to_string()))
}

#[cfg(test)]
mod tests;
