//! From a credential to a principal, for every protocol.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::principal::Principal;
use super::secret::Secret;
use crate::registry::{Breakpoint, BreakpointId};

/// The configuration of identities cannot be put to work.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SetupError(pub String);

/// Why somebody was not recognised. `Display` is a sentence for the client, and the same for every way in which a
/// credential can be wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// None was presented.
    #[error(
        "this relay wants a token: get one from whoever runs it (`ray-relay token mint`), and give it as `Authorization: Bearer`, RAY_RELAY_TOKEN or \"rayRelay\": {{\"token\": …}}"
    )]
    Missing,
    /// It is not accepted.
    #[error(
        "the token was refused: it is wrong, has expired, was revoked or is not meant for this relay (`ray-relay token inspect` shows what it says)"
    )]
    Refused,
    /// Too many failures from there.
    #[error("too many refused attempts from your address; try again in {} s", .retry_after.as_secs().max(1))]
    Throttled {
        /// When the next attempt is looked at.
        retry_after: Duration,
    },
    /// It cannot be checked at the moment.
    #[error("the relay cannot check tokens at the moment: {0}")]
    Unavailable(String),
}

/// Recognises principals. One for the process.
pub struct Authenticator {
    #[cfg(test)]
    fixed: Option<super::fixed::Fixed>,
}

impl Authenticator {
    /// Nobody is authenticated; everybody is [`Principal::anonymous`].
    pub fn open() -> Arc<Self> {
        Arc::new(Self {
            #[cfg(test)]
            fixed: None,
        })
    }

    /// Knows the tokens of `table`, each with its principal or answer, and no others; nobody is anonymous.
    #[cfg(test)]
    pub(crate) fn fixed(
        table: impl IntoIterator<Item = (impl Into<String>, impl Into<super::fixed::Known>)>,
    ) -> Arc<Self> {
        Arc::new(Self {
            fixed: Some(super::fixed::Fixed::new(table)),
        })
    }

    /// The principal of those who present nothing, where that is enough.
    pub fn anonymous(&self) -> Option<Principal> {
        #[cfg(test)]
        if self.fixed.is_some() {
            return None;
        }
        Some(Principal::anonymous())
    }

    /// Whose `token` this is. `peer` is where it came from.
    ///
    /// # Errors
    /// [`AuthError`].
    pub async fn token(&self, _token: &Secret, _peer: IpAddr) -> Result<Principal, AuthError> {
        #[cfg(test)]
        if let Some(fixed) = &self.fixed {
            return fixed.token(_token);
        }
        Ok(Principal::anonymous())
    }

    /// A ticket with which `principal` can open further sessions to `breakpoint` within a short time. `None` where
    /// nobody is authenticated.
    pub fn issue_ticket(&self, _principal: &Principal, _breakpoint: &Breakpoint) -> Option<Secret> {
        #[cfg(test)]
        if let Some(fixed) = &self.fixed {
            return Some(fixed.issue_ticket(_principal, _breakpoint));
        }
        None
    }

    /// Whose `ticket` this is, and the one breakpoint that it is for.
    ///
    /// # Errors
    /// [`AuthError`].
    pub fn ticket(
        &self,
        _ticket: &Secret,
        _peer: IpAddr,
    ) -> Result<(Principal, BreakpointId), AuthError> {
        #[cfg(test)]
        if let Some(fixed) = &self.fixed {
            return fixed.ticket(_ticket);
        }
        Err(AuthError::Refused)
    }

    /// Keeps keys and revocations fresh until `shutdown`.
    pub async fn run(&self, shutdown: CancellationToken) {
        shutdown.cancelled().await;
    }
}
