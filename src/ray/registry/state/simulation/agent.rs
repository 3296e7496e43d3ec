//! An agent: the real table of who has which worker, with what carries its words played. Beside the table is what it must be.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Digest;
use super::words::Row;
use super::world::{Cause, Channel, Connection, Message, PEOPLE, World, name};
use crate::hold::{HoldId, NodeHolds};
use crate::wire::tunnel::messages::{Held, Hex, Keep, KeptSession, LetRun, Open, Replica};

#[derive(Default)]
pub(super) struct Agent {
    pub(super) is_alive: bool,
    pub(super) holds: NodeHolds<()>,
    /// What is in them.
    table: BTreeMap<HoldId, Entry>,
    /// The number of the link with each relay.
    pub(super) links: BTreeMap<usize, u64>,
    pub(super) streams: BTreeMap<u64, AtAgent>,
    pub(super) kept: Vec<Kept>,
    /// Whose debuggers are being left: their tasks run already.
    pub(super) leaving: Vec<HoldId>,
    told: (Arc<[Held]>, Arc<[Row]>),
    /// Words about parks that are over, which may still come.
    late: Vec<LetRun>,
}

struct Entry {
    row: Row,
    streams: usize,
    since: u64,
}

/// A stream at its agent.
pub(super) struct AtAgent {
    hold: HoldId,
    worker: usize,
    said: Option<Said>,
}

/// By what a worker is kept, when that was said, and what it comes to.
struct Said {
    keep: Keep,
    at: u64,
    terms: Terms,
}

/// The same by the clock.
#[derive(Debug, Clone, Copy)]
struct Terms {
    keeps: u64,
    least: Option<u64>,
    most: Option<u64>,
    began: u64,
}

pub(super) struct Kept {
    hold: HoldId,
    worker: usize,
    person: usize,
    pub(super) until: u64,
    said: Said,
}

impl Terms {
    fn of(keep: &Keep, ms: u64) -> Self {
        Self {
            keeps: keep.keeps_ms,
            least: keep.at_least_ms.map(|least| ms + least),
            most: keep.at_most_ms.map(|most| ms + most),
            began: ms - keep.lasted_ms,
        }
    }

