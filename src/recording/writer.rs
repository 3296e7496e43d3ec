//! The thread of one recording: from its queue to its file, up to its largest size.
//!
//! Ends when the [`super::Recorder`] is dropped or finished, or at the first failure.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{mpsc, watch};

use super::Progress;
use crate::config::units::format_size;

pub(super) struct Writer {
    pub(super) file: File,
    pub(super) written: u64,
    /// Largest file, in bytes.
    pub(super) most: u64,
    /// Bytes in the queue.
    pub(super) queued: Arc<AtomicUsize>,
    pub(super) tell: watch::Sender<Progress>,
}

impl Writer {
    pub(super) fn run(mut self, header: &str, mut queue: mpsc::Receiver<String>) {
        let mut result = self.write(header);
        while result.is_ok()
            && let Some(line) = queue.blocking_recv()
        {
            result = self.write(&line);
            self.queued.fetch_sub(line.len(), Ordering::Relaxed);
        }
        // First the state, so that whoever finds the queue closed finds out why.
        let result = result.and_then(|()| self.file.sync_data().map_err(|why| why.to_string()));
        self.tell.send_replace(match result {
            Ok(()) => Progress::Finished,
            Err(why) => Progress::Failed(why),
        });
    }

    fn write(&mut self, line: &str) -> Result<(), String> {
        self.written += line.len() as u64;
        if self.written > self.most {
            let most = format_size(usize::try_from(self.most).unwrap_or(usize::MAX));
            return Err(format!("it is larger than recording.max_size ({most})"));
        }
        self.file
            .write_all(line.as_bytes())
            .map_err(|why| why.to_string())
    }
}
