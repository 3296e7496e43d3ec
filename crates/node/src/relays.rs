//! Links to all relays: one for each address of a name, which is resolved periodically. Failed links are retried
//! after a pause.

use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::time::Duration;

use ray_relay_base::wire::backoff::Backoff;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// How often a name is resolved.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(10);

/// Addresses of one name that are linked to.
const MAX_ADDRESSES: usize = 64;

const FIRST_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(15);

/// Runs `link` for each address that `resolve` finds, until `ending`. Its token is cancelled when the name no longer
/// has that address: an established link stays, and a lost one is not retried.
pub(super) async fn follow<A, L, F, R, G>(mut resolve: L, link: R, ending: CancellationToken)
where
    A: Copy + Eq + Hash,
    L: FnMut() -> F,
    F: Future<Output = io::Result<Vec<A>>>,
    R: Fn(A, CancellationToken) -> G,
    G: Future<Output = ()> + Send + 'static,
{
    let mut linked: HashMap<A, CancellationToken> = HashMap::new();
    let mut links = JoinSet::new();
    let mut failing = false;
    while !ending.is_cancelled() {
        let resolved = tokio::select! {
            resolved = resolve() => resolved,
            () = ending.cancelled() => break,
        };
        match resolved {
            Ok(found) if !found.is_empty() => {
                failing = false;
                linked.retain(|address, retired| {
                    let stays = found.contains(address);
                    if !stays {
                        retired.cancel();
                    }
                    stays
                });
                for address in found {
                    if linked.len() < MAX_ADDRESSES && !linked.contains_key(&address) {
                        let retired = CancellationToken::new();
                        links.spawn(link(address, retired.clone()));
                        linked.insert(address, retired);
                    }
                }
            }
            resolved => {
                let why =
                    resolved.map_or_else(|error| error.to_string(), |_| "no address".to_owned());
                if !std::mem::replace(&mut failing, true) {
                    warn!(
                        why,
                        "the relay's name cannot be looked up; what was known of it stays"
                    );
                }
            }
        }
        let next = Instant::now() + RESOLVE_INTERVAL;
        loop {
            tokio::select! {
                () = sleep_until(next) => break,
                () = ending.cancelled() => break,
                Some(_) = links.join_next() => {}
            }
        }
    }
    // They end on their own, and close their links in order.
    while links.join_next().await.is_some() {}
}

/// The outcome of one attempt to link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkAttempt {
    /// The link was established, and is lost.
    Linked,
    /// The link was not established.
    Failed,
    /// Another address leads to the same relay: retried rarely.
    Needless,
}

/// Repeats `attempt` with pauses between, until the address is `retired` or the agent is `ending`.
pub(super) async fn retry<F: Future<Output = LinkAttempt>>(
    mut attempt: impl FnMut() -> F,
    retired: CancellationToken,
    ending: CancellationToken,
) {
    let mut backoff = Backoff::new(FIRST_BACKOFF, MAX_BACKOFF);
    loop {
        let made = attempt().await;
        match made {
            LinkAttempt::Linked => backoff.reset(),
            LinkAttempt::Failed => {}
            LinkAttempt::Needless => backoff.slow_down(),
        }
        // So that not all agents reconnect to a relay at the same moment.
        let pause = backoff.pause();
        debug!(?made, ?pause, "the next attempt");
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = retired.cancelled() => return,
            () = ending.cancelled() => return,
        }
    }
}
