//! Whatever befalls a session that neither its client nor the worker's debugger says: one place for each cause of an end.
//!
//! Two steps, because the client's last word is counted by its protocol, and often only when it is asked for: [`Live::next`]
//! waits until something may have happened, [`Live::judge`] says what, once [`Live::heard`] has said when that word was.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::Live;
use crate::session::Attached;
use crate::session::collective::CollectiveWait;
use crate::session::limits::Due;
use ray_relay_access::identity::PrincipalEnded;
use ray_relay_access::recording::{CaptureError, Protocol};
use ray_relay_access::telemetry::metrics::Outcome;
use ray_relay_base::shutdown::QUIET;

/// Something may have happened: what, says [`Live::judge`].
#[derive(Debug)]
pub enum Signal {
    /// Something has happened.
    Event(SessionEvent),
    /// The relay is being shut down.
    Draining,
    /// A time is over, unless the client has said something.
    Due,
}

/// What has happened to a session.
#[derive(Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// The client is to be told this sentence, and the session goes on.
    Warning(String),
    /// The task has ended, and the worker lives: what it runs next is in this session as well.
    TaskEnded,
    /// The client has left the task where it is that this is a subprocess of.
    TaskLeft,
    /// What the head says of the worker's end, after [`Live::ask_why`].
    Explained(Option<Arc<str>>),
    /// The session has to end.
    End(SessionEnd),
    /// The patience of [`Live::end_within`] is over.
    TimeIsUp,
}

/// Why the relay ends a session. `Display` is the end of a sentence for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionEnd {
    /// The time of its principal is over.
    #[error("{0}")]
    Revoked(PrincipalEnded),
    /// A permitted person has asked for its end, and not by its own connection.
    #[error("you, or an administrator, have asked for its end")]
    Asked,
    /// What is said in it cannot be captured any more, and has to be.
    #[error("{0}")]
    CaptureFailed(CaptureError),
    /// It has lasted too long, or nothing was done in it for too long.
    #[error("{0}")]
    Limit(String),
    /// The relay is being shut down, and nothing is done in it.
    #[error("the relay is being shut down")]
    Quiet,
    /// The relay ends now.
    #[error("the relay was shut down")]
    Aborted,
    /// The worker or its node is gone, for this reason.
    #[error("{0}")]
    Died(Arc<str>),
}

impl SessionEnd {
    /// How a session is said to have ended that ends by this.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Revoked(_) => Outcome::Revoked,
            Self::CaptureFailed(_) => Outcome::Failed,
            Self::Limit(_) => Outcome::Limit,
            Self::Asked => Outcome::Asked,
            Self::Quiet | Self::Aborted => Outcome::Drained,
            Self::Died(_) => Outcome::Died,
        }
    }
}

