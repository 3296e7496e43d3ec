//! The registry's core: every known breakpoint, and its changes by responses of heads, claims and
//! lookups. No I/O, no clock, no locks; time comes in as [`Now`].
//!
//! Called by [`crate::ray::registry::shared`] under its lock. Invariants, checked by the model test: one entry for
//! each worker; an entry is live until exactly one `Released` or `Died`; a response to a request
//! that was sent before a worker was claimed or released changes nothing about that worker; a
//! worker on a DEAD node is never live. A released breakpoint may turn out to have died (`lost`), which changes the
//! list of ended ones and is no event.

mod actors;
mod answers;
mod entries;
mod held;
mod holds;
mod lost;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod simulation;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::hold::RemoteHolds;
use crate::ray::registry::breakpoint::{Breakpoint, BreakpointId, Names, State as Life};
use crate::ray::registry::change::Change;
use crate::ray::registry::exit::WorkerExit;
use crate::ray::registry::list::List;
use crate::ray::registry::pending_lookups::PendingLookups;
use crate::ray::registry::rows::MAX_QUERY_ROWS;
pub(super) use entries::Target;
use entries::{Entries, Entry, Row};
pub(super) use ray_relay_base::timestamp::Timestamp as Now;

/// Most ended breakpoints that are stored.
const MAX_ENDED_BREAKPOINTS: usize = 256;

/// Breakpoints of one cluster at a time: as many as its head is queried for.
const MAX_LIVE_BREAKPOINTS: usize = MAX_QUERY_ROWS as usize;

/// Most workers whose stops are counted. Many times the number of live ones: after a cleanup of the others there is
/// space for a long time.
const MAX_COUNTED: usize = 65_536;
const _: () = assert!(MAX_COUNTED >= 4 * MAX_LIVE_BREAKPOINTS);

/// Most nodes that are stored. The GCS itself keeps 1,000 dead ones (2.60).
const MAX_NODES: usize = 20_000;

/// The slot of a cluster ([`crate::ray::registry::clusters`]).
pub(super) type Cluster = usize;

/// The changes of a step, for events.
pub(super) type Changes = Vec<(Change, Arc<Breakpoint>)>;

/// A claimed breakpoint, its cluster, and the changes.
pub(super) type Claimed = (Cluster, Arc<Breakpoint>, Changes);

/// How long ended breakpoints are stored, so that a late client gets the reason.
pub(super) const ENDED_KEPT_FOR: Duration = Duration::from_secs(600);

/// All clusters' breakpoints.
#[cfg_attr(test, derive(Clone))]
pub(super) struct State {
    clusters: Vec<ClusterState>,
    /// The remote reports of holds.
    remote: RemoteHolds,
    /// The live breakpoints of all clusters as last published.
    live: List,
    /// Ended breakpoints, newest first, each with the time of its end.
    ended: VecDeque<(Instant, Arc<Breakpoint>)>,
    /// Ended breakpoints as last published.
    published_ended: Arc<[Arc<Breakpoint>]>,
    keep_ended: Duration,
    /// Whether live or ended breakpoints differ from the published ones.
    dirty: bool,
}

#[cfg_attr(test, derive(Clone))]
struct ClusterState {
    name: Arc<str>,
    entries: Entries,
    /// Whether the last applied poll response, repeated, changes nothing as long as the entries stay unchanged.
    settled: bool,
    /// Number of stops so far of every worker that has had one.
    stops: HashMap<BreakpointId, u64>,
    /// Keys of breakpoints that a session released or that died: responses requested before then are stale.
    gone: HashMap<String, Instant>,
    nodes: HashMap<String, Node>,
    /// Names of actors' workers at their last stop, by worker id.
    actors: HashMap<Arc<str>, Arc<Names>>,
    /// Keys that Ray lists as paused and that are known not to be: kept until Ray no longer lists them.
    ghosts: HashSet<String>,
    /// Released when their debuggers had ended the sessions without a reason from Ray; with the end of the queries for
    /// it.
    unexplained: HashMap<String, Instant>,
}

#[cfg_attr(test, derive(Clone))]
enum Node {
    Alive,
    Dead { why: Arc<str> },
}

