//! What is known of a connection to a debugger, so that another process can go on with it where this one was killed.
//!
//! Pure but for [`KeptConnection`], which has it written down at each change. It holds who has the worker and by what that
//! session is kept, as the opener of the connection says, and how far the conversation is.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tracing::debug;

use super::progress::Progress;
use crate::keeper::KeptSlot;
use crate::pdb::PROMPT;
use ray_relay_base::timestamp::unix_ms;
use ray_relay_base::wire::dap::kept::Kept;
use ray_relay_base::wire::dap::stands::Stands;
use ray_relay_base::wire::tunnel::messages::ParkTerms;

/// What is written down.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Stored {
    /// Who has the worker, as the opener of the connection says.
    pub tenant: Value,
    /// By what the session is kept, and when that was said, in milliseconds since 1970.
    pub keep: Option<(Box<ParkTerms>, u64)>,
    pub(super) progress: Progress,
    /// It was about to be dialled when this was written: it may be no connection.
    #[serde(default)]
    pub dials: bool,
    /// A part of a message was written: nothing can follow but its rest, which is lost with the process.
    pub(super) midway: bool,
    /// The threads that stand.
    pub(super) stands: Stands,
    /// What the debugger has said unheard, where it is handed over: how many messages were cut, and those behind
    /// them.
    #[serde(default)]
    pub(super) missed: (usize, Vec<String>),
    /// How far the prompt of the legacy debugger is; `None`: it is debugpy.
    #[serde(default)]
    pub prompt: Option<AtPrompt>,
}

/// How far the prompt of the legacy debugger is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AtPrompt {
    /// The line that it has not ended.
    pub(super) question: Vec<u8>,
    /// Whole lines that it has not taken, of the first of them maybe only the rest.
    pub(super) pending: Vec<u8>,
    /// It is being left.
    pub(super) leaves: bool,
}

impl Stored {
    /// The same, which is kept by `keep`, as is said now.
    #[must_use]
    pub fn kept_by(mut self, keep: &ParkTerms) -> Self {
        let now = unix_ms(SystemTime::now());
        self.keep = Some((Box::new(keep.clone()), now));
        self
    }

    /// What it has said unheard, with the threads that stand.
    pub(super) fn kept(&self) -> Kept {
        let (cut, messages) = &self.missed;
        let messages = messages.iter().map(|message| message.as_bytes().into());
        Kept::restored(self.stands.clone(), *cut, messages)
    }

    /// Of a connection to debugpy that was just made for `tenant`.
    pub fn of(tenant: Value) -> Self {
        Self {
            tenant,
            ..Self::default()
        }
    }

    /// The same of one to a prompt of the legacy debugger, which asks for a command first of all.
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

/// A connection that is kept beyond this process.
#[derive(Debug)]
pub struct KeptConnection {
    slot: KeptSlot,
    stored: Stored,
}

impl KeptConnection {
    /// One of which `stored` is known, which is written down, but for what was said unheard: that is told once.
    pub fn new(slot: KeptSlot, stored: Stored) -> Self {
        let stored = Stored {
            missed: Default::default(),
            ..stored
        };
        let mut kept = Self { slot, stored };
        kept.write();
        kept
    }

    /// One of a socket that is about to be dialled, of which `stored` will be known. Resolves when no end of this process closes it
    /// any more. A debugger may not survive a client that is gone at the first moment, and the task of a legacy prompt fails.
    pub async fn dials(slot: KeptSlot, stored: Stored) -> Self {
        let dials = true;
        let mut kept = Self::new(slot, Stored { dials, ..stored });
        kept.slot.given().await;
        kept
    }

    /// It is connected.
    pub fn dialled(&mut self) {
        self.stored.dials = false;
        self.write();
    }

    /// Another session has the worker, as `tenant` says.
    pub(super) fn held_by(&mut self, tenant: Value) {
        self.stored.tenant = tenant;
        self.write();
    }

    /// By what the session is kept from now on.
    pub(super) fn keep_by(&mut self, keep: &ParkTerms) {
        let now = unix_ms(SystemTime::now());
        self.stored.keep = Some((Box::new(keep.clone()), now));
        self.write();
    }

    /// How far the conversation is, whether a message is written in part, and which threads stand where that has changed.
    pub(super) fn note(&mut self, progress: Progress, midway: bool, stands: Option<&Stands>) {
        let stored = (self.stored.progress, self.stored.midway);
        if stored == (progress, midway) && stands.is_none() {
            return;
        }
        (self.stored.progress, self.stored.midway) = (progress, midway);
        if let Some(stands) = stands {
            self.stored.stands = stands.clone();
        }
        self.write();
    }

    /// How far the prompt is.
    pub(super) fn note_prompt(&mut self, at: AtPrompt) {
        self.stored.prompt = Some(at);
        self.write();
    }

    /// Whether it is written down that the prompt is as far as that: its question, what it has not taken, and whether it is left.
    pub(super) fn is_at(&self, (question, pending, leaves): (&[u8], &[u8], bool)) -> bool {
        let at = self.stored.prompt.as_ref();
        at.is_some_and(|at| (&*at.question, &*at.pending, at.leaves) == (question, pending, leaves))
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
