//! A relay: the real core of the registry with its holds, and what its sessions, parks and links would do with it.

use std::collections::BTreeMap;
use std::hash::{Hash as _, Hasher};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::world::{Cause, Channel, Connection, KEEPS, Message, Stream, World, name};
use crate::hold::{Holder, RayNode, RemoteHold, held};
use crate::moment::Moment;
use crate::ray::registry::breakpoint::{Breakpoint, BreakpointId};
use crate::ray::registry::rows::WorkerRow;
use crate::ray::registry::state::State;
use crate::wire::debugger::Kind;
use crate::wire::tunnel::messages::{self, Hex, Keep, LetRun, Open, Replica};

pub(super) struct Process {
    pub(super) is_alive: bool,
    pub(super) machine: usize,
    id: usize,
    pub(super) state: State,
    /// By the numbers of their claims.
    pub(super) sessions: BTreeMap<u64, Session>,
    pub(super) links: BTreeMap<usize, Link>,
    pub(super) successor: Option<usize>,
    predecessor: Option<usize>,
    /// What the successor was told last.
    told: Vec<RemoteHold>,
}

pub(super) struct Link {
    pub(super) number: u64,
    /// Its agent has said something.
    pub(super) was_heard: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Session {
    pub(super) worker: usize,
    pub(super) person: usize,
    pub(super) phase: Phase,
    stream: Option<u64>,
    /// The stream has come.
    has_come: bool,
    /// Which stop it has.
    stop: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Opening,
    Attached,
    Parked(u64),
    Leaving,
}

impl Process {
    pub(super) fn replica(&self) -> Replica {
        Hex([u8::try_from(self.id + 1).unwrap(); 8])
    }

    /// It takes new clients.
    pub(super) fn serves(&self) -> bool {
        self.is_alive && self.successor.is_none()
    }

    pub(super) fn entry(&self, worker_id: &str) -> Option<&Arc<Breakpoint>> {
        let entry = self.state.clusters[0].entries.get(worker_id)?;
        Some(entry.breakpoint())
    }

    /// The session with `worker` that is parked for `person`.
    fn parked(&self, worker: usize, person: usize) -> Option<u64> {
        let own = |s: &Session| s.worker == worker && s.person == person;
        let mut parked = self.sessions.iter();
        let parked = parked.find(|(_, s)| own(s) && matches!(s.phase, Phase::Parked(_)));
        parked.map(|(claim, _)| *claim)
    }

    pub(super) fn digest(&self, ms: u64, hash: &mut impl Hasher) {
        (self.machine, self.successor.is_some(), self.links.len()).hash(hash);
        for session in self.sessions.values() {
            let left = match session.phase {
                Phase::Parked(until) => until.saturating_sub(ms) / 10_000,
                Phase::Opening | Phase::Attached | Phase::Leaving => 0,
            };
            (session.worker, session.person, left).hash(hash);
            std::mem::discriminant(&session.phase).hash(hash);
        }
        for (key, entry) in self.state.clusters[0].entries.iter() {
            key.hash(hash);
            let holder = entry.breakpoint().holder();
            holder
                .map(|h| (&h.subject, h.replica, h.parked_until.is_some()))
                .hash(hash);
        }
        self.state.remote().all().len().hash(hash);
    }
}

impl World {
    pub(super) fn start_relay(&mut self, machine: usize, predecessor: Option<usize>) -> usize {
        let id = self.relays.len();
        self.tell(|| format!("relay {id} starts on machine {machine}"));
        self.relays.push(Process {
            is_alive: true,
            machine,
            id,
            state: State::new(["default".into()], Duration::from_secs(3600)),
            sessions: BTreeMap::new(),
            links: BTreeMap::new(),
            successor: None,
            predecessor,
            told: Vec::new(),
        });
        id
    }

    pub(super) fn serving(&self, machine: usize) -> Option<usize> {
        let of_machine = |r: &Process| r.machine == machine && r.serves();
        self.relays.iter().position(of_machine)
    }

    pub(super) fn link_at_relay(&mut self, relay: usize, agent: usize, number: u64) {
        let link = Link {
            number,
            was_heard: false,
        };
        if let Some(old) = self.relays[relay].links.insert(agent, link) {
            self.link_is_over(relay, old.number);
            self.forget_opening(relay, agent);
        }
    }

    fn link_is_over(&mut self, relay: usize, number: u64) {
        let now = self.now();
        let state = &mut self.relays[relay].state;
        state.hear(|said| said.leave(number, true, now.instant), now);
    }