impl Live<'_> {
    /// How often [`Self::heard`] has to be said, for a client to be told of its idleness in good time.
    pub fn sampling(&self) -> Option<Duration> {
        self.limits.sampling()
    }

    /// The client has said something, the last of it at `at`.
    pub fn heard(&mut self, at: Instant) {
        if at > self.said {
            self.said = at;
            self.limits.active(at);
        }
    }

    /// The head is asked from now on why the worker is gone, for `patience`: [`SessionEvent::Explained`] answers.
    pub fn ask_why(&mut self, patience: Duration) {
        self.asks_why = Some(patience);
    }

    /// Resolves when something may have happened to the session.
    ///
    /// Cancel safe, and meant for a loop whose other branch is the traffic: every cause is looked at anew by each call, so
    /// nothing is lost where the other one is ready first, and nothing is judged or changed here. Only the question of
    /// [`Self::ask_why`] is put anew by each call.
    pub async fn next(&mut self) -> Signal {
        let ending = self.ends_at.is_some();
        // To a client that leaves, the end of its task or worker is no news.
        let wants_news = !ending && !self.leaving;
        let due = self.due_at();
        let shutdown = self.services.shutdown;
        let event = tokio::select! {
            why = self.principal.ended(), if !self.cut_off => SessionEvent::End(SessionEnd::Revoked(why)),
            () = self.asked_to_end.cancelled(), if !ending && !self.cut_off => SessionEvent::End(SessionEnd::Asked),
            why = self.capture.failed(), if !self.cut_off && !self.unattended => SessionEvent::End(SessionEnd::CaptureFailed(why)),
            event = worker_gone(&mut self.worker, self.asks_why), if self.asks_why.is_some() || wants_news => event,
            () = self.task.ended(), if wants_news => SessionEvent::TaskEnded,
            () = self.session.task_left(), if wants_news => SessionEvent::TaskLeft,
            () = shutdown.abort.cancelled(), if !ending => SessionEvent::End(SessionEnd::Aborted),
            () = shutdown.drain.cancelled(), if !self.draining => return Signal::Draining,
            () = stands_or_runs(&mut self.collective), if wants_news => return Signal::Due,
            () = until(due), if due.is_some() => return Signal::Due,
            else => std::future::pending().await,
        };
        Signal::Event(event)
    }

    /// What has happened; `None`: nothing.
    pub fn judge(&mut self, signal: Signal) -> Option<SessionEvent> {
        match signal {
            Signal::Event(event) => {
                if matches!(event, SessionEvent::Explained(_)) {
                    self.asks_why = None;
                }
                Some(event)
            }
            Signal::Draining => {
                self.draining = true;
                Some(SessionEvent::Warning(self.drain_warning()))
            }
            Signal::Due => self.due(Instant::now()),
        }
    }

    fn due(&mut self, now: Instant) -> Option<SessionEvent> {
        if let Some(at) = self.ends_at {
            return (at <= now).then_some(SessionEvent::TimeIsUp);
        }
        if self.quiet_at().is_some_and(|at| at <= now) {
            return Some(SessionEvent::End(SessionEnd::Quiet));
        }
        match self.limits.due(now) {
            Some(Due::Warning(text)) => return Some(SessionEvent::Warning(text)),
            Some(Due::End(why)) => return Some(SessionEvent::End(SessionEnd::Limit(why))),
            None => {}
        }
        let told = self.collective.as_mut()?.due(now)?;
        Some(SessionEvent::Warning(told))
    }

    fn due_at(&mut self) -> Option<Instant> {
        let quiet = self.quiet_at();
        let collective = self.collective.as_mut().and_then(|wait| wait.next());
        let times = [quiet, self.limits.next(), collective];
        self.ends_at.or(times.into_iter().flatten().min())
    }

    /// While the relay drains: when nothing will have been done for long enough.
    fn quiet_at(&self) -> Option<Instant> {
        self.draining.then(|| self.said + QUIET)
    }

    fn drain_warning(&self) -> String {
        let done = match self.protocol {
            Protocol::Dap => "done in it",
            Protocol::Terminal => "typed",
        };
        let (idle, patience) = (QUIET.as_secs(), self.services.drain_timeout.as_secs());
        format!(
            "the relay is being shut down; this session ends when nothing is {done} for {idle} s, and in {patience} s at the latest"
        )
    }
}

/// Resolves at `due`, if ever. Cancel safe. In a box, as all that most sessions do without.
pub async fn until(due: Option<Instant>) {
    match due {
        Some(due) => Box::pin(sleep_until(due)).await,
        None => std::future::pending().await,
    }
}

/// Resolves when the task of a session for which others wait runs or stops. Cancel safe.
async fn stands_or_runs(collective: &mut Option<Box<CollectiveWait>>) {
    match collective {
        Some(collective) => Box::pin(collective.changed()).await,
        None => std::future::pending().await,
    }
}

/// The registry learns that the worker is gone, or, where that is known, the head says why within `asks`. Cancel safe.
async fn worker_gone(worker: &mut Attached, asks: Option<Duration>) -> SessionEvent {
    match asks {
        Some(patience) => {
            let ask = Box::pin(worker.ask_why_died(patience));
            SessionEvent::Explained(ask.await)
        }
        None => SessionEvent::End(SessionEnd::Died(worker.died().await)),
    }
}