/// The follow-up queries of a poll's response.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FollowUps {
    /// Paused before, absent now: released or died?
    pub(super) vanished: Vec<String>,
    /// Number of paused workers that are not listed, because the cluster has as many breakpoints as permitted.
    pub(super) refused: usize,
}

impl State {
    pub(super) fn new(names: impl IntoIterator<Item = Arc<str>>, keep_ended: Duration) -> Self {
        Self {
            clusters: names.into_iter().map(ClusterState::new).collect(),
            remote: RemoteHolds::default(),
            live: List::default(),
            ended: VecDeque::new(),
            published_ended: Arc::default(),
            keep_ended,
            dirty: false,
        }
    }

    /// Assigns `slot`, which is free or one beyond the last, to the cluster `name`.
    pub(super) fn join(&mut self, slot: Cluster, name: Arc<str>) {
        let cluster = ClusterState::new(name);
        match self.clusters.get_mut(slot) {
            Some(free) => *free = cluster,
            None => self.clusters.push(cluster),
        }
    }

    /// Ends all breakpoints of the cluster at `slot`, for the reason `why`: the cluster is gone.
    pub(super) fn leave(&mut self, slot: Cluster, why: &Arc<str>, now: Now) -> Changes {
        let mut changes = Changes::new();
        let entries = self.clusters[slot].entries.iter();
        let keys: Vec<_> = entries.map(|(key, _)| Arc::clone(key)).collect();
        for key in keys {
            self.die(slot, &key, Arc::clone(why), now, &mut changes);
        }
        changes
    }

    /// The workers whose names are to be looked up now: all that are due, marked as sent.
    pub(super) fn due_names(&mut self, cluster: Cluster, now: Instant) -> Vec<Target> {
        self.clusters[cluster].entries.take_due(now)
    }

    /// The next worker whose stack is to be looked up.
    pub(super) fn due_location(&mut self, cluster: Cluster) -> Option<Target> {
        self.clusters[cluster].entries.take_unlocated()
    }

    /// When the next names are due.
    pub(super) fn next_names(&self, cluster: Cluster) -> Option<Instant> {
        self.clusters[cluster].entries.next_due()
    }

    /// The cluster and the key of the live breakpoint `id`.
    fn find(&self, id: BreakpointId) -> Option<(Cluster, Arc<str>)> {
        let clusters = self.clusters.iter().enumerate();
        clusters
            .filter_map(|(index, cluster)| Some((index, Arc::clone(cluster.entries.find(id)?.0))))
            .next()
    }

    /// Inserts `breakpoint` unchanged: for sources other than a head's State API.
    pub(super) fn insert(&mut self, cluster: Cluster, breakpoint: Breakpoint, now: Now) -> Changes {
        let state = &mut self.clusters[cluster];
        state.stops.insert(breakpoint.id, breakpoint.stop);
        let pending = PendingLookups::none();
        let entry = Entry::new(breakpoint.into(), now.instant, false, pending);
        self.list(cluster, entry, now)
    }

    /// Inserts a new `entry` into the list, with its current remote hold.
    fn list(&mut self, cluster: Cluster, entry: Entry, now: Now) -> Changes {
        let breakpoint = Arc::clone(entry.breakpoint());
        self.clusters[cluster].entries.insert(entry);
        self.dirty = true;
        let mut changes = vec![(Change::Appeared, Arc::clone(&breakpoint))];
        changes.extend(self.join_remote(cluster, breakpoint.key(), now));
        changes
    }

    /// Ends the breakpoint `id`: died with a reason, otherwise released.
    pub(super) fn end(&mut self, id: BreakpointId, why: Option<Arc<str>>, now: Now) -> Changes {
        let mut changes = Changes::new();
        if let Some((cluster, worker_id)) = self.find(id) {
            match why {
                Some(why) => self.die(cluster, &worker_id, why, now, &mut changes),
                None => self.release(cluster, &worker_id, now, &mut changes),
            }
        }
        changes
    }

    /// Whether `cluster` has anything paused or attached.
    pub(super) fn is_busy(&self, cluster: Cluster) -> bool {
        !self.clusters[cluster].entries.is_empty()
    }