    /// An answer of the head comes, and what it leaves is asked at once.
    pub(super) fn answer(&mut self, relay: usize, rows: &[WorkerRow], sent: u64) {
        let (now, sent) = (self.now(), self.instant(sent));
        let truth = self.rows();
        let state = &mut self.relays[relay].state;
        let mut taking = state.begin_workers(0, rows, sent);
        while taking.goes_on() {
            state.take_workers(0, &mut taking, now);
        }
        let asked = state.end_workers(0, taking, now).vanished;
        let by_id = truth.iter().map(|row| (&*row.worker_id, row)).collect();
        state.apply_vanished(0, &asked, &by_id, true, now.instant, now);
    }

    pub(super) fn poll_now(&mut self, relay: usize) {
        let rows = self.rows();
        self.answer(relay, &rows, self.ms);
    }

    /// Has the head asked for what others have and is not listed.
    pub(super) fn ask_unlisted(&mut self, relay: usize) {
        let (now, rows) = (self.now(), self.rows());
        let state = &mut self.relays[relay].state;
        for hold in state.unlisted() {
            let worker = super::world::worker_of(&hold.held.worker_id);
            state.apply_asked_for(0, &rows[worker], now);
        }
    }

    fn holder(&self, relay: usize, claim: u64) -> Holder {
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

    fn show(&mut self, relay: usize, claim: u64) {
        let (now, holder) = (self.now(), self.holder(relay, claim));
        let worker = name(self.relays[relay].sessions[&claim].worker);
        let state = &mut self.relays[relay].state;
        state.held_by(0, worker, claim, holder, now);
    }

    /// The session of `claim` is over.
    fn end(&mut self, relay: usize, claim: u64, ran: bool) {
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

    fn resume_here(&mut self, relay: usize, worker: usize, person: usize) {
        if let Some(claim) = self.relays[relay].parked(worker, person) {
            self.set_phase(relay, claim, Phase::Attached);
            self.show(relay, claim);
            self.say_terms(relay, claim);
        }
    }

    fn set_phase(&mut self, relay: usize, claim: u64, phase: Phase) {
        if let Some(session) = self.relays[relay].sessions.get_mut(&claim) {
            session.phase = phase;
        }
    }

    fn begin(&mut self, relay: usize, claim: u64, worker: usize, person: usize, phase: Phase) {
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

    fn attach_anew(&mut self, person: usize, relay: usize, worker: usize, entry: &Breakpoint) {
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

    fn resume_kept(&mut self, person: usize, relay: usize, worker: usize, entry: &Breakpoint) {
        let (claim, now) = (self.number(), self.now());
        let state = &mut self.relays[relay].state;
        if state.take_over(entry.id, claim, now).is_some() {
            self.begin(relay, claim, worker, person, Phase::Opening);
            self.show(relay, claim);
            self.ask_agent(relay, claim, true);
        }
    }

    /// Asks the agent of its node for the worker of `claim`.
    fn ask_agent(&mut self, relay: usize, claim: u64, resumes: bool) {
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
    fn say_terms(&mut self, relay: usize, claim: u64) {
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
        };
        self.send(Channel::Up(stream), Message::Keep(Box::new(keep)));
    }

    /// `message` has come on the link `number` of `agent`.
    pub(super) fn at_relay(&mut self, relay: usize, agent: usize, number: u64, message: Message) {
        let link = self.relays[relay].links.get_mut(&agent);
        let Some(link) = link.filter(|link| link.number == number) else {
            return;
        };
        link.was_heard = true;
        match message {
            Message::Held(held) => {
                let (own, now) = (self.relays[relay].replica(), self.now());
                self.break_lost(relay, &held);
                let others = held.into_iter();
                let others = others.filter(|held| held.replica != own || held.parked.is_some());
                let others: Arc<[_]> = others.collect();
                let node = node(agent);
                let state = &mut self.relays[relay].state;
                state.hear(|said| said.hear(number, vec![node], &others), now);
            }
            Message::Refused(stream) => {
                if let Some(claim) = self.session_of(relay, stream) {
                    self.end(relay, claim, false);
                }
            }
            Message::Closed => {
                self.relays[relay].links.remove(&agent);
                self.link_is_over(relay, number);
                self.forget_opening(relay, agent);
            }
            other => panic!("{other:?} to a relay"),
        }
    }

    /// The agent keeps what a session of `relay` believes to have.
    fn break_lost(&mut self, relay: usize, rows: &[messages::Held]) {
        let own = self.relays[relay].replica();
        for row in rows
            .iter()
            .filter(|row| row.parked.is_some() && row.replica == own)
        {
            let claim = row.session.parse().unwrap();
            let session = self.relays[relay].sessions.get(&claim);
            if session.is_some_and(|session| session.phase != Phase::Opening) {
                self.end(relay, claim, true);
            }
        }
    }

    /// Nobody answers any more what was asked of `agent`.
    fn forget_opening(&mut self, relay: usize, agent: usize) {
        let opening = self.relays[relay].sessions.iter().filter(|(_, session)| {
            !session.has_come && session.worker % 2 == agent && session.phase == Phase::Opening
        });
        let opening: Vec<u64> = opening.map(|(claim, _)| *claim).collect();
        for claim in opening {
            self.end(relay, claim, false);
        }
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

    /// The successor has the park from now on: from here, or from the agent that keeps it.
    fn pass_park(&mut self, relay: usize, claim: u64, session: Session) {
        let Phase::Parked(until) = self.relays[relay].sessions[&claim].phase else {
            return;
        };
        self.tell_successor(relay);
        match session.stream {
            Some(stream) => self.send(Channel::Up(stream), Message::Closed),
            None => {
                let park = Message::Park(session.worker, session.person, until);
                self.send(Channel::Successor(relay), park);
                self.workers[session.worker].connection =
                    Some(Connection::Keeper(self.relays[relay].machine));
            }
        }
        self.end(relay, claim, false);
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

    /// The relay takes note that it hears nothing of `agent`.
    pub(super) fn relay_notices(&mut self, relay: usize, agent: usize) {
        if let Some(link) = self.relays[relay].links.remove(&agent) {
            self.link_is_over(relay, link.number);
        }
        self.forget_opening(relay, agent);
        let of_agent = self.relays[relay]
            .sessions
            .iter()
            .filter(|(_, session)| session.stream.is_some() && session.worker % 2 == agent);
        let lost: Vec<u64> = of_agent.map(|(claim, _)| *claim).collect();
        for claim in lost {
            self.end(relay, claim, true);
        }
    }

    pub(super) fn crash_relay(&mut self, relay: usize) {
        self.relays[relay].is_alive = false;
        let machine = self.relays[relay].machine;
        let sessions = std::mem::take(&mut self.relays[relay].sessions);
        for session in sessions.values() {
            match session.stream {
                Some(stream) => self.send(Channel::Up(stream), Message::Closed),
                None if self.shape.keeper => {
                    let until = match session.phase {
                        Phase::Parked(until) => until,
                        Phase::Opening | Phase::Attached | Phase::Leaving => self.ms + KEEPS,
                    };
                    self.leave_to_keeper(machine, session.worker, session.person, until);
                }
                None => self.run_on(session.worker, Cause::Died),
            }
        }
        for (agent, link) in std::mem::take(&mut self.relays[relay].links) {
            let channel = Channel::ToAgent(relay, agent, link.number);
            self.send(channel, Message::Closed);
        }
        // What was on its way to it ends with it, where nobody else has it too.
        if let Some(older) = self.relays[relay].predecessor {
            for message in self
                .net
                .remove(&Channel::Successor(older))
                .into_iter()
                .flatten()
            {
                let Message::Park(worker, person, until) = message else {
                    continue;
                };
                match self.shape.keeper {
                    true => self.leave_to_keeper(machine, worker, person, until),
                    false => self.run_on(worker, Cause::Died),
                }
            }
        }
        self.tell_neighbours_of_the_end(relay);
    }

    fn leave_to_keeper(&mut self, machine: usize, worker: usize, person: usize, until: u64) {
        if self.workers[worker].dead {
            return;
        }
        self.workers[worker].connection = Some(Connection::Keeper(machine));
        self.kept.push((machine, worker, person, until));
    }

    fn tell_neighbours_of_the_end(&mut self, relay: usize) {
        let (replica, now) = (self.relays[relay].replica(), self.now());
        if let Some(newer) = self.relays[relay].successor {
            // What it said before it ended has come.
            while let Some(message) = self.pop(Channel::Successor(relay)) {
                self.take_from_predecessor(relay, message);
            }
            let newer = &mut self.relays[newer];
            newer.predecessor = None;
            newer.state.hear(|said| said.lose_process(replica), now);
        }
        if let Some(older) = self.relays[relay].predecessor {
            self.relays[older].successor = None;
        }
    }

    fn pop(&mut self, channel: Channel) -> Option<Message> {
        self.net.get_mut(&channel)?.pop_front()
    }

    /// A relay that serves takes up what the keeper of its machine has.
    pub(super) fn restore(&mut self, relay: usize) {
        let machine = self.relays[relay].machine;
        if !self.relays[relay].serves() {
            return;
        }
        let own = self.kept.extract_if(.., |kept| kept.0 == machine);
        for (_, worker, person, until) in own.collect::<Vec<_>>() {
            if until <= self.ms {
                self.run_on(worker, Cause::Terms(person, until));
                continue;
            }
            let (now, rows, claim) = (self.now(), self.rows(), self.number());
            let id = BreakpointId::derive("default", name(worker));
            self.begin(relay, claim, worker, person, Phase::Parked(until));
            let holder = self.holder(relay, claim);
            let state = &mut self.relays[relay].state;
            state.apply_asked_for(0, &rows[worker], now);
            match state.claim(id, claim, holder, now) {
                Ok(_) => {
                    self.workers[worker].connection = Some(Connection::Direct(relay, claim));
                }
                Err(_) => {
                    self.relays[relay].sessions.remove(&claim);
                    self.run_on(worker, Cause::Died);
                }
            }
        }
    }

    /// A hot restart on `machine`.
    pub(super) fn succeed(&mut self, machine: usize) {
        let Some(older) = self.serving(machine) else {
            return;
        };
        let newer = self.start_relay(machine, Some(older));
        self.poll_now(newer);
        self.relays[older].successor = Some(newer);
        self.relays[older].told.clear();
        let (rows, now) = (self.own_rows(older), self.now());
        let replica = self.relays[older].replica();
        let state = &mut self.relays[newer].state;
        state.hear(|said| said.hear_process(replica, rows), now);
        self.ask_unlisted(newer);
        let sessions = self.relays[older].sessions.clone();
        for (claim, session) in sessions {
            if matches!(session.phase, Phase::Parked(_)) {
                self.pass_park(older, claim, session);
            }
        }
        self.tell_successor(older);
    }

    /// What a process tells its successor that it has.
    fn own_rows(&self, relay: usize) -> Vec<RemoteHold> {
        let relay = &self.relays[relay];
        let entries = relay.state.clusters[0].entries.iter();
        let own = entries.filter_map(|(_, entry)| {
            let breakpoint = entry.breakpoint();
            let holder = breakpoint.holder().filter(|holder| holder.is_here())?;
            Some(RemoteHold {
                node: node(usize::from(&*breakpoint.node_id == "n1")),
                held: held(&breakpoint.worker(), holder, relay.replica()),
                at_neighbour: true,
            })
        });
        own.collect()
    }

    fn tell_successor(&mut self, relay: usize) {
        let is_older = self.relays[relay].is_alive && self.relays[relay].successor.is_some();
        if !is_older {
            return;
        }
        let rows = self.own_rows(relay);
        if rows != self.relays[relay].told {
            self.relays[relay].told.clone_from(&rows);
            self.send(Channel::Successor(relay), Message::State(rows));
        }
    }

    /// What processes with a successor do after each step: tell it, and end when they have nothing left.
    pub(super) fn tell_successors(&mut self) {
        for relay in 0..self.relays.len() {
            self.tell_successor(relay);
            let process = &self.relays[relay];
            if process.is_alive && process.successor.is_some() && process.sessions.is_empty() {
                self.tell(|| format!("relay {relay} has nothing left, and ends"));
                self.crash_relay(relay);
            }
        }
    }

    pub(super) fn take_from_predecessor(&mut self, older: usize, message: Message) {
        let Some(newer) = self.relays[older].successor else {
            return;
        };
        let (now, replica) = (self.now(), self.relays[older].replica());
        match message {
            Message::State(rows) => {
                let state = &mut self.relays[newer].state;
                state.hear(|said| said.hear_process(replica, rows), now);
                self.ask_unlisted(newer);
            }
            // Its connection has ended.
            Message::Park(worker, ..) if self.workers[worker].dead => {}
            Message::Park(worker, person, until) => {
                let (claim, rows) = (self.number(), self.rows());
                let id = BreakpointId::derive("default", name(worker));
                let state = &mut self.relays[newer].state;
                let taken = state.take_over(id, claim, now).is_some();
                self.begin(newer, claim, worker, person, Phase::Parked(until));
                let holder = self.holder(newer, claim);
                let state = &mut self.relays[newer].state;
                state.apply_asked_for(0, &rows[worker], now);
                if taken || state.claim(id, claim, holder, now).is_ok() {
                    self.show(newer, claim);
                    let by = Connection::Direct(newer, claim);
                    self.workers[worker].connection = Some(by);
                } else {
                    self.relays[newer].sessions.remove(&claim);
                    self.run_on(worker, Cause::Died);
                }
            }
            other => panic!("{other:?} to a successor"),
        }
    }
}

fn node(agent: usize) -> RayNode {
    RayNode {
        cluster: "default".into(),
        node_id: format!("n{agent}").into(),
        address: [10, 0, 0, 7].into(),
    }
}
