//! What sessions of a relay do: they come, are lost, are gone on with, and end.

use std::time::{Duration, SystemTime};

use super::relay::{Phase, Session};
use super::world::{Cause, Channel, Connection, KEEPS, Message, Stream, World, name};
use crate::hold::Holder;
use crate::moment::Moment;
use crate::ray::registry::breakpoint::Breakpoint;
use crate::wire::debugger::Kind;
use crate::wire::tunnel::messages::{self, Hex, Keep, LetRun, Open};

impl World {
    pub(super) fn holder(&self, relay: usize, claim: u64) -> Holder {
        let session = self.relays[relay].sessions[&claim];
        let until = |ms| Moment {
            instant: self.instant(ms),
            time: SystemTime::UNIX_EPOCH + Duration::from_millis(ms),
        };
        Holder {
            session: claim,
            subject: Some(format!("p{}", session.person)),
            client: "c".to_owned(),
            peer: None,
            since: self.now(),
            replica: None,
            parked_until: match session.phase {
                Phase::Parked(at) => Some(until(at)),
                Phase::Opening | Phase::Attached | Phase::Leaving => None,
            },
            at_neighbour: false,
        }
    }

    pub(super) fn show(&mut self, relay: usize, claim: u64) {
        let (now, holder) = (self.now(), self.holder(relay, claim));
        let worker = name(self.relays[relay].sessions[&claim].worker);
        let state = &mut self.relays[relay].state;
        state.held_by(0, worker, claim, holder, now);
    }

    /// The session of `claim` is over.
    pub(super) fn end(&mut self, relay: usize, claim: u64, ran: bool) {
        let now = self.now();
        let Some(session) = self.relays[relay].sessions.remove(&claim) else {
            return;
        };
        let state = &mut self.relays[relay].state;
        state.give_back(0, name(session.worker), claim, ran, now);
        self.relays[relay].sessions.remove(&claim);
    }

    pub(super) fn attach(&mut self, person: usize, relay: usize, worker: usize) {
        let Some(entry) = self.relays[relay].entry(name(worker)).cloned() else {
            return;
        };
        let subject = format!("p{person}");
        let own_park = entry.holder().filter(|holder| {
            holder.parked_until.is_some() && holder.subject.as_deref() == Some(&subject)
        });
        match (entry.holder(), own_park) {
            (None, _) => self.attach_anew(person, relay, worker, &entry),
            (Some(_), None) => {}
            (_, Some(park)) if park.at_neighbour => {
                if let Some(older) = self.relays[relay].predecessor {
                    self.resume_here(older, worker, person);
                }
            }
            (_, Some(park)) if park.is_here() => self.resume_here(relay, worker, person),
            (_, Some(_)) => self.resume_kept(person, relay, worker, &entry),
        }
    }

    pub(super) fn resume_here(&mut self, relay: usize, worker: usize, person: usize) {
        if let Some(claim) = self.relays[relay].parked(worker, person) {
            self.set_phase(relay, claim, Phase::Attached);
            self.show(relay, claim);
            self.say_terms(relay, claim);
        }
    }

    pub(super) fn set_phase(&mut self, relay: usize, claim: u64, phase: Phase) {
        if let Some(session) = self.relays[relay].sessions.get_mut(&claim) {
            session.phase = phase;
        }
    }

    pub(super) fn begin(
        &mut self,
        relay: usize,
        claim: u64,
        worker: usize,
        person: usize,
        phase: Phase,
    ) {
        let session = Session {
            worker,
            person,
            phase,
            stream: None,
            has_come: false,
            stop: self.workers[worker].stop,
        };
        self.relays[relay].sessions.insert(claim, session);
    }

    pub(super) fn attach_anew(
        &mut self,
        person: usize,
        relay: usize,
        worker: usize,
        entry: &Breakpoint,
    ) {
        let (claim, now) = (self.number(), self.now());
        self.begin(relay, claim, worker, person, Phase::Opening);
        let holder = self.holder(relay, claim);
        let state = &mut self.relays[relay].state;
        state.claim(entry.id, claim, holder, now).unwrap();
        if self.shape.agents[worker % 2] {
            self.ask_agent(relay, claim, false);
        } else if self.dial(worker, person, Connection::Direct(relay, claim)) {
            self.set_phase(relay, claim, Phase::Attached);
        } else {
            self.end(relay, claim, false);
        }
    }

