//! A connection to a debugger, with what was said over it: a [`Worker`](super::Worker) has it, and its goodbye takes it over.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite as _;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::progress::Progress;
use super::protocol_tracker::ProtocolTracker;
use super::{Stream, Tenant};

/// What [`goodbye`](super::goodbye) takes over.
#[derive(Debug)]
pub(super) struct DebuggerConnection {
    pub(super) stream: Stream,
    pub(super) ledger: ProtocolTracker,
    /// The rest of messages that were taken whole and could not be written yet.
    pub(super) unsent: Vec<u8>,
    /// In an agent, what has come of a message that is not whole yet; the ledger has it as sent.
    pub(super) part: Vec<u8>,
    /// When `configurationDone` was sent.
    pub(super) configured: Option<Instant>,
    /// A goodbye, until every evaluation is answered.
    pub(super) held: Vec<u8>,
    /// `None` in an agent.
    pub(super) tenant: Option<Box<dyn Tenant>>,
    /// The agent was told by what to keep the debugger when this end is lost.
    pub(super) kept: bool,
    pub(super) tasks: TaskTracker,
    pub(super) runtime: Handle,
}

impl DebuggerConnection {
    /// Has it written down what could not be left in order if it were not known to be sent, before `bytes` go to the debugger: this
    /// process may be killed in between.
    pub(super) fn sends(&mut self, bytes: &[u8]) {
        if let Some(progress) = self.ledger.before(bytes) {
            self.note_that(progress);
        }
    }

    /// Notes what goes to the debugger.
    pub(super) fn sent(&mut self, bytes: &[u8]) {
        self.ledger.sent(bytes);
        self.note();
        if self.ledger.progress.configured {
            self.configured.get_or_insert_with(Instant::now);
            if let Some(tenant) = &self.tenant {
                tenant.let_run();
            }
        }
    }

    /// Notes what came from the debugger; nothing: it will send nothing more.
    pub(super) fn received(&mut self, bytes: &[u8]) {
        self.ledger.received(bytes);
        self.ledger.closed |= bytes.is_empty();
        self.note();
    }

    /// Has it written down how far the conversation is, where the connection is kept.
    pub(super) fn note(&mut self) {
        self.note_that(self.ledger.progress);
    }

    fn note_that(&mut self, progress: Progress) {
        let Some(kept) = self.stream.kept_mut() else {
            return;
        };
        let midway = !self.ledger.between_messages() || !self.unsent.is_empty();
        kept.note(progress, midway, self.ledger.stands_if_changed());
    }

    /// Lets go of what was held.
    pub(super) fn say_held(&mut self) {
        let held = std::mem::take(&mut self.held);
        self.ledger.sent(&held);
        self.unsent.extend_from_slice(&held);
    }

    pub(super) fn poll_unsent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            let n = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.unsent))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unsent.drain(..n);
        }
        if self.unsent.capacity() > 0 {
            // A burst leaves no buffer behind.
            self.unsent = Vec::new();
            self.note();
        }
        Poll::Ready(Ok(()))
    }
}
