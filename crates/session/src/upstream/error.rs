//! Errors of connecting to a worker's debugger.

use std::io;
use std::time::Duration;

use serde_json::Value;

use crate::agents::NoAgentReason;
use ray_relay_base::wire::dap::conversation::Closed;
use ray_relay_base::wire::text::shortened;
use ray_relay_ray::ray::registry::BreakpointId;

/// Why the worker's debugger was not reached. `Display` names no address: it is for the client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The connection was refused or reset, or the node cannot be reached.
    #[error(
        "its debugger does not accept connections ({0}); the worker may just have ended, see `ray-relay list`"
    )]
    Refused(io::ErrorKind),
    /// Nothing listens: the worker lives, its debugger does not.
    #[error(
        "its debugger is gone: nothing listens on its port any more, so the task cannot go on by itself. `ray-relay release --force {0}` ends its worker through Ray; attaching again tries the port anew"
    )]
    Gone(BreakpointId),
    /// The connection timed out: a firewall drops it, or the node is gone.
    #[error("its debugger did not answer within {} s; the node may be gone or overloaded, try again", .0.as_secs_f32())]
    Unreachable(Duration),
    /// Connected, but no message arrived in time.
    #[error("its debugger did not answer within {} s; the node may be gone or overloaded, try again", .0.as_secs_f32())]
    TimedOut(Duration),
    /// The peer speaks another protocol, or closed.
    #[error("the process on its port does not speak the debug adapter protocol ({0})")]
    NotDap(#[from] Closed),
    /// There is no route, or the agent of its node did not open one: the reason.
    #[error("{0}")]
    NoRoute(String),
    /// The relay dialled directly and failed, maybe for lack of an agent: why there is none.
    #[error("its port is closed to this relay, and {1}; or {0}")]
    Closed(Box<Self>, String),
    /// The debugger refused the client's `initialize`, in its own words.
    #[error("its debugger refuses the client's `initialize`: {0}")]
    Declined(String),
}

impl ConnectError {
    /// A refusal with the worker's `words`, which are text if it is debugpy.
    pub fn declined(words: &Value) -> Self {
        Self::Declined(shortened(
            words.as_str().unwrap_or("it does not say why"),
            300,
        ))
    }

    /// Interprets a refused connection: debugpy was listening there.
    pub(super) fn of(self, id: BreakpointId) -> Self {
        match self {
            Self::Refused(io::ErrorKind::ConnectionRefused) => Self::Gone(id),
            other => other,
        }
    }

    /// Adds why there was no agent, if the relay dialled instead.
    pub(super) fn without(self, absence: Option<&NoAgentReason>) -> Self {
        match (self, absence) {
            (
                why @ (Self::Refused(_) | Self::Gone(_) | Self::Unreachable(_) | Self::TimedOut(_)),
                Some(absence),
            ) => Self::Closed(Box::new(why), absence.to_string()),
            (why, _) => why,
        }
    }

    /// Whether a peer answered that is not the expected one.
    pub fn is_answer(&self) -> bool {
        matches!(self, Self::NotDap(_) | Self::Declined(_))
    }

    /// Whether it was connected and did not answer in time, as on a loaded node: it still may.
    pub fn is_late(&self) -> bool {
        match self {
            Self::TimedOut(_) => true,
            Self::Closed(why, _) => why.is_late(),
            _ => false,
        }
    }

    /// Whether nothing listens, as far as known.
    pub(super) fn is_gone(&self) -> bool {
        match self {
            Self::Gone(_) => true,
            Self::Closed(why, _) => why.is_gone(),
            _ => false,
        }
    }
}
