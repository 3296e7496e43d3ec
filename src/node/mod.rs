//! The agent, `ray-relay node`: one process beside the workers of a Ray node, through which relays reach their debuggers.
//!
//! It dials out to every relay and has no port of its own. `relays` keeps a link with each, `link` is one of them, `stream`
//! one debugger's connection. What a relay asks for is looked at by `look` with the agent's own eyes before anything is
//! dialled, `held` tells all relays who has what, `keeping` has workers whose relay is lost wait for who had them, and `board` what they say to each other. `reverse` is the other way
//! round: workers that dial a debugger. What workers do that wait for nobody is told by `inspect`.

mod board;
mod connect;
mod held;
mod hook;
mod inspect;
mod keeping;
mod link;
mod look;
mod machine;
mod processes;
mod pump;
mod py_spy;
mod relays;
mod reverse;
mod stream;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use hyper::header::HeaderValue;
use parking_lot::Mutex;
use rand::RngExt as _;
use rustls::ClientConfig;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, debug, error_span, info, warn};

use self::board::Board;
use self::connect::Relay;
use self::held::{Hold, Table};
use self::link::Ended;
use self::look::{Look, Place};
use self::py_spy::PySpy;
use self::relays::Attempt;
pub use self::reverse::reverse_ports;
use crate::config::{self, is_loopback_host};
use crate::dial::Proxies;
use crate::ray::head::HeadConfigError;
use crate::shutdown::Signals;
use crate::wire::relay_url::RelayUrl;
use crate::wire::tunnel::messages::{Hex, MOST_ROWS};

/// The deadline of one look-up of a name.
const LOOKUP: Duration = Duration::from_secs(5);

/// How long debuggers may take to be left when the agent ends.
const LEFT: Duration = Duration::from_secs(20);

/// What an agent runs with.
pub struct Settings {
    /// The relays.
    pub relays: Vec<RelayUrl>,
    /// The Ray cluster, to be asked about every debugger that is to be dialled.
    pub cluster: config::Cluster,
    /// The Ray node that it stands on. Without it, all that the addresses tell.
    pub node_id: Option<String>,
    /// The addresses of its nodes. Empty: those of the machine.
    pub node_addresses: Vec<IpAddr>,
    /// Ports of loopback on which workers may dial somebody's debugger ([`reverse_ports`]). `None`: they may not.
    pub reverse_ports: Option<RangeInclusive<u16>>,
    /// How relays are trusted, and what they are shown.
    pub access: Arc<dyn Access>,
}

/// How relays are trusted, and what they are shown. Asked anew for each connection, on a thread that may block: files of
/// tokens and certificates are replaced while an agent runs.
pub trait Access: Send + Sync {
    /// For a relay that is reached over TLS.
    ///
    /// # Errors
    /// What is wrong with a file, with the next step.
    fn tls(&self, relay: &RelayUrl) -> Result<ClientConfig, String>;

    /// `Authorization`, where there is a token.
    ///
    /// # Errors
    /// What is wrong with the token, with the next step.
    fn authorization(&self, relay: &RelayUrl) -> Result<Option<HeaderValue>, String>;
}

/// Why an agent did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The head cannot be asked.
    #[error(transparent)]
    Head(#[from] HeadConfigError),
    /// A file that is needed to link is wrong.
    #[error("{0}")]
    Access(String),
    /// Nothing tells which node this is.
    #[error(
        "no address of this machine is known: say which node it is with --node-id or --node-address"
    )]
    Nowhere,
    /// The system refuses a signal handler.
    #[error("cannot wait for signals: {0}")]
    Signal(std::io::Error),
}

/// What all links have together.
struct Agent {
    /// Tells this process from others that claim its node.
    instance: Hex<16>,
    look: Look,
    py_spy: PySpy,
    held: Table,
    board: Board,
    reverse_ports: Option<RangeInclusive<u16>>,
    /// By which relays are reached, and never a head or a debugger.
    proxies: Proxies,
    /// One for each stream, and each question that is being answered.
    places: Arc<Semaphore>,
    tasks: TaskTracker,
    ending: CancellationToken,
}

impl Agent {
    fn new(settings: &Settings, proc: &Path) -> Result<Arc<Self>, Error> {
        let uri: Option<Uri> = settings.cluster.ray_address.parse().ok();
        let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
        let place = Place {
            node_id: settings.node_id.clone(),
            given: settings.node_addresses.clone(),
            loopback: is_loopback_host(host),
        };
        if place.node_id.is_none() && place.addresses().is_empty() {
            return Err(Error::Nowhere);
        }
        Ok(Arc::new(Self {
            instance: Hex(rand::rng().random()),
            look: Look::new(&settings.cluster, place, proc)?,
            py_spy: PySpy::new(),
            held: Table::new(),
            board: Board::new(),
            reverse_ports: settings.reverse_ports.clone(),
            proxies: Proxies::from_env(),
            places: Arc::new(Semaphore::new(MOST_ROWS)),
            tasks: TaskTracker::new(),
            ending: CancellationToken::new(),
        }))
    }

