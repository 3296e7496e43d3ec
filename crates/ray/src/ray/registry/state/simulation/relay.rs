//! A relay: the real core of the registry with its holds, its polls, and its links with agents.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::digest::Digest;
use super::words::{Row, Words};
use super::world::{Channel, Message, World, name, worker_of};
use crate::hold::RayNode;
use crate::ray::registry::breakpoint::Breakpoint;
use crate::ray::registry::rows::WorkerRow;
use crate::ray::registry::state::State;
use ray_relay_base::wire::tunnel::messages::{Hex, HoldRow, Replica};

#[derive(Clone)]
pub(super) struct Process {
    pub(super) is_alive: bool,
    pub(super) machine: usize,
    pub(super) id: usize,
    pub(super) state: State,
    /// By the numbers of their claims.
    pub(super) sessions: BTreeMap<u64, Session>,
    /// The number of its last claim.
    claims: u64,
    pub(super) links: BTreeMap<usize, u64>,
    /// The reports that it has received from others.
    pub(super) words: Words,
    /// The state of each worker according to its events.
    pub(super) feed: [Option<Arc<Breakpoint>>; 2],
    /// When what it lists of a worker has changed last, other than by a poll.
    pub(super) changed: [u64; 2],
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Session {
    pub(super) worker: usize,
    pub(super) person: usize,
    pub(super) phase: Phase,
    pub(super) stream: Option<u64>,
    /// The stream has come.
    pub(super) has_come: bool,
    /// The number of its stop.
    pub(super) stop: u32,
    /// When the first session with it began.
    pub(super) began: u64,
    /// For how long it is kept.
    pub(super) keeps: u64,
    /// Until when the park that it goes on with was to last.
    pub(super) least: Option<u64>,
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
        self.is_alive
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

    pub(super) fn digest(&self, ms: u64, digest: &mut Digest) {
        digest.put(self.machine, self.links.len());
        digest.put(0, self.words.len());
        for session in self.sessions.values() {
            let (phase, left) = match session.phase {
                Phase::Opening => (0, 0),
                Phase::Attached => (1, 0),
                Phase::Parked(until) => (2, until.saturating_sub(ms) / 10_000),
                Phase::Leaving => (3, 0),
            };
            digest.put(8 * session.worker + session.person, phase);
            digest.put(5, usize::try_from(left).unwrap());
        }
        for (w, shown) in self.feed.iter().enumerate() {
            let holder = shown.as_ref().map(|shown| shown.holder());
            let (who, phase) = match holder {
                None => (0, 0),
                Some(None) => (1, 0),
                Some(Some(holder)) => {
                    let subject = holder.subject.as_deref().unwrap_or_default();
                    let person = usize::from(*subject.as_bytes().last().unwrap_or(&0));
                    let relay = holder.replica.map_or(9, |replica| replica.0[0]);
                    let is_parked = usize::from(holder.parked_until.is_some());
                    (2 + person, 2 * usize::from(relay) + is_parked)
                }
            };
            digest.put(2 * who + w, phase);
        }
    }
}

impl World {
    pub(super) fn start_relay(&mut self, machine: usize) -> usize {
        let id = self.relays.len();
        self.tell(|| format!("relay {id} starts on machine {machine}"));
        self.relays.push(Process {
            is_alive: true,
            machine,
            id,
            state: State::new(["default".into()], Duration::from_secs(3600)),
            sessions: BTreeMap::new(),
            claims: 0,
            links: BTreeMap::new(),
            words: Words::new(id),
            feed: [None, None],
            changed: [0, 0],
        });
        id
    }

    /// The number of a new claim at `relay`: each has numbers of its own.
    pub(super) fn claim(&mut self, relay: usize) -> u64 {
        let claims = &mut self.relays[relay].claims;
        *claims += 1;
        *claims
    }

    pub(super) fn serving(&self, machine: usize) -> Option<usize> {
        let of_machine = |r: &Process| r.machine == machine && r.serves();
        self.relays.iter().position(of_machine)
    }

    pub(super) fn link_at_relay(&mut self, relay: usize, agent: usize, number: u64) {
        if let Some(old) = self.relays[relay].links.insert(agent, number) {
            self.link_is_over(relay, agent, old, true);
        }
    }

    /// The link `number` with `agent` is over; what was said on it `stands`, or not.
    fn link_is_over(&mut self, relay: usize, agent: usize, number: u64, stands: bool) {
        let (now, ms) = (self.now().instant, self.ms);
        self.hear(
            relay,
            true,
            |remote| remote.end_link(number, stands, now),
            |words| words.leave(number, stands, ms),
        );
        self.forget_opening(relay, agent);
    }

