//! The life of a relay's sessions: they begin, are lost, are resumed, and end.

use std::time::{Duration, SystemTime};

use super::relay::{Phase, Session};
use super::steps::is_at_agent;
use super::world::{
    Cause, Channel, Connection, KEEPS, Message, PEOPLE, Stream, World, name, name_told,
};
use crate::hold::Holder;
use crate::ray::registry::breakpoint::Breakpoint;
use ray_relay_base::timestamp::{Timestamp, unix_ms};
use ray_relay_base::wire::debugger::Kind;
use ray_relay_base::wire::tunnel::messages::{self, Hex, LetRun, Open, ParkTerms};

impl World {
    pub(super) fn holder(&self, relay: usize, claim: u64) -> Holder {
        let session = self.relays[relay].sessions[&claim];
        let until = |ms| Timestamp {
            instant: self.instant(ms),
            time: SystemTime::UNIX_EPOCH + Duration::from_millis(ms),
        };
        Holder {
            session: claim,
            subject: Some(PEOPLE[session.person].to_owned()),
            client: "c".to_owned(),
            peer: None,
            since: self.now(),
            replica: None,
            parked_until: match session.phase {
                Phase::Parked(at) => Some(until(at)),
                Phase::Opening | Phase::Attached | Phase::Leaving => None,
            },
            evaluates: false,
        }
    }

    pub(super) fn show(&mut self, relay: usize, claim: u64) {
        let (now, holder) = (self.now(), self.holder(relay, claim));
        let worker = name(self.relays[relay].sessions[&claim].worker);
        let state = &mut self.relays[relay].state;
        let changes = state.held_by(0, worker, claim, holder, now);
        self.took(relay, changes);
    }

    /// The session of `claim` is over.
    pub(super) fn end(&mut self, relay: usize, claim: u64, ran: bool) {
        let now = self.now();
        let Some(session) = self.relays[relay].sessions.remove(&claim) else {
            return;
        };
        let (w, process) = (session.worker, &mut self.relays[relay]);
        let stop = process.entry(name(w)).map(|entry| entry.stop);
        let changes = process.state.release_claim(0, name(w), claim, ran, now);
        let after = process.entry(name(w)).map(|entry| entry.stop);
        let stays = !ran || process.words.told(w).is_some();
        assert!(
            after == stop.filter(|_| stays),
            "relay {relay} gives worker {w} back, which ran: {ran}; it is listed: {after:?}"
        );
        self.took(relay, changes);
    }

    pub(super) fn attach(&mut self, person: usize, relay: usize, worker: usize) {
        let Some(entry) = self.relays[relay].entry(name(worker)).cloned() else {
            return;
        };
        let own_park = entry.holder().filter(|holder| {
            holder.parked_until.is_some() && holder.subject.as_deref() == Some(PEOPLE[person])
        });
        match (entry.holder(), own_park) {
            (None, _) => self.attach_anew(person, relay, worker, &entry),
            (Some(_), None) => {}
            (_, Some(park)) if park.is_here() => self.resume_here(relay, worker, person),
            (_, Some(_)) => self.resume_kept(person, relay, worker, &entry),
        }
    }

    /// The session of `claim` goes on with a park that was to last until then.
    fn no_sooner(&mut self, relay: usize, claim: u64, until: Option<u64>) {
        if let Some(session) = self.relays[relay].sessions.get_mut(&claim) {
            session.least = until;
        }
    }

    /// Until when a person may have what `session` has.
    fn bound(&self, session: &Session) -> Option<u64> {
        Some(session.began + self.shape.limit?)
    }

    /// Until when `session` is kept, where its client is lost now.
    pub(super) fn stays_until(&self, session: &Session) -> u64 {
        let until = (self.ms + session.keeps).max(session.least.unwrap_or(0));
        self.bound(session).map_or(until, |bound| until.min(bound))
    }

