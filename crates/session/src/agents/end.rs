//! Why a link ends, or never begins.

use ray_relay_access::identity::PrincipalEnded;
use ray_relay_access::telemetry::metrics::LinkEnd;
use ray_relay_base::wire::link::{CloseReason, LinkError};

/// Why a link ended. `Display` is a sentence for the agent's log, for the relay's log, and for a client that asks why a
/// worker cannot be reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentLinkEnd {
    /// The agent has closed it.
    #[error("the agent has left")]
    Left,
    /// The connection is gone, or accepts no more data.
    #[error("its link to this relay broke")]
    Broken,
    /// No message arrived within the deadline.
    #[error("nothing was heard from it for 15 s")]
    Silent,
    /// The same agent has another link.
    #[error("another link of the same agent has taken its place")]
    Replaced,
    /// Another agent claims the same node.
    #[error(
        "two agents claim node {0}: both are refused for a minute. Stop one of them, and check its token"
    )]
    Contested(String),
    /// Its principal's credential expired or was revoked.
    #[error("{0}")]
    Over(PrincipalEnded),
    /// It exceeded the message rate.
    #[error("it sent too many messages")]
    Flood,
    /// The memory account has no room for its messages.
    #[error("its messages need too much memory: {0}")]
    Short(String),
    /// It sends an invalid message.
    #[error("it sent an invalid link message: {0}")]
    Garbage(String),
    /// It did not announce itself before the deadline.
    #[error("it did not announce itself in time")]
    Unannounced,
    /// Its announcement does not carry this link's nonce.
    #[error("its announcement does not answer this link's hello")]
    Replayed,
    /// It speaks another protocol version.
    #[error("it speaks version {0} of the protocol, and this relay version 1")]
    Version(u32),
    /// It may speak for no node.
    #[error("{0}")]
    Untrusted(String),
    /// The limit of agents is reached.
    #[error("this relay is at its limit of agents: raise `upstream.max_agents`")]
    Full,
    /// The audit log cannot be written, so the link is not accepted.
    #[error("{0}")]
    Unrecorded(String),
    /// The system's random source failed.
    #[error("this relay's system provides no random numbers")]
    NoSecrets,
    /// The relay shuts down.
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

    /// Whether the agent is refused and receives the reason.
    pub(super) fn is_refusal(&self) -> bool {
        !matches!(
            self,
            Self::Left | Self::Broken | Self::Silent | Self::Replaced | Self::Ending
        )
    }

    /// Whether the agent's streams break with the link. They are no longer trusted, or are as silent as the link: a
    /// client with a pending request would otherwise not notice for minutes.
    pub(super) fn cuts(&self) -> bool {
        matches!(self, Self::Contested(_) | Self::Over(_) | Self::Silent)
    }

    /// The close code, by which the agent decides what to do next.
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
