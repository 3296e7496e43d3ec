//! An agent: what carries the words of its [table](super::table) is played.

use std::sync::Arc;
use std::time::Duration;

use super::table::{Agent, AtAgent, Entry, Kept, KeptSince, Terms};
use super::words::Row;
use super::world::{Cause, Channel, Connection, Message, PEOPLE, World, person_called};
use crate::hold::HoldId;
use ray_relay_base::wire::tunnel::messages::{LetRun, Open};

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
        let Some(hold) = at.take(open, row, self.ms) else {
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
        let owner = at.holds.kept(&open.worker_id, open.port, open.process);
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
        at.resume(hold, open, row, ms);
        at.go_along(row.worker, row.person);
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
            said: Some(KeptSince {
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
        if stream.is_multiple_of(4) {
            let further = Open {
                holder: None,
                ..open.clone()
            };
            let at = &mut self.agents[agent];
            let hold = at.take(&further, row, self.ms);
            at.leaving.extend(hold);
        }
        self.agents[agent].take_beside(open, stream, row, self.ms);
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
                of.said = Some(KeptSince {
                    keep: *keep,
                    at: ms,
                    terms,
                });
            }
            Message::Goodbye(cause) => {
                let worker = of.worker;
                at.leaving.push(of.hold);
                at.streams.remove(&stream);
                at.leave_beside(stream, None);
                self.run_on(worker, cause);
                self.send(Channel::Down(stream), Message::Closed);
            }
            Message::Closed => self.lose_relay_of(stream),
            other => panic!("{other:?} on a stream"),
        }
    }

    /// The relay of `stream` is lost: what it said counts.
    pub(super) fn lose_relay_of(&mut self, stream: u64) {
        let agent = self.streams[&stream].agent;
        let ms = self.ms;
        let at = &mut self.agents[agent];
        let Some(AtAgent { hold, worker, said }) = at.streams.remove(&stream) else {
            return;
        };
        let until = |said: &KeptSince| {
            let lasts = said.keep.lasts(Duration::from_millis(ms - said.at));
            let until = ms + u64::try_from(lasts.as_millis()).unwrap();
            assert_eq!(until, said.terms.until(ms), "{:?}", said.terms);
            until
        };
        match said.map(|said| (until(&said), said)) {
            Some((until, said)) if until > ms => {
                // A user who has taken it over without sending terms has not had it.
                let person = person_called(&said.keep.owner);
                self.workers[worker].owner = Some(person);
                at.keep(hold, &said.keep, until);
                at.leave_beside(stream, Some((&said.keep, until)));
                at.go_along(worker, person);
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
                at.leave_beside(stream, None);
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

    /// The worker has died: the client that is connected to it sees that.
    pub(super) fn worker_died(&mut self, worker: usize) {
        let at = &mut self.agents[worker % 2];
        let kept = at.kept.extract_if(.., |kept| kept.worker == worker);
        let mut holds: Vec<HoldId> = kept.map(|kept| kept.hold).collect();
        let ended: Vec<u64> = {
            let of_it = at.streams.iter().filter(|(_, of)| of.worker == worker);
            of_it.map(|(stream, _)| *stream).collect()
        };
        for stream in &ended {
            at.leave_beside(*stream, None);
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
