//! How far the two ends of a session are: the client, which may leave or be lost, and the worker's debugger.

use tokio_util::sync::ReusableBoxFuture;

use ray_relay_base::wire::dap::message::Request;

/// Says whether a window was closed, within a second.
pub(super) type Decision = ReusableBoxFuture<'static, bool>;

/// Whether the client is there.
#[derive(Default)]
pub(super) enum ClientState {
    /// It is there.
    #[default]
    Present,
    /// It has said goodbye, and what that means is about to be known.
    Deciding {
        decision: Decision,
        /// It has closed its half of the connection as well.
        closed: bool,
    },
    /// It has closed its half, and has the answers to all that it asked.
    Closed,
    /// It is lost, or has left its task where it is: the session may be kept.
    Lost,
}

impl ClientState {
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

    /// Whether nothing that the client says counts any more.
    pub(super) fn is_leaving(&self) -> bool {
        self.is_deciding() || self.is_lost()
    }
}

/// How far the worker's debugger is. It only moves on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum WorkerState {
    /// It is there.
    #[default]
    Attached,
    /// The client was told `terminated`, by the debugger or by the relay.
    Terminated,
    /// There is no worker any more, or not for this client.
    Gone,
}

/// The client's last request to leave, as it was sent.
pub(super) struct Parting {
    pub(super) request: Request,
    pub(super) answered: bool,
}

impl Parting {
    /// One that is not answered yet.
    pub(super) fn new(request: Request) -> Box<Self> {
        Box::new(Self {
            request,
            answered: false,
        })
    }
}