    /// An answer of the head comes, of those that it was asked for or of all, and what that leaves is asked.
    pub(super) fn answer(&mut self, relay: usize, asked: &[String], rows: &[WorkerRow], sent: u64) {
        let (now, at) = (self.now(), self.instant(sent));
        let process = &mut self.relays[relay];
        let listed = |process: &Process, w| {
            let entry = process.state.clusters[0].entries.get(name(w));
            entry.map(|entry| (entry.breakpoint().stop, entry.hold.is_held()))
        };
        let before = [0, 1].map(|w| listed(process, w));
        let (state, mut vanished) = (&mut process.state, Vec::new());
        let changes = if asked.is_empty() {
            let mut response = state.begin_workers(0, rows, at);
            let changes = state.apply_workers(0, &mut response, now);
            assert!(!response.has_more());
            vanished = state.end_workers(0, response, now).vanished;
            for w in vanished.iter().map(|worker| worker_of(worker)) {
                assert!(
                    before[w].is_some_and(|(_, is_held)| !is_held) && sent >= process.changed[w],
                    "relay {relay} asks for worker {w} because of an old answer"
                );
            }
            changes
        } else {
            let by_id: HashMap<_, _> = rows.iter().map(|row| (&*row.worker_id, row)).collect();
            state.apply_vanished(0, asked, &by_id, true, at, now)
        };
        for (w, before) in before.into_iter().enumerate() {
            let is_held = before.is_some_and(|(_, is_held)| is_held);
            let after = listed(process, w);
            assert!(
                before == after || !is_held && sent >= process.changed[w],
                "relay {relay} takes an old answer for news: {after:?} after {before:?}"
            );
        }
        self.heard(relay, changes);
        if !vanished.is_empty() {
            let told = Message::Rows(self.rows(), self.ms, vanished);
            self.send(Channel::Poll(relay), told);
        }
    }

    pub(super) fn poll_now(&mut self, relay: usize) {
        self.answer(relay, &[], self.rows(), self.ms);
    }

    /// Has the head asked for `worker`, for a client that names it, or because others have it.
    pub(super) fn ask_for(&mut self, relay: usize, worker: usize) {
        let (now, rows) = (self.now(), self.rows());
        let state = &mut self.relays[relay].state;
        let (changes, _) = state.apply_asked_for(0, &rows[worker], now);
        self.took(relay, changes);
    }

    /// Has the head asked for what others have and is not listed.
    pub(super) fn ask_unlisted(&mut self, relay: usize) {
        for hold in self.relays[relay].state.unlisted() {
            self.ask_for(relay, worker_of(&hold.held.worker_id));
        }
    }

    /// `message` has come on the link `number` of `agent`.
    pub(super) fn at_relay(&mut self, relay: usize, agent: usize, number: u64, message: Message) {
        if self.relays[relay].links.get(&agent) != Some(&number) {
            return;
        }
        match message {
            Message::Held(held, rows) => self.told_by(relay, agent, number, &held, rows),
            Message::Refused(stream) => {
                if let Some(claim) = self.session_of(relay, stream) {
                    self.end(relay, claim, false);
                }
            }
            Message::Closed | Message::Left => {
                self.relays[relay].links.remove(&agent);
                let stands = matches!(message, Message::Closed);
                self.link_is_over(relay, agent, number, stands);
            }
            other => panic!("{other:?} to a relay"),
        }
    }

    fn told_by(
        &mut self,
        relay: usize,
        agent: usize,
        number: u64,
        held: &[HoldRow],
        rows: Arc<[Row]>,
    ) {
        self.break_lost(relay, &rows);
        let own = self.relays[relay].replica();
        let others = held
            .iter()
            .filter(|held| held.replica != own || held.parked.is_some());
        let others: Vec<_> = others.cloned().collect();
        let gap = self.relays[relay].words.link(agent) != Some(number);
        // Its first word on a link is for two names of its cluster, of which the relay knows one.
        let other = RayNode {
            cluster: "other".into(),
            ..node(agent)
        };
        let nodes: Vec<_> = [node(agent)]
            .into_iter()
            .chain(gap.then_some(other))
            .collect();
        let names = nodes.len();
        self.hear(
            relay,
            gap,
            |remote| remote.set_report(number, nodes, &others),
            |words| words.hear(agent, number, rows, names),
        );
    }

    /// The agent keeps what a session of `relay` believes to have.
    fn break_lost(&mut self, relay: usize, rows: &[Row]) {
        for row in rows {
            if row.parked.is_none() || row.relay != relay {
                continue;
            }
            let session = self.relays[relay].sessions.get(&row.session);
            if session.is_some_and(|session| session.phase != Phase::Opening) {
                self.end(relay, row.session, true);
            }
        }
    }

    /// Requests to `agent` are no longer answered.
    fn forget_opening(&mut self, relay: usize, agent: usize) {
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
        if let Some(number) = self.relays[relay].links.remove(&agent) {
            self.link_is_over(relay, agent, number, true);
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
    let node_id = ["n0", "n1"][agent];
    RayNode {
        cluster: "default".into(),
        node_id: node_id.into(),
        address: [10, 0, 0, 7].into(),
    }
}
