//! Whether a relay answers at all, for a container's health check.

use crate::cli::relay_client::{RelayClient, RelayError};
use crate::cli::terminal::print;
use crate::cli::{Failure, RelayArgs};

/// Asks `/relay/healthz`, which needs no token.
pub(super) async fn run(mut relay: RelayArgs) -> Result<(), Failure> {
    relay.reach().await?;
    match RelayClient::new(relay)?.time().await {
        // A relay with TLS refuses plain HTTP, and may have another name inside its container.
        Ok(_)
        | Err(
            RelayError::Refused { .. }
            | RelayError::Untrusted { .. }
            | RelayError::Unrecognised { .. },
        ) => Ok(print("The relay answers.\n")?),
        Err(why) => Err(why.into()),
    }
}
