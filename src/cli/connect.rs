//! `ray-relay connect`: a local port that leads to the relay, for one user.

mod accept;
mod args;
mod clock;
mod command;
mod editor_notices;
mod line;
mod lines;
mod printer;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

pub use self::args::ConnectArgs;
use self::args::NotConnected;
use self::command::ChildCommand;
use self::lines::RelayLinks;
use self::printer::ConnectPrinter;
use super::RelayArgs;
use super::failure::Failure;
use super::kube::KubeRelay;
use super::relay_client::RelayError;
use ray_relay_base::shutdown::Signals;
use ray_relay_base::wire::relay_url::RelayUrl;
use ray_relay_base::wire::relay_url::is_this_machine;

pub(super) const AFTER_HELP: &str = "\
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

Every client of the port acts as you: editors, `ray`, the browser and other ray-relay commands need no token there. Each connection goes to the relay over an authenticated WebSocket of its own: of several relays behind one name always to the same, while that one is there. After a cut, a change of networks or a sleep it continues where it was, byte for byte. The relay holds it for `[connect] resume`, 15m unless configured otherwise.

With --kube there is no URL: the relay is the Service that is labelled so in the namespace of your kubeconfig's context. Each connection is a port-forward, through the API server, to a pod of it that is ready. The relay is shown the kubeconfig's own bearer token or, with --as-service-account NAME, a token of that ServiceAccount. You need `get` and `list` on services and pods, `get` and `create` on pods/portforward, and for the token `create` on serviceaccounts/token. If the pod's readiness probe uses HTTPS, the connection uses TLS: --ca-file, --tls-server-name.

HTTPS_PROXY, ALL_PROXY and NO_PROXY say which proxy is used; SSL_CERT_FILE or --ca-file, which authorities are trusted. The command retries while the relay is unreachable, and exits if the relay refuses the token at the first attempt. The token is read again, or its command run again, before it expires.

Exit codes: 0 ended by Ctrl-C or SIGTERM; 1 the port cannot be listened on, or the server there is no relay; 77 the relay wants a token, or does not take it, or the API server does not permit it; 78 the kubeconfig cannot be used; with a command: its own, or 128 and its signal.";

/// Time limit for connections to end in order.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Locates the relay. An unreachable API server is retried.
async fn locate(
    args: &ConnectArgs,
    address: SocketAddr,
) -> Result<(RelayUrl, Option<KubeRelay>), Failure> {
    if !args.kube.is_requested() {
        let url = args.url.clone().ok_or(NotConnected::Unnamed)?;
        return match url.port() == address.port() && is_this_machine(url.host()) {
            true => Err(NotConnected::Itself(url).into()),
            false => Ok((url, None)),
        };
    }
    let mut reported = String::new();
    let mut backoff = line::RECONNECT_BACKOFF;
    loop {
        match KubeRelay::of(&args.kube).await {
            Ok((url, reached)) => return Ok((url, Some(reached))),
            Err(RelayError::Kube(why)) if why.is_passing() => {
                let why = why.to_string();
                if reported != why {
                    eprintln!("ray-relay: {why}; trying again.");
                    reported = why;
                }
            }
            Err(error) => return Err(error.into()),
        }
        sleep(backoff.pause()).await;
    }
}

pub(super) async fn run(args: ConnectArgs) -> Result<(), Failure> {
    let mut signals = Signals::new().map_err(NotConnected::Signal)?;
    if !args.listen.ip().is_loopback() && !args.insecure_share {
        return Err(NotConnected::Shared(args.listen).into());
    }
    let failed = |source| NotConnected::Listen {
        address: args.listen,
        source,
    };
    let listener = TcpListener::bind(args.listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let located = tokio::select! {
        located = Box::pin(locate(&args, address)) => located?,
        () = signals.next() => return Ok(()),
    };
    let printer = Arc::new(ConnectPrinter::new(&args, &located.0, address));
    let relay = RelayArgs {
        relay: located.0,
        tls: args.tls.clone(),
        token: args.token.clone(),
        kube: args.kube.clone(),
        reached: located.1.map(Arc::new),
    };
    let links = Arc::new(RelayLinks::new(relay, address, Arc::clone(&printer)));
    printer.listening()?;
    let ended = {
        let connected = Box::pin(links.first());
        tokio::select! {
            connected = connected => connected?,
            () = signals.next() => return Ok(()),
        }
        let mut command = ChildCommand::start(&args.command, address)?;
        let is_command = !args.command.is_empty();
        tokio::select! {
            never = accept::run(&listener, &links) => match never {},
            never = Box::pin(links.run()) => match never {},
            failed = printer.run() => Err(failed.into()),
            // A command receives them, and its end ends this one.
            () = signals.next(), if !is_command => Ok(()),
            ended = command.ended() => ended,
        }
    };
    drop(listener);
    let _ = timeout(CLOSE_TIMEOUT, links.end()).await;
    printer.end()?;
    ended
}
