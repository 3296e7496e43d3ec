//! The clusters of a registry: those of the configuration, and others that come and go while it runs.
//!
//! Each has a place, by which the core knows it. A place stays a cluster's until nothing of it is left, and then another
//! one may have it: there are never more than the most that were there at a time. A task that goes on with a cluster that may
//! be gone, such as a session, holds its [`ClusterHandle`], and not its place alone.

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

/// Questions after workers that were left which a head is asked at a time: thousands may be left at once, and each has a
/// connection while it is asked after.
const MAX_WORKER_QUERIES: usize = 16;

/// Those who ask a head at a time for all that runs: each answer may have ten thousand rows.
const RUNNING: usize = 2;

/// One cluster: what asks its head, and what wakes it.
pub(super) struct ClusterHandle {
    pub(super) name: Arc<str>,
    /// Where its breakpoints and its status are.
    pub(super) place: Cluster,
    /// In the configuration, and so there for as long as the registry.
    pub(super) configured: bool,
    /// Where its head is, as it was found.
    pub(super) found_at: Option<FoundHead>,
    /// It is to be taken out: nothing is asked of its head any more.
    pub(super) gone: CancellationToken,
    /// Tasks that ask its head, in a registry that runs.
    pub(super) running: AtomicUsize,
    /// Nothing of it is left: another cluster may have the place.
    free: AtomicBool,
    /// None in a registry that polls nothing.
    pub(super) head: Option<HeadClient>,
    /// None where its legacy breakpoints are not looked for.
    pub(super) gcs: Option<GcsClient>,
    /// A session ended: the list is to be made right at once.
    pub(super) poll_now: Notify,
    /// The same for legacy breakpoints.
    pub(super) pdb_now: Notify,
    /// Something new is to be looked up.
    pub(super) lookup_now: Notify,
    /// Another part knows of a node that is not known here.
    pub(super) nodes_now: Notify,
    /// When the last answer about nodes was asked for.
    nodes_asked: watch::Sender<Option<Instant>>,
    /// Nodes that may be lost.
    pub(super) suspects: Suspects,
    /// A turn for each worker that is looked after at a time.
    pub(super) looks: Semaphore,
    /// A turn for each who asks at a time for all that runs.
    pub(super) listings: Semaphore,
    /// When the last poll that has come back was sent.
    polled: watch::Sender<Option<Instant>>,
    /// Legacy sessions that go on in no other task, by the last answer of the GCS.
    exited: watch::Sender<HashSet<BreakpointId>>,
}

/// The clusters by their places.
pub(super) struct Clusters(RwLock<Vec<Arc<ClusterHandle>>>);

impl Clusters {
    pub(super) fn new(configured: Vec<ClusterHandle>) -> Self {
        Self(RwLock::new(configured.into_iter().map(Arc::new).collect()))
    }

    /// The cluster at `place`, which the core has given out.
    pub(super) fn at(&self, place: Cluster) -> Arc<ClusterHandle> {
        Arc::clone(&self.0.read()[place])
    }

    /// Those that are there, in the order of their places: those of the configuration first.
    pub(super) fn present(&self) -> Vec<Arc<ClusterHandle>> {
        let all = self.0.read();
        let present = all.iter().filter(|handle| !handle.gone.is_cancelled());
        present.cloned().collect()
    }

    /// The cluster `name`, if it is there.
    pub(super) fn named(&self, name: &str) -> Option<Arc<ClusterHandle>> {
        let all = self.0.read();
        let mut all = all.iter();
        let it = all.find(|handle| *handle.name == *name && !handle.gone.is_cancelled());
        it.cloned()
    }

    /// Those that are not in the configuration, also where something of one that is gone is left.
    pub(super) fn others(&self) -> Vec<Arc<ClusterHandle>> {
        let all = self.0.read();
        let others = all
            .iter()
            .filter(|handle| !handle.configured && !handle.free.load(Ordering::Acquire));
        others.cloned().collect()
    }

    /// Places that there are.
    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.0.read().len()
    }

    /// Gives a place to another cluster. To be called with the core locked.
    pub(super) fn join(&self, make: impl FnOnce(Cluster) -> ClusterHandle) -> Arc<ClusterHandle> {
        let mut all = self.0.write();
        let free = all
            .iter()
            .position(|handle| handle.free.load(Ordering::Acquire));
        let place = free.unwrap_or(all.len());
        let handle = Arc::new(make(place));
        match free {
            Some(place) => all[place] = Arc::clone(&handle),
            None => all.push(Arc::clone(&handle)),
        }
        handle
    }
}

impl ClusterHandle {
    /// A cluster that was found, and where its head is, if that is known.
    pub(super) fn found(self, at: Option<FoundHead>) -> Self {
        Self {
            configured: false,
            found_at: at,
            ..self
        }
    }

    /// Has the head asked now what is paused.
    pub(super) fn ask_now(&self) {
        self.poll_now.notify_one();
        self.pdb_now.notify_one();
    }

    /// A cluster of the configuration.
    pub(super) fn new(
        name: &str,
        place: Cluster,
        head: Option<HeadClient>,
        gcs: Option<GcsClient>,
    ) -> Self {
        Self {
            name: name.into(),
            place,
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
            looks: Semaphore::new(MAX_WORKER_QUERIES),
            listings: Semaphore::new(RUNNING),
            polled: watch::Sender::default(),
            exited: watch::Sender::default(),
        }
    }

    /// Nothing of it is left.
    pub(super) fn free(&self) {
        self.free.store(true, Ordering::Release);
    }

    /// Notes that the poll that was sent at `sent` has come back, with an answer or without.
    pub(super) fn polled(&self, sent: Instant) {
        self.polled.send_replace(Some(sent));
    }

    /// Has the cluster polled now, and resolves when that has come back; at once where there is no head. Cancel safe.
    pub(super) async fn refreshed(&self) {
        if self.head.is_none() {
            return;
        }
        tokio::select! {
            () = answered_since(&self.polled, &self.poll_now) => {}
            () = self.gone.cancelled() => {}
        }
    }

    /// Notes that the head has said which nodes there are, as it was asked for at `sent`.
    pub(super) fn nodes_answered(&self, sent: Instant) {
        self.nodes_asked.send_replace(Some(sent));
    }

    /// Has the head asked for its nodes, and resolves when it has answered; at once where there is no head. Cancel safe.
    pub(super) async fn nodes_refreshed(&self) {
        if self.head.is_none() {
            return;
        }
        tokio::select! {
            () = answered_since(&self.nodes_asked, &self.nodes_now) => {}
            () = self.gone.cancelled() => {}
        }
    }

    /// Takes in all of what goes on in no other task.
    pub(super) fn exited(&self, ids: HashSet<BreakpointId>) {
        self.exited.send_if_modified(|known| {
            let news = *known != ids;
            *known = ids;
            news
        });
    }

    /// Resolves as soon as the session with the breakpoint `id` goes on in no other task. Cancel safe.
    pub(super) async fn until_exited(&self, id: BreakpointId) {
        let mut exited = self.exited.subscribe();
        if exited.wait_for(|ids| ids.contains(&id)).await.is_err() {
            // The sender lives as long as the registry.
            std::future::pending().await
        }
    }
}

/// Has something asked by `ask`, and resolves when what was asked from now on is `answered`. Cancel safe.
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
