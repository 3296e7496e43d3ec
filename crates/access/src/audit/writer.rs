//! The writer thread: receives queued entries, seals them, writes them, and notifies the callers.
//!
//! Started by [`super::Audit::open`], ended by [`super::Audit::close`]. Invariant: [`Writer::head`] moves only when
//! the sink has written the lines, so that the relay itself makes no gap in the chain. Lines that could not be
//! written are counted, and the next line that can be written is preceded by one with that count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{info, warn};

use super::chain::{ChainHead, Hashing, MAX_LINE_BYTES, torn_details};
use super::line::members;
use super::sink::Sink;
use super::sink::file::LogFile;
use super::time::rfc3339;
use super::{Entry, EntryKind};
use crate::telemetry::Metrics;
use ray_relay_base::config::OnFailure;
use ray_relay_base::wire::json::put;

/// Largest number of lines in one flush.
const MAX_BATCH_LINES: usize = 256;

/// Bytes of such lines: with the last of them less than the smallest `audit.max_size`.
const MAX_BATCH_BYTES: usize = (64 << 10) - 2 * MAX_LINE_BYTES;

/// A request to the thread.
pub(super) enum WriterJob {
    /// Write a line, and notify the caller.
    Line {
        time: SystemTime,
        members: String,
        done: Waiter,
    },
    /// Write the last line, and end.
    Close(Waiter),
}

/// A task that waits for a line.
pub(super) type Waiter = oneshot::Sender<Result<(), String>>;

/// The state of the thread.
pub(super) struct Writer {
    sink: Sink,
    hashing: Hashing,
    head: ChainHead,
    /// Largest number of lines in one flush.
    batch: usize,
    on_failure: OnFailure,
    /// Set while the sink fails.
    gap: Option<Gap>,
    /// Heads after lines of a failed batch, some of which may be in the file nevertheless.
    uncertain_heads: Vec<ChainHead>,
    /// Failures that only the callers noticed: a full queue, a deadline.
    unreported: Arc<AtomicU64>,
    head_sender: watch::Sender<ChainHead>,
    metrics: Arc<Metrics>,
}

struct Gap {
    since: SystemTime,
    entries: u64,
    why: String,
}

impl Writer {
    /// Creates a writer to `sink`, which is opened, and gets its first line.
    pub(super) fn start(
        mut sink: Sink,
        hashing: Hashing,
        on_failure: OnFailure,
        unreported: Arc<AtomicU64>,
        metrics: Arc<Metrics>,
    ) -> Result<(Self, watch::Receiver<ChainHead>), String> {
        let mut started = started(&hashing);
        let head = match &mut sink {
            Sink::File(file) => begin(file, &hashing, &mut started)?,
            Sink::Lines(_) => ChainHead::START,
        };
        let batch = match sink.takes_batches() {
            true => MAX_BATCH_LINES,
            false => 1,
        };
        let (head_sender, heads) = watch::channel(head);
        let mut writer = Self {
            sink,
            hashing,
            head,
            batch,
            on_failure,
            gap: None,
            uncertain_heads: Vec::new(),
            unreported,
            head_sender,
            metrics,
        };
        writer.append(&[own(started)])?;
        Ok((writer, heads))
    }

    /// Runs until a [`WriterJob::Close`], or until every sender is gone.
    pub(super) fn run(mut self, mut jobs: mpsc::Receiver<WriterJob>) {
        let mut closing = None;
        while closing.is_none()
            && let Some(job) = jobs.blocking_recv()
        {
            closing = self.work(job, &mut jobs);
        }
        let last = self.write(&[own(json!({"event": "stopped"}))]);
        info!(seq = self.head.seq, hash = %self.head.hash, "last line of the audit log");
        if let Some(closing) = closing {
            let _ = closing.send(last);
        }
    }

    /// Runs `job`, and queued ones that can share its flush. Returns who waits for the last line, if one of them is
    /// [`WriterJob::Close`].
    pub(super) fn work(
        &mut self,
        job: WriterJob,
        jobs: &mut mpsc::Receiver<WriterJob>,
    ) -> Option<Waiter> {
        let (mut lines, mut waiters) = (Vec::new(), Vec::new());
        let mut behind = take(job, &mut lines, &mut waiters);
        while behind.is_none()
            && lines.len() < self.batch
            && lines.iter().map(|(_, m)| m.len()).sum::<usize>() < MAX_BATCH_BYTES
            && let Ok(job) = jobs.try_recv()
        {
            behind = take(job, &mut lines, &mut waiters);
        }
        if !lines.is_empty() {
            ray_relay_base::fault::strike("audit");
            let result = self.write(&lines);
            for waiter in waiters {
                // A caller that has given up has counted itself.
                let _ = waiter.send(result.clone());
            }
        }
        behind
    }

    /// Writes `lines`, or records the gap.
    fn write(&mut self, lines: &[(SystemTime, String)]) -> Result<(), String> {
        let result = self.prepare(lines).and_then(|mut before| {
            before.extend_from_slice(lines);
            if self.batch == 1 {
                before
                    .iter()
                    .try_for_each(|line| self.append(std::slice::from_ref(line)))
            } else {
                self.append(&before)
            }
        });
        if let Err(why) = &result {
            self.missing(lines.len() as u64, lines[0].0, why);
        }
        result
    }

