//! The clusters of a registry: those of the configuration, and others that come and go while it runs.
//!
//! Each has a slot, by which the core addresses it. A slot belongs to a cluster until nothing of it remains, and is
//! reused afterwards: there are never more slots than the most clusters at a time. A task that continues with a
//! cluster that may be gone, such as a session, holds its [`ClusterHandle`], and not its slot alone.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::RwLock;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::ray::head::HeadClient;
use crate::ray::registry::gcs::GcsClient;
use crate::ray::registry::state::Cluster;
use crate::ray::registry::suspects::Suspects;
use crate::ray::registry::{BreakpointId, FoundHead};

/// Concurrent queries of a head for detached workers: thousands may be detached at once, and each query needs a
/// connection.
const MAX_WORKER_QUERIES: usize = 16;

/// Concurrent queries of a head for everything that runs: each response may have ten thousand rows.
const MAX_RUNNING_QUERIES: usize = 2;

/// One cluster: the clients of its head, and the signals for its tasks.
pub(super) struct ClusterHandle {
    pub(super) name: Arc<str>,
    /// The slot of its breakpoints and its status.
    pub(super) slot: Cluster,
    /// Whether it is in the configuration, and so exists as long as the registry.
    pub(super) configured: bool,
    /// The address of its head, as it was discovered.
    pub(super) found_at: Option<FoundHead>,
    /// Cancelled when it is to be removed: its head gets no more requests.
    pub(super) gone: CancellationToken,
    /// Number of tasks that query its head, in a running registry.
    pub(super) running: AtomicUsize,
    /// Whether nothing of it remains, so that another cluster may get the slot.
    free: AtomicBool,
    /// `None` in a registry that polls nothing.
    pub(super) head: Option<HeadClient>,
    /// `None` if its legacy breakpoints are not polled.
    pub(super) gcs: Option<GcsClient>,
    /// A session ended: the list must be refreshed at once.
    pub(super) poll_now: Notify,
    /// The same for legacy breakpoints.
    pub(super) pdb_now: Notify,
    /// There is something new to look up.
    pub(super) lookup_now: Notify,
    /// Another part knows a node that is not known here.
    pub(super) nodes_now: Notify,
    /// When the last response about nodes was requested.
    nodes_asked: watch::Sender<Option<Instant>>,
    /// Nodes that may be lost.
    pub(super) suspects: Suspects,
    /// Turns for queries for detached workers.
    pub(super) worker_queries: Semaphore,
    /// Turns for queries for everything that runs.
    pub(super) listings: Semaphore,
    /// When the last completed poll was sent.
    polled: watch::Sender<Option<Instant>>,
    /// Legacy sessions that continue in no other task, by the last response of the GCS.
    exited: watch::Sender<HashSet<BreakpointId>>,
}

/// The clusters by their slots.
pub(super) struct Clusters(RwLock<Vec<Arc<ClusterHandle>>>);

impl Clusters {
    pub(super) fn new(configured: Vec<ClusterHandle>) -> Self {
        Self(RwLock::new(configured.into_iter().map(Arc::new).collect()))
    }

    /// The cluster at `slot`, assigned by the core.
    pub(super) fn at(&self, slot: Cluster) -> Arc<ClusterHandle> {
        Arc::clone(&self.0.read()[slot])
    }

    /// The present clusters, in the order of their slots: those of the configuration first.
    pub(super) fn present(&self) -> Vec<Arc<ClusterHandle>> {
        let all = self.0.read();
        let present = all.iter().filter(|handle| !handle.gone.is_cancelled());
        present.cloned().collect()
    }

    /// The cluster `name`, if it is present.
    pub(super) fn named(&self, name: &str) -> Option<Arc<ClusterHandle>> {
        let all = self.0.read();
        let mut all = all.iter();
        let it = all.find(|handle| *handle.name == *name && !handle.gone.is_cancelled());
        it.cloned()
    }

    /// The clusters that are not in the configuration, including removed ones of which something remains.
    pub(super) fn others(&self) -> Vec<Arc<ClusterHandle>> {
        let all = self.0.read();
        let others = all
            .iter()
            .filter(|handle| !handle.configured && !handle.free.load(Ordering::Acquire));
        others.cloned().collect()
    }

