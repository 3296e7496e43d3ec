//! Entries of actions that happened although they could not be written. They are written before all others once the
//! sink works again.
//!
//! Bounded: beyond [`MAX_OWED_LINES`] only the number of missing lines is recorded, as for every failed line.

use std::collections::VecDeque;
use std::time::SystemTime;

use parking_lot::Mutex;

use super::Entry;
use super::time::rfc3339;

const MAX_OWED_LINES: usize = 4096;

/// The queue of owed entries.
#[derive(Default)]
pub(super) struct Owed {
    pub(super) entries: Mutex<VecDeque<(SystemTime, Entry)>>,
    /// Held by the task that writes them.
    pub(super) turn: tokio::sync::Mutex<()>,
}

impl Owed {
    /// Queues `entry` with the current time.
    pub(super) fn add(&self, entry: Entry) {
        let mut entries = self.entries.lock();
        if entries.len() < MAX_OWED_LINES {
            entries.push_back((SystemTime::now(), entry));
        }
    }

    /// Whether nothing is owed.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.lock().is_empty()
    }

    pub(super) fn first(&self) -> Option<Entry> {
        let (at, entry) = self.entries.lock().front().cloned()?;
        Some(entry.with("happened_at", rfc3339(at)))
    }
}
