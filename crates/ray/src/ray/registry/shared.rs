//! The shared part of the registry: the core under a lock. Each of its changes becomes a new snapshot,
//! events, and a notification of the affected claim.
//!
//! The lock is held for memory work only, never across an await. Snapshots and events are published under
//! it, so both show the same order.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{SetOnce, broadcast, watch};
use tokio::time::Instant;

use crate::hold::{RayNode, RemoteHolds, Touched};
use crate::ray::registry::clusters::{ClusterHandle, Clusters};
use crate::ray::registry::found_cluster::Published;
use crate::ray::registry::live_nodes;
use crate::ray::registry::observe::Observer;
use crate::ray::registry::snapshot::{ClusterStatus, Search, Snapshot};
use crate::ray::registry::state::{Changes, Claimed, Cluster, ENDED_KEPT_FOR, Now, State};
use crate::ray::registry::{Breakpoint, BreakpointId, Event, FoundCluster};
use ray_relay_base::config;
use ray_relay_base::memory::Memory;

/// Events that a slow receiver may lag behind.
const EVENT_BACKLOG: usize = 1024;

pub(super) struct Shared {
    pub(super) settings: config::Registry,
    pub(super) clusters: Clusters,
    pub(super) found: Published,
    pub(super) observer: OnceLock<Arc<dyn Observer>>,
    /// The budget for responses of heads.
    pub(super) memory: OnceLock<Memory>,
    /// Collective timeouts of the configuration.
    pub(super) release: OnceLock<config::Release>,
    snapshot: watch::Sender<Arc<Snapshot>>,
    events: broadcast::Sender<Event>,
    /// Nodes that heads list as alive, in order.
    pub(super) nodes: watch::Sender<Arc<[RayNode]>>,
    core: Mutex<Core>,
    /// Held while the heads are queried for one worker.
    pub(super) asking: tokio::sync::Mutex<()>,
    /// Held while the heads are examined.
    pub(super) examining: tokio::sync::Mutex<()>,
}

pub(super) struct Core {
    pub(super) state: State,
    /// By the slots of clusters; `None` for a free slot.
    statuses: Vec<Option<ClusterStatus>>,
    /// The statuses as last [published](Core::publish_statuses).
    published: Arc<[ClusterStatus]>,
    /// Number of statuses from the configuration, which always come first.
    configured: usize,
    events: u64,
    claims: HashMap<BreakpointId, SharedInUse>,
    /// Breakpoints whose debuggers have not finished the last session; closed when they have.
    settling: HashMap<BreakpointId, watch::Receiver<()>>,
    next_claim: u64,
}

struct SharedInUse {
    claim: u64,
    died: Arc<SetOnce<Arc<str>>>,
}

