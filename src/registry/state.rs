//! The registry's core: every known breakpoint, and what each answer of a head, each claim and
//! each lookup changes about it. No I/O, no clock, no locks; time comes in as [`Now`].
//!
//! Called by [`super::shared`] under its lock. Invariants, held by the model test: one entry for
//! each worker; an entry is live until exactly one `Released` or `Died`; an answer to a question
//! that was sent before a worker was claimed or given back changes nothing about that worker; a
//! worker on a DEAD node is never live.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::breakpoint::{
    Breakpoint, BreakpointId, Holder, Kind, Location, Names, Reason, State as Life,
};
use super::names::{Certainty, Found};
use super::rows::{NodeRow, WorkerRow};
use super::wish::Wishes;
use super::{Change, ClaimError, exit};

/// Ended breakpoints that are remembered at most.
const MAX_ENDED: usize = 256;

/// Workers whose number of stops is remembered after they have been let go.
const MAX_COUNTED: usize = 65_536;

/// Nodes that are remembered at most. The GCS itself keeps 1,000 dead ones (2.60).
const MAX_NODES: usize = 20_000;

/// The two clocks: one to compare, one to show.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    pub(super) instant: Instant,
    pub(super) time: SystemTime,
}

/// Index of a cluster in the configuration.
pub(super) type Cluster = usize;

/// What happened, for events.
pub(super) type Changes = Vec<(Change, Arc<Breakpoint>)>;

/// All clusters' breakpoints.
pub(super) struct State {
    clusters: Vec<ClusterState>,
    /// Newest first.
    ended: VecDeque<(Instant, Arc<Breakpoint>)>,
    keep_ended: Duration,
    /// Whether `live` or `ended` differ from what was last published.
    dirty: bool,
}

struct ClusterState {
    name: Arc<str>,
    entries: BTreeMap<String, Entry>,
    /// Stops so far of every worker that has had one.
    stops: HashMap<BreakpointId, u64>,
    /// Workers that a session gave back or that died: answers asked for before then are stale.
    gone: HashMap<String, Instant>,
    nodes: HashMap<String, Node>,
}

enum Node {
    Alive,
    Dead { why: Arc<str> },
}

struct Entry {
    breakpoint: Arc<Breakpoint>,
    /// Since when this stop or this hold stands: answers asked for before then are stale.
    since: Instant,
    /// Which claim holds it.
    claim: Option<u64>,
    driver: bool,
    wishes: Wishes,
}

/// What a poll's answer leaves to be asked.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Questions {
    /// Paused before, absent now: released or died?
    pub(super) vanished: Vec<String>,
}

/// Who a lookup is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) worker_id: String,
    pub(super) stop: u64,
    pub(super) node_id: String,
    pub(super) node_ip: std::net::IpAddr,
    pub(super) pid: u32,
    pub(super) driver: bool,
}

impl State {
    pub(super) fn new(names: impl IntoIterator<Item = Arc<str>>, keep_ended: Duration) -> Self {
        let clusters = names
            .into_iter()
            .map(|name| ClusterState {
                name,
                entries: BTreeMap::new(),
                stops: HashMap::new(),
                gone: HashMap::new(),
                nodes: HashMap::new(),
            })
            .collect();
        Self {
            clusters,
            ended: VecDeque::new(),
            keep_ended,
            dirty: false,
        }
    }

    /// Whether `rows` hold a new paused worker on a node that nobody has vouched for. The nodes
    /// are asked for first then: a lost node's rows say "paused" for good.
    pub(super) fn wants_nodes(&self, cluster: Cluster, rows: &[WorkerRow]) -> bool {
        let cluster = &self.clusters[cluster];
        rows.iter().any(|row| {
            is_paused(row)
                && !cluster.entries.contains_key(&row.worker_id)
                && !cluster.nodes.contains_key(&row.node_id)
        })
    }