    pub(super) fn resume_here(&mut self, relay: usize, worker: usize, person: usize) {
        if let Some(claim) = self.relays[relay].parked(worker, person) {
            let until = match self.relays[relay].sessions[&claim].phase {
                Phase::Parked(until) => Some(until),
                Phase::Opening | Phase::Attached | Phase::Leaving => None,
            };
            self.set_phase(relay, claim, Phase::Attached);
            self.no_sooner(relay, claim, until);
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
            began: self.ms,
            // Some ask for less.
            keeps: if (claim + relay as u64).is_multiple_of(2) {
                KEEPS / 6
            } else {
                KEEPS
            },
            least: None,
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
        let (claim, now) = (self.claim(relay), self.now());
        self.begin(relay, claim, worker, person, Phase::Opening);
        let holder = self.holder(relay, claim);
        let state = &mut self.relays[relay].state;
        let (_, _, changes) = state.claim(entry.id, claim, holder, now).unwrap();
        self.took(relay, changes);
        if self.shape.agents[worker % 2] {
            self.ask_agent(relay, claim, None);
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
        let (claim, now) = (self.claim(relay), self.now());
        let state = &mut self.relays[relay].state;
        if let Some((_, _, changes)) = state.take_over(entry.id, claim, now) {
            self.begin(relay, claim, worker, person, Phase::Opening);
            let until = entry.holder().and_then(|holder| holder.parked_until);
            self.no_sooner(relay, claim, until.map(|until| unix_ms(until.time)));
            self.took(relay, changes);
            self.show(relay, claim);
            let owner = entry.holder().and_then(|holder| holder.subject.as_deref());
            self.ask_agent(relay, claim, owner);
        }
    }

    /// Goes on with what an agent keeps for another person.
    pub(super) fn take_over(&mut self, person: usize, relay: usize, worker: usize) {
        let entry = self.relays[relay].entry(name(worker)).cloned();
        let kept = entry.filter(|entry| entry.holder().is_some_and(is_at_agent));
        if let Some(entry) = kept {
            self.resume_kept(person, relay, worker, &entry);
        }
    }

    /// Asks the agent of its node for the worker of `claim`, which it keeps for that one where it `resumes`.
    pub(super) fn ask_agent(&mut self, relay: usize, claim: u64, resumes: Option<&str>) {
        let Session { worker, person, .. } = self.relays[relay].sessions[&claim];
        let agent = worker % 2;
        let Some(&link) = self.relays[relay].links.get(&agent) else {
            return self.end(relay, claim, false);
        };
        let channel = Channel::ToAgent(relay, agent, link);
        let stream = self.number();
        let info = Stream {
            relay,
            agent,
            worker,
            person,
            claim,
        };
        self.streams.insert(stream, info);
        if let Some(session) = self.relays[relay].sessions.get_mut(&claim) {
            session.stream = Some(stream);
        }
        let open = Open {
            stream: Hex([0; 8]),
            secret: Hex([0; 16]),
            cluster: "default".into(),
            node_id: ["n0", "n1"][agent].into(),
            worker_id: name_told(worker).clone(),
            kind: Kind::Debugpy,
            port: 4000,
            holder: Some(messages::WorkerTaker {
                name: PEOPLE[person].into(),
                session: claim.to_string().as_str().into(),
                client: "c".into(),
                peer: None,
            }),
            resume: resumes.map(Into::into),
            process: None,
            keep: None,
        };
        self.send(channel, Message::Open(Box::new(open), stream));
    }

    /// Says on its stream by what the session of `claim` is kept.
    pub(super) fn say_terms(&mut self, relay: usize, claim: u64) {
        let session = self.relays[relay].sessions[&claim];
        let Some(stream) = session.stream else {
            return;
        };
        let to_go = |until: u64| until.saturating_sub(self.ms);
        let left = match session.phase {
            Phase::Parked(until) => Some(to_go(until)),
            Phase::Opening | Phase::Attached | Phase::Leaving => None,
        };
        let keep = ParkTerms {
            owner: PEOPLE[session.person].into(),
            credential: None,
            keeps_ms: left.unwrap_or(session.keeps),
            at_least_ms: session.least.filter(|_| left.is_none()).map(to_go),
            at_most_ms: [self.bound(&session).map(to_go), left]
                .into_iter()
                .flatten()
                .min(),
            lasted_ms: self.ms - session.began,
            capabilities: "{}".into(),
            attach: 0,
            cluster_session: None,
            entered: None,
        };
        let promised = left.map(|left| self.ms + left);
        self.send(Channel::Up(stream), Message::Keep(Box::new(keep), promised));
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

    /// A stream comes to its relay; `false`: no session waits for it there, or it does not get there.
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
            // It is not waited for any more.
            if matches!(message, Message::Dialled(_)) {
                self.send(Channel::Up(stream), Message::Closed);
            }
            return;
        };
        match message {
            Message::Dialled(lasted) => {
                let session = self.relays[relay].sessions.get_mut(&claim);
                if let (Some(session), Some(lasted)) = (session, lasted) {
                    session.began = self.ms - lasted;
                }
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
        let until = self.stays_until(&session);
        if until <= self.ms {
            let cause = Cause::Terms(session.person, until);
            return self.say_continue(relay, claim, cause);
        }
        if session.stream.is_none() {
            self.workers[session.worker].promised = Some(until);
        }
        self.set_phase(relay, claim, Phase::Parked(until));
        self.show(relay, claim);
        self.say_terms(relay, claim);
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

    /// The person who has parked `worker` has its task run on.
    pub(super) fn release(&mut self, person: usize, relay: usize, worker: usize) {
        let Some(entry) = self.relays[relay].entry(name(worker)).cloned() else {
            return;
        };
        let Some(holder) = entry.holder().filter(|h| h.parked_until.is_some()) else {
            return;
        };
        let at = match holder {
            holder if holder.is_here() => Some(relay),
            _ => None,
        };
        if let Some(at) = at {
            if let Some(claim) = self.relays[at].parked(worker, person) {
                let cause = self.said(at, claim);
                self.say_continue(at, claim, cause);
            }
            return;
        }
        if holder.subject.as_deref() != Some(PEOPLE[person]) {
            return;
        }
        let agent = worker % 2;
        if let Some(&link) = self.relays[relay].links.get(&agent) {
            let channel = Channel::ToAgent(relay, agent, link);
            let process = &self.relays[relay];
            let kept = process.state.remote().of(&entry.worker()).unwrap();
            let row = process.words.told(worker).unwrap();
            let let_run = LetRun::of(&kept.held);
            let cause = Cause::Said(person, row.stop);
            self.send(channel, Message::LetRun(let_run, row, cause));
        }
    }

    pub(super) fn end_parks(&mut self) {
        for relay in 0..self.relays.len() {
            if !self.relays[relay].is_alive {
                continue;
            }
            let ms = self.ms;
            let over = self.relays[relay].sessions.iter().filter_map(|(claim, s)| {
                let until = match s.phase {
                    Phase::Parked(until) => until,
                    Phase::Attached => self.bound(s)?,
                    Phase::Opening | Phase::Leaving => return None,
                };
                (until <= ms).then_some((*claim, Cause::Terms(s.person, until)))
            });
            for (claim, cause) in over.collect::<Vec<_>>() {
                self.say_continue(relay, claim, cause);
            }
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
