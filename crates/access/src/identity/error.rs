//! Errors of the identity setup, and of authentication.

use std::time::Duration;

/// The identity configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SetupError(pub String);

/// Why a client was not authenticated. `Display` is a sentence for the client, and the same for every fault of a
/// credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// No credential was presented.
    #[error(
        "this relay wants a token: get one from its operator (`ray-relay token mint`), and give it as `Authorization: Bearer`, RAY_RELAY_TOKEN or \"rayRelay\": {{\"token\": …}}"
    )]
    Missing,
    /// The credential is not accepted.
    #[error(
        "the token was refused: it is wrong, has expired, was revoked or is not meant for this relay (`ray-relay token inspect` shows what it says)"
    )]
    Refused,
    /// Too many failures from this address.
    #[error("too many refused attempts from your address; try again in {} s", .retry_after.as_secs().max(1))]
    Throttled {
        /// When the next attempt is admitted.
        retry_after: Duration,
    },
    /// It cannot be checked at the moment.
    #[error("the relay cannot check tokens at the moment: {0}")]
    Unavailable(String),
}
