//! The registry: what is paused where, polled from the heads, shared as immutable snapshots.

mod again;
mod attribution;
mod bounded;
pub mod breakpoint;
mod change;
mod claim;
mod clusters;
mod collective;
mod current;
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
pub use breakpoint::SUBMITTER;
pub use breakpoint::{
    BadBreakpointId, Breakpoint, BreakpointId, Kind, Location, Names, Reason, Registered, State,
};
pub use breakpoint::{SERVE, SERVE_NOTE};
pub use change::{Change, ClaimError, Event};
pub use claim::{Claim, Lease, ReleasedWorker, WorkerLocation};
pub use collective::{JobOf, Standing};
pub use current::CurrentTask;
pub use entered::EnteredBreakpoint;
pub use examine::Examined;
pub use found_cluster::{API_SERVER, FoundCluster, FoundHead};
pub use id_prefix::{AmbiguousPrefix, BadPrefix, BreakpointIdPrefix};
pub use list::List;
pub use objects::{ObjectState, OwnedBy};
pub use observe::{Observer, PollOutcome};
pub use resources::{Amount, Resources};
pub use running::{Running, RunningIn, RunningQuery, TaskOf, What};
pub use snapshot::{ClusterStatus, LeftOut, Search, Snapshot};
pub use stacks::NoStack;

