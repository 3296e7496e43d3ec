//! A session's exclusive hold of one breakpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{SetOnce, oneshot, watch};
use tokio::time::{Instant, timeout};

use crate::hold::Holder;
use crate::ray::registry::breakpoint::{Breakpoint, BreakpointId, Location};
use crate::ray::registry::clusters::ClusterHandle;
use crate::ray::registry::current::CurrentTask;
use crate::ray::registry::query;
use crate::ray::registry::shared::{OpenClaim, Shared};
use crate::ray::registry::snapshot::Snapshot;
use ray_relay_base::wire::backoff::Backoff;

/// First and longest pause between checks whether a worker is gone.
const CHECK_BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));

/// Exclusive hold of one breakpoint by one session. The breakpoint is released, and the cluster polled at once, when
/// this and every [`Lease`] of it are dropped.
pub struct Claim {
    lease: Lease,
    shared: Arc<Shared>,
    cluster: Arc<ClusterHandle>,
    died: Arc<SetOnce<Arc<str>>>,
    ended: oneshot::Receiver<()>,
    /// Closed when the debugger has finished the previous session.
    settling: Option<watch::Receiver<()>>,
}

/// A share in a [`Claim`], for objects that may outlive the session: its connection to the worker, which must be
/// closed in order.
#[derive(Clone)]
pub struct Lease {
    held: Arc<ClaimInUse>,
}

struct ClaimInUse {
    breakpoint: Arc<Breakpoint>,
    shared: Arc<Shared>,
    cluster: Arc<ClusterHandle>,
    number: u64,
    let_run: AtomicBool,
    is_left: AtomicBool,
    /// Dropped when the breakpoint has been released.
    _ended: oneshot::Sender<()>,
}

impl Claim {
    pub(super) fn new(shared: Arc<Shared>, open: OpenClaim) -> Self {
        let OpenClaim {
            number,
            cluster,
            breakpoint,
            died,
            settling,
        } = open;
        let (ending, ended) = oneshot::channel();
        let held = ClaimInUse {
            breakpoint,
            shared: Arc::clone(&shared),
            cluster: Arc::clone(&cluster),
            number,
            let_run: AtomicBool::new(false),
            is_left: AtomicBool::new(false),
            _ended: ending,
        };
        Self {
            lease: Lease {
                held: Arc::new(held),
            },
            shared,
            cluster,
            died,
            ended,
            settling,
        }
    }

    /// Waits until the debugger has finished the previous session: no connection to it may be made earlier
    /// ([`Lease::settling`]). Cancel safe.
    pub async fn settled(&self) {
        let mut settling = self.settling.clone();
        while let Some(settling) = &mut settling
            && settling.changed().await.is_ok()
        {}
    }

    /// Drops this share, and waits until the last one is gone and the breakpoint released.
    pub async fn end(self) {
        let Self { lease, ended, .. } = self;
        drop(lease);
        let _ = ended.await;
    }

    /// A share in it.
    pub fn lease(&self) -> Lease {
        self.lease.clone()
    }

    /// Records the result of connecting to its debugger. If nothing listened, the list shows that when the claim ends,
    /// until a client reaches it again.
    pub fn dialled(&self, listens: bool) {
        let held = &self.lease.held;
        let key = held.breakpoint.key();
        let slot = self.cluster.slot;
        self.shared.dialled(slot, key, held.number, listens);
    }

    /// Records that its debugger ended the session without a reason from Ray: what Ray reports about it within the
    /// next minute is added to the list of ended breakpoints.
    pub fn unexplained(&self) {
        let held = &self.lease.held;
        let breakpoint = &held.breakpoint;
        if self.cluster.head.is_some() && !breakpoint.node_id.is_empty() {
            let slot = self.cluster.slot;
            self.shared.unexplained(slot, breakpoint.key(), held.number);
            self.cluster.suspects.add(&breakpoint.node_id);
        }
    }

    /// Records the worker's location; `None`: it runs.
    pub fn set_location(&self, location: Option<Location>) {
        let held = &self.lease.held;
        let (cluster, key) = (self.cluster.slot, held.breakpoint.key());
        self.shared.change(|state, _| {
            let changes = state.set_location(cluster, key, held.number, location);
            (changes, ())
        });
    }

