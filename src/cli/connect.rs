//! `ray-relay connect`: a port of this machine that is the relay's, for one person.

mod accept;
mod args;
mod clock;
mod command;
mod line;
mod lines;
mod told;

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::timeout;

pub use self::args::ConnectArgs;
use self::args::ConnectError;
use self::command::Command;
use self::lines::Lines;
use self::told::Told;
use super::RelayArgs;
use super::failure::Failure;
use crate::shutdown::Signals;
use crate::wire::relay_url::is_this_machine;

pub(super) const AFTER_HELP: &str = "\
Whoever connects to the port acts as you: editors, `ray`, the browser and other ray-relay
commands need no token there. What reaches the port goes to the relay over an
authenticated WebSocket of its own, and survives what the network does: after a cut, a change of
networks or a sleep it goes on where it was, byte for byte, as long as the relay holds it
(`[connect] resume`, 15m unless configured otherwise).

HTTPS_PROXY, ALL_PROXY and NO_PROXY say which proxy is used; SSL_CERT_FILE or --ca-file, which
authorities are trusted. Retries while the relay is unreachable; exits if it refuses the token at
the first attempt. The token is read anew, or its command run again, before it expires.

Examples:
  ray-relay connect https://ray-relay.example.com
      then attach to 127.0.0.1:5678, or open http://127.0.0.1:5678
  ray-relay connect https://ray-relay.example.com/debug --token-command 'my-login token'
      below a path of an ingress, with a token that a command prints
  ray-relay connect https://ray-relay.example.com --listen 127.0.0.1:0 -- code .
      runs a command with RAY_RELAY_URL and RAY_ADDRESS set, and ends with it

Exit codes: 0 ended by Ctrl-C or SIGTERM; 1 the port cannot be listened on, or what answers is no
relay; 77 the relay wants a token, or does not take it; with a command: its own, or 128 and its
signal.";

/// How long connections have to end in order.
const FAREWELL: Duration = Duration::from_secs(3);

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
    if args.url.port() == address.port() && is_this_machine(args.url.host()) {
        return Err(ConnectError::Itself(args.url).into());
    }
    let told = Arc::new(Told::new(&args, address));
    let relay = RelayArgs {
        relay: args.url.clone(),
        tls: args.tls.clone(),
        token: args.token.clone(),
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
