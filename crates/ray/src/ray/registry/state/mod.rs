//! The registry's core: every known breakpoint, and what each answer of a head, each claim and
//! each lookup changes about it. No I/O, no clock, no locks; time comes in as [`Now`].
//!
//! Called by [`crate::ray::registry::shared`] under its lock. Invariants, held by the model test: one entry for
//! each worker; an entry is live until exactly one `Released` or `Died`; an answer to a question
//! that was sent before a worker was claimed or given back changes nothing about that worker; a
//! worker on a DEAD node is never live. What was released may turn out to have died (`lost`), which changes the list of
//! what ended and is no event.

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
use crate::ray::registry::rows::LIMIT;
pub(super) use entries::Target;
use entries::{Entries, Entry, Row};
pub(super) use ray_relay_base::timestamp::Timestamp as Now;

/// Ended breakpoints that are remembered at most.
const MAX_ENDED: usize = 256;

/// Breakpoints that one cluster may have at a time: as many as its head is asked for.
const MAX_LIVE: usize = LIMIT as usize;

/// The largest number of workers whose number of stops is remembered. Many times as many as may be live: each time that
/// all the others are forgotten there is room for long.
const MAX_COUNTED: usize = 65_536;
const _: () = assert!(MAX_COUNTED >= 4 * MAX_LIVE);

/// Nodes that are remembered at most. The GCS itself keeps 1,000 dead ones (2.60).
const MAX_NODES: usize = 20_000;

/// The place of a cluster ([`crate::ray::registry::clusters`]).
pub(super) type Cluster = usize;

/// What happened, for events.
pub(super) type Changes = Vec<(Change, Arc<Breakpoint>)>;

/// A breakpoint that a claim was given, where it is, and what happened.
pub(super) type Claimed = (Cluster, Arc<Breakpoint>, Changes);

/// How long ended breakpoints are remembered, so that a client that comes too late hears why.
pub(super) const ENDED_KEPT_FOR: Duration = Duration::from_secs(600);

/// All clusters' breakpoints.
#[cfg_attr(test, derive(Clone))]
pub(super) struct State {
    clusters: Vec<ClusterState>,
    /// What others say that they have.
    remote: RemoteHolds,
    /// The live breakpoints of all as they were last published.
    live: List,
    /// Breakpoints that are over, newest first, each with the time of its end.
    ended: VecDeque<(Instant, Arc<Breakpoint>)>,
    /// The same as they were last published.
    told_ended: Arc<[Arc<Breakpoint>]>,
    keep_ended: Duration,
    /// Whether what is live or has ended differs from what was last published.
    dirty: bool,
}

#[cfg_attr(test, derive(Clone))]
struct ClusterState {
    name: Arc<str>,
    entries: Entries,
    /// The poll's answer that was taken in last, said again, changes nothing as long as the entries stay as they are.
    settled: bool,
    /// Stops so far of every worker that has had one.
    stops: HashMap<BreakpointId, u64>,
    /// Keys of breakpoints that a session gave back or that died: answers asked for before then are stale.
    gone: HashMap<String, Instant>,
    nodes: HashMap<String, Node>,
    /// What workers of actors were at their last stop, by worker id.
    actors: HashMap<Arc<str>, Arc<Names>>,
    /// Keys that Ray's list has as paused and that are known not to be: until that list leaves them out.
    ghosts: HashSet<String>,
    /// Released when their debuggers had ended the sessions, and Ray did not say why; until when it is asked.
    unexplained: HashMap<String, Instant>,
}

#[cfg_attr(test, derive(Clone))]
enum Node {
    Alive,
    Dead { why: Arc<str> },
}

/// What a poll's answer leaves to be asked.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FollowUps {
    /// Paused before, absent now: released or died?
    pub(super) vanished: Vec<String>,
    /// Paused workers that are not listed, because the cluster has as many breakpoints as it may have.
    pub(super) refused: usize,
}

impl State {
    pub(super) fn new(names: impl IntoIterator<Item = Arc<str>>, keep_ended: Duration) -> Self {
        Self {
            clusters: names.into_iter().map(ClusterState::new).collect(),
            remote: RemoteHolds::default(),
            live: List::default(),
            ended: VecDeque::new(),
            told_ended: Arc::default(),
            keep_ended,
            dirty: false,
        }
    }

