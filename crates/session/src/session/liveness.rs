//! Whether the client of a session is still there, which another client asks who wants its worker.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// What is known of a client that is doubted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// Nothing yet.
    Unknown,
    /// All that asks it has gone out; what its system acknowledges tells.
    Sent,
    /// It has answered.
    There,
}

/// Questions whether the client of one session is there, and its replies.
#[derive(Debug, Default)]
pub struct Liveness {
    /// How many ask, and whether that has changed.
    doubts: AtomicUsize,
    doubted: Notify,
    /// How often that was asked, which question the client was sent last, and which it has answered.
    questions: AtomicU64,
    sent: AtomicU64,
    answered: AtomicU64,
}

impl Liveness {
    /// Resolves when whether its client is there begins or ceases to be doubted, or the client that doubts it wants to know how far
    /// that is: with the last question, or none where no client asks any more. Cancel safe.
    pub async fn doubted(&self) -> Option<u64> {
        self.doubted.notified().await;
        let is_doubted = self.doubts.load(Ordering::Acquire) > 0;
        is_doubted.then(|| self.questions.load(Ordering::Acquire))
    }

    /// What has become of this `question` and those before it.
    pub fn set_reply(&self, question: u64, reply: Reply) {
        match reply {
            Reply::Unknown => {}
            Reply::Sent => self.sent.store(question, Ordering::Release),
            Reply::There => self.answered.store(question, Ordering::Release),
        }
    }
}

/// Another client asks whether the client of a session is still there. Dropped, none does.
#[derive(Debug)]
pub struct LivenessProbe {
    of: Arc<Liveness>,
    question: u64,
    session: u64,
    peer: SocketAddr,
}

impl LivenessProbe {
    /// One more question to the client of `session`, which is connected from `peer`.
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

    /// From where its client is connected.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// How far it is. Where nothing is known, the session is woken to see to it.
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
