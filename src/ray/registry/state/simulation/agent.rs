//! An agent: the real table of who has which worker, with what carries its words played.

use std::collections::BTreeMap;
use std::hash::{Hash as _, Hasher};
use std::time::Duration;

use super::world::{Cause, Channel, Connection, Message, World, worker_of};
use crate::hold::{HoldId, NodeHolds};
use crate::wire::tunnel::messages::{Held, Keep, LetRun, Open};

pub(super) struct Agent {
    pub(super) is_alive: bool,
    pub(super) holds: NodeHolds<()>,
    /// The number of the link with each relay.
    pub(super) links: BTreeMap<usize, u64>,
    pub(super) streams: BTreeMap<u64, AtAgent>,
    kept: Vec<Kept>,
    told: Vec<Held>,
}

/// A stream at its agent.
pub(super) struct AtAgent {
    hold: HoldId,
    worker: usize,
    /// By what it is kept, and when that was said.
    keep: Option<(Keep, u64)>,
}

struct Kept {
    hold: HoldId,
    worker: usize,
    person: usize,
    until: u64,
    keep: Keep,
}

impl Agent {
    pub(super) fn new(is_alive: bool) -> Self {
        Self {
            is_alive,
            holds: NodeHolds::default(),
            links: BTreeMap::new(),
            streams: BTreeMap::new(),
            kept: Vec::new(),
            told: Vec::new(),
        }
    }