    /// Records the rank that the worker's process has reported.
    pub fn has_rank(&self, rank: u32) {
        let held = &self.lease.held;
        let (cluster, key) = (self.cluster.slot, held.breakpoint.key());
        self.shared.change(|state, _| {
            let changes = state.has_rank(cluster, key, held.number, rank);
            (changes, ())
        });
    }

    /// Shows `holder` as the holder of the breakpoint from now on.
    pub fn held_by(&self, holder: Holder) {
        let held = &self.lease.held;
        let (cluster, key) = (self.cluster.slot, held.breakpoint.key());
        self.shared.change(|state, now| {
            let changes = state.held_by(cluster, key, held.number, holder, now);
            (changes, ())
        });
    }

    /// The breakpoint as it was when it was claimed.
    pub fn breakpoint(&self) -> &Arc<Breakpoint> {
        &self.lease.held.breakpoint
    }

    /// The latest version of the breakpoint, once it has a name, or after `patience`. Cancel safe.
    pub async fn named(&self, patience: Duration) -> Arc<Breakpoint> {
        let own = self.breakpoint();
        let listed = |list: &Snapshot| {
            let listed = list.find(own.id).filter(|listed| listed.stop == own.stop);
            listed.cloned()
        };
        let mut lists = self.shared.watch();
        let settled = lists.wait_for(|list| listed(list).is_none_or(|b| b.is_named()));
        let _ = timeout(patience, settled).await;
        let latest = listed(&lists.borrow());
        latest.unwrap_or_else(|| Arc::clone(own))
    }

    /// Returns a query whether the claimed task still runs.
    pub fn current_task(&self) -> CurrentTask {
        let breakpoint = Arc::clone(self.breakpoint());
        let number = self.lease.held.number;
        let cluster = Arc::clone(&self.cluster);
        CurrentTask::new(Arc::clone(&self.shared), cluster, breakpoint, number)
    }

    /// Resolves when the registry learns that the worker or its node is gone, with the reason.
    /// Cancel safe.
    pub async fn died(&mut self) -> Arc<str> {
        Arc::clone(self.died.wait().await)
    }

    /// Queries the head whether the worker is gone, for at most `patience`: called when the debugger reports the end
    /// of the process. `None`: the head knows of no death.
    pub async fn ask_why_died(&mut self, patience: Duration) -> Option<Arc<str>> {
        let until = Instant::now() + patience;
        // Boxed: every session would reserve space for the wait all the time, and few ever use it.
        let ask = Box::pin(ask(
            Arc::clone(&self.shared),
            Arc::clone(&self.cluster),
            Arc::clone(self.breakpoint()),
        ));
        tokio::select! {
            why = self.died() => Some(why),
            why = ask => Some(why),
            () = tokio::time::sleep_until(until) => None,
        }
    }
}

impl Lease {
    /// The id of the breakpoint that is held.
    pub fn id(&self) -> BreakpointId {
        self.held.breakpoint.id
    }

    /// Records that the worker may run from now on: the breakpoint is over when it is released. Before that, a release
    /// restores the same stop.
    pub fn let_run(&self) {
        self.held.let_run.store(true, Ordering::Relaxed);
    }

    /// Leaves the worker to the next process, once this one has ended. Until then no other session may hold it: the
    /// breakpoint is not released.
    pub fn leave(&self) {
        self.held.is_left.store(true, Ordering::Relaxed);
    }

    /// Returns a guard while the debugger has not finished this session: the next session must not connect to it
    /// before the guard is dropped, although the breakpoint may be released before.
    pub fn settling(&self) -> Cooldown {
        let shared = Arc::clone(&self.held.shared);
        Cooldown {
            settling: shared.settling(self.id()),
            id: self.id(),
            shared,
        }
    }

    /// Releases this share, and keeps what is needed to look after the worker.
    pub fn release(self) -> ReleasedWorker {
        let ClaimInUse {
            breakpoint,
            shared,
            cluster,
            ..
        } = &*self.held;
        ReleasedWorker {
            breakpoint: Arc::clone(breakpoint),
            shared: Arc::clone(shared),
            cluster: Arc::clone(cluster),
        }
    }
}

/// Keeps the next session from connecting to the debugger of a breakpoint, until dropped.
pub struct Cooldown {
    settling: watch::Sender<()>,
    id: BreakpointId,
    shared: Arc<Shared>,
}