    /// Gives `place`, which is free or one beyond the last, to the cluster `name`.
    pub(super) fn join(&mut self, place: Cluster, name: Arc<str>) {
        let cluster = ClusterState::new(name);
        match self.clusters.get_mut(place) {
            Some(free) => *free = cluster,
            None => self.clusters.push(cluster),
        }
    }

    /// Ends whatever waits in the cluster at `place`, for the reason `why`: the cluster is gone.
    pub(super) fn leave(&mut self, place: Cluster, why: &Arc<str>, now: Now) -> Changes {
        let mut changes = Changes::new();
        let entries = self.clusters[place].entries.iter();
        let keys: Vec<_> = entries.map(|(key, _)| Arc::clone(key)).collect();
        for key in keys {
            self.die(place, &key, Arc::clone(why), now, &mut changes);
        }
        changes
    }

    /// The workers whose names are to be looked up now: all that are due, marked as asked for.
    pub(super) fn due_names(&mut self, cluster: Cluster, now: Instant) -> Vec<Target> {
        self.clusters[cluster].entries.take_due(now)
    }

    /// The next worker whose stack is to be looked at.
    pub(super) fn due_location(&mut self, cluster: Cluster) -> Option<Target> {
        self.clusters[cluster].entries.take_unlocated()
    }

    /// When names are due next.
    pub(super) fn next_names(&self, cluster: Cluster) -> Option<Instant> {
        self.clusters[cluster].entries.next_due()
    }

    /// Where the live breakpoint `id` is, and its key there.
    fn find(&self, id: BreakpointId) -> Option<(Cluster, Arc<str>)> {
        let clusters = self.clusters.iter().enumerate();
        clusters
            .filter_map(|(index, cluster)| Some((index, Arc::clone(cluster.entries.find(id)?.0))))
            .next()
    }

    /// Puts `breakpoint` in as it is: for sources other than a head's State API.
    pub(super) fn insert(&mut self, cluster: Cluster, breakpoint: Breakpoint, now: Now) -> Changes {
        let state = &mut self.clusters[cluster];
        state.stops.insert(breakpoint.id, breakpoint.stop);
        let pending = PendingLookups::none();
        let entry = Entry::new(breakpoint.into(), now.instant, false, pending);
        self.list(cluster, entry, now)
    }

    /// Puts a new `entry` into the list, as it is held by now.
    fn list(&mut self, cluster: Cluster, entry: Entry, now: Now) -> Changes {
        let breakpoint = Arc::clone(entry.breakpoint());
        self.clusters[cluster].entries.insert(entry);
        self.dirty = true;
        let mut changes = vec![(Change::Appeared, Arc::clone(&breakpoint))];
        changes.extend(self.join_remote(cluster, breakpoint.key(), now));
        changes
    }

    /// Ends the breakpoint `id`: died with a reason, else released.
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

    /// The lists to publish, if they differ from those that were last taken.
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
        let told = self.told_ended.iter();
        // Most changes leave them alone.
        if !told.map(Arc::as_ptr).eq(ended().map(Arc::as_ptr)) {
            self.told_ended = ended().cloned().collect();
        }
        Some(Lists {
            live: self.live.clone(),
            ended: Arc::clone(&self.told_ended),
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
        // One record for each id: the latest end is the one that answers a late client.
        self.ended.retain(|(_, old)| old.id != ended.id);
        self.ended.push_front((now.instant, Arc::clone(&ended)));
        self.ended.truncate(MAX_ENDED);
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

    /// Forgets of `those` keys what only mattered to answers that were asked for before `sent`.
    fn forget_gone(&mut self, sent: Instant, those: impl Fn(&str) -> bool) {
        self.gone.retain(|key, at| *at > sent || !those(key));
    }

    /// The number of a new stop. Kept beyond the end of a breakpoint, so that a session that has
    /// seen one stop of a worker knows the next from it.
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

/// Whether `key` is the one of a registered breakpoint; a worker id is hexadecimal.
pub(super) fn is_registered(key: &str) -> bool {
    key.starts_with("RAY_PDB_")
}

/// What is published in a snapshot.
pub(super) struct Lists {
    pub(super) live: List,
    pub(super) ended: Arc<[Arc<Breakpoint>]>,
}
