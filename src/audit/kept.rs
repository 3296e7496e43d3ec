//! An audit log for unit tests, which keeps its entries and can be made to fail.

use std::sync::{Arc, Mutex};

use super::{Action, Audit, Entry, Unavailable};

/// What was written.
#[derive(Clone)]
pub(crate) struct Kept(Arc<Mutex<State>>);

struct State {
    entries: Vec<Entry>,
    commands: bool,
    /// Entries of this kind are not taken.
    refuses: Option<Action>,
    /// Nor is any other.
    refuses_all: bool,
}

impl Audit {
    /// Keeps its entries, those of commands too if `commands`.
    pub(crate) fn kept(commands: bool) -> (Arc<Self>, Kept) {
        let kept = Kept(Arc::new(Mutex::new(State {
            entries: Vec::new(),
            commands,
            refuses: None,
            refuses_all: false,
        })));
        let audit = Self {
            running: None,
            kept: Some(kept.clone()),
        };
        (Arc::new(audit), kept)
    }
}

#[allow(clippy::unwrap_used)]
impl Kept {
    /// Has entries of this kind fail from now on.
    pub(crate) fn refuse(&self, action: Action) {
        self.0.lock().unwrap().refuses = Some(action);
    }

    /// Has all entries fail, or none.
    pub(crate) fn refuse_all(&self, all: bool) {
        self.0.lock().unwrap().refuses_all = all;
    }

    /// All entries so far, and none of them again.
    pub(crate) fn take(&self) -> Vec<Entry> {
        std::mem::take(&mut self.0.lock().unwrap().entries)
    }

    pub(super) fn wants_commands(&self) -> bool {
        self.0.lock().unwrap().commands
    }

    pub(super) fn write(&self, entry: Entry) -> Result<(), Unavailable> {
        let mut state = self.0.lock().unwrap();
        if state.refuses_all || state.refuses == Some(entry.action) {
            return Err(Unavailable("the disk is full".to_owned()));
        }
        state.entries.push(entry);
        Ok(())
    }
}
