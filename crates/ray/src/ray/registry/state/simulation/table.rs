//! The real table of an agent, and a simple model of what it must contain.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::digest::Digest;
use super::reports::Row;
use super::world::{USERS, name, user_named, wire_name};
use crate::hold::{HoldId, NodeHolds};
use ray_relay_base::wire::tunnel::messages::{
    Hex, HoldRow, KeptSession, LetRun, Open, ParkTerms, Replica,
};

#[derive(Default, Clone)]
pub(super) struct Agent {
    pub(super) is_alive: bool,
    pub(super) holds: NodeHolds<()>,
    /// The model of `holds`.
    pub(super) entries: BTreeMap<HoldId, Entry>,
    /// The number of the link with each relay.
    pub(super) links: BTreeMap<usize, u64>,
    pub(super) streams: BTreeMap<u64, AgentStream>,
    pub(super) parks: Vec<AgentPark>,
    pub(super) subprocesses: Vec<Subprocess>,
    /// Holds whose debuggers are being detached. Their tasks have resumed.
    pub(super) detaching: Vec<HoldId>,
    pub(super) sent: Report,
    /// Requests to resume parks that have ended. They may still arrive.
    pub(super) ended_parks: Vec<LetRun>,
}

/// A report for relays, with the facts that only the simulation knows.
type Report = (Arc<[HoldRow]>, Arc<[Row]>);

#[derive(Clone)]
pub(super) struct Entry {
    pub(super) row: Row,
    pub(super) connections: usize,
    pub(super) since_ms: u64,
}

/// A stream at its agent.
#[derive(Clone)]
pub(super) struct AgentStream {
    pub(super) hold: HoldId,
    pub(super) worker: usize,
    pub(super) terms: Option<ReceivedTerms>,
}

/// The last terms received, when, and the deadlines that follow.
#[derive(Clone)]
pub(super) struct ReceivedTerms {
    pub(super) message: ParkTerms,
    pub(super) received_ms: u64,
    pub(super) deadlines: Deadlines,
}

/// The terms of a park, as points in time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadlines {
    pub(super) park_ms: u64,
    pub(super) earliest: Option<u64>,
    pub(super) latest: Option<u64>,
    pub(super) started: u64,
}

/// A subprocess of a worker that has a session of its own.
#[derive(Clone)]
pub(super) struct Subprocess {
    pub(super) hold: HoldId,
    pub(super) worker: usize,
    pub(super) user: usize,
    /// The relay of its current or last session.
    pub(super) relay: usize,
    /// The stream of the session with the worker, or `None` if it is parked.
    pub(super) stream: Option<u64>,
    /// Set while its relay is lost and the agent has not noticed: the terms of its park, and when that ends.
    pub(super) relay_lost: Option<(ParkTerms, u64)>,
}

#[derive(Clone)]
pub(super) struct AgentPark {
    pub(super) hold: HoldId,
    pub(super) worker: usize,
    pub(super) user: usize,
    pub(super) until: u64,
    pub(super) terms: ReceivedTerms,
}

impl Deadlines {
    pub(super) fn of(terms: &ParkTerms, ms: u64) -> Self {
        Self {
            park_ms: terms.keeps_ms,
            earliest: terms.at_least_ms.map(|earliest| ms + earliest),
            latest: terms.at_most_ms.map(|latest| ms + latest),
            started: ms - terms.lasted_ms,
        }
    }

    /// Returns when the park ends, if the relay is lost at `ms`.
    pub(super) fn until(self, ms: u64) -> u64 {
        let until = (ms + self.park_ms).max(self.earliest.unwrap_or(0));
        until.min(self.latest.unwrap_or(u64::MAX)).max(ms)
    }
}

impl Agent {
    pub(super) fn new(is_alive: bool) -> Self {
        Self {
            is_alive,
            ..Self::default()
        }
    }

    pub(super) fn of_worker(&self, worker: usize) -> impl Iterator<Item = (&HoldId, &Entry)> {
        let of_worker = move |(_, entry): &(&HoldId, &Entry)| entry.row.worker == worker;
        self.entries.iter().filter(of_worker)
    }