    /// Keeps links with all addresses of `url`, or the one that a proxy finds, until the agent ends.
    async fn follow(self: Arc<Self>, url: RelayUrl, access: Arc<dyn Access>) {
        let lookup = || async {
            let to = url.uri("/").ok_or(std::io::ErrorKind::InvalidInput)?;
            let looked_up = timeout(LOOKUP, self.proxies.routes(&to)).await;
            looked_up.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
        };
        let link = |route, retired| {
            let relay = Relay {
                url: url.clone(),
                route,
                proxies: self.proxies.clone(),
                access: Arc::clone(&access),
            };
            let span = error_span!("link", relay = %url, address = %route);
            Arc::clone(&self).keep(relay, retired).instrument(span)
        };
        relays::follow(lookup, link, self.ending.clone()).await;
    }

    /// Keeps a link by one way to a relay.
    async fn keep(self: Arc<Self>, relay: Relay, retired: CancellationToken) {
        // Said once for each cause: a relay may be away for hours.
        let said = Mutex::new(String::new());
        let attempt = || async {
            let succeeded = CancellationToken::new();
            let mut run = Box::pin(link::run(
                Arc::clone(&self),
                relay.clone(),
                succeeded.clone(),
            ));
            let (ended, linked) = tokio::select! {
                ended = &mut run => ended,
                () = succeeded.cancelled() => {
                    info!("another process of the relay has taken over: linked with that as well");
                    // To its end, which the relay decides on, or the agent's.
                    let older = async move {
                        let (ended, _) = run.await;
                        info!(why = %ended, "the link with the process before has ended");
                    };
                    self.tasks.spawn(older.in_current_span());
                    return Attempt::Linked;
                }
            };
            let why = ended.to_string();
            match ended {
                Ended::Ending => return Attempt::Linked,
                Ended::Duplicate => {
                    debug!(why, "not linked");
                    return Attempt::Needless;
                }
                _ if linked => warn!(why, "the link is lost, and made again"),
                _ if *said.lock() != why => warn!(why, "not linked; tried again until it is"),
                _ => debug!(why, "not linked"),
            }
            *said.lock() = if linked { String::new() } else { why };
            match linked {
                true => Attempt::Linked,
                false => Attempt::Failed,
            }
        };
        relays::again(attempt, retired, self.ending.clone()).await;
    }
}

/// Runs an agent until SIGTERM or Ctrl-C, leaves its debuggers in order, and ends at once at the second one.
///
/// # Errors
/// [`Error`]: what would not change by waiting. A relay that is away is waited for.
pub async fn run(settings: Settings) -> Result<(), Error> {
    let mut signals = Signals::new().map_err(Error::Signal)?;
    for relay in &settings.relays {
        check(&*settings.access, relay).map_err(Error::Access)?;
    }
    let agent = Agent::new(&settings, Path::new("/proc"))?;
    for relay in &settings.relays {
        agent.check_proxy(relay).await.map_err(Error::Access)?;
    }
    info!(
        head = settings.cluster.ray_address,
        node_id = agent.look.place().node_id,
        addresses = ?agent.look.place().addresses(),
        "this agent's node"
    );
    for relay in settings.relays {
        let following = Arc::clone(&agent).follow(relay, Arc::clone(&settings.access));
        agent.tasks.spawn(following);
    }
    signals.next().await;
    info!("leaves its debuggers, and ends");
    tokio::select! {
        () = agent.end() => {}
        () = signals.next() => warn!("ends at once: debuggers that were not left may keep their tasks"),
    }
    Ok(())
}

impl Agent {
    /// Says by which proxy `relay` is reached, if by one.
    async fn check_proxy(&self, relay: &RelayUrl) -> Result<(), String> {
        let Some(to) = relay.uri("/") else {
            return Ok(());
        };
        match self.proxies.towards(&to).await {
            Ok(None) => {}
            Ok(Some(proxy)) => {
                info!(%relay, %proxy, by = proxy.variable(), "this relay is reached by a proxy");
            }
            Err(why) => return Err(format!("{relay} cannot be reached: {why}; {}", why.hint())),
        }
        Ok(())
    }

    /// Takes no more questions, leaves every debugger, and closes the links.
    async fn end(&self) {
        self.ending.cancel();
        self.tasks.close();
        if timeout(LEFT, self.tasks.wait()).await.is_err() {
            warn!(
                "a worker's debugger did not answer while it was left: its task may need `release --force`"
            );
        }
    }
}

fn check(access: &dyn Access, relay: &RelayUrl) -> Result<(), String> {
    if relay.is_https() {
        access.tls(relay)?;
    }
    access.authorization(relay).map(drop)
}
