//! Workers held by sessions of other relays, as reported by shared agents, or by the relays themselves on this machine.
//!
//! Reports go into the registry as they arrive ([`RemoteHolds`](ray_relay_ray::hold::RemoteHolds)): the breakpoint is
//! shown and refused like one that is held here. If this relay did not list the worker when it was claimed, because Ray
//! no longer lists it as paused, it is looked up here.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::Agents;
use super::end::AgentLinkEnd;
use super::route::{NoRoute, WorkerRoute};
use ray_relay_access::identity::PrincipalEnded;
use ray_relay_base::wire::tunnel::messages::{FromRelay, HoldRow, LetRun, Replica};
use ray_relay_ray::hold::{Holder, RayNode, RemoteHold};
use ray_relay_ray::ray::registry::{Breakpoint, Snapshot};

/// Pause before a worker that was not found is looked up again.
const LOOKUP_RETRY_DELAY: Duration = Duration::from_secs(10);

/// Concurrent lookups, and the pause between two: an agent that invents workers costs the head no more than that.
const MAX_LOOKUPS: usize = 4;
const LOOKUP_DELAY: Duration = Duration::from_millis(50);

/// Deadline of an agent to resume a parked task.
const RESUME_TIMEOUT: Duration = Duration::from_secs(10);

/// Length of a full worker id: a prefix could match several workers.
const WORKER_ID_LEN: usize = 56;

/// Longest pause between two passes.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(3600);

/// The other relays linked with this one's agents; one for the process.
#[derive(Default)]
pub(super) struct RelayPeers {
    /// Relays linked with each link's agent.
    relays: Mutex<HashMap<u64, Vec<Replica>>>,
    news: watch::Sender<()>,
}

/// Lookups of unlisted workers, and when each was made.
#[derive(Default)]
struct UnlistedLookups {
    at: HashMap<(Arc<str>, String), Instant>,
    asking: JoinSet<()>,
    /// Earliest time of the next lookup.
    next: Option<Instant>,
}

impl Agents {
    /// Stores what is `held` through the agent of `link`, which speaks for `nodes`.
    pub(super) fn update_holds(&self, link: u64, nodes: Vec<RayNode>, held: &[HoldRow]) {
        // Sessions of this relay are known, unless the agent keeps them parked.
        let others = |held: &&HoldRow| held.replica != self.replica || held.parked.is_some();
        let held: Vec<_> = held.iter().filter(others).cloned().collect();
        self.registry
            .update_remote(|holds| holds.set_report(link, nodes, &held));
        self.elsewhere.news.send_replace(());
    }

    /// Stores the relays that the agent of `link` is linked with.
    pub(super) fn update_relays(&self, link: u64, replicas: Vec<Replica>) {
        self.elsewhere.relays.lock().insert(link, replicas);
        self.elsewhere.news.send_replace(());
    }

    /// Forgets, or ages, the reports of a link that ended at `now`.
    pub(super) fn lose_holds(&self, link: u64, end: &AgentLinkEnd, now: Instant) {
        self.elsewhere.relays.lock().remove(&link);
        let stands = matches!(
            end,
            AgentLinkEnd::Broken
                | AgentLinkEnd::Replaced
                | AgentLinkEnd::Over(PrincipalEnded::Expired)
        );
        self.registry
            .update_remote(|holds| holds.end_link(link, stands, now));
        self.elsewhere.news.send_replace(());
    }

    /// The holder of `breakpoint` at another relay.
    pub(super) fn holder_elsewhere(&self, breakpoint: &Breakpoint) -> Option<Holder> {
        self.registry.remote(|holds| {
            let hold = holds.of(&breakpoint.worker());
            hold.map(RemoteHold::holder)
        })
    }

    /// Identifiers of the other relays that agents are linked with.
    pub fn other_relays(&self) -> BTreeSet<String> {
        self.others().iter().map(Replica::digits).collect()
    }

    fn others(&self) -> HashSet<Replica> {
        let relays = self.elsewhere.relays.lock();
        let mut all: HashSet<_> = relays.values().flatten().copied().collect();
        all.remove(&self.replica);
        all
    }