    /// The lists to publish, if they differ from the last ones.
    pub(super) fn publish(&mut self, now: Instant) -> Option<Lists> {
        let keep = self.keep_ended;
        while self
            .ended
            .back()
            .is_some_and(|(at, _)| now.saturating_duration_since(*at) > keep)
        {
            self.ended.pop_back();
            self.dirty = true;
        }
        if !std::mem::take(&mut self.dirty) {
            return None;
        }
        for cluster in &mut self.clusters {
            for row in cluster.entries.take_changed() {
                match row {
                    Row::New(breakpoint) => self.live.insert(breakpoint),
                    Row::Gone(breakpoint) => {
                        let was_there = self.live.remove(&breakpoint);
                        debug_assert!(was_there, "{} was in the list", breakpoint.id);
                    }
                }
            }
        }
        let ended = || self.ended.iter().map(|(_, breakpoint)| breakpoint);
        let published = self.published_ended.iter();
        // Most changes leave them unchanged.
        if !published.map(Arc::as_ptr).eq(ended().map(Arc::as_ptr)) {
            self.published_ended = ended().cloned().collect();
        }
        Some(Lists {
            live: self.live.clone(),
            ended: Arc::clone(&self.published_ended),
        })
    }

    fn release(&mut self, cluster: Cluster, worker_id: &str, now: Now, out: &mut Changes) {
        self.finish(
            cluster,
            worker_id,
            Life::Released { at: now },
            Change::Released,
            now,
            out,
        );
    }

    fn die(
        &mut self,
        cluster: Cluster,
        worker_id: &str,
        exit: impl Into<WorkerExit>,
        now: Now,
        out: &mut Changes,
    ) {
        let WorkerExit { why, intended } = exit.into();
        self.clusters[cluster]
            .gone
            .insert(worker_id.to_owned(), now.instant);
        let life = Life::Died {
            at: now,
            why,
            intended,
        };
        self.finish(cluster, worker_id, life, Change::Died, now, out);
    }

    fn finish(
        &mut self,
        cluster: Cluster,
        worker_id: &str,
        life: Life,
        change: Change,
        now: Now,
        out: &mut Changes,
    ) {
        let Some(entry) = self.clusters[cluster].entries.remove(worker_id) else {
            return;
        };
        let state = &mut self.clusters[cluster];
        match life {
            Life::Died { .. } => _ = state.actors.remove(worker_id),
            _ => state.remember(entry.breakpoint()),
        }
        let mut ended = Breakpoint::clone(entry.breakpoint());
        ended.state = life;
        let ended = Arc::new(ended);
        // One record for each id: the latest end is the answer for a late client.
        self.ended.retain(|(_, old)| old.id != ended.id);
        self.ended.push_front((now.instant, Arc::clone(&ended)));
        self.ended.truncate(MAX_ENDED_BREAKPOINTS);
        out.push((change, ended));
        self.dirty = true;
    }
}

impl ClusterState {
    fn new(name: Arc<str>) -> Self {
        Self {
            name,
            entries: Entries::default(),
            settled: false,
            stops: HashMap::new(),
            gone: HashMap::new(),
            nodes: HashMap::new(),
            actors: HashMap::new(),
            ghosts: HashSet::new(),
            unexplained: HashMap::new(),
        }
    }

    /// Drops those of `those` keys that only mattered to responses requested before `sent`.
    fn forget_gone(&mut self, sent: Instant, those: impl Fn(&str) -> bool) {
        self.gone.retain(|key, at| *at > sent || !those(key));
    }

    /// The number of a new stop. Counted beyond the end of a breakpoint, so that a session that has seen one stop of a
    /// worker can distinguish the next.
    fn next_stop(&mut self, id: BreakpointId) -> u64 {
        if self.stops.len() >= MAX_COUNTED && !self.stops.contains_key(&id) {
            let live: HashSet<_> = self.entries.ids().collect();
            self.stops.retain(|id, _| live.contains(id));
        }
        let stops = self.stops.entry(id).or_default();
        *stops += 1;
        *stops
    }
}

/// Whether `key` belongs to a registered breakpoint; a worker id is hexadecimal.
pub(super) fn is_registered(key: &str) -> bool {
    key.starts_with("RAY_PDB_")
}

/// The published part of a snapshot.
pub(super) struct Lists {
    pub(super) live: List,
    pub(super) ended: Arc<[Arc<Breakpoint>]>,
}
