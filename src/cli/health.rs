//! `ray-relay health`: whether a relay answers, for a container's health check.

use super::relay_client::{RelayClient, RelayError};
use super::terminal::say;
use super::{Failure, RelayArgs};

pub(super) const AFTER_HELP: &str = "\
Example, in a Dockerfile:
  HEALTHCHECK CMD [\"/ray-relay\", \"health\"]

Asks /relay/healthz, which needs no token. Whether a Ray head answers is not asked: a relay without one is healthy, and /relay/readyz and `ray-relay doctor` are about that. Neither is a certificate looked at: what refuses is there.

Exit codes: 0 it answers; 69 it does not.";

pub(super) async fn run(relay: RelayArgs) -> Result<(), Failure> {
    match RelayClient::new(relay)?.time().await {
        // A relay with TLS answers to plain HTTP by a refusal, and may be named otherwise from inside its container.
        Ok(_)
        | Err(
            RelayError::Refused { .. }
            | RelayError::Untrusted { .. }
            | RelayError::Unrecognised { .. },
        ) => Ok(say("The relay answers.\n")?),
        Err(why) => Err(why.into()),
    }
}
