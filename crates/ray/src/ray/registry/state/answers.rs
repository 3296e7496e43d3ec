//! Applies each kind of a head's response to the core.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio::time::Instant;

use crate::ray::registry::breakpoint::{Breakpoint, BreakpointId, Kind, Reason, State as Life};
use crate::ray::registry::names::{Certainty, Found};
use crate::ray::registry::pending_lookups::PendingLookups;
use crate::ray::registry::rows::{NodeRow, WorkerRow};
use crate::ray::registry::state::{
    Changes, Cluster, ClusterState, Entry, FollowUps, MAX_LIVE_BREAKPOINTS, MAX_NODES, Node, Now,
    State, is_registered,
};
use crate::ray::registry::traceback::Stopped;
use crate::ray::registry::{Change, exit};

/// Rows of a response that are applied under one lock: fewer than the events that a listener may lag behind.
const MAX_APPLIED_ROWS: usize = 1000;

/// A poll's response whose rows are applied part by part.
pub(in crate::ray::registry) struct PartialResponse<'a> {
    remaining: &'a [WorkerRow],
    seen: HashSet<&'a str>,
    /// Rows of workers that are known not to wait.
    lost: usize,
    refused: usize,
    sent: Instant,
}

impl PartialResponse<'_> {
    /// Whether some rows are not applied yet.
    pub(in crate::ray::registry) fn has_more(&self) -> bool {
        !self.remaining.is_empty()
    }
}

impl State {
    /// Whether `rows` contain a new paused worker on a node that is not known as alive. Then the nodes are queried
    /// first: a lost node's rows say "paused" for good.
    pub(in crate::ray::registry) fn wants_nodes(
        &self,
        cluster: Cluster,
        rows: &[WorkerRow],
    ) -> bool {
        let cluster = &self.clusters[cluster];
        rows.iter().any(|row| {
            is_paused(row)
                && !cluster.entries.contains(&row.worker_id)
                && !cluster.nodes.contains_key(&row.node_id)
        })
    }

