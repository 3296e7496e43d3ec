//! The registry as all share it: the core under a lock, and how each of its changes
//! becomes a new snapshot, events, and a word to the claim that it concerns.
//!
//! The lock is held for memory work only, never across an await. Snapshots and events leave under
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
    pub(super) told: Published,
    pub(super) observer: OnceLock<Arc<dyn Observer>>,
    /// What the answers of heads are taken from.
    pub(super) memory: OnceLock<Memory>,
    /// What it says of the limits of collectives.
    pub(super) release: OnceLock<config::Release>,
    snapshot: watch::Sender<Arc<Snapshot>>,
    events: broadcast::Sender<Event>,
    /// Those that heads list as alive, in order.
    pub(super) nodes: watch::Sender<Arc<[RayNode]>>,
    core: Mutex<Core>,
    /// Held while the heads are asked for one worker.
    pub(super) asking: tokio::sync::Mutex<()>,
    /// Held while the heads are examined.
    pub(super) examining: tokio::sync::Mutex<()>,
}

pub(super) struct Core {
    pub(super) state: State,
    /// By the places of clusters; `None` where there is none any more.
    statuses: Vec<Option<ClusterStatus>>,
    /// The same as they were last [told](Core::tell).
    told: Arc<[ClusterStatus]>,
    /// How many of them are of the configuration, and so the first for ever.
    configured: usize,
    events: u64,
    claims: HashMap<BreakpointId, SharedInUse>,
    /// The breakpoints whose debuggers are not yet over the last session; closed when they are.
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
        let told: Arc<[_]> = statuses.as_slice().into();
        let snapshot = Snapshot {
            clusters: Arc::clone(&told),
            ..Snapshot::default()
        };
        Self {
            core: Mutex::new(Core {
                state,
                configured: statuses.len(),
                statuses: statuses.into_iter().map(Some).collect(),
                told,
                events: 0,
                claims: HashMap::new(),
                settling: HashMap::new(),
                next_claim: 0,
            }),
            asking: tokio::sync::Mutex::default(),
            examining: tokio::sync::Mutex::default(),
            settings,
            clusters: Clusters::new(clusters),
            told: Published::default(),
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

    /// Looks at the core without changing anything that is published.
    pub(super) fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.lock().state)
    }

    /// Changes the core, and publishes what came of it.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State, Now) -> (Changes, T)) -> T {
        let mut core = self.lock();
        let now = Now::now();
        let (changes, result) = change(&mut core.state, now);
        self.publish(&mut core, changes, now, false);
        result
    }

    /// Notes how a cluster's head answered.
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
        core.tell();
        // Only the time of the answer moves each second: no task is woken for that.
        self.publish(&mut core, Changes::new(), Now::now(), before != after);
    }

    /// Registers a claim, so that its holder hears of a death.
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

    /// Has a session that claims the breakpoint `id` from now on wait for the other end of what this returns to be dropped.
    pub(super) fn settling(&self, id: BreakpointId) -> watch::Sender<()> {
        let (settling, settled) = watch::channel(());
        self.lock().settling.insert(id, settled);
        settling
    }

    /// Forgets that the breakpoint `id` is waited for, unless it is once more.
    pub(super) fn settled(&self, id: BreakpointId, settling: &watch::Sender<()>) {
        let mut core = self.lock();
        let latest = core.settling.get(&id);
        if latest.is_some_and(|latest| latest.same_channel(&settling.subscribe())) {
            core.settling.remove(&id);
        }
    }

    /// Takes note of what became of dialling the debugger that `claim` holds.
    pub(super) fn dialled(&self, cluster: Cluster, key: &str, claim: u64, listens: bool) {
        let now = Now::now();
        self.lock().state.dialled(cluster, key, claim, listens, now);
    }

    /// Takes note that the debugger that `claim` holds ended the session without a word of Ray's.
    pub(super) fn unexplained(&self, cluster: Cluster, key: &str, claim: u64) {
        self.lock().state.unexplained(cluster, key, claim);
    }

    /// Takes in what others say that they have: `said` changes it.
    pub(super) fn hear(&self, said: impl FnOnce(&mut RemoteHolds) -> Touched) {
        let mut core = self.lock();
        let now = Now::now();
        let (changes, over) = core.state.hear(said, now);
        if changes.is_empty() {
            return;
        }
        self.publish(&mut core, changes, now, false);
        drop(core);
        // Whether those tasks were let run is not known here: a poll says at once what waits, as another stop.
        for cluster in over {
            self.clusters.at(cluster).ask_now();
        }
    }

    /// Forgets a claim and gives its breakpoint back; `ran`: the worker may have been detached, and its task run on.
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
        let changes = state.give_back(cluster.place, worker_id, claim, ran, now);
        self.publish(&mut core, changes, now, false);
        drop(core);
        cluster.ask_now();
    }

    /// Puts a cluster in that is not in the configuration, with what is wrong with it, if anything. `make` makes it for the
    /// place that it gets.
    pub(super) fn join(
        &self,
        make: impl FnOnce(Cluster) -> ClusterHandle,
        found: &FoundCluster,
        trouble: Option<String>,
    ) -> Arc<ClusterHandle> {
        let mut core = self.lock();
        let handle = self.clusters.join(make);
        self.count(&handle);
        let (place, name) = (handle.place, &handle.name);
        let status = ClusterStatus {
            ray_job: found.ray_job.clone(),
            pending: found.head.is_err() && found.is_pending,
            trouble,
            ..ClusterStatus::new(Arc::clone(name))
        };
        core.state.join(place, Arc::clone(name));
        match core.statuses.get_mut(place) {
            Some(free) => *free = Some(status),
            None => core.statuses.push(Some(status)),
        }
        core.tell();
        self.publish(&mut core, Changes::new(), Now::now(), true);
        handle
    }

    /// Has the answers of the head of `cluster` taken from the memory that there is, where that is known.
    pub(super) fn count(&self, cluster: &ClusterHandle) {
        if let (Some(memory), Some(head)) = (self.memory.get(), &cluster.head) {
            head.count(memory.cluster(&cluster.name));
        }
    }

    /// Takes a cluster out when nothing asks its head any more: whatever waits there has died, sessions there hear of it, and
    /// its place is free.
    pub(super) fn leave(&self, handle: &ClusterHandle, why: &Arc<str>) {
        let mut core = self.lock();
        let now = Now::now();
        let changes = core.state.leave(handle.place, why, now);
        core.statuses[handle.place] = None;
        core.tell();
        self.publish(&mut core, changes, now, true);
        handle.free();
        drop(core);
        live_nodes::publish(&self.nodes, &handle.name, Vec::new());
        if let Some(observer) = self.observer.get() {
            observer.gone(&handle.name);
        }
    }

    /// Has `search` in every list from now on.
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
        let clusters = Arc::clone(&core.told);
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
                // What it is told first is what ends the session.
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
        // A panic inside leaves lists that are at worst incomplete; the next poll mends them.
        self.core.lock()
    }
}

/// What [`Shared::open_claim`] hands out.
pub(super) struct OpenClaim {
    pub(super) number: u64,
    pub(super) cluster: Arc<ClusterHandle>,
    pub(super) breakpoint: Arc<Breakpoint>,
    pub(super) died: Arc<SetOnce<Arc<str>>>,
    pub(super) settling: Option<watch::Receiver<()>>,
}

impl Core {
    /// Has the clusters told as they are now: the places of those that come and go say nothing.
    fn tell(&mut self) {
        let mut told: Vec<_> = self.statuses.iter().flatten().cloned().collect();
        if let Some(found) = told.get_mut(self.configured..) {
            found.sort_by(|a, b| a.name.cmp(&b.name));
        }
        self.told = told.into();
    }
}

impl ClusterStatus {
    /// Of a cluster that has not been asked yet.
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
