//! The lifecycle of a relay's sessions.

use std::time::{Duration, SystemTime};

use super::relay::{Phase, Session};
use super::steps::is_parked_at_agent;
use super::world::{
    Cause, Channel, Connection, Message, PARK_MS, Stream, USERS, World, name, wire_name,
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
            subject: Some(USERS[session.user].to_owned()),
            client: "c".to_owned(),
            peer: None,
            since: self.now(),
            replica: None,
            parked_until: match session.phase {
                Phase::Parked(at) => Some(until(at)),
                Phase::Opening | Phase::Attached | Phase::Detaching => None,
            },
            evaluates: false,
        }
    }

    pub(super) fn show(&mut self, relay: usize, claim: u64) {
        let (now, holder) = (self.now(), self.holder(relay, claim));
        let worker = name(self.relays[relay].sessions[&claim].worker);
        let state = &mut self.relays[relay].state;
        let changes = state.held_by(0, worker, claim, holder, now);
        self.record_changes(relay, changes);
    }

    /// Ends the session of `claim`.
    pub(super) fn end(&mut self, relay: usize, claim: u64, resumed: bool) {
        let now = self.now();
        let Some(session) = self.relays[relay].sessions.remove(&claim) else {
            return;
        };
        let (w, process) = (session.worker, &mut self.relays[relay]);
        let stop = process.entry(name(w)).map(|entry| entry.stop);
        let changes = process.state.release_claim(0, name(w), claim, resumed, now);
        let after = process.entry(name(w)).map(|entry| entry.stop);
        let stays = !resumed || process.reports.holder_of(w).is_some();
        assert!(
            after == stop.filter(|_| stays),
            "relay {relay} released worker {w} (resumed: {resumed}), and lists the stop {after:?}"
        );
        self.record_changes(relay, changes);
    }

    pub(super) fn attach(&mut self, user: usize, relay: usize, worker: usize) {
        let Some(entry) = self.relays[relay].entry(name(worker)).cloned() else {
            return;
        };
        let own_park = entry.holder().filter(|holder| {
            holder.parked_until.is_some() && holder.subject.as_deref() == Some(USERS[user])
        });
        match (entry.holder(), own_park) {
            (None, _) => self.attach_free(user, relay, worker, &entry),
            (Some(_), None) => {}
            (_, Some(park)) if park.is_here() => self.resume_here(relay, worker, user),
            (_, Some(_)) => self.resume_at_agent(user, relay, worker, &entry),
        }
    }

    /// Sets the end of the park that the session of `claim` has resumed.
    fn keep_at_least_until(&mut self, relay: usize, claim: u64, until: Option<u64>) {
        if let Some(session) = self.relays[relay].sessions.get_mut(&claim) {
            session.earliest_end = until;
        }
    }

    /// Returns the latest time until which the user of `session` may hold the worker.
    fn bound(&self, session: &Session) -> Option<u64> {
        Some(session.started + self.shape.limit_ms?)
    }

    /// Returns when the park of `session` ends, if its client is lost now.
    pub(super) fn parked_until(&self, session: &Session) -> u64 {
        let until = (self.ms + session.park_ms).max(session.earliest_end.unwrap_or(0));
        self.bound(session).map_or(until, |bound| until.min(bound))
    }

    pub(super) fn resume_here(&mut self, relay: usize, worker: usize, user: usize) {
        if let Some(claim) = self.relays[relay].parked(worker, user) {
            let until = match self.relays[relay].sessions[&claim].phase {
                Phase::Parked(until) => Some(until),
                Phase::Opening | Phase::Attached | Phase::Detaching => None,
            };
            self.set_phase(relay, claim, Phase::Attached);
            self.keep_at_least_until(relay, claim, until);
            self.show(relay, claim);
            self.send_terms(relay, claim);
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
        user: usize,
        phase: Phase,
    ) {
        let session = Session {
            worker,
            user,
            phase,
            stream: None,
            has_stream: false,
            stop: self.workers[worker].stop,
            started: self.ms,
            // Half of the sessions request a shorter park.
            park_ms: if (claim + relay as u64).is_multiple_of(2) {
                PARK_MS / 6
            } else {
                PARK_MS
            },
            earliest_end: None,
        };
        self.relays[relay].sessions.insert(claim, session);
    }

    pub(super) fn attach_free(
        &mut self,
        user: usize,
        relay: usize,
        worker: usize,
        entry: &Breakpoint,
    ) {
        let (claim, now) = (self.next_claim(relay), self.now());
        self.begin(relay, claim, worker, user, Phase::Opening);
        let holder = self.holder(relay, claim);
        let state = &mut self.relays[relay].state;
        let (_, _, changes) = state.claim(entry.id, claim, holder, now).unwrap();
        self.record_changes(relay, changes);
        if self.shape.agents[worker % 2] {
            self.open_at_agent(relay, claim, None);
        } else if self.dial(worker, user, Connection::Direct(relay, claim)) {
            self.set_phase(relay, claim, Phase::Attached);
        } else {
            self.end(relay, claim, false);
        }
    }

    pub(super) fn resume_at_agent(
        &mut self,
        user: usize,
        relay: usize,
        worker: usize,
        entry: &Breakpoint,
    ) {
        let (claim, now) = (self.next_claim(relay), self.now());
        let state = &mut self.relays[relay].state;
        if let Some((_, _, changes)) = state.take_over(entry.id, claim, now) {
            self.begin(relay, claim, worker, user, Phase::Opening);
            let until = entry.holder().and_then(|holder| holder.parked_until);
            self.keep_at_least_until(relay, claim, until.map(|until| unix_ms(until.time)));
            self.record_changes(relay, changes);
            self.show(relay, claim);
            let owner = entry.holder().and_then(|holder| holder.subject.as_deref());
            self.open_at_agent(relay, claim, owner);
        }
    }

    /// Resumes the session that an agent has parked for another user.
    pub(super) fn take_over(&mut self, user: usize, relay: usize, worker: usize) {
        let entry = self.relays[relay].entry(name(worker)).cloned();
        let held = entry.filter(|entry| entry.holder().is_some_and(is_parked_at_agent));
        if let Some(entry) = held {
            self.resume_at_agent(user, relay, worker, &entry);
        }
    }

    /// Has the agent open the debugger of the worker of `claim`, or resume the park of `owner`.
    pub(super) fn open_at_agent(&mut self, relay: usize, claim: u64, owner: Option<&str>) {
        let Session { worker, user, .. } = self.relays[relay].sessions[&claim];
        let agent = worker % 2;
        let Some(&link) = self.relays[relay].links.get(&agent) else {
            return self.end(relay, claim, false);
        };
        let channel = Channel::ToAgent(relay, agent, link);
        let stream = self.next_number();
        let info = Stream {
            relay,
            agent,
            worker,
            user,
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
            worker_id: wire_name(worker).clone(),
            kind: Kind::Debugpy,
            port: 4000,
            holder: Some(messages::WorkerTaker {
                name: USERS[user].into(),
                session: claim.to_string().as_str().into(),
                client: "c".into(),
                peer: None,
            }),
            resume: owner.map(Into::into),
            process: None,
            keep: None,
        };
        self.send(channel, Message::Open(Box::new(open), stream));
    }

    /// Sends the terms of a park of this session to its agent.
    pub(super) fn send_terms(&mut self, relay: usize, claim: u64) {
        let session = self.relays[relay].sessions[&claim];
        let Some(stream) = session.stream else {
            return;
        };
        let remaining_ms = |until: u64| until.saturating_sub(self.ms);
        let remaining = match session.phase {
            Phase::Parked(until) => Some(remaining_ms(until)),
            Phase::Opening | Phase::Attached | Phase::Detaching => None,
        };
        let terms = ParkTerms {
            owner: USERS[session.user].into(),
            credential: None,
            keeps_ms: remaining.unwrap_or(session.park_ms),
            at_least_ms: session
                .earliest_end
                .filter(|_| remaining.is_none())
                .map(remaining_ms),
            at_most_ms: [self.bound(&session).map(remaining_ms), remaining]
                .into_iter()
                .flatten()
                .min(),
            lasted_ms: self.ms - session.started,
            capabilities: "{}".into(),
            attach: 0,
            cluster_session: None,
            entered: None,
        };
        let promised = remaining.map(|remaining| self.ms + remaining);
        self.send(
            Channel::Up(stream),
            Message::Terms(Box::new(terms), promised),
        );
    }

    pub(super) fn session_of(&self, relay: usize, stream: u64) -> Option<u64> {
        let mut sessions = self.relays[relay].sessions.iter();
        let of_stream = sessions.find(|(_, session)| session.stream == Some(stream));
        of_stream.map(|(claim, _)| *claim)
    }

    /// Whether the relay has a session on `stream`.
    pub(super) fn has_stream(&self, relay: usize, stream: u64) -> bool {
        let claim = self.session_of(relay, stream);
        claim.is_some_and(|claim| self.relays[relay].sessions[&claim].has_stream)
    }

    /// Connects a stream with its session. Returns `false` if the relay is unreachable or no session waits for it.
    pub(super) fn arrives(&mut self, stream: u64) -> bool {
        let Stream { relay, agent, .. } = self.streams[&stream];
        if !self.relays[relay].is_alive || self.cuts.contains_key(&(relay, agent)) {
            return false;
        }
        let Some(claim) = self.session_of(relay, stream) else {
            return false;
        };
        let stop = self.workers[self.streams[&stream].worker].stop;
        if let Some(session) = self.relays[relay].sessions.get_mut(&claim) {
            (session.has_stream, session.stop) = (true, stop);
        }
        true
    }

    /// Handles `message` from the agent's end of `stream`.
    pub(super) fn receive_downstream(&mut self, stream: u64, message: Message) {
        let relay = self.streams[&stream].relay;
        let claim = self.session_of(relay, stream);
        let claim = claim.filter(|_| self.relays[relay].is_alive);
        let Some(claim) = claim else {
            // No session waits for the stream any more.
            if matches!(message, Message::Connected(_)) {
                self.send(Channel::Up(stream), Message::Closed);
            }
            return;
        };
        match message {
            Message::Connected(lasted) => {
                let session = self.relays[relay].sessions.get_mut(&claim);
                if let (Some(session), Some(lasted)) = (session, lasted) {
                    session.started = self.ms - lasted;
                }
                self.set_phase(relay, claim, Phase::Attached);
                self.show(relay, claim);
                self.send_terms(relay, claim);
            }
            Message::Closed => {
                let resumed = self.relays[relay].sessions[&claim].phase != Phase::Opening;
                self.end(relay, claim, resumed);
            }
            other => panic!("{other:?} on a stream"),
        }
    }

    /// Parks the session, whose client is lost.
    pub(super) fn lose_client(&mut self, relay: usize, claim: u64) {
        let session = self.relays[relay].sessions.get(&claim).copied();
        let Some(session) = session.filter(|session| session.phase == Phase::Attached) else {
            return;
        };
        let until = self.parked_until(&session);
        if until <= self.ms {
            let cause = Cause::Expired(session.user, until);
            return self.continue_task(relay, claim, cause);
        }
        if session.stream.is_none() {
            self.workers[session.worker].promised_until = Some(until);
        }
        self.set_phase(relay, claim, Phase::Parked(until));
        self.show(relay, claim);
        self.send_terms(relay, claim);
    }

    pub(super) fn continue_task(&mut self, relay: usize, claim: u64, cause: Cause) {
        let session = self.relays[relay].sessions[&claim];
        match session.stream {
            Some(stream) => {
                self.set_phase(relay, claim, Phase::Detaching);
                self.show(relay, claim);
                self.send(Channel::Up(stream), Message::Detach(cause));
            }
            None => {
                self.resume_task(session.worker, cause);
                self.end(relay, claim, true);
            }
        }
    }

    pub(super) fn request_to_continue(&self, relay: usize, claim: u64) -> Cause {
        let session = self.relays[relay].sessions[&claim];
        Cause::Requested(session.user, session.stop)
    }

    /// Resumes the task of `worker` for the user who parked it.
    pub(super) fn release(&mut self, user: usize, relay: usize, worker: usize) {
        let Some(entry) = self.relays[relay].entry(name(worker)).cloned() else {
            return;
        };
        let Some(holder) = entry.holder().filter(|h| h.parked_until.is_some()) else {
            return;
        };
        if holder.is_here() {
            if let Some(claim) = self.relays[relay].parked(worker, user) {
                let cause = self.request_to_continue(relay, claim);
                self.continue_task(relay, claim, cause);
            }
            return;
        }
        if holder.subject.as_deref() != Some(USERS[user]) {
            return;
        }
        let agent = worker % 2;
        if let Some(&link) = self.relays[relay].links.get(&agent) {
            let channel = Channel::ToAgent(relay, agent, link);
            let process = &self.relays[relay];
            let held = process.state.remote().of(&entry.worker()).unwrap();
            let row = process.reports.holder_of(worker).unwrap();
            let let_run = LetRun::of(&held.held);
            let cause = Cause::Requested(user, row.stop);
            self.send(channel, Message::Resume(let_run, row, cause));
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
                    Phase::Opening | Phase::Detaching => return None,
                };
                (until <= ms).then_some((*claim, Cause::Expired(s.user, until)))
            });
            for (claim, cause) in over.collect::<Vec<_>>() {
                self.continue_task(relay, claim, cause);
            }
        }
    }

    /// Ends the direct sessions with `worker`, which has died.
    pub(super) fn end_direct_sessions(&mut self, worker: usize) {
        for relay in 0..self.relays.len() {
            let of_it = self.relays[relay].sessions.iter();
            let of_it = of_it.filter(|(_, s)| s.worker == worker && s.stream.is_none());
            for claim in of_it.map(|(claim, _)| *claim).collect::<Vec<_>>() {
                self.end(relay, claim, true);
            }
        }
    }
}