    /// Takes in the answer to a poll that was sent at `sent`.
    pub(super) fn apply_workers(
        &mut self,
        cluster: Cluster,
        rows: &[WorkerRow],
        sent: Instant,
        now: Now,
    ) -> (Changes, Questions) {
        let mut changes = Changes::new();
        let mut seen = HashSet::new();
        for row in rows.iter().filter(|row| is_paused(row)) {
            seen.insert(row.worker_id.as_str());
            self.see(cluster, row, sent, now, &mut changes);
        }
        let state = &mut self.clusters[cluster];
        let vanished = state
            .entries
            .iter()
            .filter(|(id, entry)| {
                entry.claim.is_none() && entry.since <= sent && !seen.contains(id.as_str())
            })
            .map(|(id, _)| id.clone())
            .collect();
        state.gone.retain(|_, at| *at > sent);
        (changes, Questions { vanished })
    }

    /// Takes in what the head says about workers that had vanished from the poll: `asked` were
    /// asked for at `sent`, `rows` are what there was. `complete`: a missing row means that Ray
    /// has forgotten the worker.
    pub(super) fn apply_vanished(
        &mut self,
        cluster: Cluster,
        asked: &[String],
        rows: &[WorkerRow],
        complete: bool,
        sent: Instant,
        now: Now,
    ) -> Changes {
        let mut changes = Changes::new();
        for worker_id in asked {
            if !self.unclaimed_since(cluster, worker_id, sent) {
                continue;
            }
            match rows.iter().find(|row| row.worker_id == *worker_id) {
                Some(row) if !row.is_alive => {
                    self.die(cluster, worker_id, exit::of_worker(row), now, &mut changes);
                }
                Some(row) => {
                    self.release(cluster, worker_id, now, &mut changes);
                    // Paused again between the two answers: another stop.
                    if is_paused(row) {
                        self.see(cluster, row, sent, now, &mut changes);
                    }
                }
                None if complete => {
                    let why = "Ray no longer knows this worker; was the head restarted?";
                    self.die(cluster, worker_id, why.into(), now, &mut changes);
                }
                None => self.release(cluster, worker_id, now, &mut changes),
            }
        }
        changes
    }

    /// Takes in the list of nodes.
    pub(super) fn apply_nodes(&mut self, cluster: Cluster, rows: &[NodeRow], now: Now) -> Changes {
        let state = &mut self.clusters[cluster];
        // Only DEAD is for good; an alive node that is no longer listed becomes unknown. The dead
        // are kept although the GCS forgets them, because it does not forget their workers.
        state
            .nodes
            .retain(|_, node| matches!(node, Node::Dead { .. }));
        if state.nodes.len() > MAX_NODES {
            state.nodes.clear();
        }
        for row in rows.iter().filter(|row| !row.node_id.is_empty()) {
            let node = if row.state.eq_ignore_ascii_case("DEAD") {
                Node::Dead {
                    why: exit::of_node(row),
                }
            } else {
                Node::Alive
            };
            state.nodes.insert(row.node_id.clone(), node);
        }
        let lost: Vec<_> = state
            .entries
            .iter()
            .filter_map(
                |(id, entry)| match state.nodes.get(&entry.breakpoint.node_id) {
                    Some(Node::Dead { why }) => Some((id.clone(), Arc::clone(why))),
                    _ => None,
                },
            )
            .collect();
        let mut changes = Changes::new();
        for (worker_id, why) in lost {
            self.die(cluster, &worker_id, why, now, &mut changes);
        }
        changes
    }

    /// Takes in a worker's row that was asked for on behalf of its session: why it is gone, if so.
    pub(super) fn apply_death(
        &mut self,
        cluster: Cluster,
        row: &WorkerRow,
        now: Now,
    ) -> (Changes, Option<Arc<str>>) {
        let mut changes = Changes::new();
        let lost = match self.clusters[cluster].nodes.get(&row.node_id) {
            Some(Node::Dead { why }) => Some(Arc::clone(why)),
            _ => None,
        };
        let why = if row.is_alive {
            lost
        } else {
            Some(exit::of_worker(row))
        };
        if let Some(why) = &why {
            self.die(cluster, &row.worker_id, Arc::clone(why), now, &mut changes);
        }
        (changes, why)
    }