    /// Expires the reports of broken links, and looks up held workers that no list has, until `shutdown`.
    pub(super) async fn follow_holds(&self, shutdown: CancellationToken) {
        let mut lists = self.registry.watch();
        let mut news = self.elsewhere.news.subscribe();
        let mut lookups = UnlistedLookups::default();
        let mut others = HashSet::new();
        let mut revocations = self.auth.revocations();
        debug!("no agent is linked yet: this relay knows only its own sessions");
        loop {
            lists.mark_unchanged();
            news.mark_unchanged();
            let known_now = self.others();
            if known_now != others {
                match known_now.len() {
                    0 => info!("no other relay is linked to these agents"),
                    relays => info!(relays, "other relays are linked with the same agents"),
                }
                others = known_now;
            }
            let next = self.look_up_unlisted(&mut lookups);
            self.end_revoked();
            // While other relays hold nothing, list changes are irrelevant: local claims do not wake this loop.
            let are_holding = self.registry.remote(|holds| holds.iter().next().is_some());
            let revoked = async {
                match &mut revocations {
                    Some(list) => list.changed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => return,
                Ok(()) = lists.changed(), if are_holding => {}
                Ok(()) = news.changed() => {}
                Ok(()) = revoked => {}
                Some(_) = lookups.asking.join_next() => {}
                () = sleep_until(next) => {}
            }
            self.registry
                .update_remote(|holds| holds.expire(Instant::now()));
        }
    }

    /// Looks up held workers that no list has. Returns when to run again at the latest.
    fn look_up_unlisted(&self, lookups: &mut UnlistedLookups) -> Instant {
        let now = Instant::now();
        let expiry = self.registry.remote(|holds| holds.next_expiry());
        let mut next = expiry.unwrap_or(now + MAX_POLL_INTERVAL);
        let unlisted = self.registry.unlisted();
        let name = |hold: &RemoteHold| {
            let worker = hold.held.worker_id.to_string();
            (Arc::clone(&hold.node.cluster), worker)
        };
        let names: HashSet<_> = unlisted.iter().map(name).collect();
        lookups.at.retain(|name, _| names.contains(name));
        for (cluster, worker) in names {
            if worker.len() != WORKER_ID_LEN {
                continue;
            }
            let last = lookups.at.get(&(Arc::clone(&cluster), worker.clone()));
            let due = last.map_or(now, |at| *at + LOOKUP_RETRY_DELAY).max(now);
            let due = lookups.next.map_or(due, |at| at.max(due));
            if due > now {
                next = next.min(due);
            } else if lookups.asking.len() < MAX_LOOKUPS {
                lookups.next = Some(now + LOOKUP_DELAY);
                lookups
                    .at
                    .insert((Arc::clone(&cluster), worker.clone()), now);
                next = next.min(now + LOOKUP_RETRY_DELAY);
                let registry = self.registry.clone();
                // The registry lists it afterwards, if Ray knows it.
                lookups.asking.spawn(async move {
                    let _ = registry.look_again(Some(&cluster), &worker).await;
                });
            }
        }
        next
    }

    /// Has the agent of its node resume the task of `breakpoint`, which it keeps parked. Resolves when the agent has
    /// detached; returns the holder if it has not within [`RESUME_TIMEOUT`].
    ///
    /// # Errors
    /// [`NoRoute`].
    pub async fn resume_kept(&self, breakpoint: &Breakpoint) -> Result<Option<Holder>, NoRoute> {
        let mut lists = self.registry.watch();
        let WorkerRoute::Agent { link, .. } = self.route_to_agent(breakpoint).await? else {
            return Ok(None);
        };
        let hold_key = self.registry.remote(|holds| {
            let hold = holds.of(&breakpoint.worker());
            hold.map(|hold| LetRun::of(&hold.held))
        });
        let Some(hold_key) = hold_key else {
            // The park has ended already.
            return Ok(None);
        };
        link.try_send(FromRelay::LetRun(hold_key));
        let keeper = |list: &Arc<Snapshot>| {
            let holder = list.find(breakpoint.id).and_then(|row| row.holder());
            holder
                .filter(|holder| holder.parked_until.is_some())
                .cloned()
        };
        // The registry outlives this.
        let resumed = timeout(
            RESUME_TIMEOUT,
            lists.wait_for(|list| keeper(list).is_none()),
        )
        .await;
        Ok(resumed
            .err()
            .and_then(|_| keeper(&self.registry.snapshot())))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[path = "peers/tests.rs"]
mod tests;
