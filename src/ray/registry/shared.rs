//! The registry as everybody shares it: the core under a lock, and how each of its changes
//! becomes a new snapshot, events, and a word to the claim that it concerns.
//!
//! The lock is held for memory work only, never across an await. Snapshots and events leave under
//! it, so both show the same order.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, Semaphore, SetOnce, broadcast, watch};
use tokio::time::Instant;

use crate::config;
use crate::ray::head::HeadClient;
use crate::ray::registry::gcs::GcsClient;
use crate::ray::registry::live_nodes::RayNode;
use crate::ray::registry::nodes::Suspects;
use crate::ray::registry::observe::Observer;
use crate::ray::registry::snapshot::{ClusterStatus, Snapshot};
use crate::ray::registry::state::{Changes, Cluster, Now, State};
use crate::ray::registry::{Breakpoint, BreakpointId, Change, Event};

/// Events that a slow receiver may lag behind.
const EVENT_BACKLOG: usize = 1024;

pub(super) struct Shared {
    pub(super) settings: config::Registry,
    pub(super) clusters: Vec<ClusterHandle>,
    pub(super) observer: OnceLock<Arc<dyn Observer>>,
    snapshot: watch::Sender<Arc<Snapshot>>,
    events: broadcast::Sender<Event>,
    /// Those that heads list as alive, in order.
    pub(super) nodes: watch::Sender<Arc<[RayNode]>>,
    core: Mutex<Core>,
    /// Held by whoever asks the heads for one worker.
    pub(super) asking: tokio::sync::Mutex<()>,
    /// Held by whoever has the heads examined.
    pub(super) examining: tokio::sync::Mutex<()>,
}

/// Questions after workers that were left which a head is asked at a time: thousands may be left at once, and each has a
/// connection while it is asked after.
const LOOKS: usize = 16;

pub(super) struct ClusterHandle {
    pub(super) name: Arc<str>,
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
    /// Somebody knows of a node that is not known here.
    pub(super) nodes_now: Notify,
    /// When the last answer about nodes was asked for.
    nodes_asked: watch::Sender<Option<Instant>>,
    /// Nodes that may be lost.
    pub(super) suspects: Suspects,
    /// A turn for each worker that is looked after at a time.
    pub(super) looks: Semaphore,
    /// When the last poll that has come back was sent.
    polled: watch::Sender<Option<Instant>>,
    /// Legacy sessions that go on in no other task, by the last answer of the GCS.
    exited: watch::Sender<HashSet<BreakpointId>>,
}

pub(super) struct Core {
    pub(super) state: State,
    statuses: Vec<ClusterStatus>,
    events: u64,
    claims: HashMap<BreakpointId, InUse>,
    /// The breakpoints whose debuggers are not yet over the last session; closed when they are.
    settling: HashMap<BreakpointId, watch::Receiver<()>>,
    next_claim: u64,
}

struct InUse {
    claim: u64,
    died: Arc<SetOnce<Arc<str>>>,
}

