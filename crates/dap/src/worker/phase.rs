//! States of the two ends of a session: the client, which may disconnect or be lost, and the worker's debugger.

use std::future::pending;

use tokio_util::sync::ReusableBoxFuture;

use crate::linger::Unexplained;
use ray_relay_session::session::Attached;

/// Resolves to whether a window was closed, within a second.
pub(super) type Decision = ReusableBoxFuture<'static, bool>;

/// State of the client.
#[derive(Default)]
pub(super) enum ClientState {
    /// Connected.
    #[default]
    Present,
    /// It has disconnected, and the meaning of that is about to be known.
    Deciding {
        decision: Decision,
        /// Whether it has closed its half of the connection as well.
        closed: bool,
    },
    /// It has closed its half, and gets the answers to all its requests.
    Closed,
    /// It is lost, or has left its task paused: the session may be parked.
    Lost,
}

impl ClientState {
    /// Resolves when the meaning of a disconnect is known; never without a pending one. Cancel safe.
    pub(super) async fn decided(&mut self) -> bool {
        match self {
            Self::Deciding { decision, .. } => decision.await,
            _ => pending().await,
        }
    }

    /// Whether its half of the connection is closed.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Self::Present => false,
            Self::Deciding { closed, .. } => *closed,
            Self::Closed | Self::Lost => true,
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        matches!(self, Self::Lost)
    }

    pub(super) fn is_deciding(&self) -> bool {
        matches!(self, Self::Deciding { .. })
    }

    /// Whether input of the client is ignored.
    pub(super) fn is_leaving(&self) -> bool {
        self.is_deciding() || self.is_lost()
    }
}

/// State of the worker's debugger. It only advances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum WorkerState {
    /// Connected.
    #[default]
    Attached,
    /// The client has received `terminated`, from the debugger or from the relay.
    Terminated(EndReason),
    /// The worker is gone, at least for this client.
    Gone(EndReason),
}

/// Whether the client is still to be notified why the worker's debugger ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum EndReason {
    /// No: it knows the reason, or no reason is sought.
    #[default]
    Settled,
    /// The head is asked for it.
    Unknown,
    /// The head is asked for it, and the connection to the debugger has ended.
    UnknownAndClosed,
}

impl WorkerState {
    pub(super) fn is_attached(self) -> bool {
        self == Self::Attached
    }

    pub(super) fn is_terminated(self) -> bool {
        matches!(self, Self::Terminated(_))
    }

    pub(super) fn is_gone(self) -> bool {
        matches!(self, Self::Gone(_))
    }

    /// The worker is gone, for the same reason as the client was notified of.
    pub(super) fn lose(&mut self) {
        *self = Self::Gone(self.reason());
    }

    /// Whether the client is still to be notified of the reason for its end.
    pub(super) fn reason(self) -> EndReason {
        match self {
            Self::Attached => EndReason::Settled,
            Self::Terminated(reason) | Self::Gone(reason) => reason,
        }
    }

    /// The reason for its end is now known, or is not.
    pub(super) fn set_reason(&mut self, new: EndReason) {
        match self {
            Self::Attached => {}
            Self::Terminated(reason) | Self::Gone(reason) => *reason = new,
        }
    }
}

impl EndReason {
    /// Returns what is needed to look for the reason further: `hold`, which is released if there is no need.
    pub(super) fn unexplained(self, hold: Attached) -> Option<Unexplained> {
        let closed = match self {
            Self::Settled => return None,
            Self::Unknown => false,
            Self::UnknownAndClosed => true,
        };
        Some(Unexplained {
            worker: hold,
            closed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_ended_debugger_has_a_reason() {
        let mut worker = WorkerState::default();
        worker.set_reason(EndReason::Unknown);
        assert_eq!(worker, WorkerState::Attached);
        worker = WorkerState::Terminated(EndReason::Settled);
        worker.set_reason(EndReason::UnknownAndClosed);
        worker.lose();
        assert_eq!(worker, WorkerState::Gone(EndReason::UnknownAndClosed));
    }
}