    /// Number of slots.
    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.0.read().len()
    }

    /// Assigns a slot to another cluster. The core must be locked.
    pub(super) fn join(&self, make: impl FnOnce(Cluster) -> ClusterHandle) -> Arc<ClusterHandle> {
        let mut all = self.0.write();
        let free = all
            .iter()
            .position(|handle| handle.free.load(Ordering::Acquire));
        let slot = free.unwrap_or(all.len());
        let handle = Arc::new(make(slot));
        match free {
            Some(slot) => all[slot] = Arc::clone(&handle),
            None => all.push(Arc::clone(&handle)),
        }
        handle
    }
}

impl ClusterHandle {
    /// A discovered cluster, with the address of its head, if that is known.
    pub(super) fn found(self, at: Option<FoundHead>) -> Self {
        Self {
            configured: false,
            found_at: at,
            ..self
        }
    }

    /// Triggers polls of the head for paused tasks.
    pub(super) fn ask_now(&self) {
        self.poll_now.notify_one();
        self.pdb_now.notify_one();
    }

    /// A cluster of the configuration.
    pub(super) fn new(
        name: &str,
        slot: Cluster,
        head: Option<HeadClient>,
        gcs: Option<GcsClient>,
    ) -> Self {
        Self {
            name: name.into(),
            slot,
            configured: true,
            found_at: None,
            gone: CancellationToken::new(),
            running: AtomicUsize::new(0),
            free: AtomicBool::new(false),
            head,
            gcs,
            poll_now: Notify::new(),
            pdb_now: Notify::new(),
            lookup_now: Notify::new(),
            nodes_now: Notify::new(),
            nodes_asked: watch::Sender::default(),
            suspects: Suspects::default(),
            worker_queries: Semaphore::new(MAX_WORKER_QUERIES),
            listings: Semaphore::new(MAX_RUNNING_QUERIES),
            polled: watch::Sender::default(),
            exited: watch::Sender::default(),
        }
    }

    /// Marks that nothing of it remains.
    pub(super) fn free(&self) {
        self.free.store(true, Ordering::Release);
    }

    /// Records that the poll sent at `sent` has completed, with a response or without.
    pub(super) fn polled(&self, sent: Instant) {
        self.polled.send_replace(Some(sent));
    }

    /// Polls the cluster now, and resolves when that has completed; at once without a head. Cancel safe.
    pub(super) async fn refreshed(&self) {
        if self.head.is_none() {
            return;
        }
        tokio::select! {
            () = answered_since(&self.polled, &self.poll_now) => {}
            () = self.gone.cancelled() => {}
        }
    }

    /// Records the head's response about nodes, as requested at `sent`.
    pub(super) fn nodes_answered(&self, sent: Instant) {
        self.nodes_asked.send_replace(Some(sent));
    }

    /// Queries the head for its nodes, and resolves after the response; at once without a head. Cancel safe.
    pub(super) async fn nodes_refreshed(&self) {
        if self.head.is_none() {
            return;
        }
        tokio::select! {
            () = answered_since(&self.nodes_asked, &self.nodes_now) => {}
            () = self.gone.cancelled() => {}
        }
    }

    /// Replaces the set of sessions that continue in no other task.
    pub(super) fn exited(&self, ids: HashSet<BreakpointId>) {
        self.exited.send_if_modified(|known| {
            let news = *known != ids;
            *known = ids;
            news
        });
    }

    /// Resolves as soon as the session with the breakpoint `id` continues in no other task. Cancel safe.
    pub(super) async fn until_exited(&self, id: BreakpointId) {
        let mut exited = self.exited.subscribe();
        if exited.wait_for(|ids| ids.contains(&id)).await.is_err() {
            // The sender lives as long as the registry.
            std::future::pending().await
        }
    }
}

/// Triggers `ask`, and resolves when a request sent from now on is `answered`. Cancel safe.
async fn answered_since(answered: &watch::Sender<Option<Instant>>, ask: &Notify) {
    let now = Instant::now();
    let mut answered = answered.subscribe();
    ask.notify_one();
    let fresh = |sent: &Option<Instant>| sent.is_some_and(|sent| sent >= now);
    if answered.wait_for(fresh).await.is_err() {
        // The sender lives as long as the registry.
        std::future::pending().await
    }
}
