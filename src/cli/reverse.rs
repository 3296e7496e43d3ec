//! `ray-relay reverse`: forwards workers that dial out to a debugger that listens on this machine.

mod args;
mod link;
mod printer;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

pub use self::args::ReverseArgs;
use self::link::{LinkBroken, ReverseLink};
use self::printer::ReversePrinter;
use super::failure::{Fails, Failure};
use super::relay_client::RelayError;
use ray_relay_base::shutdown::Signals;
use ray_relay_base::wire::backoff::Backoff;

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay reverse ann --to 127.0.0.1:7779
      start the debug server in PyCharm first, then put the printed line into the task
  ray-relay reverse ann --to 5678 --port 7771 --json
      one object a line: {\"event\": \"listening\", \"port\": 7771, \"nodes\": 3}, then \"arrived\", \"ended\", \"turned_away\", \"warning\" and \"lost\"

For debuggers that wait to be dialled: PyCharm's \"Python Debug Server\" with
`pydevd_pycharm.settrace`, and debugpy's `connect` with \"listen\" in an editor. Workers dial a port of 127.0.0.1 on their own node. The node's agent (`ray-relay node --reverse-ports 7700-7799`) listens there while this command runs, and their traffic is forwarded here.

NAME is yours while it runs. The same name has the same port, so the code of a task stays as it is.
It is the port of --to where the agents have that, else one that the name decides. Each worker that dials is judged like a breakpoint: it takes the permission `debug` on its job and node. A worker that is turned away runs on.

Exit codes: 0 ended by Ctrl-C; 1 refused (the name or the port is in use, no agent listens); 69 the relay cannot be reached; 77 it wants a token, or the token does not permit it.";

const FIRST_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(15);

/// Why a rendezvous ended.
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
    let printer = Arc::new(ReversePrinter::new(args.json, args.to.clone()));
    let mut link = ReverseLink::new(args, Arc::clone(&printer));
    let linked = async {
        let mut backoff = Backoff::new(FIRST_BACKOFF, MAX_BACKOFF);
        loop {
            let was_ready = link.port.is_some();
            let lost = match Box::pin(link.run()).await {
                // A link that has worked once is retried.
                LinkBroken::Output(error) => return Err(error.into()),
                LinkBroken::Refused(why) => return Err(ReverseError::Refused(why).into()),
                LinkBroken::Relay(error) if !was_ready || error.is_not_permitted() => {
                    return Err(error.into());
                }
                LinkBroken::Later(why) if !was_ready && link.port.is_none() => {
                    return Err(ReverseError::Refused(why).into());
                }
                LinkBroken::Relay(error) => error.to_string(),
                LinkBroken::Later(why) | LinkBroken::Lost(why) => why,
            };
            if std::mem::take(&mut link.linked) {
                backoff.reset();
            }
            printer.lost(&lost)?;
            sleep(backoff.pause()).await;
        }
    };
    tokio::select! {
        ended = linked => ended,
        () = signals.next() => Ok(()),
    }
}

impl From<RelayError> for LinkBroken {
    fn from(error: RelayError) -> Self {
        Self::Relay(error)
    }
}
