//! The registry: all paused breakpoints, polled from the heads, shared as immutable snapshots.

mod again;
mod attribution;
mod bounded;
pub mod breakpoint;
mod change;
mod claim;
mod clusters;
mod collective;
mod current;
mod dead;
mod entered;
mod examine;
mod exit;
mod follow;
mod found;
mod found_cluster;
#[cfg(any(test, feature = "testing"))]
pub mod fuzzing;
mod gcs;
mod holds;
mod id_prefix;
mod job;
mod list;
mod live_nodes;
mod live_worker;
mod log_tail;
mod lookup;
mod names;
mod nodes;
mod objects;
mod observe;
mod pending_lookups;
mod poller;
mod query;
mod resources;
mod rows;
mod running;
mod shared;
pub mod snapshot;
mod stacks;
mod state;
mod suspects;
#[cfg(test)]
mod tests;
mod traceback;

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::{broadcast, watch};

use crate::ray::head::{HeadClient, HeadConfigError};
use crate::ray::look::Look;
use clusters::ClusterHandle;
use gcs::GcsClient;
pub use gcs::{GivenTls, TlsPems};
use ray_relay_base::config;
use ray_relay_base::memory::Memory;
use shared::Shared;

pub use crate::hold::{Holder, RayNode};
pub use again::names_worker;
pub use attribution::{Attributed, Attribution, AttributionError, Owner, Resident};
pub use breakpoint::{
    BadBreakpointId, Breakpoint, BreakpointId, Kind, Location, Names, Reason, Registered, State,
};
pub use breakpoint::{SERVE, SERVE_NOTE};
pub use breakpoint::{SUBMITTER, is_job_id};
pub use change::{Change, ClaimError, Event};
pub use claim::{Claim, Lease, ReleasedWorker, WorkerLocation};
pub use collective::{CollectiveTimeout, JobOf};
pub use current::CurrentTask;
pub use dead::DeadActor;
pub use entered::EnteredBreakpoint;
pub use examine::Examined;
pub use found_cluster::{API_SERVER, FoundCluster, FoundHead};
pub use id_prefix::{AmbiguousPrefix, BadPrefix, BreakpointIdPrefix};
pub use job::{CalledJob, Job, JobsCalled, NameKind};
pub use list::List;
pub use log_tail::{Crash, CrashedCall, LogTail};
pub use objects::{ObjectState, OwnedBy};
pub use observe::{Observer, PollOutcome};
pub use resources::{Amount, Resources};
pub use running::{Running, RunningIn, RunningQuery, TaskOf, WorkKind};
pub use snapshot::{ClusterStatus, LeftOut, Search, Snapshot};
pub use stacks::NoStack;

/// The reason why a registry could not be created.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// One of the clusters cannot be queried.
    #[error(transparent)]
    Head(#[from] HeadConfigError),
}

/// The shared registry. Cheap to clone.
#[derive(Clone)]
pub struct Registry {
    shared: Arc<Shared>,
}

impl Registry {
    /// A registry of `clusters`, the first being the default. Knows nothing until [`Self::run`].
    ///
    /// # Errors
    /// [`RegistryError`] for an address that is no URL.
    pub fn new(
        clusters: &[config::Cluster],
        settings: &config::Registry,
    ) -> Result<Self, RegistryError> {
        let heads = clusters.iter().enumerate().map(|(index, cluster)| {
            let head = HeadClient::new(cluster, settings.request_timeout, index == 0)?;
            let gcs = GcsClient::of(cluster, &head, settings.request_timeout);
            Ok(ClusterHandle::new(&cluster.name, index, Some(head), gcs))
        });
        let heads = heads.collect::<Result<_, RegistryError>>()?;
        Ok(Self {
            shared: Arc::new(Shared::new(settings.clone(), heads)),
        })
    }

    /// A registry that polls nothing and holds the breakpoints of [`Self::insert`]: for embedding, and for tests of
    /// everything that reads a registry.
    pub fn offline(clusters: &[&str], settings: &config::Registry) -> Self {
        let clusters = clusters
            .iter()
            .enumerate()
            .map(|(slot, name)| ClusterHandle::new(name, slot, None, None))
            .collect();
        Self {
            shared: Arc::new(Shared::new(settings.clone(), clusters)),
        }
    }