impl Shared {
    pub(super) fn new(settings: config::Registry, clusters: Vec<ClusterHandle>) -> Self {
        let statuses: Vec<_> = clusters
            .iter()
            .map(|cluster| ClusterStatus::new(Arc::clone(&cluster.name)))
            .collect();
        let names = clusters.iter().map(|cluster| Arc::clone(&cluster.name));
        let state = State::new(names, ENDED_KEPT_FOR);
        let published: Arc<[_]> = statuses.as_slice().into();
        let snapshot = Snapshot {
            clusters: Arc::clone(&published),
            ..Snapshot::default()
        };
        Self {
            core: Mutex::new(Core {
                state,
                configured: statuses.len(),
                statuses: statuses.into_iter().map(Some).collect(),
                published,
                events: 0,
                claims: HashMap::new(),
                settling: HashMap::new(),
                next_claim: 0,
            }),
            asking: tokio::sync::Mutex::default(),
            examining: tokio::sync::Mutex::default(),
            settings,
            clusters: Clusters::new(clusters),
            found: Published::default(),
            observer: OnceLock::new(),
            memory: OnceLock::new(),
            release: OnceLock::new(),
            snapshot: watch::Sender::new(Arc::new(snapshot)),
            events: broadcast::Sender::new(EVENT_BACKLOG),
            nodes: watch::Sender::new(Arc::from([])),
        }
    }

    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.borrow())
    }

    pub(super) fn watch(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshot.subscribe()
    }

    pub(super) fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    /// Inspects the core without changing anything that is published.
    pub(super) fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.lock().state)
    }

    /// Changes the core, and publishes the changes.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State, Now) -> (Changes, T)) -> T {
        let mut core = self.lock();
        let now = Now::now();
        let (changes, result) = change(&mut core.state, now);
        self.publish(&mut core, changes, now, false);
        result
    }

    /// Records the response of a cluster's head.
    pub(super) fn status(&self, cluster: Cluster, note: impl FnOnce(&mut ClusterStatus)) {
        let mut core = self.lock();
        let Some(status) = &mut core.statuses[cluster] else {
            return;
        };
        let known = |status: &ClusterStatus| {
            (
                status.trouble.is_some(),
                status.incomplete.is_some(),
                status.ray_version.is_some(),
                status.polled.is_some(),
            )
        };
        let before = known(status);
        note(status);
        let after = known(status);
        core.publish_statuses();
        // Only the time of the response changes each second: no task is woken for that.
        self.publish(&mut core, Changes::new(), Now::now(), before != after);
    }

    /// Registers a claim, so that its holder is notified of a death.
    pub(super) fn open_claim<E>(
        &self,
        claim: impl FnOnce(&mut State, u64, Now) -> Result<Claimed, E>,
    ) -> Result<OpenClaim, E> {
        let mut core = self.lock();
        let now = Now::now();
        let number = core.next_claim;
        let (cluster, breakpoint, changes) = claim(&mut core.state, number, now)?;
        core.next_claim += 1;
        let died = Arc::new(SetOnce::new());
        core.claims.insert(
            breakpoint.id,
            SharedInUse {
                claim: number,
                died: Arc::clone(&died),
            },
        );
        self.publish(&mut core, changes, now, false);
        Ok(OpenClaim {
            number,
            cluster: self.clusters.at(cluster),
            settling: core.settling.get(&breakpoint.id).cloned(),
            breakpoint,
            died,
        })
    }

    /// Makes a session that claims the breakpoint `id` from now on wait until the returned sender is dropped.
    pub(super) fn settling(&self, id: BreakpointId) -> watch::Sender<()> {
        let (settling, settled) = watch::channel(());
        self.lock().settling.insert(id, settled);
        settling
    }

    /// Removes the wait for the breakpoint `id`, unless there is a new one.
    pub(super) fn settled(&self, id: BreakpointId, settling: &watch::Sender<()>) {
        let mut core = self.lock();
        let latest = core.settling.get(&id);
        if latest.is_some_and(|latest| latest.same_channel(&settling.subscribe())) {
            core.settling.remove(&id);
        }
    }

    /// Records the result of connecting to the debugger that `claim` holds.
    pub(super) fn dialled(&self, cluster: Cluster, key: &str, claim: u64, listens: bool) {
        let now = Now::now();
        self.lock().state.dialled(cluster, key, claim, listens, now);
    }

    /// Records that the debugger that `claim` holds ended the session without a report from Ray.
    pub(super) fn unexplained(&self, cluster: Cluster, key: &str, claim: u64) {
        self.lock().state.unexplained(cluster, key, claim);
    }

    /// Applies `update` to the remote reports.
    pub(super) fn update_remote(&self, update: impl FnOnce(&mut RemoteHolds) -> Touched) {
        let mut core = self.lock();
        let now = Now::now();
        let (changes, over) = core.state.update_remote(update, now);
        if changes.is_empty() {
            return;
        }
        self.publish(&mut core, changes, now, false);
        drop(core);
        // It is not known whether those tasks were resumed: a poll will find paused ones, as new stops.
        for cluster in over {
            self.clusters.at(cluster).ask_now();
        }
    }

    /// Removes a claim and releases its breakpoint; `ran`: the worker may have been detached, and its task resumed.
    pub(super) fn close_claim(
        &self,
        cluster: &ClusterHandle,
        id: BreakpointId,
        worker_id: &str,
        claim: u64,
        ran: bool,
    ) {
        let mut core = self.lock();
        if core.claims.get(&id).is_some_and(|held| held.claim == claim) {
            core.claims.remove(&id);
        }
        let now = Now::now();
        let state = &mut core.state;
        let changes = state.release_claim(cluster.slot, worker_id, claim, ran, now);
        self.publish(&mut core, changes, now, false);
        drop(core);
        cluster.ask_now();
    }

    /// Adds a cluster that is not in the configuration, with its trouble, if any. `make` creates it for its slot.
    pub(super) fn join(
        &self,
        make: impl FnOnce(Cluster) -> ClusterHandle,
        found: &FoundCluster,
        trouble: Option<String>,
    ) -> Arc<ClusterHandle> {
        let mut core = self.lock();
        let handle = self.clusters.join(make);
        self.count(&handle);
        let (slot, name) = (handle.slot, &handle.name);
        let status = ClusterStatus {
            ray_job: found.ray_job.clone(),
            pending: found.head.is_err() && found.is_pending,
            trouble,
            ..ClusterStatus::new(Arc::clone(name))
        };
        core.state.join(slot, Arc::clone(name));
        match core.statuses.get_mut(slot) {
            Some(free) => *free = Some(status),
            None => core.statuses.push(Some(status)),
        }
        core.publish_statuses();
        self.publish(&mut core, Changes::new(), Now::now(), true);
        handle
    }

    /// Charges the responses of the head of `cluster` to the budget, if there is one.
    pub(super) fn count(&self, cluster: &ClusterHandle) {
        if let (Some(memory), Some(head)) = (self.memory.get(), &cluster.head) {
            head.count(memory.cluster(&cluster.name));
        }
    }

    /// Removes a cluster when no task queries its head any more: its waiting breakpoints die, their sessions are
    /// notified, and its slot is free.
    pub(super) fn leave(&self, handle: &ClusterHandle, why: &Arc<str>) {
        let mut core = self.lock();
        let now = Now::now();
        let changes = core.state.leave(handle.slot, why, now);
        core.statuses[handle.slot] = None;
        core.publish_statuses();
        self.publish(&mut core, changes, now, true);
        handle.free();
        drop(core);
        live_nodes::publish(&self.nodes, &handle.name, Vec::new());
        if let Some(observer) = self.observer.get() {
            observer.gone(&handle.name);
        }
    }

    /// Publishes `search` in every list from now on.
    pub(super) fn set_search(&self, search: Search) {
        self.snapshot.send_if_modified(|snapshot| {
            let is_news = snapshot.search.as_deref() != Some(&search);
            if is_news {
                *snapshot = Arc::new(Snapshot {
                    search: Some(Arc::new(search)),
                    ..Snapshot::clone(snapshot)
                });
            }
            is_news
        });
    }

    fn publish(&self, core: &mut Core, changes: Changes, now: Now, wake: bool) {
        let lists = core.state.publish(now.instant);
        let wake = wake || lists.is_some();
        let clusters = Arc::clone(&core.published);
        self.snapshot.send_if_modified(|snapshot| {
            let next = match lists {
                Some(lists) => Snapshot {
                    live: lists.live,
                    ended: lists.ended,
                    clusters,
                    search: snapshot.search.clone(),
                },
                None if Arc::ptr_eq(&clusters, &snapshot.clusters) => return wake,
                None => Snapshot {
                    clusters,
                    ..Snapshot::clone(snapshot)
                },
            };
            *snapshot = Arc::new(next);
            wake
        });
        for (change, breakpoint) in changes {
            if let crate::ray::registry::State::Died { why, .. } = &breakpoint.state
                && let Some(held) = core.claims.get(&breakpoint.id)
            {
                // The first reason is the one that ends the session.
                let _ = held.died.set(Arc::clone(why));
            }
            if let Some(observer) = self.observer.get() {
                observer.changed(change, &breakpoint);
            }
            core.events += 1;
            // Fails only without a listener.
            let _ = self.events.send(Event {
                seq: core.events,
                change,
                breakpoint,
            });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        // A panic inside leaves lists that are at worst incomplete; the next poll repairs them.
        self.core.lock()
    }
}

/// The result of [`Shared::open_claim`].
pub(super) struct OpenClaim {
    pub(super) number: u64,
    pub(super) cluster: Arc<ClusterHandle>,
    pub(super) breakpoint: Arc<Breakpoint>,
    pub(super) died: Arc<SetOnce<Arc<str>>>,
    pub(super) settling: Option<watch::Receiver<()>>,
}

impl Core {
    /// Publishes the statuses: the slots of discovered clusters are meaningless, so those are sorted by name.
    fn publish_statuses(&mut self) {
        let mut published: Vec<_> = self.statuses.iter().flatten().cloned().collect();
        if let Some(found) = published.get_mut(self.configured..) {
            found.sort_by(|a, b| a.name.cmp(&b.name));
        }
        self.published = published.into();
    }
}

impl ClusterStatus {
    /// The status of a cluster that has not been queried yet.
    fn new(name: Arc<str>) -> Self {
        Self {
            name,
            ray_job: None,
            ray_version: None,
            polled: None,
            trouble: None,
            pending: false,
            incomplete: None,
        }
    }

    pub(super) fn answered(&mut self, at: Instant) {
        self.polled = Some(at.into_std());
        self.trouble = None;
    }
}
