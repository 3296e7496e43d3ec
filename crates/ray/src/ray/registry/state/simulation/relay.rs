//! A relay: the real registry core with its holds, its polls, and its links with agents.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::digest::Digest;
use super::reports::{Reports, Row};
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
    /// By claim.
    pub(super) sessions: BTreeMap<u64, Session>,
    last_claim: u64,
    pub(super) links: BTreeMap<usize, u64>,
    /// The reports received from agents.
    pub(super) reports: Reports,
    /// The state of each worker according to the events.
    pub(super) feed: [Option<Arc<Breakpoint>>; 2],
    /// When the entry of each worker last changed, other than by a poll.
    pub(super) changed_ms: [u64; 2],
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Session {
    pub(super) worker: usize,
    pub(super) user: usize,
    pub(super) phase: Phase,
    pub(super) stream: Option<u64>,
    /// Whether the stream has arrived.
    pub(super) has_stream: bool,
    /// The stop at which the worker was attached.
    pub(super) stop: u32,
    /// When the first session of this hold began.
    pub(super) started: u64,
    /// How long a park of this session lasts.
    pub(super) park_ms: u64,
    /// The end of the park that this session resumed: a new park lasts at least until then.
    pub(super) earliest_end: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Opening,
    Attached,
    Parked(u64),
    Detaching,
}

impl Process {
    pub(super) fn replica(&self) -> Replica {
        Hex([u8::try_from(self.id + 1).unwrap(); 8])
    }

    /// Whether it accepts new clients.
    pub(super) fn is_serving(&self) -> bool {
        self.is_alive
    }

    pub(super) fn entry(&self, worker_id: &str) -> Option<&Arc<Breakpoint>> {
        let entry = self.state.clusters[0].entries.get(worker_id)?;
        Some(entry.breakpoint())
    }

    /// Returns the session with `worker` that is parked for `user`.
    pub(super) fn parked(&self, worker: usize, user: usize) -> Option<u64> {
        let own = |s: &Session| s.worker == worker && s.user == user;
        let mut parked = self.sessions.iter();
        let parked = parked.find(|(_, s)| own(s) && matches!(s.phase, Phase::Parked(_)));
        parked.map(|(claim, _)| *claim)
    }

    pub(super) fn digest(&self, ms: u64, digest: &mut Digest) {
        digest.put(self.machine, self.links.len());
        digest.put(0, self.reports.len());
        for session in self.sessions.values() {
            let (phase, remaining) = match session.phase {
                Phase::Opening => (0, 0),
                Phase::Attached => (1, 0),
                Phase::Parked(until) => (2, until.saturating_sub(ms) / 10_000),
                Phase::Detaching => (3, 0),
            };
            digest.put(8 * session.worker + session.user, phase);
            digest.put(5, usize::try_from(remaining).unwrap());
        }
        for (w, shown) in self.feed.iter().enumerate() {
            let holder = shown.as_ref().map(|shown| shown.holder());
            let (holder_kind, phase) = match holder {
                None => (0, 0),
                Some(None) => (1, 0),
                Some(Some(holder)) => {
                    let subject = holder.subject.as_deref().unwrap_or_default();
                    let user = usize::from(*subject.as_bytes().last().unwrap_or(&0));
                    let relay = holder.replica.map_or(9, |replica| replica.0[0]);
                    let is_parked = usize::from(holder.parked_until.is_some());
                    (2 + user, 2 * usize::from(relay) + is_parked)
                }
            };
            digest.put(2 * holder_kind + w, phase);
        }
    }
}

impl World {
    pub(super) fn start_relay(&mut self, machine: usize) -> usize {
        let id = self.relays.len();
        self.record(|| format!("relay {id} starts on machine {machine}"));
        self.relays.push(Process {
            is_alive: true,
            machine,
            id,
            state: State::new(["default".into()], Duration::from_secs(3600)),
            sessions: BTreeMap::new(),
            last_claim: 0,
            links: BTreeMap::new(),
            reports: Reports::new(id),
            feed: [None, None],
            changed_ms: [0, 0],
        });
        id
    }

    /// Returns a new claim. Each relay numbers its own.
    pub(super) fn next_claim(&mut self, relay: usize) -> u64 {
        let last_claim = &mut self.relays[relay].last_claim;
        *last_claim += 1;
        *last_claim
    }

    pub(super) fn serving(&self, machine: usize) -> Option<usize> {
        let of_machine = |r: &Process| r.machine == machine && r.is_serving();
        self.relays.iter().position(of_machine)
    }

    pub(super) fn link_at_relay(&mut self, relay: usize, agent: usize, number: u64) {
        if let Some(old) = self.relays[relay].links.insert(agent, number) {
            self.end_link(relay, agent, old, true);
        }
    }

    /// Ends the link `number` with `agent`; its last report `stays_valid` for a while, or not.
    fn end_link(&mut self, relay: usize, agent: usize, number: u64, stays_valid: bool) {
        let (now, ms) = (self.now().instant, self.ms);
        self.update_reports(
            relay,
            true,
            |remote| remote.end_link(number, stays_valid, now),
            |reports| reports.end_link(number, stays_valid, ms),
        );
        self.abandon_opening(relay, agent);
    }