    /// The current list.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.snapshot()
    }

    /// Wakes at every new snapshot; not when only the age of the list has changed.
    pub fn watch(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.shared.watch()
    }

    /// The nodes that heads list as alive, by cluster and id. While a receiver exists, the heads are queried for them
    /// every three seconds; otherwise only while anything is paused or attached.
    pub fn watch_nodes(&self) -> watch::Receiver<Arc<[RayNode]>> {
        self.shared.nodes.subscribe()
    }

    /// Queries every head for its nodes now, and resolves when all have responded: an agent may know a node before the
    /// relay does. Each head is queried at most once a second, however many callers there are. The caller bounds the
    /// wait for a head that does not respond. Cancel safe.
    pub async fn nodes_refreshed(&self) {
        let clusters = self.shared.clusters.present();
        join_all(clusters.iter().map(|cluster| cluster.nodes_refreshed())).await;
    }

    /// Replaces the nodes that heads list as alive.
    #[cfg(any(test, feature = "testing"))]
    pub fn set_nodes(&self, nodes: &[RayNode]) {
        self.shared.nodes.send_replace(nodes.into());
    }

    /// Every change, from now on. A receiver that lags loses the oldest (`RecvError::Lagged`).
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.shared.events()
    }

    /// Polls every head now, and resolves when all have responded or failed: a client may know a breakpoint before the
    /// next poll does. The caller bounds the wait: before [`Self::run`] it does not resolve. Cancel safe.
    pub async fn refreshed(&self) {
        let clusters = self.shared.clusters.present();
        join_all(clusters.iter().map(|cluster| cluster.refreshed())).await;
    }

    /// Queries every head for a diagnosis, with more than polls request: one call at a time. The caller bounds the
    /// wait, which includes earlier callers. Cancel safe.
    pub async fn examined(&self) -> Vec<Examined> {
        let _turn = self.shared.examining.lock().await;
        let clusters = self.shared.clusters.present();
        let examined = join_all(clusters.iter().map(|cluster| examine::examine(cluster))).await;
        examined.into_iter().flatten().collect()
    }

    /// The running tasks of the clusters in `query`, by Ray's current information: a head is queried now, by two
    /// callers at a time at most. The caller bounds the wait, which includes earlier callers. Cancel safe.
    pub async fn running(&self, query: &RunningQuery<'_>) -> Vec<RunningIn> {
        let mut clusters = self.shared.clusters.present();
        clusters.retain(|cluster| (query.on)(&cluster.name));
        let found = clusters
            .iter()
            .map(|cluster| running::ask(cluster, query.job));
        join_all(found).await.into_iter().flatten().collect()
    }

    /// The last method that ran in the actor `idle`: its name, and its state in Ray's terms. Cancel safe.
    pub async fn last_method(&self, idle: &Running) -> Option<(String, String)> {
        let cluster = self.shared.clusters.named(&idle.cluster)?;
        running::last_method(&cluster, idle).await
    }

    /// The actors that have died since others of their class in `running`, of `cluster`, began their methods. The caller
    /// bounds the wait. Cancel safe.
    pub async fn dead_peers(&self, cluster: &str, running: &[&Running]) -> Vec<DeadActor> {
        match self.shared.clusters.named(cluster) {
            Some(cluster) => dead::peers(&cluster, running).await,
            None => Vec::new(),
        }
    }

    /// The end of the error log of `dead`. The caller bounds the wait. Cancel safe.
    pub async fn log_tail(&self, dead: &DeadActor) -> LogTail {
        match (self.head(&dead.actor.cluster), &dead.actor.names.actor_id) {
            (Some(head), Some(actor_id)) => log_tail::of_actor(&head, actor_id).await,
            _ => LogTail::default(),
        }
    }

    /// Ray's information about `tasks` of `cluster`, in their order. The caller bounds the wait. Cancel safe.
    pub async fn tasks_of(&self, cluster: &str, tasks: &[TaskOf]) -> Vec<Option<Running>> {
        match self.shared.clusters.named(cluster) {
            Some(cluster) => running::tasks_of(&cluster, tasks).await,
            None => Vec::new(),
        }
    }

    /// Ray's information about the objects `ids` of `cluster`, in their order; an error is a sentence. The head
    /// forwards each query to every worker, so `ids` must be few. The caller bounds the wait. Cancel safe.
    pub async fn objects(&self, cluster: &str, ids: &[String]) -> Vec<Result<ObjectState, String>> {
        match self.shared.clusters.named(cluster) {
            Some(cluster) => objects::ask(&cluster, ids).await,
            None => Vec::new(),
        }
    }

    /// The stacks of `running`, from Ray itself: as far as the head permits, and without variables. Within the
    /// deadline of every request to a head. Cancel safe.
    ///
    /// # Errors
    /// [`NoStack`].
    pub async fn stack(&self, running: &Running) -> Result<Look, NoStack> {
        let head = self.head(&running.cluster).ok_or(NoStack::NoHead)?;
        stacks::look(&head, running).await
    }

    /// Claims the breakpoint `id` for a session. Dropping the claim releases it and polls the cluster at once, so that
    /// the list is right again.
    ///
    /// # Errors
    /// [`ClaimError`], each with the reason for the refused client.
    pub fn claim(&self, id: BreakpointId, holder: Holder) -> Result<Claim, ClaimError> {
        let open = self
            .shared
            .open_claim(|state, number, now| state.claim(id, number, holder, now))?;
        Ok(Claim::new(Arc::clone(&self.shared), open))
    }

    /// The client for the head of the cluster `name`, sharing connections and token.
    pub fn head(&self, name: &str) -> Option<HeadClient> {
        self.shared.clusters.named(name)?.head.clone()
    }

    /// Names of the clusters, those of the configuration first and in its order.
    pub fn clusters(&self) -> impl Iterator<Item = Arc<str>> {
        let clusters = self.shared.clusters.present().into_iter();
        clusters.map(|cluster| Arc::clone(&cluster.name))
    }

    /// The first cluster of the configuration. A discovered cluster is never the default: which it is depends on
    /// others.
    pub fn default_cluster(&self) -> Option<Arc<str>> {
        let first = self.shared.clusters.present().into_iter().next();
        let first = first.filter(|cluster| cluster.configured);
        first.map(|cluster| Arc::clone(&cluster.name))
    }

    /// Notifies `observer` of every poll. Only the first call counts; call it before [`Self::run`].
    pub fn observe(&self, observer: Arc<dyn Observer>) {
        if self.shared.observer.set(observer).is_err() {
            tracing::debug!("the registry has an observer already");
        }
    }

    /// Applies the collective timeouts of `release` to jobs that set none themselves. Only the first call counts; call
    /// it before [`Self::run`].
    pub fn time_collectives(&self, release: &config::Release) {
        if self.shared.release.set(release.clone()).is_err() {
            tracing::debug!("the registry knows the limits of collectives already");
        }
    }

    /// Charges responses of heads to `memory` from now on; only the first call counts.
    pub fn count(&self, memory: &Memory) {
        if self.shared.memory.set(memory.clone()).is_ok() {
            for cluster in self.shared.clusters.present() {
                self.shared.count(&cluster);
            }
        }
    }

    /// Inserts a live breakpoint unchanged, for sources other than a head's State API. It is removed again unless the
    /// polls of a head confirm it. Ignored if its cluster is not known.
    pub fn insert(&self, breakpoint: Breakpoint) {
        if let Some(cluster) = self.shared.clusters.named(&breakpoint.cluster) {
            self.shared
                .change(|state, now| (state.insert(cluster.slot, breakpoint, now), ()));
        }
    }

    /// Resolves as soon as Ray reports that the session with the legacy breakpoint `stop`, which was to continue in
    /// another task (`remote`), does not: its task has returned and called none. Ray reports it until that key waits
    /// again; without a report, this never resolves. Cancel safe.
    pub async fn goes_no_further(&self, stop: &Breakpoint) {
        match self.shared.clusters.named(&stop.cluster) {
            Some(cluster) => cluster.until_exited(stop.id).await,
            None => std::future::pending().await,
        }
    }

    /// Reports the worker of `stop` as exited, as a GCS would, and no other.
    #[cfg(any(test, feature = "testing"))]
    pub fn exit(&self, stop: &Breakpoint) {
        for cluster in self.shared.clusters.present() {
            cluster.exited([stop.id].into());
        }
    }

    /// Notifies all listeners of events that the breakpoint `id` will be released, if it waits.
    pub fn announce_release(&self, id: BreakpointId) {
        self.shared.change(|_, _| {
            let list = self.shared.snapshot();
            let waiting = list.find(id).filter(|breakpoint| breakpoint.is_paused());
            let changes = waiting.map(|b| (Change::Releasing, Arc::clone(b)));
            (changes.into_iter().collect(), ())
        });
    }

    /// Removes the live breakpoint `id`: died with the reason `why`, or else released.
    pub fn end(&self, id: BreakpointId, why: Option<&str>) {
        self.shared
            .change(|state, now| (state.end(id, why.map(Arc::from), now), ()));
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}