    pub(super) fn digest(&self, ms: u64, hash: &mut impl Hasher) {
        (self.is_alive, self.links.len(), self.streams.len()).hash(hash);
        for held in &*self.holds.rows() {
            let who = (&*held.name, &*held.session, held.parked.is_some());
            (&*held.worker_id, who, held.replica).hash(hash);
        }
        for kept in &self.kept {
            (kept.person, (kept.until.saturating_sub(ms)) / 10_000).hash(hash);
        }
    }
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
        let rows = self.agents[agent].holds.rows().to_vec();
        self.send(Channel::ToRelay(relay, agent, number), Message::Held(rows));
    }

    /// Tells every relay, where something has changed.
    fn tell_relays(&mut self, agent: usize) {
        let rows = self.agents[agent].holds.rows().to_vec();
        if rows == self.agents[agent].told {
            return;
        }
        self.agents[agent].told.clone_from(&rows);
        for (relay, number) in self.agents[agent].links.clone() {
            let channel = Channel::ToRelay(relay, agent, number);
            self.send(channel, Message::Held(rows.clone()));
        }
    }

    /// `message` has come on the link `number` of `relay`.
    pub(super) fn at_agent(&mut self, agent: usize, relay: usize, number: u64, message: Message) {
        if self.agents[agent].links.get(&relay) != Some(&number) {
            return;
        }
        match message {
            Message::Open(open, stream) => self.open(agent, relay, number, &open, stream),
            Message::LetRun(let_run, cause) => self.let_run_kept(agent, &let_run, cause),
            Message::Closed => {
                self.agents[agent].links.remove(&relay);
            }
            other => panic!("{other:?} to an agent"),
        }
        self.tell_relays(agent);
    }

    fn open(&mut self, agent: usize, relay: usize, number: u64, open: &Open, stream: u64) {
        let replica = self.relays[relay].replica();
        let (worker, person) = (worker_of(&open.worker_id), self.streams[&stream].person);
        let ms = self.ms;
        let link = Channel::ToRelay(relay, agent, number);
        if let Some(owner) = &open.resume {
            let at = &mut self.agents[agent];
            let kept = at.holds.kept(&open.worker_id, open.port);
            if kept.is_none_or(|(of, ())| of != owner) {
                return self.send(link, Message::Refused(stream));
            }
            if !self.comes(stream) {
                return self.send(link, Message::Refused(stream));
            }
            let at = &mut self.agents[agent];
            let position = at.kept.iter().position(|kept| kept.worker == worker);
            let kept = at.kept.remove(position.unwrap());
            at.holds.resume(kept.hold, open, replica, ms);
            let at_agent = AtAgent {
                hold: kept.hold,
                worker,
                keep: Some((kept.keep, ms)),
            };
            at.streams.insert(stream, at_agent);
            self.workers[worker].owner = Some(person);
            return self.send(Channel::Down(stream), Message::Dialled);
        }
        let taken = self.agents[agent].holds.take(open, replica, ms);
        let Ok(hold) = taken else {
            return self.send(link, Message::Refused(stream));
        };
        if !self.comes(stream) {
            self.agents[agent].holds.give_back(hold);
            return self.send(link, Message::Refused(stream));
        }
        // The session before of the same relay may still be there; any other must not.
        let of_worker = |at: &&AtAgent| at.worker == worker;
        let others = self.agents[agent].streams.iter();
        let others = others.filter(|(_, at)| of_worker(at));
        for (other, _) in others {
            assert_eq!(self.streams[other].relay, relay, "two have worker {worker}");
        }
        let is_kept = self.agents[agent].kept.iter().any(|k| k.worker == worker);
        assert!(!is_kept, "worker {worker} is kept, and is dialled anew");
        if !self.dial(worker, person, Connection::Agent) {
            self.agents[agent].holds.give_back(hold);
            return self.send(Channel::Down(stream), Message::Closed);
        }
        let keep = None;
        let at_agent = AtAgent { hold, worker, keep };
        self.agents[agent].streams.insert(stream, at_agent);
        self.send(Channel::Down(stream), Message::Dialled);
    }

    fn let_run_kept(&mut self, agent: usize, let_run: &LetRun, cause: Cause) {
        let at = &mut self.agents[agent];
        if at.holds.to_let_run(let_run).is_none() {
            return;
        }
        let worker = worker_of(&let_run.worker_id);
        let position = at.kept.iter().position(|kept| kept.worker == worker);
        let kept = at.kept.remove(position.unwrap());
        self.run_on(kept.worker, cause);
        self.agents[agent].holds.give_back(kept.hold);
    }

    /// `message` has come on a stream.
    pub(super) fn up(&mut self, stream: u64, message: Message) {
        let agent = self.streams[&stream].agent;
        let ms = self.ms;
        let Some(at) = self.agents[agent].streams.get_mut(&stream) else {
            return;
        };
        match message {
            Message::Keep(keep) => at.keep = Some((*keep, ms)),
            Message::Goodbye(cause) => {
                let (worker, hold) = (at.worker, at.hold);
                self.agents[agent].streams.remove(&stream);
                self.run_on(worker, cause);
                self.agents[agent].holds.give_back(hold);
                self.send(Channel::Down(stream), Message::Closed);
            }
            Message::Closed => self.lose_relay_of(stream),
            other => panic!("{other:?} on a stream"),
        }
        self.tell_relays(agent);
    }

    /// The relay of `stream` is lost: what it said counts.
    pub(super) fn lose_relay_of(&mut self, stream: u64) {
        let (agent, person) = (self.streams[&stream].agent, self.streams[&stream].person);
        let ms = self.ms;
        let Some(at) = self.agents[agent].streams.remove(&stream) else {
            return;
        };
        let keep = at.keep.map(|(keep, said)| {
            let lasts = keep.lasts(Duration::from_millis(ms - said));
            let until = ms + u64::try_from(lasts.as_millis()).unwrap();
            (keep.renewed(Duration::from_millis(ms - said)), until)
        });
        let holds = &mut self.agents[agent].holds;
        match keep.filter(|(keep, until)| *until > ms && holds.park(at.hold, keep, *until, ())) {
            Some((keep, until)) => {
                self.tell(|| format!("        agent {agent} keeps worker {}", at.worker));
                self.agents[agent].kept.push(Kept {
                    hold: at.hold,
                    worker: at.worker,
                    person,
                    until,
                    keep,
                });
            }
            None => {
                self.run_on(at.worker, Cause::Died);
                self.agents[agent].holds.give_back(at.hold);
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
            let ms = self.ms;
            let over = self.agents[agent]
                .kept
                .extract_if(.., |kept| kept.until <= ms);
            for kept in over.collect::<Vec<_>>() {
                self.run_on(kept.worker, Cause::Terms(kept.person, kept.until));
                self.agents[agent].holds.give_back(kept.hold);
            }
            self.tell_relays(agent);
        }
    }

    pub(super) fn crash_agent(&mut self, agent: usize) {
        let dead = std::mem::replace(&mut self.agents[agent], Agent::new(false));
        for (stream, at) in dead.streams {
            self.run_on(at.worker, Cause::Died);
            self.send(Channel::Down(stream), Message::Closed);
        }
        for kept in dead.kept {
            self.run_on(kept.worker, Cause::Died);
        }
        for (relay, number) in dead.links {
            self.send(Channel::ToRelay(relay, agent, number), Message::Closed);
        }
    }

    /// The worker has died: whoever is connected to it sees that.
    pub(super) fn worker_died(&mut self, worker: usize) {
        let agent = &mut self.agents[worker % 2];
        let kept = agent.kept.extract_if(.., |kept| kept.worker == worker);
        let mut holds: Vec<HoldId> = kept.map(|kept| kept.hold).collect();
        let ended: Vec<u64> = {
            let streams = agent.streams.iter();
            let of_it = streams.filter(|(_, at)| at.worker == worker);
            of_it.map(|(stream, _)| *stream).collect()
        };
        for stream in &ended {
            holds.extend(agent.streams.remove(stream).map(|at| at.hold));
        }
        for hold in holds {
            self.agents[worker % 2].holds.give_back(hold);
        }
        for stream in ended {
            self.send(Channel::Down(stream), Message::Closed);
        }
        self.tell_relays(worker % 2);
    }
}
