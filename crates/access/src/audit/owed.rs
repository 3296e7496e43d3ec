//! What has happened all the same and could not be written: lines that come before all others once the sink takes some again.
//!
//! Bounded: of more than [`MAX_OWED_LINES`] the record says only how many are missing, as of every line that failed.

use std::collections::VecDeque;
use std::time::SystemTime;

use parking_lot::Mutex;

use super::Entry;
use super::time::rfc3339;

const MAX_OWED_LINES: usize = 4096;

/// See the module.
#[derive(Default)]
pub(super) struct Owed {
    pub(super) entries: Mutex<VecDeque<(SystemTime, Entry)>>,
    /// Who writes them.
    pub(super) turn: tokio::sync::Mutex<()>,
}

impl Owed {
    /// Takes `entry`, of something that happens now.
    pub(super) fn add(&self, entry: Entry) {
        let mut entries = self.entries.lock();
        if entries.len() < MAX_OWED_LINES {
            entries.push_back((SystemTime::now(), entry));
        }
    }

    /// Nothing is owed.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.lock().is_empty()
    }

    pub(super) fn first(&self) -> Option<Entry> {
        let (at, entry) = self.entries.lock().front().cloned()?;
        Some(entry.with("happened_at", rfc3339(at)))
    }
}
