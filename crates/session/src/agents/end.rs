//! Why a link ends, or never begins.

use ray_relay_access::identity::PrincipalEnded;
use ray_relay_access::telemetry::metrics::LinkEnd;
use ray_relay_base::wire::link::{CloseReason, LinkError};

/// See the module. `Display` is a sentence for the agent's log, for the relay's, and for a person who asks why a worker cannot
/// be reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentLinkEnd {
    /// The agent has closed it.
    #[error("the agent has left")]
    Left,
    /// The connection is gone, or takes nothing any more.
    #[error("its link to this relay broke")]
    Broken,
    /// Nothing came for too long.
    #[error("nothing was heard from it for 15 s")]
    Silent,
    /// The same agent has another link.
    #[error("another link of the same agent has taken its place")]
    Replaced,
    /// Another agent says the same.
    #[error(
        "two agents claim node {0}: both are refused for a minute. Stop one of them, and check its token"
    )]
    Contested(String),
    /// The time of its principal is over.
    #[error("{0}")]
    Over(PrincipalEnded),
    /// It says more than an agent has to say.
    #[error("it sent too many messages")]
    Flood,
    /// There is no memory for what it says.
    #[error("its messages need too much memory: {0}")]
    Short(String),
    /// It sends an invalid message.
    #[error("it sent an invalid link message: {0}")]
    Garbage(String),
    /// It did not say who it is in time.
    #[error("it did not announce itself in time")]
    Unannounced,
    /// Its announcement is none that was made for this link.
    #[error("its announcement does not answer this link's hello")]
    Replayed,
    /// It is of another version.
    #[error("it speaks version {0} of the protocol, and this relay version 1")]
    Version(u32),
    /// It may speak for no node.
    #[error("{0}")]
    Untrusted(String),
    /// There are as many agents as there may be.
    #[error("this relay is at its limit of agents: raise `upstream.max_agents`")]
    Full,
    /// What is not on record does not happen.
    #[error("{0}")]
    Unrecorded(String),
    /// The system has no randomness.
    #[error("this relay's system provides no random numbers")]
    NoSecrets,
    /// The relay ends.
    #[error("this relay is being shut down")]
    Ending,
}

impl AgentLinkEnd {
    /// The label in metrics.
    pub(super) fn label(&self) -> LinkEnd {
        match self {
            Self::Left => LinkEnd::Left,
            Self::Broken | Self::Silent => LinkEnd::Lost,
            Self::Replaced => LinkEnd::Replaced,
            Self::Contested(_) => LinkEnd::Contested,
            Self::Over(_) => LinkEnd::Revoked,
            Self::Flood | Self::Short(_) => LinkEnd::Flood,
            Self::Garbage(_) | Self::Version(_) | Self::Unannounced => LinkEnd::Invalid,
            Self::Replayed | Self::Untrusted(_) | Self::Full => LinkEnd::Refused,
            Self::Unrecorded(_) | Self::NoSecrets => LinkEnd::Internal,
            Self::Ending => LinkEnd::Drained,
        }
    }

    /// It ends because the agent may not go on, and is told so.
    pub(super) fn is_refusal(&self) -> bool {
        !matches!(
            self,
            Self::Left | Self::Broken | Self::Silent | Self::Replaced | Self::Ending
        )
    }

    /// The streams of the agent break with it: it is no longer to be trusted with them, or as silent on them, where no client
    /// that has said something would hear of that for many minutes.
    pub(super) fn cuts(&self) -> bool {
        matches!(self, Self::Contested(_) | Self::Over(_) | Self::Silent)
    }

    /// What the agent is told, to decide by.
    pub(super) fn close_reason(&self) -> CloseReason {
        match self.label() {
            LinkEnd::Left => CloseReason::Left,
            LinkEnd::Lost => CloseReason::Silent,
            LinkEnd::Replaced => CloseReason::Replaced,
            LinkEnd::Drained => CloseReason::Ending,
            LinkEnd::Invalid | LinkEnd::Flood => CloseReason::Invalid,
            LinkEnd::Internal => CloseReason::Later,
            LinkEnd::Contested | LinkEnd::Revoked | LinkEnd::Refused => CloseReason::Refused,
        }
    }
}

impl From<LinkError> for AgentLinkEnd {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Closed(..) => Self::Left,
            LinkError::Gone | LinkError::Broken(_) => Self::Broken,
            LinkError::Silent | LinkError::NotTaken => Self::Silent,
            LinkError::Flood(_) => Self::Flood,
            LinkError::Short(why) => Self::Short(why),
            LinkError::Invalid(why) => Self::Garbage(why),
        }
    }
}
