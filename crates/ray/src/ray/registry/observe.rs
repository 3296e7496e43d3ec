//! The observer of polls and their changes: a hook for metrics.

use std::time::Duration;

use crate::ray::head::HeadError;
use crate::ray::registry::gcs::GcsError;
use crate::ray::registry::{Breakpoint, Change};

/// An observer of every poll of every cluster, and of every change. Called from within the registry: must not block.
pub trait Observer: Send + Sync + 'static {
    /// One poll of `cluster` ended after `latency`.
    fn polled(&self, cluster: &str, outcome: PollOutcome, latency: Duration);

    /// `cluster` is gone: no further notifications about it, unless it comes back.
    fn gone(&self, cluster: &str) {
        let _ = cluster;
    }

    /// A new stop is in the list of `cluster`, and was in no response requested `before` ago: the task stopped after
    /// that.
    fn listed(&self, cluster: &str, before: Duration) {
        let _ = (cluster, before);
    }

    /// Like [`crate::ray::registry::Event`], without losing any.
    fn changed(&self, change: Change, breakpoint: &Breakpoint) {
        let _ = (change, breakpoint);
    }
}

/// The outcome of a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PollOutcome {
    /// The head answered with a list.
    Ok,
    /// No connection, or an untrusted one.
    Unreachable,
    /// No response in time.
    TimedOut,
    /// Ray's token is missing or wrong.
    Unauthorized,
    /// An error status, or Ray's own `result: false`.
    Refused,
    /// A response other than a list.
    Malformed,
}

impl PollOutcome {
    /// The value of the metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timed_out",
            Self::Unauthorized => "unauthorized",
            Self::Refused => "refused",
            Self::Malformed => "malformed",
        }
    }
}

impl From<&GcsError> for PollOutcome {
    fn from(error: &GcsError) -> Self {
        match error {
            GcsError::Unreachable { .. } => Self::Unreachable,
            GcsError::Token { .. } => Self::Unauthorized,
            GcsError::Strange { .. } => Self::Refused,
        }
    }
}

impl From<&HeadError> for PollOutcome {
    fn from(error: &HeadError) -> Self {
        match error {
            HeadError::Unreachable { .. } | HeadError::Certificate { .. } => Self::Unreachable,
            HeadError::TimedOut { .. } | HeadError::Crowded { .. } => Self::TimedOut,
            HeadError::TokenMissing { .. } | HeadError::TokenRefused { .. } => Self::Unauthorized,
            HeadError::Status { .. } | HeadError::BadRequest { .. } => Self::Refused,
            HeadError::NotJson { .. } | HeadError::TooLarge { .. } => Self::Malformed,
        }
    }
}