    /// Takes in what a lookup for stop `stop` of a worker found.
    pub(super) fn apply_found(
        &mut self,
        cluster: Cluster,
        worker_id: &str,
        stop: u64,
        found: Option<Found>,
        now: Now,
    ) -> Changes {
        let Some(entry) = self.clusters[cluster].entries.get_mut(worker_id) else {
            return Changes::new();
        };
        if entry.breakpoint.stop != stop {
            return Changes::new();
        }
        entry.wishes.names_answered(found.as_ref(), now.instant);
        let Some(found) = found else {
            return Changes::new();
        };
        let mut next = Breakpoint::clone(&entry.breakpoint);
        // A provisional answer (the class of an actor) does not replace a better one.
        if found.certainty != Certainty::Provisional || next.names.name.is_none() {
            next.names = found.names;
        }
        if let Some((reason, location)) = found.stop {
            next.reason = reason;
            next.location = location.or(next.location);
        }
        self.named(cluster, worker_id, next)
    }

    /// Takes in what a stack dump of stop `stop` says; `None` where the head did not give one.
    pub(super) fn apply_stack(
        &mut self,
        cluster: Cluster,
        worker_id: &str,
        stop: u64,
        stack: Option<(Reason, Option<Location>)>,
    ) -> Changes {
        let Some(entry) = self.clusters[cluster].entries.get_mut(worker_id) else {
            return Changes::new();
        };
        if entry.breakpoint.stop != stop {
            return Changes::new();
        }
        let Some((reason, location)) = stack else {
            return Changes::new();
        };
        let mut next = Breakpoint::clone(&entry.breakpoint);
        next.reason = reason;
        next.location = location.or(next.location);
        self.named(cluster, worker_id, next)
    }

    /// The workers whose names are to be looked up now: all that are due, marked as asked for.
    pub(super) fn due_names(&mut self, cluster: Cluster, now: Instant) -> Vec<Target> {
        let entries = self.clusters[cluster].entries.iter_mut();
        let due =
            entries.filter_map(|(_, entry)| entry.wishes.take_names(now).then(|| entry.target()));
        due.collect()
    }

    /// The next worker whose stack is to be looked at.
    pub(super) fn due_location(&mut self, cluster: Cluster) -> Option<Target> {
        let mut entries = self.clusters[cluster].entries.values_mut();
        entries.find_map(|entry| entry.wishes.take_location().then(|| entry.target()))
    }

    /// When names are due next.
    pub(super) fn next_names(&self, cluster: Cluster) -> Option<Instant> {
        self.clusters[cluster]
            .entries
            .values()
            .filter_map(|entry| entry.wishes.names_due())
            .min()
    }

    /// Gives the breakpoint `id` to a claim.
    pub(super) fn claim(
        &mut self,
        id: BreakpointId,
        claim: u64,
        holder: Holder,
        now: Now,
    ) -> Result<(Cluster, Arc<Breakpoint>), ClaimError> {
        let found = self
            .clusters
            .iter_mut()
            .enumerate()
            .find_map(|(index, cluster)| {
                let entry = cluster
                    .entries
                    .values_mut()
                    .find(|entry| entry.breakpoint.id == id)?;
                Some((index, entry))
            });
        let Some((cluster, entry)) = found else {
            let ended = self
                .ended
                .iter()
                .find(|(_, breakpoint)| breakpoint.id == id);
            return Err(match ended {
                Some((_, breakpoint)) => ClaimError::Ended(Arc::clone(breakpoint)),
                None => ClaimError::Unknown,
            });
        };
        if let Life::Attached(holder) = &entry.breakpoint.state {
            return Err(ClaimError::Held(holder.clone()));
        }
        let mut next = Breakpoint::clone(&entry.breakpoint);
        next.state = Life::Attached(holder);
        entry.breakpoint = Arc::new(next);
        entry.claim = Some(claim);
        entry.since = now.instant;
        self.dirty = true;
        Ok((cluster, Arc::clone(&entry.breakpoint)))
    }