    pub(super) fn resume_kept(
        &mut self,
        person: usize,
        relay: usize,
        worker: usize,
        entry: &Breakpoint,
    ) {
        let (claim, now) = (self.number(), self.now());
        let state = &mut self.relays[relay].state;
        if state.take_over(entry.id, claim, now).is_some() {
            self.begin(relay, claim, worker, person, Phase::Opening);
            self.show(relay, claim);
            self.ask_agent(relay, claim, true);
        }
    }

    /// Asks the agent of its node for the worker of `claim`.
    pub(super) fn ask_agent(&mut self, relay: usize, claim: u64, resumes: bool) {
        let Session { worker, person, .. } = self.relays[relay].sessions[&claim];
        let agent = worker % 2;
        let Some(link) = self.relays[relay].links.get(&agent) else {
            return self.end(relay, claim, false);
        };
        let channel = Channel::ToAgent(relay, agent, link.number);
        let stream = self.number();
        let info = Stream {
            relay,
            agent,
            worker,
            person,
        };
        self.streams.insert(stream, info);
        if let Some(session) = self.relays[relay].sessions.get_mut(&claim) {
            session.stream = Some(stream);
        }
        let owner = format!("p{person}");
        let open = Open {
            stream: Hex([0; 8]),
            secret: Hex([0; 16]),
            cluster: "default".into(),
            node_id: format!("n{agent}").as_str().into(),
            worker_id: name(worker).into(),
            kind: Kind::Debugpy,
            port: 4000,
            holder: Some(messages::Holder {
                name: owner.as_str().into(),
                session: claim.to_string().as_str().into(),
                client: "c".into(),
                peer: None,
            }),
            resume: resumes.then(|| owner.as_str().into()),
        };
        self.send(channel, Message::Open(Box::new(open), stream));
    }

    /// Says on its stream by what the session of `claim` is kept.
    pub(super) fn say_terms(&mut self, relay: usize, claim: u64) {
        let session = self.relays[relay].sessions[&claim];
        let Some(stream) = session.stream else {
            return;
        };
        let left = match session.phase {
            Phase::Parked(until) => Some(until.saturating_sub(self.ms)),
            Phase::Opening | Phase::Attached | Phase::Leaving => None,
        };
        let keep = Keep {
            owner: format!("p{}", session.person).as_str().into(),
            credential: None,
            keeps_ms: left.unwrap_or(KEEPS),
            at_least_ms: None,
            at_most_ms: left,
            lasted_ms: 0,
            capabilities: "{}".into(),
            attach: 0,
            cluster_session: None,
            entered: None,
        };
        self.send(Channel::Up(stream), Message::Keep(Box::new(keep)));
    }

    pub(super) fn session_of(&self, relay: usize, stream: u64) -> Option<u64> {
        let mut sessions = self.relays[relay].sessions.iter();
        let of_stream = sessions.find(|(_, session)| session.stream == Some(stream));
        of_stream.map(|(claim, _)| *claim)
    }

    /// The relay has a session on `stream`.
    pub(super) fn has_come(&self, relay: usize, stream: u64) -> bool {
        let claim = self.session_of(relay, stream);
        claim.is_some_and(|claim| self.relays[relay].sessions[&claim].has_come)
    }

    /// A stream comes to its relay; `false`: nobody waits for it there, or it does not get there.
    pub(super) fn comes(&mut self, stream: u64) -> bool {
        let Stream { relay, agent, .. } = self.streams[&stream];
        if !self.relays[relay].is_alive || self.cuts.contains_key(&(relay, agent)) {
            return false;
        }
        let Some(claim) = self.session_of(relay, stream) else {
            return false;
        };
        let stop = self.workers[self.streams[&stream].worker].stop;
        if let Some(session) = self.relays[relay].sessions.get_mut(&claim) {
            (session.has_come, session.stop) = (true, stop);
        }
        true
    }

