//! A connection to a debugger with its conversation state: a [`Worker`](super::Worker) holds it, and the detach
//! sequence takes it over.

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

/// The state that [`detach`](super::detach) takes over.
#[derive(Debug)]
pub(super) struct DebuggerConnection {
    pub(super) stream: Stream,
    pub(super) ledger: ProtocolTracker,
    /// The rest of messages that were accepted whole and could not be written yet.
    pub(super) unsent: Vec<u8>,
    /// In an agent, the received part of an incomplete message; the ledger counts it as sent.
    pub(super) part: Vec<u8>,
    /// When `configurationDone` was sent.
    pub(super) configured: Option<Instant>,
    /// A `disconnect`, until every evaluation has its response.
    pub(super) held: Vec<u8>,
    /// `None` in an agent.
    pub(super) tenant: Option<Box<dyn Tenant>>,
    /// Whether the agent received the terms for keeping the debugger when this end is lost.
    pub(super) kept: bool,
    pub(super) tasks: TaskTracker,
    pub(super) runtime: Handle,
}

impl DebuggerConnection {
    /// Stores the progress that `bytes` will cause before they go to the debugger: this process may be killed in
    /// between, and without a record the detach would go wrong.
    pub(super) fn sends(&mut self, bytes: &[u8]) {
        if let Some(progress) = self.ledger.before(bytes) {
            self.note_that(progress);
        }
    }

    /// Records bytes sent to the debugger.
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

    /// Records bytes from the debugger; none: it will send nothing more.
    pub(super) fn received(&mut self, bytes: &[u8]) {
        self.ledger.received(bytes);
        self.ledger.closed |= bytes.is_empty();
        self.note();
    }

    /// Stores the progress, if the connection is kept.
    pub(super) fn note(&mut self) {
        self.note_that(self.ledger.progress);
    }

    fn note_that(&mut self, progress: Progress) {
        let Some(kept) = self.stream.kept_mut() else {
            return;
        };
        let midway = !self.ledger.between_messages() || !self.unsent.is_empty();
        kept.note(progress, midway, self.ledger.threads_if_changed());
    }

    /// Releases the held bytes.
    pub(super) fn send_held(&mut self) {
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
            // A burst must not keep its buffer.
            self.unsent = Vec::new();
            self.note();
        }
        Poll::Ready(Ok(()))
    }
}
