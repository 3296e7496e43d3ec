//! The real table of an agent, beside it what must be in it, and what the agent knows besides.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::digest::Digest;
use super::words::Row;
use super::world::{PEOPLE, name, name_told, person_called};
use crate::hold::{HoldId, NodeHolds};
use ray_relay_base::wire::tunnel::messages::{
    Hex, HoldRow, KeptSession, LetRun, Open, ParkTerms, Replica,
};

#[derive(Default, Clone)]
pub(super) struct Agent {
    pub(super) is_alive: bool,
    pub(super) holds: NodeHolds<()>,
    /// Their contents.
    pub(super) table: BTreeMap<HoldId, Entry>,
    /// The number of the link with each relay.
    pub(super) links: BTreeMap<usize, u64>,
    pub(super) streams: BTreeMap<u64, AtAgent>,
    pub(super) kept: Vec<Kept>,
    /// Subprocesses of workers.
    pub(super) beside: Vec<Subprocess>,
    /// Holds whose debuggers are being detached: their tasks run already.
    pub(super) leaving: Vec<HoldId>,
    pub(super) told: ToldLists,
    /// Words about parks that are over, which may still come.
    pub(super) late: Vec<LetRun>,
}

/// The lists for relays, with the facts that only the simulation knows.
type ToldLists = (Arc<[HoldRow]>, Arc<[Row]>);

#[derive(Clone)]
pub(super) struct Entry {
    pub(super) row: Row,
    pub(super) streams: usize,
    pub(super) since: u64,
}

/// A stream at its agent.
#[derive(Clone)]
pub(super) struct AtAgent {
    pub(super) hold: HoldId,
    pub(super) worker: usize,
    pub(super) said: Option<KeptSince>,
}

/// By what a worker is kept, when that was said, and what it comes to.
#[derive(Clone)]
pub(super) struct KeptSince {
    pub(super) keep: ParkTerms,
    pub(super) at: u64,
    pub(super) terms: Terms,
}

/// The same by the clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) keeps: u64,
    pub(super) least: Option<u64>,
    pub(super) most: Option<u64>,
    pub(super) began: u64,
}

/// A subprocess of a worker that has a session of its own.
#[derive(Clone)]
pub(super) struct Subprocess {
    pub(super) hold: HoldId,
    pub(super) worker: usize,
    pub(super) person: usize,
    /// The relay of the session with it, now or before.
    pub(super) relay: usize,
    /// That of the session with the worker; `None`: it is kept.
    pub(super) stream: Option<u64>,
    /// Its relay is lost, which the agent sees later than for the worker: by what it is kept then, and until when.
    pub(super) lost: Option<(ParkTerms, u64)>,
}

#[derive(Clone)]
pub(super) struct Kept {
    pub(super) hold: HoldId,
    pub(super) worker: usize,
    pub(super) person: usize,
    pub(super) until: u64,
    pub(super) said: KeptSince,
}

impl Terms {
    pub(super) fn of(keep: &ParkTerms, ms: u64) -> Self {
        Self {
            keeps: keep.keeps_ms,
            least: keep.at_least_ms.map(|least| ms + least),
            most: keep.at_most_ms.map(|most| ms + most),
            began: ms - keep.lasted_ms,
        }
    }

    /// Until when it lasts, where the relay is lost then.
    pub(super) fn until(self, ms: u64) -> u64 {
        let until = (ms + self.keeps).max(self.least.unwrap_or(0));
        until.min(self.most.unwrap_or(u64::MAX)).max(ms)
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
        self.table.iter().filter(of_worker)
    }

    /// Takes the worker for who `open` names, which is `row`. None: another has it.
    pub(super) fn take(&mut self, open: &Open, row: Row, ms: u64) -> Option<HoldId> {
        let taken = self.holds.take(open, replica(row.relay), ms);
        let entries = self.of_worker(row.worker).map(|(_, entry)| entry.row);
        let other = { entries }.find(|of| of.relay != row.relay || of.parked.is_some());
        let lost =
            { self.lost_beside() }.any(|of| of.worker == row.worker && of.relay != row.relay);
        assert_eq!(
            taken.is_err(),
            other.is_some() || lost,
            "{other:?}, asked by {row:?}"
        );
        let id = taken.ok()?;
        // A further connection is the first one's.
        let is_same = |entry: &Entry| open.holder.is_none() || entry.row.session == row.session;
        let same = self.of_worker(row.worker).find(|(_, entry)| is_same(entry));
        let same = same.map(|(same, _)| *same);
        assert!(
            same.is_none_or(|same| same == id) && same.is_some() == self.table.contains_key(&id)
        );
        let entry = self.table.entry(id).or_insert(Entry {
            row,
            streams: 0,
            since: ms,
        });
        entry.streams += 1;
        let alone = self.of_worker(row.worker).count() == 1;
        assert_eq!(self.holds.is_alone(id), alone, "{row:?}");
        Some(id)
    }