    /// `message` has come on a stream of the relay.
    pub(super) fn down(&mut self, stream: u64, message: Message) {
        let relay = self.streams[&stream].relay;
        let claim = self.session_of(relay, stream);
        let claim = claim.filter(|_| self.relays[relay].is_alive);
        let Some(claim) = claim else {
            // Nobody waits for it any more.
            if matches!(message, Message::Dialled) {
                self.send(Channel::Up(stream), Message::Closed);
            }
            return;
        };
        match message {
            Message::Dialled => {
                self.set_phase(relay, claim, Phase::Attached);
                self.show(relay, claim);
                self.say_terms(relay, claim);
            }
            Message::Closed => {
                let ran = self.relays[relay].sessions[&claim].phase != Phase::Opening;
                self.end(relay, claim, ran);
            }
            other => panic!("{other:?} on a stream"),
        }
    }

    /// The client of the session is lost: its worker stays.
    pub(super) fn lose_client(&mut self, relay: usize, claim: u64) {
        let session = self.relays[relay].sessions.get(&claim).copied();
        let Some(session) = session.filter(|session| session.phase == Phase::Attached) else {
            return;
        };
        self.set_phase(relay, claim, Phase::Parked(self.ms + KEEPS));
        self.show(relay, claim);
        self.say_terms(relay, claim);
        if self.relays[relay].successor.is_some() {
            self.pass_park(relay, claim, session);
        }
    }

    pub(super) fn say_continue(&mut self, relay: usize, claim: u64, cause: Cause) {
        let session = self.relays[relay].sessions[&claim];
        match session.stream {
            Some(stream) => {
                self.set_phase(relay, claim, Phase::Leaving);
                self.show(relay, claim);
                self.send(Channel::Up(stream), Message::Goodbye(cause));
            }
            None => {
                self.run_on(session.worker, cause);
                self.end(relay, claim, true);
            }
        }
    }

    pub(super) fn said(&self, relay: usize, claim: u64) -> Cause {
        let session = self.relays[relay].sessions[&claim];
        Cause::Said(session.person, session.stop)
    }

    /// Whoever has parked `worker` has its task run on.
    pub(super) fn release(&mut self, person: usize, relay: usize, worker: usize) {
        let Some(entry) = self.relays[relay].entry(name(worker)).cloned() else {
            return;
        };
        let Some(holder) = entry.holder().filter(|h| h.parked_until.is_some()) else {
            return;
        };
        let at = match holder {
            holder if holder.is_here() => Some(relay),
            holder if holder.at_neighbour => self.relays[relay].predecessor,
            _ => None,
        };
        if let Some(at) = at {
            if let Some(claim) = self.relays[at].parked(worker, person) {
                let cause = self.said(at, claim);
                self.say_continue(at, claim, cause);
            }
            return;
        }
        if holder.subject.as_deref() != Some(&*format!("p{person}")) {
            return;
        }
        let agent = worker % 2;
        if let Some(link) = self.relays[relay].links.get(&agent) {
            let channel = Channel::ToAgent(relay, agent, link.number);
            let kept = self.relays[relay].state.remote().of(&entry.worker());
            let let_run = LetRun::of(&kept.unwrap().held);
            let cause = Cause::Said(person, self.workers[worker].stop);
            self.send(channel, Message::LetRun(let_run, cause));
        }
    }

    pub(super) fn end_parks(&mut self) {
        for relay in 0..self.relays.len() {
            if !self.relays[relay].is_alive {
                continue;
            }
            let ms = self.ms;
            let over = self.relays[relay].sessions.iter().filter_map(|(claim, s)| {
                let Phase::Parked(until) = s.phase else {
                    return None;
                };
                (until <= ms).then_some((*claim, Cause::Terms(s.person, until)))
            });
            for (claim, cause) in over.collect::<Vec<_>>() {
                self.say_continue(relay, claim, cause);
            }
            let now = self.now();
            let state = &mut self.relays[relay].state;
            state.hear(|said| said.expire(now.instant), now);
        }
    }

    /// The worker has died: sessions that are connected with it see that.
    pub(super) fn direct_ended(&mut self, worker: usize) {
        for relay in 0..self.relays.len() {
            let of_it = self.relays[relay].sessions.iter();
            let of_it = of_it.filter(|(_, s)| s.worker == worker && s.stream.is_none());
            for claim in of_it.map(|(claim, _)| *claim).collect::<Vec<_>>() {
                self.end(relay, claim, true);
            }
        }
    }
}
