//! Events of a session that come neither from its client nor from the worker's debugger: each cause of an end is
//! handled here once.
//!
//! Two steps, because the protocol counts the client's activity, and often only on request: [`Live::next`] waits until
//! something may have happened; [`Live::judge`] decides what, after [`Live::active`] has reported the last activity.

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

/// Something may have happened: [`Live::judge`] decides.
#[derive(Debug)]
pub enum Signal {
    /// An event.
    Event(SessionEvent),
    /// The relay starts to shut down.
    Draining,
    /// A deadline has passed, unless the client was active.
    Due,
}

/// An event of a session.
#[derive(Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// The client should see this sentence, and the session continues.
    Warning(String),
    /// The task has ended, and the worker lives: its next task belongs to this session too.
    TaskEnded,
    /// The client detached from the parent task of this subprocess and left it paused.
    TaskLeft,
    /// The head's reason for the worker's end, after [`Live::ask_why`].
    Explained(Option<Arc<str>>),
    /// The session has to end.
    End(SessionEnd),
    /// The time of [`Live::end_within`] is over.
    TimeIsUp,
}

/// Why the relay ends a session. `Display` is the end of a sentence for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionEnd {
    /// Its principal's credential expired or was revoked.
    #[error("{0}")]
    Revoked(PrincipalEnded),
    /// A permitted user has requested its end over another connection.
    #[error("you, or an administrator, have asked for its end")]
    Asked,
    /// Its recording failed, and is mandatory.
    #[error("{0}")]
    CaptureFailed(CaptureError),
    /// It reached its limit of duration or idle time.
    #[error("{0}")]
    Limit(String),
    /// The relay is draining, and the session is idle.
    #[error("the relay is being shut down")]
    Quiet,
    /// The relay aborts.
    #[error("the relay was shut down")]
    Aborted,
    /// The worker or its node is gone, with this reason.
    #[error("{0}")]
    Died(Arc<str>),
}

impl SessionEnd {
    /// The outcome of a session that ends by this.
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
    /// How often [`Self::active`] must be called for timely idle warnings.
    pub fn sampling(&self) -> Option<Duration> {
        self.limits.sampling()
    }

    /// Records activity of the client, the last of it at `at`.
    pub fn active(&mut self, at: Instant) {
        if at > self.last_active {
            self.last_active = at;
            self.limits.active(at);
        }
    }

    /// Queries the head from now on, for `patience`, why the worker is gone: answered by [`SessionEvent::Explained`].
    pub fn ask_why(&mut self, patience: Duration) {
        self.death_query = Some(patience);
    }

    /// Resolves when something may have happened to the session.
    ///
    /// Cancel safe, and meant for a loop whose other branch is the traffic: each call checks all causes again, and
    /// neither judges nor changes anything. Only the query of [`Self::ask_why`] restarts with each call.
    pub async fn next(&mut self) -> Signal {
        let ending = self.ends_at.is_some();
        // A client that disconnects is not notified of the end of its task or worker.
        let wants_news = !ending && !self.leaving;
        let due = self.due_at();
        let shutdown = self.services.shutdown;
        let event = tokio::select! {
            why = self.principal.ended(), if !self.cut_off => SessionEvent::End(SessionEnd::Revoked(why)),
            () = self.asked_to_end.cancelled(), if !ending && !self.cut_off => SessionEvent::End(SessionEnd::Asked),
            why = self.capture.failed(), if !self.cut_off && !self.unattended => SessionEvent::End(SessionEnd::CaptureFailed(why)),
            event = worker_gone(&mut self.worker, self.death_query), if self.death_query.is_some() || wants_news => event,
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

    /// Decides what has happened; `None`: nothing.
    pub fn judge(&mut self, signal: Signal) -> Option<SessionEvent> {
        match signal {
            Signal::Event(event) => {
                if matches!(event, SessionEvent::Explained(_)) {
                    self.death_query = None;
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
        let warning = self.collective.as_mut()?.due(now)?;
        Some(SessionEvent::Warning(warning))
    }

    fn due_at(&mut self) -> Option<Instant> {
        let quiet = self.quiet_at();
        let collective = self.collective.as_mut().and_then(|wait| wait.next());
        let times = [quiet, self.limits.next(), collective];
        self.ends_at.or(times.into_iter().flatten().min())
    }

    /// While the relay drains: when the session will have been idle for long enough.
    fn quiet_at(&self) -> Option<Instant> {
        self.draining.then(|| self.last_active + QUIET)
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

/// Resolves at `due`, if ever. Cancel safe. Boxed, because most sessions need none.
pub async fn until(due: Option<Instant>) {
    match due {
        Some(due) => Box::pin(sleep_until(due)).await,
        None => std::future::pending().await,
    }
}

/// Resolves when the task that others wait for resumes or pauses. Cancel safe.
async fn stands_or_runs(collective: &mut Option<Box<CollectiveWait>>) {
    match collective {
        Some(collective) => Box::pin(collective.changed()).await,
        None => std::future::pending().await,
    }
}

/// Resolves when the registry learns that the worker is gone; with a pending query, when the head answers or `asks` is
/// over. Cancel safe.
async fn worker_gone(worker: &mut Attached, asks: Option<Duration>) -> SessionEvent {
    match asks {
        Some(patience) => {
            let ask = Box::pin(worker.ask_why_died(patience));
            SessionEvent::Explained(ask.await)
        }
        None => SessionEvent::End(SessionEnd::Died(worker.died().await)),
    }
}
