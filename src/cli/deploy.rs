//! `ray-relay deploy`: agents on every node, put there by Ray.

use super::Error;

pub(super) const AFTER_HELP: &str = "\
Nothing but Ray's Jobs API is used, on the port of its dashboard: this very program is uploaded as a package, and a job
keeps one agent (`ray-relay node`) on each node of the cluster, also on those that join later, until it is removed. Ray
starts an agent again that dies. Deploying again replaces what was there.

The agents' token goes to the cluster sealed for a key that was made there. It is in no package, runtime environment,
entrypoint or log. Whoever may run jobs on the cluster can read it on a node all the same, as everything that belongs to
Ray's user there: give agents a token that can do nothing but be an agent.

Examples:
  ray-relay token mint --key relay.key --sub agents --scope node --ttl 90d > agents.token
  ray-relay deploy --ray-address http://HEAD:8265 --relay-url https://relay.example.com:5678 --token-file agents.token
  ray-relay deploy --ray-address http://HEAD:8265 --status
  ray-relay deploy --ray-address http://HEAD:8265 --remove
  ray-relay deploy --ray-address http://HEAD:8265 --relay --auth-key relay.pub \\
      --tls-cert tls/cert.pem --tls-key tls/key.pem --token-file agents.token
      the relay too, beside the head

Exit codes: 0 an agent runs on every node, or all are removed; 1 on some node none runs, and the table says why; 69 the
cluster cannot be reached; 77 it wants a token, or the token does not permit it.";

pub(super) async fn run(args: crate::deploy::Args) -> Result<(), Error> {
    match Box::pin(crate::deploy::run(args)).await {
        Err(crate::deploy::Error::Output(error)) => Err(Error::Output(error)),
        result => Ok(result?),
    }
}