    /// Takes a claimed breakpoint back: it is released until a poll shows it paused again.
    pub(super) fn give_back(
        &mut self,
        cluster: Cluster,
        worker_id: &str,
        claim: u64,
        now: Now,
    ) -> Changes {
        let mut changes = Changes::new();
        let state = &mut self.clusters[cluster];
        if state
            .entries
            .get(worker_id)
            .is_some_and(|entry| entry.claim == Some(claim))
        {
            state.gone.insert(worker_id.to_owned(), now.instant);
            self.release(cluster, worker_id, now, &mut changes);
        }
        changes
    }

    /// Puts `breakpoint` in as it is: for sources other than a head's State API.
    pub(super) fn insert(&mut self, cluster: Cluster, breakpoint: Breakpoint, now: Now) -> Changes {
        let breakpoint = Arc::new(breakpoint);
        let entry = Entry {
            breakpoint: Arc::clone(&breakpoint),
            since: now.instant,
            claim: None,
            driver: false,
            wishes: Wishes::none(),
        };
        self.clusters[cluster]
            .stops
            .insert(breakpoint.id, breakpoint.stop);
        self.clusters[cluster]
            .entries
            .insert(breakpoint.worker_id.clone(), entry);
        self.dirty = true;
        vec![(Change::Appeared, breakpoint)]
    }

