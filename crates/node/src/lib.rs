//! The agent, `ray-relay node`: one process next to the workers of a Ray node, through which relays reach their
//! debuggers.
//!
//! It dials out to every relay and has no port of its own. `relays` maintains the links, `link` is one of them, and
//! `stream` serves one debugger connection. Before the agent dials anything, `verifier` checks a relay's request
//! against Ray and this machine. `held` tells all relays which session holds which worker. `keeping` keeps the
//! workers of a lost relay paused for their owners, and `gossip` passes revocations from relay to relay. `reverse`
//! handles the opposite direction: workers that dial a debugger. `inspect` reports what running workers do, `arm` arms
//! lines in them, and `failed` stores what they leave at the `door` when a task fails.
//!
//! For `ray-relay node`. It must know neither what a relay does with a debugger nor who its clients are.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(
    missing_docs,
    reason = "inside the workspace a name and a type often say all"
)]

mod agent;
mod arm;
mod connect;
mod door;
mod failed;
mod gossip;
mod held;
mod hook;
mod injection;
mod inspect;
mod keeping;
mod link;
mod machine;
mod processes;
mod pump;
mod py_spy;
mod relays;
mod reverse;
mod settings;
mod stream;
#[cfg(test)]
mod tests;
mod verifier;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug, error_span, info, warn};

use self::agent::Agent;
use self::connect::Relay;
use self::link::LinkEnded;
use self::relays::LinkAttempt;
pub use self::reverse::reverse_ports;
pub use self::settings::{AgentError, RelayAccess, Settings};
use ray_relay_base::shutdown::Signals;
use ray_relay_base::wire::relay_url::RelayUrl;

/// The deadline of one name resolution.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The deadline for detaching all debuggers when the agent ends.
const DETACH_TIMEOUT: Duration = Duration::from_secs(20);

impl Agent {
    /// Maintains links with all addresses of `url`, or with the one address that a proxy resolves, until the agent
    /// ends.
    async fn follow(self: Arc<Self>, url: RelayUrl, access: Arc<dyn RelayAccess>) {
        let resolve = || async {
            let to = url.uri("/").ok_or(std::io::ErrorKind::InvalidInput)?;
            let resolved = timeout(RESOLVE_TIMEOUT, self.proxies.routes(&to)).await;
            resolved.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
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
        relays::follow(resolve, link, self.ending.clone()).await;
    }

    /// Maintains a link over one route to a relay.
    async fn keep(self: Arc<Self>, relay: Relay, retired: CancellationToken) {
        // Each cause is logged once: a relay may be away for hours.
        let last_failure = Mutex::new(String::new());
        let attempt = || async {
            let (ended, linked) = Box::pin(link::run(Arc::clone(&self), relay.clone())).await;
            let why = ended.to_string();
            match ended {
                LinkEnded::Ending => return LinkAttempt::Linked,
                LinkEnded::Duplicate => {
                    debug!(why, "not linked");
                    return LinkAttempt::Needless;
                }
                _ if linked => warn!(why, "the link is lost, and made again"),
                _ if *last_failure.lock() != why => {
                    warn!(why, "not linked; tried again until it is")
                }
                _ => debug!(why, "not linked"),
            }
            *last_failure.lock() = if linked { String::new() } else { why };
            match linked {
                true => LinkAttempt::Linked,
                false => LinkAttempt::Failed,
            }
        };
        relays::retry(attempt, retired, self.ending.clone()).await;
    }
}

/// Runs an agent until SIGTERM or Ctrl-C, then detaches its debuggers in order. A second signal ends it at once.
///
/// # Errors
/// [`AgentError`] for a cause that waiting would not fix. A relay that is away is retried.
pub async fn run(settings: Settings) -> Result<(), AgentError> {
    let mut signals = Signals::new().map_err(AgentError::Signal)?;
    for relay in &settings.relays {
        check(&*settings.access, relay).map_err(AgentError::Access)?;
    }
    let agent = Agent::new(&settings, Path::new("/proc"))?;
    for relay in &settings.relays {
        agent.check_proxy(relay).await.map_err(AgentError::Access)?;
    }
    info!(
        head = settings.cluster.ray_address,
        node_id = agent.verifier.location().node_id,
        addresses = ?agent.verifier.location().addresses(),
        "this agent's node"
    );
    agent.tasks.spawn(door::keep(Arc::clone(&agent)));
    agent.tasks.spawn(door::attribute(Arc::clone(&agent)));
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
    /// Logs which proxy leads to `relay`, if any.
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

    /// Accepts no more requests, detaches every debugger, and closes the links.
    async fn end(&self) {
        self.ending.cancel();
        self.tasks.close();
        if timeout(DETACH_TIMEOUT, self.tasks.wait()).await.is_err() {
            warn!(
                "a worker's debugger did not answer the detach: its task may need `release --force`"
            );
        }
    }
}

fn check(access: &dyn RelayAccess, relay: &RelayUrl) -> Result<(), String> {
    if relay.is_https() {
        access.tls(relay)?;
    }
    access.authorization(relay).map(drop)
}
