//! Why a worker's debugger was not reached.

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
    /// Nothing listens: the worker lives on, its debugger does not.
    #[error(
        "its debugger is gone: nothing listens on its port any more, so the task cannot go on by itself. `ray-relay release --force {0}` ends its worker through Ray; attaching again tries the port anew"
    )]
    Gone(BreakpointId),
    /// No connection came about in time: a firewall drops it, or the node is gone.
    #[error("its debugger did not answer within {} s; the node may be gone or overloaded, try again", .0.as_secs_f32())]
    Unreachable(Duration),
    /// It was connected, and nothing came in time.
    #[error("its debugger did not answer within {} s; the node may be gone or overloaded, try again", .0.as_secs_f32())]
    TimedOut(Duration),
    /// The worker spoke something else, or closed.
    #[error("the process on its port does not speak the debug adapter protocol ({0})")]
    NotDap(#[from] Closed),
    /// There is no way to it, or the agent of its node does not open one: why.
    #[error("{0}")]
    NoWay(String),
    /// The relay dialled it and reached nothing, which may be for want of an agent: why there is none.
    #[error("{0}; or its port is closed to this relay, and {1}")]
    Closed(Box<Self>, String),
    /// The debugger does not accept the client's `initialize`, in its own words.
    #[error("its debugger refuses the client's `initialize`: {0}")]
    Declined(String),
}

impl ConnectError {
    /// A refusal with `words` of a worker's, which are text where it is debugpy.
    pub fn declined(words: &Value) -> Self {
        Self::Declined(shortened(
            words.as_str().unwrap_or("it does not say why"),
            300,
        ))
    }

    /// The same, with what a refusal means where debugpy listened.
    pub(super) fn of(self, id: BreakpointId) -> Self {
        match self {
            Self::Refused(io::ErrorKind::ConnectionRefused) => Self::Gone(id),
            other => other,
        }
    }

    /// The same, where the relay dialled because there was no agent.
    pub(super) fn without(self, absence: Option<&NoAgentReason>) -> Self {
        match (self, absence) {
            (
                why @ (Self::Refused(_) | Self::Gone(_) | Self::Unreachable(_) | Self::TimedOut(_)),
                Some(absence),
            ) => Self::Closed(Box::new(why), absence.to_string()),
            (why, _) => why,
        }
    }

    /// Something has answered, and is not what was expected.
    pub fn is_answer(&self) -> bool {
        matches!(self, Self::NotDap(_) | Self::Declined(_))
    }

    /// It was connected and has not answered in time, as on a loaded node: it may yet.
    pub fn is_late(&self) -> bool {
        match self {
            Self::TimedOut(_) => true,
            Self::Closed(why, _) => why.is_late(),
            _ => false,
        }
    }

    /// Nothing listens, as far as was found out.
    pub(super) fn is_gone(&self) -> bool {
        match self {
            Self::Gone(_) => true,
            Self::Closed(why, _) => why.is_gone(),
            _ => false,
        }
    }
}