impl Drop for Cooldown {
    fn drop(&mut self) {
        self.shared.settled(self.id, &self.settling);
    }
}

/// A worker from which a session has detached.
pub struct ReleasedWorker {
    breakpoint: Arc<Breakpoint>,
    shared: Arc<Shared>,
    cluster: Arc<ClusterHandle>,
}

impl ReleasedWorker {
    /// The breakpoint that the session left, as it was when it was claimed.
    pub fn breakpoint(&self) -> &Arc<Breakpoint> {
        &self.breakpoint
    }

    /// The id of the breakpoint that the session left.
    pub fn id(&self) -> BreakpointId {
        self.breakpoint.id
    }

    /// The head's current information about it. The list of the last poll does not count: it may be from before the end
    /// of the session, and is not renewed during shutdown. Costs one request at most.
    pub async fn now(&self) -> WorkerLocation {
        // The semaphore is never closed; each turn ends by the deadlines of a request to the head.
        let _turn = self.cluster.worker_queries.acquire().await;
        let worker = &self.breakpoint.worker_id;
        let list = self.shared.snapshot();
        let is_held = |row: &Arc<Breakpoint>| row.worker_id == *worker && row.holder().is_some();
        if list.find(self.breakpoint.id).is_some_and(is_held) {
            return WorkerLocation::Taken;
        }
        let Some(head) = &self.cluster.head else {
            return WorkerLocation::Unknown;
        };
        match query::worker(head, worker).await {
            Ok(list) => {
                let rows = list.into_rows();
                match rows.iter().find(|row| *row.worker_id == **worker) {
                    Some(row) if !row.is_alive => WorkerLocation::Dead,
                    Some(row) if row.num_paused_threads == Some(0) => WorkerLocation::Unlisted,
                    Some(_) => WorkerLocation::Listed,
                    None => WorkerLocation::Unknown,
                }
            }
            Err(error) => {
                tracing::debug!(%error, breakpoint = %self.id(), "cannot ask whether a worker waits");
                WorkerLocation::Unknown
            }
        }
    }
}

/// The state of a worker from which a session has detached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerLocation {
    /// Another session has it.
    Taken,
    /// Its process has ended.
    Dead,
    /// Ray reports that it waits for a debugger.
    Listed,
    /// It is alive and in no list, so that no client can attach to it: it runs, or is paused unnoticed.
    Unlisted,
    /// The head does not tell.
    Unknown,
}

impl Drop for ClaimInUse {
    fn drop(&mut self) {
        if self.is_left.load(Ordering::Relaxed) {
            return;
        }
        let breakpoint = &self.breakpoint;
        self.shared.close_claim(
            &self.cluster,
            breakpoint.id,
            breakpoint.key(),
            self.number,
            self.let_run.load(Ordering::Relaxed),
        );
    }
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Claim")
            .field("breakpoint", &self.lease.id())
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease")
            .field("breakpoint", &self.id())
            .finish_non_exhaustive()
    }
}

/// Queries until the head reports the worker as dead: up to 0.1 s pass between the end of a process and its row (Ray
/// 2.60).
async fn ask(
    shared: Arc<Shared>,
    cluster: Arc<ClusterHandle>,
    breakpoint: Arc<Breakpoint>,
) -> Arc<str> {
    let Some(head) = cluster.head.clone() else {
        return std::future::pending().await;
    };
    let mut backoff = CHECK_BACKOFF;
    loop {
        let rows = match query::worker(&head, &breakpoint.worker_id).await {
            Ok(list) => list.into_rows(),
            Err(error) => {
                tracing::debug!(%error, breakpoint = %breakpoint.id, "cannot ask why a worker ended");
                Vec::new()
            }
        };
        if let Some(row) = rows
            .iter()
            .find(|row| *row.worker_id == *breakpoint.worker_id)
            && let Some(why) = shared
                .change(|state, now| state.apply_death(cluster.slot, breakpoint.key(), row, now))
        {
            return why;
        }
        // If its raylet is alive, an ended worker is listed as dead within 0.1 s.
        if !backoff.is_fresh() && !breakpoint.node_id.is_empty() {
            cluster.suspects.add(&breakpoint.node_id);
        }
        tokio::time::sleep(backoff.pause()).await;
    }
}
