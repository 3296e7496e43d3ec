//! The stored state of a connection to a debugger, with which another process resumes it if this one is killed.
//!
//! Pure except for [`KeptConnection`], which writes the state at each change. It has the holder of the worker, the
//! terms of its park, as given by the opener of the connection, and the progress of the conversation.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tracing::debug;

use super::progress::Progress;
use crate::keeper::KeptSlot;
use crate::pdb::PROMPT;
use ray_relay_base::timestamp::unix_ms;
use ray_relay_base::wire::dap::stopped_threads::StoppedThreads;
use ray_relay_base::wire::dap::stored_messages::StoredMessages;
use ray_relay_base::wire::tunnel::messages::ParkTerms;

/// The stored state.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Stored {
    /// The holder of the worker, in the format of the opener of the connection.
    pub tenant: Value,
    /// The terms of the park, and when they were set, in milliseconds since 1970.
    pub keep: Option<(Box<ParkTerms>, u64)>,
    pub(super) progress: Progress,
    /// Written before the connect: there may be no connection.
    #[serde(default)]
    pub dials: bool,
    /// A message was written in part: only its rest could follow, which is lost with the process.
    pub(super) midway: bool,
    /// The paused threads.
    pub(super) stands: StoppedThreads,
    /// The debugger's messages without a client, if it is handed over: the number of dropped messages, and those
    /// behind them.
    #[serde(default)]
    pub(super) missed: (usize, Vec<String>),
    /// The state of the legacy debugger's prompt; `None`: it is debugpy.
    #[serde(default)]
    pub prompt: Option<AtPrompt>,
}

/// The state of the legacy debugger's prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AtPrompt {
    /// The unfinished line.
    pub(super) question: Vec<u8>,
    /// Whole lines that it has not accepted; the first may be a partial one.
    pub(super) pending: Vec<u8>,
    /// Whether it is being left.
    pub(super) leaves: bool,
}

/// The state of a prompt, as [`AtPrompt`] has it.
#[derive(PartialEq, Eq)]
pub(super) struct PromptState<'a> {
    pub(super) question: &'a [u8],
    pub(super) pending: &'a [u8],
    pub(super) leaves: bool,
}

impl AtPrompt {
    fn state(&self) -> PromptState<'_> {
        PromptState {
            question: &self.question,
            pending: &self.pending,
            leaves: self.leaves,
        }
    }
}

impl PromptState<'_> {
    /// Copies it, to be stored.
    pub(super) fn stored(&self) -> AtPrompt {
        AtPrompt {
            question: self.question.into(),
            pending: self.pending.into(),
            leaves: self.leaves,
        }
    }
}

impl Stored {
    /// The same, kept by `keep` as of now.
    #[must_use]
    pub fn kept_by(mut self, keep: &ParkTerms) -> Self {
        let now = unix_ms(SystemTime::now());
        self.keep = Some((Box::new(keep.clone()), now));
        self
    }

    /// The messages without a client, with the paused threads.
    pub(super) fn messages(&self) -> StoredMessages {
        let (cut, messages) = &self.missed;
        let messages = messages.iter().map(|message| message.as_bytes().into());
        StoredMessages::restored(self.stands.clone(), *cut, messages)
    }

    /// The state of a new connection to debugpy for `tenant`.
    pub fn of(tenant: Value) -> Self {
        Self {
            tenant,
            ..Self::default()
        }
    }

    /// The same for a legacy prompt, which begins by asking for a command.
    pub fn of_prompt(tenant: Value) -> Self {
        let at = AtPrompt {
            question: PROMPT.into(),
            ..AtPrompt::default()
        };
        Self {
            prompt: Some(at),
            ..Self::of(tenant)
        }
    }
}

/// A connection that outlives this process.
#[derive(Debug)]
pub struct KeptConnection {
    slot: KeptSlot,
    stored: Stored,
}

impl KeptConnection {
    /// Stores `stored`, except for messages without a client: those are delivered once.
    pub fn new(slot: KeptSlot, stored: Stored) -> Self {
        let stored = Stored {
            missed: Default::default(),
            ..stored
        };
        let mut kept = Self { slot, stored };
        kept.write();
        kept
    }

    /// Stores `stored` for a socket that is about to connect. Resolves when the end of this process no longer closes
    /// it. A debugger may not survive a client that vanishes at the first moment, and the task of a legacy prompt
    /// fails.
    pub async fn dials(slot: KeptSlot, stored: Stored) -> Self {
        let dials = true;
        let mut kept = Self::new(slot, Stored { dials, ..stored });
        kept.slot.stored().await;
        kept
    }

    /// Records that it is connected.
    pub fn dialled(&mut self) {
        self.stored.dials = false;
        self.write();
    }

    /// Records that another session has the worker, described by `tenant`.
    pub(super) fn held_by(&mut self, tenant: Value) {
        self.stored.tenant = tenant;
        self.write();
    }

    /// Records the terms of the park from now on.
    pub(super) fn keep_by(&mut self, keep: &ParkTerms) {
        let now = unix_ms(SystemTime::now());
        self.stored.keep = Some((Box::new(keep.clone()), now));
        self.write();
    }

    /// Records the progress, whether a message is written in part, and the paused threads if they have changed.
    pub(super) fn note(
        &mut self,
        progress: Progress,
        midway: bool,
        threads: Option<&StoppedThreads>,
    ) {
        let stored = (self.stored.progress, self.stored.midway);
        if stored == (progress, midway) && threads.is_none() {
            return;
        }
        (self.stored.progress, self.stored.midway) = (progress, midway);
        if let Some(threads) = threads {
            self.stored.stands = threads.clone();
        }
        self.write();
    }

    /// Records the state of the prompt.
    pub(super) fn note_prompt(&mut self, at: AtPrompt) {
        self.stored.prompt = Some(at);
        self.write();
    }

    /// Whether this state of the prompt is stored.
    pub(super) fn is_at(&self, state: &PromptState<'_>) -> bool {
        let at = self.stored.prompt.as_ref();
        at.is_some_and(|at| at.state() == *state)
    }

    fn write(&mut self) {
        let text = serde_json::to_vec(&self.stored);
        let written = text.map_err(std::io::Error::from);
        if let Err(why) = written.and_then(|text| self.slot.write(&text)) {
            debug!(%why, "cannot write the state of a connection: the previous one stands");
        }
    }

    /// Whether it is kept when this process ends on purpose.
    pub(super) fn outlives_the_end(&self) -> bool {
        self.stored.keep.is_some() && self.slot.outlives_the_end()
    }

    /// Leaves it to the next process.
    pub(super) fn leave(self) {
        self.slot.leave();
    }
}