    /// Ends the breakpoint `id`: died with a reason, else released.
    pub(super) fn end(&mut self, id: BreakpointId, why: Option<Arc<str>>, now: Now) -> Changes {
        let mut changes = Changes::new();
        let found = self
            .clusters
            .iter()
            .enumerate()
            .find_map(|(index, cluster)| {
                let entry = cluster
                    .entries
                    .values()
                    .find(|entry| entry.breakpoint.id == id)?;
                Some((index, entry.breakpoint.worker_id.clone()))
            });
        if let Some((cluster, worker_id)) = found {
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
        let entries = self
            .clusters
            .iter()
            .flat_map(|cluster| cluster.entries.values());
        let mut live: Vec<_> = entries.map(|entry| Arc::clone(&entry.breakpoint)).collect();
        live.sort_by_key(|breakpoint| (breakpoint.first_seen, breakpoint.id));
        let ended = self
            .ended
            .iter()
            .map(|(_, breakpoint)| Arc::clone(breakpoint))
            .collect();
        Some(Lists { live, ended })
    }

    /// A row that says "paused": a new stop, or news of one that is known.
    fn see(
        &mut self,
        cluster: Cluster,
        row: &WorkerRow,
        sent: Instant,
        now: Now,
        out: &mut Changes,
    ) {
        let Some((node_ip, port)) = row.debugger() else {
            return;
        };
        let Some(pid) = row.pid.and_then(|pid| u32::try_from(pid).ok()) else {
            return;
        };
        let state = &mut self.clusters[cluster];
        if matches!(state.nodes.get(&row.node_id), Some(Node::Dead { .. }))
            || state.gone.get(&row.worker_id).is_some_and(|at| *at >= sent)
        {
            return;
        }
        if let Some(entry) = state.entries.get_mut(&row.worker_id) {
            let old = &entry.breakpoint;
            let news = (node_ip, port, row.paused_threads());
            if sent >= entry.since && news != (old.node_ip, old.port, old.paused_threads) {
                let mut next = Breakpoint::clone(old);
                (next.node_ip, next.port, next.paused_threads) = news;
                entry.breakpoint = Arc::new(next);
                self.dirty = true;
            }
            return;
        }
        self.dirty = true;
        let id = BreakpointId::derive(&state.name, &row.worker_id);
        let breakpoint = Arc::new(Breakpoint {
            id,
            kind: Kind::Debugpy,
            cluster: Arc::clone(&state.name),
            node_id: row.node_id.clone(),
            node_ip,
            worker_id: row.worker_id.clone(),
            pid,
            port,
            paused_threads: row.paused_threads(),
            names: Names::default(),
            reason: Reason::Unknown,
            location: None,
            first_seen: now.time,
            stop: state.next_stop(id),
            state: Life::Paused,
        });
        out.push((Change::Appeared, Arc::clone(&breakpoint)));
        let entry = Entry {
            breakpoint,
            since: sent,
            claim: None,
            driver: row.is_driver(),
            wishes: Wishes::new(now.instant),
        };
        state.entries.insert(row.worker_id.clone(), entry);
    }

    fn named(&mut self, cluster: Cluster, worker_id: &str, next: Breakpoint) -> Changes {
        let Some(entry) = self.clusters[cluster].entries.get_mut(worker_id) else {
            return Changes::new();
        };
        if *entry.breakpoint == next {
            return Changes::new();
        }
        entry.breakpoint = Arc::new(next);
        self.dirty = true;
        vec![(Change::Named, Arc::clone(&entry.breakpoint))]
    }

    fn release(&mut self, cluster: Cluster, worker_id: &str, now: Now, out: &mut Changes) {
        self.finish(
            cluster,
            worker_id,
            Life::Released { at: now.time },
            Change::Released,
            now,
            out,
        );
    }

    fn die(
        &mut self,
        cluster: Cluster,
        worker_id: &str,
        why: Arc<str>,
        now: Now,
        out: &mut Changes,
    ) {
        self.clusters[cluster]
            .gone
            .insert(worker_id.to_owned(), now.instant);
        let life = Life::Died { at: now.time, why };
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
        let mut ended = Breakpoint::clone(&entry.breakpoint);
        ended.state = life;
        let ended = Arc::new(ended);
        // One record for each id: the latest end is the one that answers a late client.
        self.ended.retain(|(_, old)| old.id != ended.id);
        self.ended.push_front((now.instant, Arc::clone(&ended)));
        self.ended.truncate(MAX_ENDED);
        out.push((change, ended));
        self.dirty = true;
    }

    fn unclaimed_since(&self, cluster: Cluster, worker_id: &str, sent: Instant) -> bool {
        let entry = self.clusters[cluster].entries.get(worker_id);
        entry.is_some_and(|entry| entry.claim.is_none() && entry.since <= sent)
    }
}

impl ClusterState {
    /// The number of a new stop. Kept beyond the end of a breakpoint, so that a session that has
    /// seen one stop of a worker knows the next from it.
    fn next_stop(&mut self, id: BreakpointId) -> u64 {
        if self.stops.len() >= MAX_COUNTED && !self.stops.contains_key(&id) {
            let live: HashSet<_> = self
                .entries
                .values()
                .map(|entry| entry.breakpoint.id)
                .collect();
            self.stops.retain(|id, _| live.contains(id));
        }
        let stops = self.stops.entry(id).or_default();
        *stops += 1;
        *stops
    }
}

impl Entry {
    fn target(&self) -> Target {
        Target {
            worker_id: self.breakpoint.worker_id.clone(),
            stop: self.breakpoint.stop,
            node_id: self.breakpoint.node_id.clone(),
            node_ip: self.breakpoint.node_ip,
            pid: self.breakpoint.pid,
            driver: self.driver,
        }
    }
}

fn is_paused(row: &WorkerRow) -> bool {
    !row.worker_id.is_empty() && row.paused_threads() > 0 && row.debugger().is_some()
}

/// What is published in a snapshot.
pub(super) struct Lists {
    pub(super) live: Vec<Arc<Breakpoint>>,
    pub(super) ended: Vec<Arc<Breakpoint>>,
}
