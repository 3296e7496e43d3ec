//! A relay: the real core of the registry with its holds, its polls, and its links with agents.

use std::collections::BTreeMap;
use std::hash::{Hash as _, Hasher};
use std::sync::Arc;
use std::time::Duration;

use super::world::{Message, World, worker_of};
use crate::hold::{RayNode, RemoteHold};
use crate::ray::registry::breakpoint::Breakpoint;
use crate::ray::registry::rows::WorkerRow;
use crate::ray::registry::state::State;
use crate::wire::tunnel::messages::{self, Hex, Replica};

pub(super) struct Process {
    pub(super) is_alive: bool,
    pub(super) machine: usize,
    pub(super) id: usize,
    pub(super) state: State,
    /// By the numbers of their claims.
    pub(super) sessions: BTreeMap<u64, Session>,
    pub(super) links: BTreeMap<usize, Link>,
    pub(super) successor: Option<usize>,
    pub(super) predecessor: Option<usize>,
    /// What the successor was told last.
    pub(super) told: Vec<RemoteHold>,
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
    pub(super) stream: Option<u64>,
    /// The stream has come.
    pub(super) has_come: bool,
    /// Which stop it has.
    pub(super) stop: u32,
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
    pub(super) fn parked(&self, worker: usize, person: usize) -> Option<u64> {
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
        self.state.remote().sessions().len().hash(hash);
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

    pub(super) fn link_is_over(&mut self, relay: usize, number: u64) {
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
            let worker = worker_of(&hold.held.worker_id);
            state.apply_asked_for(0, &rows[worker], now);
        }
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
                let others: Vec<_> = others.collect();
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
    pub(super) fn break_lost(&mut self, relay: usize, rows: &[messages::Held]) {
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
    pub(super) fn forget_opening(&mut self, relay: usize, agent: usize) {
        let opening = self.relays[relay].sessions.iter().filter(|(_, session)| {
            !session.has_come && session.worker % 2 == agent && session.phase == Phase::Opening
        });
        let opening: Vec<u64> = opening.map(|(claim, _)| *claim).collect();
        for claim in opening {
            self.end(relay, claim, false);
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
}

pub(super) fn node(agent: usize) -> RayNode {
    RayNode {
        cluster: "default".into(),
        node_id: format!("n{agent}").into(),
        address: [10, 0, 0, 7].into(),
    }
}