    /// Acquires the worker for the session of `row`. Returns `None` if another session has it.
    pub(super) fn acquire(&mut self, open: &Open, row: Row, ms: u64) -> Option<HoldId> {
        let acquired = self.holds.take(open, replica(row.relay), ms);
        let entries = self.of_worker(row.worker).map(|(_, entry)| entry.row);
        let other = { entries }.find(|of| of.relay != row.relay || of.parked.is_some());
        let unnoticed =
            { self.unnoticed_losses() }.any(|of| of.worker == row.worker && of.relay != row.relay);
        assert_eq!(
            acquired.is_err(),
            other.is_some() || unnoticed,
            "{other:?}, requested by {row:?}"
        );
        let id = acquired.ok()?;
        // A further connection shares the hold of the first.
        let is_same = |entry: &Entry| open.holder.is_none() || entry.row.session == row.session;
        let same = self.of_worker(row.worker).find(|(_, entry)| is_same(entry));
        let same = same.map(|(same, _)| *same);
        assert!(
            same.is_none_or(|same| same == id) && same.is_some() == self.entries.contains_key(&id)
        );
        let entry = self.entries.entry(id).or_insert(Entry {
            row,
            connections: 0,
            since_ms: ms,
        });
        entry.connections += 1;
        let is_alone = self.of_worker(row.worker).count() == 1;
        assert_eq!(self.holds.is_alone(id), is_alone, "{row:?}");
        Some(id)
    }

    pub(super) fn release(&mut self, id: HoldId) {
        self.holds.release(id);
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.connections -= 1;
            if entry.connections == 0 {
                let row = entry.row;
                self.ended_parks
                    .extend(row.parked.map(|_| resume_request(row)));
                self.entries.remove(&id);
            }
        }
    }

    pub(super) fn park(&mut self, id: HoldId, terms: &ParkTerms, until: u64) {
        self.holds.park(id, terms, until, false, ()).unwrap();
        if let Some(entry) = self.entries.get_mut(&id) {
            (entry.row.parked, entry.row.user) = (Some(until), user_named(&terms.owner));
        }
        for request in &self.ended_parks {
            let found = self.holds.to_let_run(request);
            assert!(found.is_none(), "{request:?} was meant for an earlier park");
        }
    }

    pub(super) fn resume(&mut self, id: HoldId, open: &Open, row: Row, ms: u64) {
        self.holds.resume(id, open, replica(row.relay), ms);
        if let Some(entry) = self.entries.get_mut(&id) {
            self.ended_parks.push(resume_request(entry.row));
            let stop = entry.row.stop;
            entry.row = Row { stop, ..row };
            entry.since_ms = ms;
        }
    }

    pub(super) fn remove_park(&mut self, worker: usize) -> Option<AgentPark> {
        let position = self.parks.iter().position(|park| park.worker == worker);
        Some(self.parks.remove(position?))
    }

    /// Returns the report for relays, if it has changed.
    pub(super) fn changed_report(&mut self) -> Option<Report> {
        let (held, rows) = (self.holds.rows(), self.entries.values());
        let is_unchanged = held == self.sent.0 && rows.clone().map(|e| &e.row).eq(&*self.sent.1);
        if is_unchanged {
            return None;
        }
        assert_eq!(held.len(), self.entries.len(), "{held:?}");
        for (held, Entry { row, since_ms, .. }) in held.iter().zip(rows) {
            let parked = held.parked.as_ref();
            assert!(
                &*held.worker_id == name(row.worker)
                    && held.replica == replica(row.relay)
                    && *held.session == row.session.to_string()
                    && parked.map_or(&*held.name, |parked| &*parked.owner) == USERS[row.user]
                    && held.since_unix_ms == *since_ms
                    && parked.map(|parked| parked.until_unix_ms) == row.parked,
                "{held:?} is reported for {row:?} since {since_ms}"
            );
        }
        self.sent = (held, self.entries.values().map(|entry| entry.row).collect());
        Some(self.sent.clone())
    }

    pub(super) fn digest(&self, ms: u64, digest: &mut Digest) {
        digest.put(usize::from(self.is_alive), self.links.len());
        digest.put(
            self.streams.len(),
            self.detaching.len()
                + 16 * self.subprocesses.len()
                + 256 * self.unnoticed_losses().count(),
        );
        for Entry { row, .. } in self.entries.values() {
            digest.put(4 * row.worker + row.user, row.relay);
            digest.put(3, usize::from(row.parked.is_some()));
        }
        for park in &self.parks {
            let remaining = park.until.saturating_sub(ms) / 10_000;
            digest.put(park.user, usize::try_from(remaining).unwrap());
        }
    }
}

/// Returns the request that resumes the task parked by `row`.
fn resume_request(row: Row) -> LetRun {
    LetRun {
        worker_id: wire_name(row.worker).clone(),
        port: 4000,
        session: Some(KeptSession {
            replica: replica(row.relay),
            session: row.session.to_string().as_str().into(),
        }),
    }
}

/// Returns the id of a relay.
pub(super) fn replica(relay: usize) -> Replica {
    Hex([u8::try_from(relay + 1).unwrap(); 8])
}
