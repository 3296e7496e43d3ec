//! The link of `ray-relay reverse` with a relay, and its streams, each with a connection to a debugger of its own.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::HeaderMap;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::args::{DebuggerAddress, ReverseArgs};
use super::printer::ReversePrinter;
use crate::cli::RelayArgs;
use crate::cli::relay_client::RelayError;
use crate::cli::relay_dial::open;
use ray_relay_base::wire::link::{ControlLink, LinkError};
use ray_relay_base::wire::text::replaced;
use ray_relay_base::wire::tunnel::join::{ByteCount, join};
use ray_relay_base::wire::tunnel::reverse::{
    FromPerson, REVERSE_PATH, REVERSE_PROTOCOL, REVERSE_STREAM_PROTOCOL, ReverseArrival, STREAM,
    ToPerson,
};
use ray_relay_base::wire::tunnel::{ByteStream, handshake, link_config, stream_config};

/// Time limit for connecting to the debugger.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Rate limit for a relay's messages, as a burst and per second: every worker of a large job may dial at the same
/// moment.
const MAX_BURST: u32 = 16 * 1024;
const MAX_PER_SECOND: u32 = 1024;

const MAX_WORKERS: usize = 64;

/// Why a link ended.
pub(super) enum LinkBroken {
    /// The relay cannot be reached, or does not answer like one.
    Relay(RelayError),
    /// Refused permanently.
    Refused(String),
    /// Refused for now.
    Later(String),
    /// The connection is lost.
    Lost(String),
    /// The output cannot be written.
    Output(io::Error),
}

impl From<io::Error> for LinkBroken {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<LinkError> for LinkBroken {
    fn from(error: LinkError) -> Self {
        Self::Lost(match error {
            LinkError::Closed(..) | LinkError::Gone => {
                "the connection to the relay is gone".to_owned()
            }
            error => format!("the relay {error}"),
        })
    }
}

/// A link that is opened repeatedly.
pub(super) struct ReverseLink {
    args: ReverseArgs,
    printer: Arc<ReversePrinter>,
    /// The last port, requested again for the next link.
    pub(super) port: Option<u16>,
    /// Whether the last link was established.
    pub(super) linked: bool,
}

impl ReverseLink {
    pub(super) fn new(args: ReverseArgs, printer: Arc<ReversePrinter>) -> Self {
        Self {
            args,
            printer,
            port: None,
            linked: false,
        }
    }

    /// Runs one link until it ends; its streams end with it.
    pub(super) async fn run(&mut self) -> LinkBroken {
        match self.serve().await {
            Ok(never) => match never {},
            Err(broken) => broken,
        }
    }

    async fn serve(&mut self) -> Result<std::convert::Infallible, LinkBroken> {
        let path = format!("{REVERSE_PATH}{}", self.args.name);
        let relay = &self.args.relay;
        let none = HeaderMap::new();
        let socket = open(relay, &path, REVERSE_PROTOCOL, none, link_config())
            .await
            .map_err(|refused| refused.error)?;
        let begin = FromPerson::Begin {
            port: self.args.port,
            wish: self.port.or(Some(self.args.to.port)),
        };
        let mut link = ControlLink::<_, ToPerson, _>::answering(socket, MAX_BURST, MAX_PER_SECOND);
        link.say(&begin).await?;
        let mut streams: JoinSet<()> = JoinSet::new();
        let (failing, mut failed) = mpsc::channel(MAX_WORKERS);
        loop {
            tokio::select! {
                message = link.next() => match message? {
                    Some(ToPerson::Arrived(arrived)) => {
                        self.printer.arrived(&arrived)?;
                        if streams.len() < MAX_WORKERS {
                            let failing = failing.clone();
                            let (relay, to) = (relay.clone(), self.args.to.clone());
                            let path = format!("{path}{STREAM}{}", arrived.stream.digits());
                            streams.spawn(forward(relay, path, to, arrived, failing));
                        }
                    }
                    Some(message) => {
                        if let ToPerson::Ready { port } = &message {
                            (self.port, self.linked) = (Some(*port), true);
                        }
                        print_message(&self.printer, message)?;
                    }
                    None => {}
                },
                // `failing` is a sender of this task's own, so the channel never closes.
                Some(why) = failed.recv() => link.say(&why).await?,
                Some(_) = streams.join_next() => {}
            }
        }
    }
}

fn print_message(printer: &ReversePrinter, message: ToPerson) -> Result<(), LinkBroken> {
    match message {
        ToPerson::Ready { port } => printer.ready(port),
        ToPerson::Listening { nodes, refused } => printer.listening(nodes, refused.as_deref())?,
        ToPerson::TurnedAway { reason } => printer.rejected(&reason)?,
        ToPerson::Warning { session, text } => printer.warning(session, &text)?,
        ToPerson::Ended { session, why } => printer.ended(session, &why)?,
        ToPerson::Refused { reason, passing } => {
            let reason = replaced(&reason).into_owned();
            return Err(match passing {
                true => LinkBroken::Later(reason),
                false => LinkBroken::Refused(reason),
            });
        }
        ToPerson::Arrived(_) | ToPerson::Unknown => {}
    }
    Ok(())
}

/// Forwards a worker to the debugger at `to`. If that cannot be reached, notifies the relay and opens nothing.
async fn forward(
    relay: RelayArgs,
    path: String,
    to: DebuggerAddress,
    arrived: ReverseArrival,
    failing: mpsc::Sender<FromPerson>,
) {
    let failed = |detail: String| FromPerson::Failed {
        stream: arrived.stream,
        detail: detail.as_str().into(),
    };
    let debugger = match reached(&to).await {
        Ok(debugger) => debugger,
        Err(why) => {
            let why = format!("cannot reach {to} ({why}): is the debugger listening there?");
            return drop(failing.send(failed(why)).await);
        }
    };
    let headers = handshake::secret_header(&arrived.secret);
    let opened = open(
        &relay,
        &path,
        REVERSE_STREAM_PROTOCOL,
        headers,
        stream_config(),
    )
    .await;
    match opened {
        Ok(socket) => {
            // The relay reports either end.
            let _ = join(debugger, ByteStream::new(socket), &ByteCount::default()).await;
        }
        Err(refused) => drop(failing.send(failed(refused.error.to_string())).await),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the debugger is the user's own, at the address of --to"
)]
async fn reached(to: &DebuggerAddress) -> io::Result<TcpStream> {
    let dialled = timeout(CONNECT_TIMEOUT, TcpStream::connect((&*to.host, to.port))).await;
    let stream = dialled.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
