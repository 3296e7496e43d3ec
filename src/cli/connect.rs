//! `ray-relay connect`: a port of this machine that is the relay's, for one person.

mod accept;
mod clock;
mod command;
mod line;
mod lines;
mod told;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use self::command::Command;
use self::lines::Lines;
use self::told::Told;
use super::failure::{Exit, Fails, Failure};
use super::kube::{KubeArgs, Reached};
use super::relay_client::RelayError;
use super::relay_tls::RelayTlsArgs;
use super::relay_token::RelayTokenArgs;
use super::{RelayArgs, RelayUrl};
use crate::shutdown::Signals;
use crate::wire::backoff::Backoff;
use crate::wire::relay_url::is_this_machine;

pub(super) const AFTER_HELP: &str = "\
Whoever connects to the port acts as you: editors, `ray`, the browser and other ray-relay
commands need no token there. What reaches the port goes to the relay over an
authenticated WebSocket of its own, and survives what the network does: after a cut, a change of
networks or a sleep it goes on where it was, byte for byte, as long as the relay holds it
(`[connect] resume`, 15m unless configured otherwise).

With --kube there is no URL: the relay is the Service that is labelled so in the namespace of your
kubeconfig's context, and each connection a port-forward, through the API server, to a pod of it
that is ready then. Shown to it is the kubeconfig's own bearer token or, with --as-service-account
NAME, a token of that ServiceAccount. You need `get` and `list` on services and pods, `get` and
`create` on pods/portforward, and for the token `create` on serviceaccounts/token. Where the pod's
readiness probe is an HTTPS one, the relay is spoken to by TLS: --ca-file, --tls-server-name.

HTTPS_PROXY, ALL_PROXY and NO_PROXY say which proxy is used; SSL_CERT_FILE or --ca-file, which
authorities are trusted. Retries while the relay is unreachable; exits if it refuses the token at
the first attempt. The token is read anew, or its command run again, before it expires.

Examples:
  ray-relay connect https://ray-relay.example.com
      then attach to 127.0.0.1:5678, or open http://127.0.0.1:5678
  ray-relay connect --kube
  ray-relay connect --context prod -n ml --as-service-account debugger
      where the relay runs in Kubernetes
  ray-relay connect https://ray-relay.example.com/debug --token-command 'my-login token'
      below a path of an ingress, with a token that a command prints
  ray-relay connect https://ray-relay.example.com --listen 127.0.0.1:0 -- code .
      runs a command with RAY_RELAY_URL and RAY_ADDRESS set, and ends with it

Exit codes: 0 ended by Ctrl-C or SIGTERM; 1 the port cannot be listened on, or what answers is no
relay; 77 the relay wants a token, or does not take it, or the API server does not permit it; 78 the
kubeconfig cannot be used; with a command: its own, or 128 and its signal.";

/// How long connections have to end in order.
const FAREWELL: Duration = Duration::from_secs(3);

/// `connect`
#[derive(Debug, Clone, Args)]
pub struct ConnectArgs {
    /// The relay; a path below which an ingress has it may follow
    #[arg(value_name = "URL", env = "RAY_RELAY_URL", hide_env_values = true)]
    #[arg(value_hint = clap::ValueHint::Url)]
    pub url: Option<RelayUrl>,
    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:5678")]
    pub listen: SocketAddr,
    /// Listen on an address that other machines can reach, although whoever reaches it acts as you
    #[arg(long)]
    pub insecure_share: bool,
    /// Print JSON, one object a line
    #[arg(long)]
    pub json: bool,
    /// How to speak TLS with it.
    #[command(flatten)]
    pub tls: RelayTlsArgs,
    /// What to show it.
    #[command(flatten)]
    pub token: RelayTokenArgs,
    /// A command to run, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Where it is in Kubernetes.
    #[command(flatten)]
    pub kube: KubeArgs,
}

/// Why there is no port, or no command.
#[derive(Debug, thiserror::Error)]
enum ConnectError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another with --listen")]
    Listen {
        /// What was asked for.
        address: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
    /// Others could use the port.
    #[error(
        "{0} can be reached by other machines, and whoever reaches it acts as you: listen on 127.0.0.1, or give --insecure-share"
    )]
    Shared(SocketAddr),
    /// The relay would be the command.
    #[error(
        "{0} is the port that this command listens on: name the relay, or choose another port with --listen"
    )]
    Itself(RelayUrl),
    /// Nothing says which.
    #[error("which relay? Name its URL, or give --kube for one in Kubernetes")]
    Unnamed,
    /// The system refuses a signal handler.
    #[error("cannot wait for signals: {0}")]
    Signal(io::Error),
    /// The command cannot be started.
    #[error("cannot run {command}: {source}")]
    Command {
        /// Its name.
        command: String,
        /// The system's answer.
        source: io::Error,
    },
}

impl Fails for ConnectError {
    fn exit(&self) -> Exit {
        match self {
            Self::Unnamed => Exit::Usage,
            _ => Exit::Failed,
        }
    }
}

/// The relay, and the way to one in Kubernetes; an API server that is away is waited for.
async fn found(
    args: &ConnectArgs,
    address: SocketAddr,
) -> Result<(RelayUrl, Option<Reached>), Failure> {
    if !args.kube.is_wanted() {
        let url = args.url.clone().ok_or(ConnectError::Unnamed)?;
        return match url.port() == address.port() && is_this_machine(url.host()) {
            true => Err(ConnectError::Itself(url).into()),
            false => Ok((url, None)),
        };
    }
    let mut told = String::new();
    let mut backoff = Backoff::new(line::FIRST, line::LONGEST);
    loop {
        match Reached::of(&args.kube).await {
            Ok((url, reached)) => return Ok((url, Some(reached))),
            Err(RelayError::Kube(why)) if why.is_passing() => {
                let why = why.to_string();
                if told != why {
                    eprintln!("ray-relay: {why}; trying again.");
                    told = why;
                }
            }
            Err(error) => return Err(error.into()),
        }
        sleep(backoff.pause()).await;
    }
}

pub(super) async fn run(args: ConnectArgs) -> Result<(), Failure> {
    let mut signals = Signals::new().map_err(ConnectError::Signal)?;
    if !args.listen.ip().is_loopback() && !args.insecure_share {
        return Err(ConnectError::Shared(args.listen).into());
    }
    let failed = |source| ConnectError::Listen {
        address: args.listen,
        source,
    };
    let listener = TcpListener::bind(args.listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let found = tokio::select! {
        found = Box::pin(found(&args, address)) => found?,
        () = signals.next() => return Ok(()),
    };
    let told = Arc::new(Told::new(&args, &found.0, address));
    let relay = RelayArgs {
        relay: found.0,
        tls: args.tls.clone(),
        token: args.token.clone(),
        kube: args.kube.clone(),
        reached: found.1.map(Arc::new),
    };
    let lines = Arc::new(Lines::new(relay, address, Arc::clone(&told)));
    told.listening()?;
    let ended = {
        let connected = Box::pin(lines.first());
        tokio::select! {
            connected = connected => connected?,
            () = signals.next() => return Ok(()),
        }
        let mut command = Command::start(&args.command, address)?;
        let is_command = !args.command.is_empty();
        tokio::select! {
            never = accept::run(&listener, &lines) => match never {},
            never = Box::pin(lines.run()) => match never {},
            failed = told.run() => Err(failed.into()),
            // A command gets them, and its end is this one's.
            () = signals.next(), if !is_command => Ok(()),
            ended = command.ended() => ended,
        }
    };
    drop(listener);
    let _ = timeout(FAREWELL, lines.end()).await;
    told.end()?;
    ended
}