    /// Applies a response of the head to a query for the `requested` workers, or for all if none is named. Then queries the
    /// workers that have vanished from the list.
    pub(super) fn apply_response(
        &mut self,
        relay: usize,
        requested: &[String],
        rows: &[WorkerRow],
        sent: u64,
    ) {
        let (now, queried_at) = (self.now(), self.instant(sent));
        let process = &mut self.relays[relay];
        let listed = |process: &Process, w| {
            let entry = process.state.clusters[0].entries.get(name(w));
            entry.map(|entry| (entry.breakpoint().stop, entry.hold.is_held()))
        };
        let before = [0, 1].map(|w| listed(process, w));
        let (state, mut vanished) = (&mut process.state, Vec::new());
        let changes = if requested.is_empty() {
            let mut response = state.begin_workers(0, rows, queried_at);
            let changes = state.apply_workers(0, &mut response, now);
            assert!(!response.has_more());
            vanished = state.end_workers(0, response, now).vanished;
            for w in vanished.iter().map(|worker| worker_of(worker)) {
                assert!(
                    before[w].is_some_and(|(_, is_held)| !is_held) && sent >= process.changed_ms[w],
                    "relay {relay} queries worker {w} because of an outdated response"
                );
            }
            changes
        } else {
            let by_id: HashMap<_, _> = rows.iter().map(|row| (&*row.worker_id, row)).collect();
            state.apply_vanished(0, requested, &by_id, true, queried_at, now)
        };
        for (w, before) in before.into_iter().enumerate() {
            let is_held = before.is_some_and(|(_, is_held)| is_held);
            let after = listed(process, w);
            assert!(
                before == after || !is_held && sent >= process.changed_ms[w],
                "relay {relay} applied an outdated response: {after:?} after {before:?}"
            );
        }
        self.deliver_events(relay, changes);
        if !vanished.is_empty() {
            let request = Message::Rows(self.rows(), self.ms, vanished);
            self.send(Channel::Poll(relay), request);
        }
    }

    pub(super) fn poll_now(&mut self, relay: usize) {
        self.apply_response(relay, &[], self.rows(), self.ms);
    }

    /// Queries the head for `worker`: a client named it, or another relay holds it.
    pub(super) fn fetch(&mut self, relay: usize, worker: usize) {
        let (now, rows) = (self.now(), self.rows());
        let state = &mut self.relays[relay].state;
        let (changes, _) = state.apply_asked_for(0, &rows[worker], now);
        self.record_changes(relay, changes);
    }

    /// Queries the head for the held workers that are not listed.
    pub(super) fn fetch_unlisted(&mut self, relay: usize) {
        for hold in self.relays[relay].state.unlisted() {
            self.fetch(relay, worker_of(&hold.held.worker_id));
        }
    }

    /// Handles `message` from the link `number` with `agent`.
    pub(super) fn receive_at_relay(
        &mut self,
        relay: usize,
        agent: usize,
        number: u64,
        message: Message,
    ) {
        if self.relays[relay].links.get(&agent) != Some(&number) {
            return;
        }
        match message {
            Message::Report(held, rows) => self.receive_report(relay, agent, number, &held, rows),
            Message::Refused(stream) => {
                if let Some(claim) = self.session_of(relay, stream) {
                    self.end(relay, claim, false);
                }
            }
            Message::Closed | Message::Shutdown => {
                self.relays[relay].links.remove(&agent);
                let stays_valid = matches!(message, Message::Closed);
                self.end_link(relay, agent, number, stays_valid);
            }
            other => panic!("{other:?} to a relay"),
        }
    }

    fn receive_report(
        &mut self,
        relay: usize,
        agent: usize,
        number: u64,
        held: &[HoldRow],
        rows: Arc<[Row]>,
    ) {
        self.end_lost_sessions(relay, &rows);
        let own = self.relays[relay].replica();
        let remote_rows = held
            .iter()
            .filter(|held| held.replica != own || held.parked.is_some());
        let remote_rows: Vec<_> = remote_rows.cloned().collect();
        let gap = self.relays[relay].reports.link(agent) != Some(number);
        // The first report on a link names two clusters, of which the relay knows one.
        let other = RayNode {
            cluster: "other".into(),
            ..node(agent)
        };
        let nodes: Vec<_> = [node(agent)]
            .into_iter()
            .chain(gap.then_some(other))
            .collect();
        let cluster_names = nodes.len();
        self.update_reports(
            relay,
            gap,
            |remote| remote.set_report(number, nodes, &remote_rows),
            |reports| reports.receive(agent, number, rows, cluster_names),
        );
    }

    /// Ends the sessions of `relay` that the agent has parked.
    fn end_lost_sessions(&mut self, relay: usize, rows: &[Row]) {
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

    /// Ends the sessions that still wait for `agent` to open their debugger.
    fn abandon_opening(&mut self, relay: usize, agent: usize) {
        let opening = self.relays[relay].sessions.iter().filter(|(_, session)| {
            !session.has_stream && session.worker % 2 == agent && session.phase == Phase::Opening
        });
        let opening: Vec<u64> = opening.map(|(claim, _)| *claim).collect();
        for claim in opening {
            self.end(relay, claim, false);
        }
    }

    /// The relay notices that `agent` is silent.
    pub(super) fn relay_notices(&mut self, relay: usize, agent: usize) {
        if let Some(number) = self.relays[relay].links.remove(&agent) {
            self.end_link(relay, agent, number, true);
        }
        self.abandon_opening(relay, agent);
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