    /// Until when it lasts, where the relay is lost then.
    fn until(self, ms: u64) -> u64 {
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

    fn of_worker(&self, worker: usize) -> impl Iterator<Item = (&HoldId, &Entry)> {
        let of_worker = move |(_, entry): &(&HoldId, &Entry)| entry.row.worker == worker;
        self.table.iter().filter(of_worker)
    }

    /// Takes the worker for who `open` names, which is `row`. None: another has it.
    fn take(&mut self, open: &Open, row: Row, replica: Replica, ms: u64) -> Option<HoldId> {
        let taken = self.holds.take(open, replica, ms);
        let entries = self.of_worker(row.worker).map(|(_, entry)| entry.row);
        let other = { entries }.find(|of| of.relay != row.relay || of.parked.is_some());
        assert_eq!(
            taken.is_err(),
            other.is_some(),
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

    fn give_back(&mut self, id: HoldId) {
        self.holds.give_back(id);
        if let Some(entry) = self.table.get_mut(&id) {
            entry.streams -= 1;
            if entry.streams == 0 {
                let row = entry.row;
                self.late.extend(row.parked.map(|_| let_run(row)));
                self.table.remove(&id);
            }
        }
    }

    fn keep(&mut self, id: HoldId, keep: &Keep, until: u64) {
        assert!(self.holds.park(id, keep, until, ()));
        if let Some(entry) = self.table.get_mut(&id) {
            entry.row.parked = Some(until);
        }
        for late in &self.late {
            let found = self.holds.to_let_run(late);
            assert!(
                found.is_none(),
                "{late:?} was said of another park than this"
            );
        }
    }

    fn resume(&mut self, id: HoldId, open: &Open, (row, replica): (Row, Replica), ms: u64) {
        self.holds.resume(id, open, replica, ms);
        if let Some(entry) = self.table.get_mut(&id) {
            self.late.push(let_run(entry.row));
            let stop = entry.row.stop;
            entry.row = Row { stop, ..row };
            entry.since = ms;
        }
    }

    fn take_kept(&mut self, worker: usize) -> Option<Kept> {
        let position = self.kept.iter().position(|kept| kept.worker == worker);
        Some(self.kept.remove(position?))
    }

    /// What relays are to be told, where that has changed.
    fn news(&mut self) -> Option<(Arc<[Held]>, Arc<[Row]>)> {
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
                    && &*held.name == PEOPLE[row.person]
                    && held.since_unix_ms == *since
                    && parked.map(|parked| parked.until_unix_ms) == row.parked
                    && parked.is_none_or(|parked| &*parked.owner == PEOPLE[row.person]),
                "{held:?} is told of {row:?} since {since}"
            );
        }
        self.told = (held, self.table.values().map(|entry| entry.row).collect());
        Some(self.told.clone())
    }

    pub(super) fn digest(&self, ms: u64, digest: &mut Digest) {
        digest.put(usize::from(self.is_alive), self.links.len());
        digest.put(self.streams.len(), self.leaving.len());
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

/// What has the task run on that is kept as `row` says.
fn let_run(row: Row) -> LetRun {
    LetRun {
        worker_id: name(row.worker).into(),
        port: 4000,
        session: Some(KeptSession {
            replica: replica(row.relay),
            session: row.session.to_string().as_str().into(),
        }),
    }
}

/// Names the relay process of this number.
fn replica(relay: usize) -> Replica {
    Hex([u8::try_from(relay + 1).unwrap(); 8])
}

impl World {
    pub(super) fn wants_link(&self, agent: usize, relay: usize) -> bool {
        let is_served = self.relays[relay].is_alive && !self.cuts.contains_key(&(relay, agent));
        let links = &self.agents[agent].links;
        is_served && self.agents[agent].is_alive && !links.contains_key(&relay)
    }

    pub(super) fn connect(&mut self, agent: usize, relay: usize) {
        let number = self.number();
        self.tell(|| format!("agent {agent} links with relay {relay}"));
        self.agents[agent].links.insert(relay, number);
        self.link_at_relay(relay, agent, number);
        let (held, rows) = self.agents[agent].told.clone();
        self.send(
            Channel::ToRelay(relay, agent, number),
            Message::Held(held, rows),
        );
    }

    /// Tells every relay, where something has changed.
    fn tell_relays(&mut self, agent: usize) {
        let Some((held, rows)) = self.agents[agent].news() else {
            return;
        };
        for (relay, number) in self.agents[agent].links.clone() {
            let channel = Channel::ToRelay(relay, agent, number);
            let told = Message::Held(Arc::clone(&held), Arc::clone(&rows));
            self.send(channel, told);
        }
    }

    /// `message` has come on the link `number` of `relay`.
    pub(super) fn at_agent(&mut self, agent: usize, relay: usize, number: u64, message: Message) {
        if self.agents[agent].links.get(&relay) != Some(&number) {
            return;
        }
        match message {
            Message::Open(open, stream) => {
                if !self.open(agent, &open, stream) {
                    let link = Channel::ToRelay(relay, agent, number);
                    self.send(link, Message::Refused(stream));
                }
            }
            Message::LetRun(let_run, row, cause) => self.let_run_kept(agent, &let_run, row, cause),
            Message::Closed => {
                self.agents[agent].links.remove(&relay);
            }
            other => panic!("{other:?} to an agent"),
        }
        self.tell_relays(agent);
    }

    /// `false`: it is refused.
    fn open(&mut self, agent: usize, open: &Open, stream: u64) -> bool {
        let of = self.streams[&stream];
        let row = Row {
            worker: of.worker,
            person: of.person,
            relay: of.relay,
            session: of.claim,
            stop: self.workers[of.worker].stop,
            parked: None,
        };
        if open.resume.is_some() {
            return self.resume(agent, open, stream, row);
        }
        let at = &mut self.agents[agent];
        let Some(hold) = at.take(open, row, replica(of.relay), self.ms) else {
            return false;
        };
        if !self.comes(stream) {
            self.agents[agent].give_back(hold);
            return false;
        }
        if !self.dial(of.worker, of.person, Connection::Agent) {
            self.agents[agent].give_back(hold);
            self.send(Channel::Down(stream), Message::Closed);
            return true;
        }
        self.connect_further(agent, open, stream, row);
        let at_agent = AtAgent {
            hold,
            worker: of.worker,
            said: None,
        };
        self.agents[agent].streams.insert(stream, at_agent);
        self.send(Channel::Down(stream), Message::Dialled(None));
        true
    }

    fn resume(&mut self, agent: usize, open: &Open, stream: u64, row: Row) -> bool {
        let at = &self.agents[agent];
        let is_of = |entry: &(&HoldId, &Entry)| entry.1.row.parked.is_some();
        let is_for = at.of_worker(row.worker).find(is_of);
        let is_for = is_for.map(|(_, entry)| PEOPLE[entry.row.person]);
        let owner = at.holds.kept(&open.worker_id, open.port);
        let owner = owner.map(|(owner, ())| &**owner);
        assert_eq!(owner, is_for);
        // Its time may be over, and its debugger be left at this moment.
        let is_there = at.kept.iter().any(|kept| kept.worker == row.worker);
        if !is_there || owner != open.resume.as_deref() || !self.comes(stream) {
            return false;
        }
        let (ms, at) = (self.ms, &mut self.agents[agent]);
        let Some(Kept { hold, said, .. }) = at.take_kept(row.worker) else {
            return false;
        };
        at.resume(hold, open, (row, replica(row.relay)), ms);
        let keep = said.keep.renewed(Duration::from_millis(ms - said.at));
        let terms = said.terms;
        let lasts = keep.lasts(Duration::ZERO);
        assert_eq!(
            (lasts, keep.lasted_ms),
            (
                Duration::from_millis(terms.until(ms) - ms),
                ms - terms.began
            )
        );
        let lasted = keep.lasted_ms;
        let at_agent = AtAgent {
            hold,
            worker: row.worker,
            said: Some(Said {
                keep,
                at: ms,
                terms,
            }),
        };
        at.streams.insert(stream, at_agent);
        self.connect_further(agent, open, stream, row);
        self.workers[row.worker].owner = Some(row.person);
        self.send(Channel::Down(stream), Message::Dialled(Some(lasted)));
        true
    }

    /// Some sessions have further connections, which end later.
    fn connect_further(&mut self, agent: usize, open: &Open, stream: u64, row: Row) {
        if stream % 4 == 0 {
            let further = Open {
                holder: None,
                ..open.clone()
            };
            let at = &mut self.agents[agent];
            let hold = at.take(&further, row, replica(row.relay), self.ms);
            at.leaving.push(hold.unwrap());
        }
    }

    fn let_run_kept(&mut self, agent: usize, let_run: &LetRun, row: Row, cause: Cause) {
        let at = &mut self.agents[agent];
        let of = |entry: &Entry| (entry.row.relay, entry.row.session) == (row.relay, row.session);
        let is_meant = at
            .of_worker(row.worker)
            .any(|(_, entry)| of(entry) && entry.row.parked.is_some());
        let is_found = at.holds.to_let_run(let_run).is_some();
        assert_eq!(is_found, is_meant, "{row:?} is to run on");
        if let Some(kept) = is_found.then(|| at.take_kept(row.worker)).flatten() {
            at.leaving.push(kept.hold);
            self.run_on(kept.worker, cause);
        }
    }

    /// Debuggers that were being left are left.
    pub(super) fn have_left(&mut self, agent: usize) {
        for hold in std::mem::take(&mut self.agents[agent].leaving) {
            self.agents[agent].give_back(hold);
        }
        self.tell_relays(agent);
    }

    /// `message` has come on a stream.
    pub(super) fn up(&mut self, stream: u64, message: Message) {
        let agent = self.streams[&stream].agent;
        let ms = self.ms;
        let at = &mut self.agents[agent];
        let Some(of) = at.streams.get_mut(&stream) else {
            return;
        };
        match message {
            Message::Keep(keep, promised) => {
                let worker = &mut self.workers[of.worker];
                worker.promised = promised.or(worker.promised);
                let terms = Terms::of(&keep, ms);
                of.said = Some(Said {
                    keep: *keep,
                    at: ms,
                    terms,
                });
            }
            Message::Goodbye(cause) => {
                let worker = of.worker;
                at.leaving.push(of.hold);
                at.streams.remove(&stream);
                self.run_on(worker, cause);
                self.send(Channel::Down(stream), Message::Closed);
            }
            Message::Closed => self.lose_relay_of(stream),
            other => panic!("{other:?} on a stream"),
        }
    }

    /// The relay of `stream` is lost: what it said counts.
    pub(super) fn lose_relay_of(&mut self, stream: u64) {
        let (agent, person) = (self.streams[&stream].agent, self.streams[&stream].person);
        let ms = self.ms;
        let at = &mut self.agents[agent];
        let Some(AtAgent { hold, worker, said }) = at.streams.remove(&stream) else {
            return;
        };
        let until = |said: &Said| {
            let lasts = said.keep.lasts(Duration::from_millis(ms - said.at));
            let until = ms + u64::try_from(lasts.as_millis()).unwrap();
            assert_eq!(until, said.terms.until(ms), "{:?}", said.terms);
            until
        };
        match said.map(|said| (until(&said), said)) {
            Some((until, said)) if until > ms => {
                at.keep(hold, &said.keep, until);
                let kept = Kept {
                    hold,
                    worker,
                    person,
                    until,
                    said,
                };
                let terms = kept.said.terms;
                at.kept.push(kept);
                self.tell(|| format!("        agent {agent} keeps worker {worker} by {terms:?}"));
            }
            _ => {
                at.leaving.push(hold);
                self.run_on(worker, Cause::Died);
            }
        }
        self.tell_relays(agent);
    }

    /// The agent takes note that it hears nothing of `relay`.
    pub(super) fn agent_notices(&mut self, relay: usize, agent: usize) {
        self.agents[agent].links.remove(&relay);
        let streams: Vec<u64> = self.agents[agent].streams.keys().copied().collect();
        for stream in streams {
            if self.streams[&stream].relay == relay {
                self.lose_relay_of(stream);
            }
        }
    }

    pub(super) fn end_kept(&mut self) {
        for agent in 0..self.agents.len() {
            let (ms, at) = (self.ms, &mut self.agents[agent]);
            let over = at.kept.extract_if(.., |kept| kept.until <= ms);
            for kept in over.collect::<Vec<_>>() {
                self.agents[agent].leaving.push(kept.hold);
                self.run_on(kept.worker, Cause::Terms(kept.person, kept.until));
            }
        }
    }

    /// The agent dies, or ends `in_order`.
    pub(super) fn end_agent(&mut self, agent: usize, in_order: bool) {
        let dead = std::mem::replace(&mut self.agents[agent], Agent::new(false));
        for (stream, at) in dead.streams {
            self.run_on(at.worker, Cause::Died);
            self.send(Channel::Down(stream), Message::Closed);
        }
        for kept in dead.kept {
            self.run_on(kept.worker, Cause::Died);
        }
        for (relay, number) in dead.links {
            let end = if in_order {
                Message::Left
            } else {
                Message::Closed
            };
            self.send(Channel::ToRelay(relay, agent, number), end);
        }
    }

    /// The worker has died: whoever is connected to it sees that.
    pub(super) fn worker_died(&mut self, worker: usize) {
        let at = &mut self.agents[worker % 2];
        let kept = at.kept.extract_if(.., |kept| kept.worker == worker);
        let mut holds: Vec<HoldId> = kept.map(|kept| kept.hold).collect();
        let ended: Vec<u64> = {
            let of_it = at.streams.iter().filter(|(_, of)| of.worker == worker);
            of_it.map(|(stream, _)| *stream).collect()
        };
        for stream in &ended {
            holds.extend(at.streams.remove(stream).map(|of| of.hold));
        }
        for hold in holds {
            at.give_back(hold);
        }
        for stream in ended {
            self.send(Channel::Down(stream), Message::Closed);
        }
        self.tell_relays(worker % 2);
    }
}
