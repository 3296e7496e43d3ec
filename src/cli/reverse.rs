//! `ray-relay reverse`: workers that dial out, taken to a debugger that listens on this machine.

mod link;
mod told;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueHint};
use tokio::time::sleep;

use self::link::{Broken, Line};
use self::told::Told;
use super::RelayArgs;
use super::failure::{Fails, Failure};
use super::relay_client::RelayError;
use crate::shutdown::Signals;
use crate::wire::backoff::Backoff;
use crate::wire::tunnel::reverse::RendezvousName;

pub(super) const AFTER_HELP: &str = "\
For debuggers that wait to be dialled: PyCharm's \"Python Debug Server\" with
`pydevd_pycharm.settrace`, and debugpy's `connect` with \"listen\" in an editor. Workers dial a port
of 127.0.0.1 on their own node, where the node's agent (`ray-relay node --reverse-ports 7700-7799`)
listens for you while this command runs; their traffic is forwarded here.

NAME is yours while it runs. The same name has the same port, so the code of a task stays as it is:
the port of --to where the agents have it, else one by the name. Each worker that dials is judged
like a breakpoint: it takes the permission `debug` on its job and node. One that is passed on to
nobody runs on.

Examples:
  ray-relay reverse ada --to 127.0.0.1:7779
      start the debug server in PyCharm first, then put the printed line into the task
  ray-relay reverse ada --to 5678 --port 7771 --json
      one object a line: {\"event\": \"listening\", \"port\": 7771, \"nodes\": 3}, then \"arrived\",
      \"ended\", \"turned_away\", \"warning\" and \"lost\"

Exit codes: 0 ended by Ctrl-C; 1 refused (the name or the port is in use, no agent listens); 69 the
relay cannot be reached; 77 it wants a token, or the token does not permit it.";

/// The pause after the first failure, and the longest one.
const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(15);

/// `reverse`
#[derive(Debug, Clone, Args)]
pub struct ReverseArgs {
    /// Name of the rendezvous: 1 to 32 lower-case letters, digits and `-`
    #[arg(value_name = "NAME")]
    pub name: RendezvousName,
    /// Where the debugger listens: HOST:PORT, or a port of this machine
    #[arg(long, value_name = "HOST:PORT", value_parser = debugger, value_hint = ValueHint::Hostname)]
    pub to: Debugger,
    /// Port that workers dial on their node; without it one is chosen, always the same for NAME
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Print JSON, one object a line
    #[arg(long)]
    pub json: bool,
    /// How the relay is reached.
    #[command(flatten)]
    pub relay: RelayArgs,
}

/// Where a debugger listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Debugger {
    /// A host's name or address, IPv6 without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl std::fmt::Display for Debugger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

fn debugger(text: &str) -> Result<Debugger, &'static str> {
    let (host, port) = text.rsplit_once(':').unwrap_or(("127.0.0.1", text));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match port.parse() {
        Ok(port) if port != 0 && !host.is_empty() => Ok(Debugger {
            host: host.to_owned(),
            port,
        }),
        _ => Err("write where the debugger listens as HOST:PORT, such as 127.0.0.1:7779"),
    }
}

/// Why a rendezvous is over.
#[derive(Debug, thiserror::Error)]
enum ReverseError {
    /// The relay refuses it, with this sentence.
    #[error("{0}")]
    Refused(String),
    /// The system refuses a signal handler.
    #[error("cannot wait for signals: {0}")]
    Signal(io::Error),
}

impl Fails for ReverseError {}

pub(super) async fn run(args: ReverseArgs) -> Result<(), Failure> {
    let mut signals = Signals::new().map_err(ReverseError::Signal)?;
    let told = Arc::new(Told::new(args.json, args.to.clone()));
    let mut line = Line::new(args, Arc::clone(&told));
    let kept = async {
        let mut backoff = Backoff::new(FIRST, LONGEST);
        loop {
            let was_ready = line.port.is_some();
            let lost = match Box::pin(line.run()).await {
                // What has worked once is waited for.
                Broken::Output(error) => return Err(error.into()),
                Broken::Refused(why) => return Err(ReverseError::Refused(why).into()),
                Broken::Relay(error) if !was_ready || error.is_not_permitted() => {
                    return Err(error.into());
                }
                Broken::Later(why) if !was_ready && line.port.is_none() => {
                    return Err(ReverseError::Refused(why).into());
                }
                Broken::Relay(error) => error.to_string(),
                Broken::Later(why) | Broken::Lost(why) => why,
            };
            if std::mem::take(&mut line.linked) {
                backoff.reset();
            }
            told.lost(&lost)?;
            sleep(backoff.pause()).await;
        }
    };
    tokio::select! {
        ended = kept => ended,
        () = signals.next() => Ok(()),
    }
}

impl From<RelayError> for Broken {
    fn from(error: RelayError) -> Self {
        Self::Relay(error)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_debugger_is_a_port_of_this_machine_or_a_host_with_one() {
        for (text, shown) in [
            ("7779", "127.0.0.1:7779"),
            ("localhost:1", "localhost:1"),
            ("[::1]:7779", "[::1]:7779"),
        ] {
            assert_eq!(debugger(text).unwrap().to_string(), shown);
        }
        for text in ["", ":7779", "host", "host:0", "host:70000", "host:"] {
            assert!(debugger(text).is_err(), "{text}");
        }
    }
}