    /// Counts `entries` missing lines, the first of them from `since`.
    fn missing(&mut self, entries: u64, since: SystemTime, why: &str) {
        let gap = self.gap.get_or_insert_with(|| Gap {
            since,
            entries: 0,
            why: why.to_owned(),
        });
        gap.entries += entries;
    }

    /// Ensures that the sink is open, and returns the writer's own lines that have to come first.
    fn prepare(
        &mut self,
        lines: &[(SystemTime, String)],
    ) -> Result<Vec<(SystemTime, String)>, String> {
        let mut torn = None;
        if let Sink::File(file) = &mut self.sink {
            if let Err(why) = file.check() {
                file.close();
                return Err(why);
            }
            if !file.is_open() {
                let tail = file.open(&self.hashing)?;
                torn = tail.torn;
                let ours = match tail.last {
                    Some((last, true)) => last == self.head || self.uncertain_heads.contains(&last),
                    Some((_, false)) => false,
                    // A new file, which the line below chains to the old one, or a torn first line in one.
                    None => true,
                };
                if !ours {
                    file.close();
                    return Err(format!(
                        "{} does not end with the line that the relay wrote last: move it away, and the relay makes a new one",
                        self.sink.name()
                    ));
                }
                if let Some((last, _)) = tail.last {
                    self.head = last;
                }
                // A file that reappeared without a failed line was replaced between two lines.
                self.missing(0, SystemTime::now(), "the file was opened anew");
            }
        }
        let mut before = Vec::new();
        let unreported = self.unreported.swap(0, Ordering::Relaxed);
        if unreported > 0 {
            let why = "the audit log was not written in time";
            self.missing(unreported, SystemTime::now(), why);
        }
        if let Some(gap) = &self.gap {
            let on_failure = match self.on_failure {
                OnFailure::Deny => "deny",
                OnFailure::Allow => "allow",
            };
            let mut recovered = json!({
                "event": "recovered", "not_confirmed": gap.entries, "since": rfc3339(gap.since), "why": gap.why,
                "on_failure": on_failure,
            });
            if let Some(torn) = torn {
                put(&mut recovered, "torn", torn_details(&torn));
            }
            before.push(own(recovered));
        }
        if let Sink::File(file) = &mut self.sink {
            let length: usize = lines
                .iter()
                .chain(&before)
                .map(|(_, m)| m.len() + 256)
                .sum();
            if file.is_full(length as u64) {
                let name = file.rotate(self.head.seq, &self.hashing)?;
                info!(rotated = name, seq = self.head.seq, hash = %self.head.hash, "the audit file was rotated");
                let rotated = json!({"event": "rotated", "previous_file": name, "hashing": self.hashing.name()});
                before.insert(0, own(rotated));
            }
        }
        Ok(before)
    }

    /// Seals and writes all of `lines` or none.
    fn append(&mut self, lines: &[(SystemTime, String)]) -> Result<(), String> {
        let mut head = self.head;
        let mut text = String::new();
        let mut heads = Vec::with_capacity(lines.len());
        for (time, members) in lines {
            text += &head.seal(&self.hashing, &rfc3339(*time), members);
            heads.push(head);
        }
        let began = Instant::now();
        match self.sink.append(&text) {
            Ok(()) => {
                self.metrics
                    .audit_lines(lines.len() as u64, began.elapsed());
                self.head = head;
                self.uncertain_heads.clear();
                self.gap = None;
                self.head_sender.send_replace(head);
                Ok(())
            }
            Err(why) => {
                self.uncertain_heads = heads;
                Err(why)
            }
        }
    }
}

fn take(
    job: WriterJob,
    lines: &mut Vec<(SystemTime, String)>,
    waiters: &mut Vec<Waiter>,
) -> Option<Waiter> {
    match job {
        WriterJob::Line {
            time,
            members,
            done,
        } => {
            lines.push((time, members));
            waiters.push(done);
            None
        }
        WriterJob::Close(done) => Some(done),
    }
}

/// Returns the first line of a process in a file.
fn started(hashing: &Hashing) -> Value {
    json!({
        "event": "started", "version": env!("CARGO_PKG_VERSION"), "pid": std::process::id(),
        "hashing": hashing.name(),
    })
}

/// Opens `file`, and returns the head that the next line follows. Adds findings about its end to `started`.
fn begin(file: &mut LogFile, hashing: &Hashing, started: &mut Value) -> Result<ChainHead, String> {
    let tail = file.open(hashing)?;
    match tail.last {
        Some((last, false)) => {
            // Another key, or a changed line. What follows must go into another file.
            warn!(
                file = %file.path().display(),
                seq = last.seq,
                "the last line of the audit file does not have the hash that it claims: it was changed, or audit.key_file was; going on in a new file"
            );
            let name = file.rotate(last.seq, hashing)?;
            put(started, "unverified_previous_file", name);
        }
        Some((_, true)) | None => {
            if let Some(torn) = tail.torn {
                put(started, "torn", torn_details(&torn));
            }
        }
    }
    Ok(tail.last.map_or(ChainHead::START, |(last, _)| last))
}

/// Builds a line about the audit log itself; `details` is an object.
fn own(mut details: Value) -> (SystemTime, String) {
    let mut entry = Entry::new(EntryKind::Audit);
    if let Some(details) = details.as_object_mut() {
        entry.details = std::mem::take(details);
    }
    (SystemTime::now(), members(&entry))
}

#[cfg(test)]
mod tests;
