//! Probes whether a session's client is still there, for another client that wants its worker.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Result of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// Nothing yet.
    Unknown,
    /// The probe was sent; its system's TCP acknowledgement decides.
    Sent,
    /// It has answered.
    There,
}

/// Probes of one session's client, and their replies.
#[derive(Debug, Default)]
pub struct Liveness {
    /// Number of pending probes, and a signal when that changes.
    doubts: AtomicUsize,
    doubted: Notify,
    /// Counters: probes requested, the last one sent, the last one answered.
    questions: AtomicU64,
    sent: AtomicU64,
    answered: AtomicU64,
}

impl Liveness {
    /// Resolves when a probe is added or dropped, or polled for its state: with the number of the last one, or `None`
    /// if none is pending. Cancel safe.
    pub async fn doubted(&self) -> Option<u64> {
        self.doubted.notified().await;
        let is_doubted = self.doubts.load(Ordering::Acquire) > 0;
        is_doubted.then(|| self.questions.load(Ordering::Acquire))
    }

    /// Sets the reply to this `question` and all before it.
    pub fn set_reply(&self, question: u64, reply: Reply) {
        match reply {
            Reply::Unknown => {}
            Reply::Sent => self.sent.store(question, Ordering::Release),
            Reply::There => self.answered.store(question, Ordering::Release),
        }
    }
}

/// A pending probe of a session's client. Dropping it withdraws it.
#[derive(Debug)]
pub struct LivenessProbe {
    of: Arc<Liveness>,
    question: u64,
    session: u64,
    peer: SocketAddr,
}

impl LivenessProbe {
    /// Adds a probe of the client of `session`, which is connected from `peer`.
    pub(super) fn new(of: &Arc<Liveness>, session: u64, peer: SocketAddr) -> Self {
        of.doubts.fetch_add(1, Ordering::AcqRel);
        let question = of.questions.fetch_add(1, Ordering::AcqRel) + 1;
        of.doubted.notify_one();
        Self {
            of: Arc::clone(of),
            question,
            session,
            peer,
        }
    }

    /// The session.
    pub fn session(&self) -> u64 {
        self.session
    }

    /// Address of its client.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Its state. If nothing is known yet, wakes the session to handle it.
    pub fn reply(&self) -> Reply {
        let is_past = |last: &AtomicU64| last.load(Ordering::Acquire) >= self.question;
        if is_past(&self.of.answered) {
            return Reply::There;
        }
        if is_past(&self.of.sent) {
            return Reply::Sent;
        }
        self.of.doubted.notify_one();
        Reply::Unknown
    }
}

impl Drop for LivenessProbe {
    fn drop(&mut self) {
        self.of.doubts.fetch_sub(1, Ordering::AcqRel);
        self.of.doubted.notify_one();
    }
}
