//! States of the two ends of a session: the client, which may disconnect or be lost, and the worker's debugger.

use tokio_util::sync::ReusableBoxFuture;

use ray_relay_base::wire::dap::message::Request;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum WorkerState {
    /// Connected.
    #[default]
    Attached,
    /// The client has received `terminated`, from the debugger or from the relay.
    Terminated,
    /// The worker is gone, at least for this client.
    Gone,
}

/// The client's last disconnect request, as it was sent.
pub(super) struct DisconnectRequest {
    pub(super) request: Request,
    pub(super) answered: bool,
}

impl DisconnectRequest {
    /// One that is not answered yet.
    pub(super) fn new(request: Request) -> Box<Self> {
        Box::new(Self {
            request,
            answered: false,
        })
    }
}