/// Why a registry could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// One of the clusters cannot be asked.
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

    /// A registry that polls nothing and holds what [`Self::insert`] puts in: for embedding, and
    /// for tests of everything that reads a registry.
    pub fn offline(clusters: &[&str], settings: &config::Registry) -> Self {
        let clusters = clusters
            .iter()
            .enumerate()
            .map(|(place, name)| ClusterHandle::new(name, place, None, None))
            .collect();
        Self {
            shared: Arc::new(Shared::new(settings.clone(), clusters)),
        }
    }

    /// The list now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.snapshot()
    }

    /// Wakes at every new snapshot; not when only the age of the list has changed.
    pub fn watch(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.shared.watch()
    }

    /// The nodes that heads list as alive, by cluster and id. As long as what this returns is held, the heads are asked
    /// for them every three seconds; otherwise only while anything is paused or attached.
    pub fn watch_nodes(&self) -> watch::Receiver<Arc<[RayNode]>> {
        self.shared.nodes.subscribe()
    }

    /// Has every head asked for its nodes now, and resolves when all have answered: an agent may know of a node before the
    /// relay does. A head is asked once in a second at most, however many want to know. To be bounded by the caller: a head
    /// that does not answer is waited for. Cancel safe.
    pub async fn nodes_refreshed(&self) {
        let clusters = self.shared.clusters.present();
        join_all(clusters.iter().map(|cluster| cluster.nodes_refreshed())).await;
    }

    /// Has `nodes` as those that heads list as alive.
    #[cfg(any(test, feature = "testing"))]
    pub fn set_nodes(&self, nodes: &[RayNode]) {
        self.shared.nodes.send_replace(nodes.into());
    }

    /// Every change, from now on. A receiver that lags loses the oldest (`RecvError::Lagged`).
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.shared.events()
    }

    /// Has every head asked now what is paused, and resolves when all have answered or failed to: a client may know of a
    /// breakpoint before the next poll does. To be bounded by the caller: before [`Self::run`] it does not resolve. Cancel
    /// safe.
    pub async fn refreshed(&self) {
        let clusters = self.shared.clusters.present();
        join_all(clusters.iter().map(|cluster| cluster.refreshed())).await;
    }

    /// Asks every head more than polls do, for a diagnosis: one at a time, however many want to know. To be bounded by the
    /// caller, who waits for those before. Cancel safe.
    pub async fn examined(&self) -> Vec<Examined> {
        let _turn = self.shared.examining.lock().await;
        let clusters = self.shared.clusters.present();
        let examined = join_all(clusters.iter().map(|cluster| examine::examine(cluster))).await;
        examined.into_iter().flatten().collect()
    }

    /// What runs in the clusters that `asked` says, by Ray's last word: a head is asked now, and by two at a time at most.
    /// To be bounded by the caller, who waits for those before. Cancel safe.
    pub async fn running(&self, asked: &RunningQuery<'_>) -> Vec<RunningIn> {
        let mut clusters = self.shared.clusters.present();
        clusters.retain(|cluster| (asked.on)(&cluster.name));
        let found = clusters
            .iter()
            .map(|cluster| running::ask(cluster, asked.job));
        join_all(found).await.into_iter().flatten().collect()
    }

    /// The last method that ran in the actor `idle`: its name, and Ray's word for its state. Cancel safe.
    pub async fn last_method(&self, idle: &Running) -> Option<(String, String)> {
        let cluster = self.shared.clusters.named(&idle.cluster)?;
        running::last_method(&cluster, idle).await
    }

    /// What Ray says of `tasks` of `cluster`, in their order. To be bounded by the caller. Cancel safe.
    pub async fn tasks_of(&self, cluster: &str, tasks: &[TaskOf]) -> Vec<Option<Running>> {
        match self.shared.clusters.named(cluster) {
            Some(cluster) => running::tasks_of(&cluster, tasks).await,
            None => Vec::new(),
        }
    }

    /// What Ray says of the objects `ids` of `cluster`, in their order; an error is a sentence. Each is a question that the head
    /// passes on to every worker, so that `ids` are few. To be bounded by the caller. Cancel safe.
    pub async fn objects(&self, cluster: &str, ids: &[String]) -> Vec<Result<ObjectState, String>> {
        match self.shared.clusters.named(cluster) {
            Some(cluster) => objects::ask(&cluster, ids).await,
            None => Vec::new(),
        }
    }

    /// Where the threads of `running` are, by Ray's own means: as the head lets it, and without variables. Within the time of
    /// every question to a head. Cancel safe.
    ///
    /// # Errors
    /// [`NoStack`].
    pub async fn stack(&self, running: &Running) -> Result<Look, NoStack> {
        let head = self.head(&running.cluster).ok_or(NoStack::NoHead)?;
        stacks::look(&head, running).await
    }

    /// Takes the breakpoint `id` for a session. Dropping the claim gives it back and has the
    /// cluster polled at once, so that the list is right again.
    ///
    /// # Errors
    /// [`ClaimError`], each with what the refused client is to be told.
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

    /// The first cluster of the configuration. One that was found is never the default: what it is depends on what others make.
    pub fn default_cluster(&self) -> Option<Arc<str>> {
        let first = self.shared.clusters.present().into_iter().next();
        let first = first.filter(|cluster| cluster.configured);
        first.map(|cluster| Arc::clone(&cluster.name))
    }

    /// Has `observer` told about every poll. The first one stays; call it before [`Self::run`].
    pub fn observe(&self, observer: Arc<dyn Observer>) {
        if self.shared.observer.set(observer).is_err() {
            tracing::debug!("the registry has an observer already");
        }
    }

    /// Has `release` say after how long the collectives of jobs time out that do not say so themselves. The first word counts;
    /// call it before [`Self::run`].
    pub fn time_collectives(&self, release: &config::Release) {
        if self.shared.release.set(release.clone()).is_err() {
            tracing::debug!("the registry knows the limits of collectives already");
        }
    }

    /// From now on what is held of the answers of heads is taken from `memory`, once and for all.
    pub fn count(&self, memory: &Memory) {
        if self.shared.memory.set(memory.clone()).is_ok() {
            for cluster in self.shared.clusters.present() {
                self.shared.count(&cluster);
            }
        }
    }

    /// Puts a live breakpoint in as it is, for sources other than a head's State API. One that the
    /// polls of a head do not confirm is taken out again. Ignored when its cluster is not known.
    pub fn insert(&self, breakpoint: Breakpoint) {
        if let Some(cluster) = self.shared.clusters.named(&breakpoint.cluster) {
            self.shared
                .change(|state, now| (state.insert(cluster.place, breakpoint, now), ()));
        }
    }

    /// Resolves as soon as Ray says that the session with the legacy breakpoint `stop`, which was told to go on in another
    /// task (`remote`), does not: its task has returned and called none. Ray says it until that key waits again; where it
    /// says nothing, this never resolves. Cancel safe.
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

    /// Tells all listeners of events that the breakpoint `id` will be released, where it waits.
    pub fn announce_release(&self, id: BreakpointId) {
        self.shared.change(|_, _| {
            let list = self.shared.snapshot();
            let waiting = list.find(id).filter(|breakpoint| breakpoint.is_paused());
            let changes = waiting.map(|b| (Change::Releasing, Arc::clone(b)));
            (changes.into_iter().collect(), ())
        });
    }

    /// Takes the live breakpoint `id` out: died with the reason `why`, else released.
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