impl Shared {
    pub(super) fn new(settings: config::Registry, clusters: Vec<ClusterHandle>) -> Self {
        let statuses: Vec<_> = clusters
            .iter()
            .map(|cluster| ClusterStatus {
                name: Arc::clone(&cluster.name),
                ray_version: None,
                polled: None,
                trouble: None,
                incomplete: None,
            })
            .collect();
        let names = clusters.iter().map(|cluster| Arc::clone(&cluster.name));
        let state = State::new(names, settings.keep_ended);
        let snapshot = Snapshot {
            clusters: statuses.clone(),
            ..Snapshot::default()
        };
        Self {
            core: Mutex::new(Core {
                state,
                statuses,
                events: 0,
                claims: HashMap::new(),
                settling: HashMap::new(),
                next_claim: 0,
            }),
            asking: tokio::sync::Mutex::default(),
            examining: tokio::sync::Mutex::default(),
            settings,
            clusters,
            observer: OnceLock::new(),
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
        let status = &mut core.statuses[cluster];
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
        // Only the time of the answer moves each second: nobody is woken for that.
        self.publish(&mut core, Changes::new(), Now::now(), before != after);
    }

    /// Registers a claim, so that its holder hears of a death.
    pub(super) fn open_claim<E>(
        &self,
        claim: impl FnOnce(&mut State, u64, Now) -> Result<(Cluster, Arc<Breakpoint>), E>,
    ) -> Result<OpenClaim, E> {
        let mut core = self.lock();
        let now = Now::now();
        let number = core.next_claim;
        let (cluster, breakpoint) = claim(&mut core.state, number, now)?;
        core.next_claim += 1;
        let died = Arc::new(SetOnce::new());
        core.claims.insert(
            breakpoint.id,
            InUse {
                claim: number,
                died: Arc::clone(&died),
            },
        );
        let changes = vec![(Change::Attached, Arc::clone(&breakpoint))];
        self.publish(&mut core, changes, now, false);
        Ok(OpenClaim {
            number,
            cluster,
            settling: core.settling.get(&breakpoint.id).cloned(),
            breakpoint,
            died,
        })
    }

    /// Has whoever claims the breakpoint `id` from now on wait for the other end of what this returns to be dropped.
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

    /// Forgets a claim and gives its breakpoint back; `used`: the worker may have been detached, and its task run on.
    pub(super) fn close_claim(
        &self,
        cluster: Cluster,
        id: BreakpointId,
        worker_id: &str,
        claim: u64,
        used: bool,
    ) {
        let mut core = self.lock();
        if core.claims.get(&id).is_some_and(|held| held.claim == claim) {
            core.claims.remove(&id);
        }
        let now = Now::now();
        let changes = match used {
            true => core.state.give_back(cluster, worker_id, claim, now),
            false => core.state.put_back(cluster, worker_id, claim, now),
        };
        self.publish(&mut core, changes, now, false);
        drop(core);
        self.clusters[cluster].poll_now.notify_one();
        self.clusters[cluster].pdb_now.notify_one();
    }

    fn publish(&self, core: &mut Core, changes: Changes, now: Now, wake: bool) {
        let lists = core.state.publish(now.instant);
        let wake = wake || lists.is_some();
        let clusters = core.statuses.clone();
        self.snapshot.send_if_modified(|snapshot| {
            let next = match lists {
                Some(lists) => Snapshot {
                    live: lists.live,
                    ended: lists.ended,
                    clusters,
                },
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
            // Fails only when nobody listens.
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
    pub(super) cluster: Cluster,
    pub(super) breakpoint: Arc<Breakpoint>,
    pub(super) died: Arc<SetOnce<Arc<str>>>,
    pub(super) settling: Option<watch::Receiver<()>>,
}

impl ClusterHandle {
    pub(super) fn new(name: &str, head: Option<HeadClient>, gcs: Option<GcsClient>) -> Self {
        Self {
            name: name.into(),
            head,
            gcs,
            poll_now: Notify::new(),
            pdb_now: Notify::new(),
            lookup_now: Notify::new(),
            nodes_now: Notify::new(),
            nodes_asked: watch::Sender::default(),
            suspects: Suspects::default(),
            looks: Semaphore::new(LOOKS),
            polled: watch::Sender::default(),
            exited: watch::Sender::default(),
        }
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
        answered_since(&self.polled, &self.poll_now).await;
    }

    /// Notes that the head has said which nodes there are, as it was asked for at `sent`.
    pub(super) fn nodes_answered(&self, sent: Instant) {
        self.nodes_asked.send_replace(Some(sent));
    }

    /// Has the head asked for its nodes, and resolves when it has answered; at once where there is no head. Cancel safe.
    pub(super) async fn nodes_refreshed(&self) {
        if self.head.is_some() {
            answered_since(&self.nodes_asked, &self.nodes_now).await;
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

impl ClusterStatus {
    pub(super) fn answered(&mut self, at: Instant) {
        self.polled = Some(at.into_std());
        self.trouble = None;
    }
}