    pub(super) fn give_back(&mut self, id: HoldId) {
        self.holds.release(id);
        if let Some(entry) = self.table.get_mut(&id) {
            entry.streams -= 1;
            if entry.streams == 0 {
                let row = entry.row;
                self.late.extend(row.parked.map(|_| let_run(row)));
                self.table.remove(&id);
            }
        }
    }

    pub(super) fn keep(&mut self, id: HoldId, keep: &ParkTerms, until: u64) {
        self.holds.park(id, keep, until, false, ()).unwrap();
        if let Some(entry) = self.table.get_mut(&id) {
            (entry.row.parked, entry.row.person) = (Some(until), person_called(&keep.owner));
        }
        for late in &self.late {
            let found = self.holds.to_let_run(late);
            assert!(
                found.is_none(),
                "{late:?} was said of another park than this"
            );
        }
    }

    pub(super) fn resume(&mut self, id: HoldId, open: &Open, row: Row, ms: u64) {
        self.holds.resume(id, open, replica(row.relay), ms);
        if let Some(entry) = self.table.get_mut(&id) {
            self.late.push(let_run(entry.row));
            let stop = entry.row.stop;
            entry.row = Row { stop, ..row };
            entry.since = ms;
        }
    }

    pub(super) fn take_kept(&mut self, worker: usize) -> Option<Kept> {
        let position = self.kept.iter().position(|kept| kept.worker == worker);
        Some(self.kept.remove(position?))
    }

    /// The lists for relays, if they have changed.
    pub(super) fn news(&mut self) -> Option<ToldLists> {
        let (held, rows) = (self.holds.rows(), self.table.values());
        let is_old = held == self.told.0 && rows.clone().map(|e| &e.row).eq(&*self.told.1);
        if is_old {
            return None;
        }
        assert_eq!(held.len(), self.table.len(), "{held:?}");
        for (held, Entry { row, since, .. }) in held.iter().zip(rows) {
            let parked = held.parked.as_ref();
            assert!(
                &*held.worker_id == name(row.worker)
                    && held.replica == replica(row.relay)
                    && *held.session == row.session.to_string()
                    && parked.map_or(&*held.name, |parked| &*parked.owner) == PEOPLE[row.person]
                    && held.since_unix_ms == *since
                    && parked.map(|parked| parked.until_unix_ms) == row.parked,
                "{held:?} is told of {row:?} since {since}"
            );
        }
        self.told = (held, self.table.values().map(|entry| entry.row).collect());
        Some(self.told.clone())
    }

    pub(super) fn digest(&self, ms: u64, digest: &mut Digest) {
        digest.put(usize::from(self.is_alive), self.links.len());
        digest.put(
            self.streams.len(),
            self.leaving.len() + 16 * self.beside.len() + 256 * self.lost_beside().count(),
        );
        for Entry { row, .. } in self.table.values() {
            digest.put(4 * row.worker + row.person, row.relay);
            digest.put(3, usize::from(row.parked.is_some()));
        }
        for kept in &self.kept {
            let left = kept.until.saturating_sub(ms) / 10_000;
            digest.put(kept.person, usize::try_from(left).unwrap());
        }
    }
}

/// The request that resumes the task kept according to `row`.
fn let_run(row: Row) -> LetRun {
    LetRun {
        worker_id: name_told(row.worker).clone(),
        port: 4000,
        session: Some(KeptSession {
            replica: replica(row.relay),
            session: row.session.to_string().as_str().into(),
        }),
    }
}

/// Names the relay process of this number.
pub(super) fn replica(relay: usize) -> Replica {
    Hex([u8::try_from(relay + 1).unwrap(); 8])
}
