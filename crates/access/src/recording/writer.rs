//! The thread of one recording: writes its queue to its file, up to the largest size.
//!
//! Ends when the [`super::CaptureWriter`] is dropped or finished, or at the first failure.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{mpsc, watch};

use super::meta::CaptureProgress;
use super::storage;
use ray_relay_base::config::units::format_size;

pub(super) struct Writer {
    pub(super) path: PathBuf,
    /// Largest size of all recordings in the folder, in bytes.
    pub(super) keep: u64,
    /// Largest file, in bytes.
    pub(super) max_bytes: u64,
    /// Bytes in the queue.
    pub(super) queued: Arc<AtomicUsize>,
    pub(super) progress_sender: watch::Sender<CaptureProgress>,
}

impl Writer {
    pub(super) fn run(self, header: &str, queue: mpsc::Receiver<String>) {
        // The queue is closed after the state is published, so that a writer that finds it closed can read why.
        let mut queue = queue;
        let result = self.record(header, &mut queue);
        self.progress_sender.send_replace(match result {
            Ok(()) => CaptureProgress::Finished,
            Err(why) => CaptureProgress::Failed(why),
        });
    }

    fn record(&self, header: &str, queue: &mut mpsc::Receiver<String>) -> Result<(), String> {
        if let Some(dir) = self.path.parent() {
            storage::make_room(dir, self.keep);
        }
        let mut file =
            storage::create(&self.path).map_err(|why| format!("{}: {why}", self.path.display()))?;
        let mut written = 0;
        self.write(&mut file, header, &mut written)?;
        self.progress_sender.send_replace(CaptureProgress::Running);
        while let Some(line) = queue.blocking_recv() {
            let result = self.write(&mut file, &line, &mut written);
            self.queued.fetch_sub(line.len(), Ordering::Relaxed);
            result?;
        }
        file.sync_data().map_err(|why| why.to_string())
    }

    fn write(&self, file: &mut File, line: &str, written: &mut u64) -> Result<(), String> {
        *written += line.len() as u64;
        if *written > self.max_bytes {
            let max_bytes = format_size(usize::try_from(self.max_bytes).unwrap_or(usize::MAX));
            return Err(format!(
                "it is larger than recording.max_size ({max_bytes})"
            ));
        }
        file.write_all(line.as_bytes())
            .map_err(|why| why.to_string())
    }
}
