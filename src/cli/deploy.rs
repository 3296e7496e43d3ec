//! `ray-relay deploy`: agents on every node, started by Ray.

use std::borrow::Cow;

use super::failure::{Exit, Fails, Failure};
use crate::deploy::{DeployArgs, DeployError};
use ray_relay_ray::ray::head::HeadError;

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay token mint --key relay.key --sub agents --scope node --ttl 30d > agents.token
  ray-relay deploy --ray-address http://HEAD:8265 --token-file agents.token \\
      --relay-url https://relay.example.com:5678
  ray-relay deploy --ray-address http://HEAD:8265 --status
  ray-relay deploy --ray-address http://HEAD:8265 --remove
  ray-relay deploy --ray-address http://HEAD:8265 --relay --auth-key relay.pub \\
      --tls-cert tls/cert.pem --tls-key tls/key.pem --token-file agents.token
      the relay too, beside the head

Deploying needs only Ray's Jobs API, on the port of its dashboard. It uploads this program as a package, and a job keeps one agent (`ray-relay node`) on each node of the cluster, also on nodes that join later. Ray restarts an agent that dies. Where agents of this --name run already, deploying takes --replace, which ends them and their sessions; --remove removes them.

The agents' token goes to the cluster sealed for a key that was made there. It is in no package, runtime environment, entrypoint or log. Users who may run jobs on the cluster can still read it on a node, like everything that belongs to Ray's user there: give agents a token with the scope `node` alone.

Exit codes: 0 an agent runs on every node, or all are removed; 1 on some node none runs, and the table says why; 69 the cluster cannot be reached; 77 it wants a token, or the token does not permit it.";

impl Fails for DeployError {
    fn exit(&self) -> Exit {
        let Self::Head(error) = self else {
            return Exit::Failed;
        };
        match error {
            HeadError::Unreachable { .. }
            | HeadError::TimedOut { .. }
            | HeadError::Certificate { .. } => Exit::Unreachable,
            HeadError::TokenMissing { .. }
            | HeadError::TokenRefused { .. }
            | HeadError::Status {
                status: 401 | 403, ..
            } => Exit::NotPermitted,
            _ => Exit::Failed,
        }
    }

    fn next_step(&self) -> Option<Cow<'static, str>> {
        let step = "give Ray's token with --ray-token-file FILE; where --ray-address is a relay's, one of the relay's with the \
                    scopes dashboard:read and dashboard:write";
        (self.exit() == Exit::NotPermitted).then_some(step.into())
    }
}

pub(super) async fn run(args: DeployArgs) -> Result<(), Failure> {
    match Box::pin(crate::deploy::run(args)).await {
        Err(DeployError::Output(error)) => Err(error.into()),
        result => Ok(result?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreachable_head_and_missing_token_have_exit_codes() {
        let address = || "http://10.0.0.2:8265".to_owned();
        let status = |status| HeadError::Status {
            address: address(),
            status,
            words: String::new(),
        };
        let unreachable = HeadError::Unreachable {
            address: address(),
            cause: "refused".to_owned(),
        };
        let token_missing = HeadError::TokenMissing { address: address() };
        for (error, code) in [
            (unreachable, 69),
            (token_missing, 77),
            (status(403), 77),
            (status(500), 1),
        ] {
            let error = DeployError::Head(error);
            assert_eq!(error.exit() as u8, code, "{error}");
            assert_eq!(error.next_step().is_some(), code == 77, "{error}");
        }
        let incomplete = DeployError::Incomplete("not on every node".to_owned());
        assert_eq!(incomplete.exit() as u8, 1);
    }
}
