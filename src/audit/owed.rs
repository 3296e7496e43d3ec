//! What has happened all the same and could not be written: lines that come before all others once the sink takes some again.
//!
//! Bounded: of more than [`MOST`] the record says only how many are missing, as of every line that failed.

use std::collections::VecDeque;
use std::time::SystemTime;

use parking_lot::Mutex;

use super::time::rfc3339;
use super::{Entry, Running};

/// Lines that are owed at most.
const MOST: usize = 4096;

/// See the module.
#[derive(Default)]
pub(super) struct Owed {
    entries: Mutex<VecDeque<(SystemTime, Entry)>>,
    /// Who writes them.
    turn: tokio::sync::Mutex<()>,
}

impl Owed {
    /// Takes `entry`, of something that happens now.
    pub(super) fn add(&self, entry: Entry) {
        let mut entries = self.entries.lock();
        if entries.len() < MOST {
            entries.push_back((SystemTime::now(), entry));
        }
    }

    /// Nothing is owed.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.lock().is_empty()
    }

    fn first(&self) -> Option<Entry> {
        let (at, entry) = self.entries.lock().front().cloned()?;
        Some(entry.with("happened_at", rfc3339(at)))
    }
}

impl Running {
    /// Writes what is owed, in its order.
    ///
    /// # Errors
    /// Why it cannot be written yet.
    pub(super) async fn catch_up(&self) -> Result<(), String> {
        if self.owed.is_empty() {
            return Ok(());
        }
        let _turn = self.owed.turn.lock().await;
        while let Some(entry) = self.owed.first() {
            self.write(&entry).await?;
            self.owed.entries.lock().pop_front();
        }
        Ok(())
    }
}