    /// Begins to apply the response `rows` to a poll that was sent at `sent`.
    pub(in crate::ray::registry) fn begin_workers<'a>(
        &mut self,
        cluster: Cluster,
        rows: &'a [WorkerRow],
        sent: Instant,
    ) -> PartialResponse<'a> {
        self.clusters[cluster].entries.watch();
        PartialResponse {
            remaining: rows,
            seen: HashSet::with_capacity(rows.len()),
            lost: 0,
            refused: 0,
            sent,
        }
    }

    /// Applies the next rows of a response; there are more while [`PartialResponse::has_more`]. One part at a time:
    /// others can use the core in between, however long a head's list is.
    pub(in crate::ray::registry) fn apply_workers(
        &mut self,
        cluster: Cluster,
        response: &mut PartialResponse<'_>,
        now: Now,
    ) -> Changes {
        let mut changes = Changes::new();
        let (rows, remaining) = response
            .remaining
            .split_at(response.remaining.len().min(MAX_APPLIED_ROWS));
        response.remaining = remaining;
        for row in rows.iter().filter(|row| is_paused(row)) {
            let is_new = response.seen.insert(row.worker_id.as_str());
            // A lost node's rows never change.
            response.lost += usize::from(is_new && self.clusters[cluster].is_lost(row));
            let is_listed = self.see(cluster, row, response.sent, now, &mut changes);
            response.refused += usize::from(is_new && !is_listed);
        }
        changes
    }

    /// Completes a response whose rows are all applied, and returns the follow-up queries.
    pub(in crate::ray::registry) fn end_workers(
        &mut self,
        cluster: Cluster,
        response: PartialResponse<'_>,
        now: Now,
    ) -> FollowUps {
        let PartialResponse {
            seen,
            lost,
            refused,
            sent,
            ..
        } = response;
        let state = &mut self.clusters[cluster];
        let (mut vanished, mut settled, mut listed) = (Vec::new(), true, 0);
        for (key, entry) in state.entries.iter() {
            if entry.breakpoint().kind.is_registered() {
                continue;
            }
            let is_seen = seen.contains(&**key);
            let asked_for = entry.asked_for.filter(|_| !entry.hold.is_held());
            let is_open = !entry.hold.is_held() && entry.since <= sent;
            if is_open && !is_seen && asked_for.is_none_or(|until| until <= now.instant) {
                vanished.push(key.to_string());
            }
            // A held breakpoint does not concern polls until it is released.
            settled &= match is_seen {
                true => entry.since <= sent && asked_for.is_none(),
                false => entry.hold.is_held(),
            };
            listed += usize::from(is_seen);
        }
        state.settled = settled && listed + lost == seen.len() && !state.entries.is_touched();
        state.forget_gone(sent, |key| !is_registered(key));
        state.ghosts.retain(|key| seen.contains(key.as_str()));
        FollowUps { vanished, refused }
    }

    /// Whether a later poll with the same response as the last applied one would change nothing.
    pub(in crate::ray::registry) fn is_settled(&self, cluster: Cluster) -> bool {
        let state = &self.clusters[cluster];
        state.settled && !state.entries.is_touched()
    }

    /// The entries of `vanished` that had been there unclaimed when the poll of `sent` missed them, and still are.
    pub(in crate::ray::registry) fn still_open(
        &self,
        cluster: Cluster,
        mut vanished: Vec<String>,
        sent: Instant,
    ) -> Vec<String> {
        vanished.retain(|worker_id| self.unclaimed_since(cluster, worker_id, sent));
        vanished
    }

    /// Applies the legacy breakpoints of the GCS, as requested at `sent`. One that is missing was entered by a
    /// session, or is over.
    pub(in crate::ray::registry) fn apply_registered(
        &mut self,
        cluster: Cluster,
        found: Vec<Breakpoint>,
        sent: Instant,
        now: Now,
    ) -> Changes {
        let mut changes = Changes::new();
        let gone: Vec<_> = {
            let keys: HashSet<_> = found.iter().map(Breakpoint::key).collect();
            let entries = self.clusters[cluster].entries.iter();
            let gone = entries.filter(|(key, entry)| {
                entry.breakpoint().kind.is_registered()
                    && !entry.hold.is_held()
                    && entry.since <= sent
                    && !keys.contains(&***key)
            });
            gone.map(|(key, _)| Arc::clone(key)).collect()
        };
        for key in gone {
            self.release(cluster, &key, now, &mut changes);
        }
        for mut breakpoint in found {
            let state = &mut self.clusters[cluster];
            let node = state.nodes.get(&*breakpoint.node_id);
            let stale = state
                .gone
                .get(breakpoint.key())
                .is_some_and(|at| *at > sent);
            if matches!(node, Some(Node::Dead { .. })) || stale {
                continue;
            }
            let is_new = !state.entries.contains(breakpoint.key());
            if is_new && state.is_full() {
                continue;
            }
            let known = state.entries.get(breakpoint.key());
            // Claimed, or the same socket as before: unchanged. A different socket is a new stop.
            if known.is_some_and(|entry| {
                entry.hold.is_held()
                    || entry.since > sent
                    || entry.breakpoint().upstream() == breakpoint.upstream()
            }) {
                continue;
            }
            breakpoint.stop = state.next_stop(breakpoint.id);
            changes.extend(self.insert(cluster, breakpoint, now));
        }
        let state = &mut self.clusters[cluster];
        state.forget_gone(sent, is_registered);
        changes
    }

    /// Applies the head's information about workers that had vanished from the poll: `queried` were
    /// queried at `sent`, `rows` are the results, by worker. `complete`: a missing row means that Ray
    /// has forgotten the worker.
    pub(in crate::ray::registry) fn apply_vanished(
        &mut self,
        cluster: Cluster,
        queried: &[String],
        rows: &HashMap<&str, &WorkerRow>,
        complete: bool,
        sent: Instant,
        now: Now,
    ) -> Changes {
        let mut changes = Changes::new();
        for worker_id in queried {
            if !self.unclaimed_since(cluster, worker_id, sent) {
                continue;
            }
            match rows.get(worker_id.as_str()).copied() {
                Some(row) if !row.is_alive => {
                    self.die(cluster, worker_id, exit::of_worker(row), now, &mut changes);
                }
                Some(row) => {
                    self.release(cluster, worker_id, now, &mut changes);
                    // Paused again between the two responses: a new stop.
                    if is_paused(row) {
                        self.see(cluster, row, sent, now, &mut changes);
                    }
                }
                None if complete => {
                    let why = Arc::from("Ray no longer knows this worker; was the head restarted?");
                    self.die(cluster, worker_id, why, now, &mut changes);
                }
                None => self.release(cluster, worker_id, now, &mut changes),
            }
        }
        changes
    }

    /// Applies the list of nodes.
    pub(in crate::ray::registry) fn apply_nodes(
        &mut self,
        cluster: Cluster,
        rows: &[NodeRow],
        now: Now,
    ) -> Changes {
        let state = &mut self.clusters[cluster];
        // Only DEAD is final; an alive node that is no longer listed becomes unknown. Dead ones are kept although the
        // GCS forgets them, because it does not forget their workers.
        state
            .nodes
            .retain(|_, node| matches!(node, Node::Dead { .. }));
        if state.nodes.len() > MAX_NODES {
            state.nodes.clear();
            state.settled = false;
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
                |(id, entry)| match state.nodes.get(&*entry.breakpoint().node_id) {
                    Some(Node::Dead { why }) => Some((Arc::clone(id), Arc::clone(why))),
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

    /// Applies a worker's row that was queried for the session with the breakpoint `key`: returns why it is gone, if
    /// it is.
    pub(in crate::ray::registry) fn apply_death(
        &mut self,
        cluster: Cluster,
        key: &str,
        row: &WorkerRow,
        now: Now,
    ) -> (Changes, Option<Arc<str>>) {
        let mut changes = Changes::new();
        let exit = self.clusters[cluster].exit(row);
        if let Some(exit) = exit.clone() {
            self.die(cluster, key, exit, now, &mut changes);
        }
        (changes, exit.map(|exit| exit.why))
    }

    /// Applies the result of a lookup for stop `stop` of a worker.
    pub(in crate::ray::registry) fn apply_found(
        &mut self,
        cluster: Cluster,
        worker_id: &str,
        stop: u64,
        found: Option<Found>,
        now: Now,
    ) -> Changes {
        let entries = &mut self.clusters[cluster].entries;
        let known = entries.get(worker_id);
        if known.is_none_or(|entry| entry.breakpoint().stop != stop) {
            return Changes::new();
        }
        entries.names_answered(worker_id, found.as_ref(), now.instant);
        let (Some(found), Some(entry)) = (found, entries.get(worker_id)) else {
            return Changes::new();
        };
        let mut next = Breakpoint::clone(entry.breakpoint());
        // A provisional answer (the class of an actor) does not replace a better one.
        if found.certainty != Certainty::Provisional || next.names.name.is_none() {
            let mut names = found.names;
            names.provisional = match found.certainty {
                Certainty::Settled => false,
                // If the worker stopped before, this may still be the task of that stop.
                Certainty::Likely => stop > 1 && entry.wants_names(),
                Certainty::Provisional => true,
            };
            names.keep_rank(&next.names);
            next.names = Arc::new(names);
        }
        if let Some(stopped) = found.stop {
            stopped_as(&mut next, stopped);
        }
        self.named(cluster, worker_id, next)
    }

    /// Applies a stack dump of stop `stop`; `None` if the head returned none.
    pub(in crate::ray::registry) fn apply_stack(
        &mut self,
        cluster: Cluster,
        worker_id: &str,
        stop: u64,
        stack: Option<Stopped>,
    ) -> Changes {
        let known = self.clusters[cluster].entries.get(worker_id);
        let known = known.filter(|entry| entry.breakpoint().stop == stop);
        let (Some(entry), Some(stopped)) = (known, stack) else {
            return Changes::new();
        };
        let mut next = Breakpoint::clone(entry.breakpoint());
        stopped_as(&mut next, stopped);
        self.named(cluster, worker_id, next)
    }

    /// Applies a row that says "paused": a new stop, or an update of a known one. `false`: there is no space for it.
    fn see(
        &mut self,
        cluster: Cluster,
        row: &WorkerRow,
        sent: Instant,
        now: Now,
        out: &mut Changes,
    ) -> bool {
        let state = &self.clusters[cluster];
        let is_gone = state.gone.get(&row.worker_id).is_some_and(|at| *at > sent);
        if state.is_lost(row) || is_gone || self.update(cluster, row, sent) {
            return true;
        }
        self.release(cluster, &row.worker_id, now, out);
        let state = &mut self.clusters[cluster];
        if state.is_full() {
            return false;
        }
        let Some(breakpoint) = state.stopped(row, now) else {
            return true;
        };
        let pending = PendingLookups::new(now.instant);
        let entry = Entry::new(breakpoint.into(), sent, row.is_driver(), pending);
        out.extend(self.list(cluster, entry, now));
        true
    }

    /// Updates the entry of the worker of `row` that says "paused". `false`: there is none, or it is of another stop: a
    /// process that the worker has started may stop between two answers, as the worker or another one did before.
    fn update(&mut self, cluster: Cluster, row: &WorkerRow, sent: Instant) -> bool {
        let Some((node_ip, port)) = row.debugger() else {
            return true;
        };
        let entries = &mut self.clusters[cluster].entries;
        let Some(entry) = entries.get(&row.worker_id) else {
            return false;
        };
        let (old, is_held) = (entry.breakpoint(), entry.hold.is_held());
        let another = (node_ip, port) != (old.node_ip, old.port);
        // If Ray lists it now, it no longer depends on the client that requested it.
        let listed = !is_held && entry.asked_for.is_some();
        if sent < entry.since || !listed && !another && row.paused_threads() == old.paused_threads {
            return true;
        }
        if another && !listed {
            // A session stays with the debugger that it has.
            return is_held;
        }
        let mut next = Breakpoint::clone(old);
        (next.node_ip, next.port, next.paused_threads) = (node_ip, port, row.paused_threads());
        if let Some(entry) = entries.get_mut(&row.worker_id) {
            entry.asked_for = None;
            // A different debugger, to which the relay has not tried to connect yet.
            entry.unreachable = entry.unreachable.filter(|_| !another);
            if !is_held {
                next.state = entry.free();
            }
        }
        entries.set(&row.worker_id, next);
        self.dirty = true;
        true
    }

    pub(super) fn named(&mut self, cluster: Cluster, worker_id: &str, next: Breakpoint) -> Changes {
        let entries = &mut self.clusters[cluster].entries;
        let known = entries.get(worker_id);
        if known.is_none_or(|entry| **entry.breakpoint() == next) {
            return Changes::new();
        }
        self.dirty = true;
        let named = entries.set(worker_id, next);
        named
            .map(|breakpoint| (Change::Named, breakpoint))
            .into_iter()
            .collect()
    }

    fn unclaimed_since(&self, cluster: Cluster, worker_id: &str, sent: Instant) -> bool {
        let entry = self.clusters[cluster].entries.get(worker_id);
        entry.is_some_and(|entry| !entry.hold.is_held() && entry.since <= sent)
    }
}

impl ClusterState {
    /// Whether the worker of `row` is known not to be paused, although Ray's list still has it.
    fn is_lost(&self, row: &WorkerRow) -> bool {
        matches!(self.nodes.get(&row.node_id), Some(Node::Dead { .. }))
            || self.ghosts.contains(&row.worker_id)
    }

    /// Whether it has as many breakpoints as permitted.
    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= MAX_LIVE_BREAKPOINTS
    }

    /// The next stop of the worker of `row`, first seen now. `None` without an address of its debugger and a process
    /// id.
    pub(super) fn stopped(&mut self, row: &WorkerRow, now: Now) -> Option<Breakpoint> {
        let (node_ip, port) = row.debugger()?;
        let pid = row.pid.and_then(|pid| u32::try_from(pid).ok())?;
        let id = BreakpointId::derive(&self.name, &row.worker_id);
        Some(Breakpoint {
            id,
            kind: Kind::Debugpy,
            cluster: Arc::clone(&self.name),
            node_id: row.node_id.as_str().into(),
            node_ip,
            worker_id: row.worker_id.as_str().into(),
            pid,
            port,
            paused_threads: row.paused_threads(),
            names: self.remembered(&row.worker_id),
            reason: Reason::Unknown,
            location: None,
            exception: None,
            first_seen: now,
            stop: self.next_stop(id),
            state: Life::Paused,
            task_ended: None,
            registered: None,
        })
    }
}

/// Applies the result of a lookup; missing parts stay unchanged.
fn stopped_as(breakpoint: &mut Breakpoint, stopped: Stopped) {
    breakpoint.reason = stopped.reason;
    if let Some(location) = stopped.location {
        breakpoint.location = Some(Arc::new(location));
    }
    if stopped.exception.is_some() {
        breakpoint.exception = stopped.exception;
    }
}

fn is_paused(row: &WorkerRow) -> bool {
    !row.worker_id.is_empty() && row.paused_threads() > 0 && row.debugger().is_some()
}
