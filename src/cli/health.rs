//! `ray-relay health`: whether a relay answers, for a container's health check.

use super::relay_client::{RelayClient, RelayError};
use super::terminal::print;
use super::{Failure, RelayArgs};

pub(super) const AFTER_HELP: &str = "\
Example, in a Dockerfile:
  HEALTHCHECK CMD [\"/ray-relay\", \"health\"]

Asks /relay/healthz, which needs no token. A relay is healthy whether or not a Ray head answers: /relay/readyz and `ray-relay doctor` check that. Certificates are not verified.

Exit codes: 0 it answers; 69 it does not.";

pub(super) async fn run(relay: RelayArgs) -> Result<(), Failure> {
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
