//! A simple model of the reports that each relay has received. The list and the events of the real core must follow
//! from it.

use std::sync::Arc;

use super::relay::{Phase, Process};
use super::world::{SILENCE_MS, USERS, World, id, name, worker_of};
use crate::hold::{RemoteHolds, Touched};
use crate::ray::registry::breakpoint::Breakpoint;
use crate::ray::registry::state::Changes;
use crate::ray::registry::{Change, ClaimError};
use ray_relay_base::timestamp::unix_ms;

/// The holder of a worker, with its stop, which only the simulation knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) worker: usize,
    pub(super) user: usize,
    /// The relay and the claim of its session.
    pub(super) relay: usize,
    pub(super) session: u64,
    pub(super) stop: u32,
    /// When its park ends.
    pub(super) parked: Option<u64>,
}

/// The last report of each agent to the relay `own`.
#[derive(Clone)]
pub(super) struct Reports {
    own: usize,
    agents: [Option<AgentReport>; 2],
}

#[derive(Clone)]
struct AgentReport {
    link: u64,
    rows: Arc<[Row]>,
    /// How many clusters the report names.
    cluster_names: usize,
    /// When the report expires, after its link broke.
    until: Option<u64>,
}

/// The holder of a worker outside this relay.
type OtherHolder = Option<Row>;

impl Reports {
    pub(super) fn new(own: usize) -> Self {
        Self {
            own,
            agents: [None, None],
        }
    }

    pub(super) fn receive(
        &mut self,
        agent: usize,
        link: u64,
        rows: Arc<[Row]>,
        cluster_names: usize,
    ) {
        self.agents[agent] = Some(AgentReport {
            link,
            rows,
            cluster_names,
            until: None,
        });
    }

    /// Ends the link at `ms`; the report of its agent `stays_valid` for the documented time, or is dropped.
    pub(super) fn end_link(&mut self, link: u64, stays_valid: bool, ms: u64) {
        for agent in &mut self.agents {
            match agent {
                Some(report) if report.link == link && stays_valid => {
                    report.until = Some(ms + SILENCE_MS)
                }
                Some(report) if report.link == link => *agent = None,
                _ => {}
            }
        }
    }

    pub(super) fn expire(&mut self, ms: u64) {
        for agent in &mut self.agents {
            let until = agent.as_ref().and_then(|report| report.until);
            if until.is_some_and(|until| until <= ms) {
                *agent = None;
            }
        }
    }

    pub(super) fn holder_of(&self, w: usize) -> OtherHolder {
        let rows = &self.agents[w % 2].as_ref()?.rows;
        { rows.iter() }
            .find(|row| row.worker == w && self.is_others(row))
            .copied()
    }

    /// Whether the holder is not a session of this relay.
    fn is_others(&self, row: &Row) -> bool {
        row.relay != self.own || row.parked.is_some()
    }

    /// Returns when the next report expires.
    fn next_expiry(&self) -> Option<u64> {
        let until = |agent: &Option<AgentReport>| agent.as_ref().and_then(|report| report.until);
        self.agents.iter().filter_map(until).min()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.agents
            .iter()
            .flatten()
            .all(|report| report.rows.is_empty())
    }

    /// Returns how many holds the real core must have.
    pub(super) fn len(&self) -> usize {
        let mut all = 0;
        for report in self.agents.iter().flatten() {
            all +=
                report.cluster_names * report.rows.iter().filter(|row| self.is_others(row)).count();
        }
        all
    }

    /// Returns the link of the last report of `agent`.
    pub(super) fn link(&self, agent: usize) -> Option<u64> {
        self.agents[agent].as_ref().map(|report| report.link)
    }
}

impl World {
    /// Applies `update` to the core of `relay` and `record` to the model, and compares the released workers. `gap`: a
    /// report may have been missed in between.
    pub(super) fn update_reports(
        &mut self,
        relay: usize,
        gap: bool,
        update: impl FnOnce(&mut RemoteHolds) -> Touched,
        record: impl FnOnce(&mut Reports),
    ) {
        let now = self.now();
        let process = &mut self.relays[relay];
        let before = [0, 1].map(|w| process.reports.holder_of(w));
        let was_listed = [0, 1].map(|w| process.entry(name(w)).is_some());
        record(&mut process.reports);
        let (changes, released) = process.state.update_remote(update, now);
        let mut none_released = true;
        for w in (0..2).filter(|w| was_listed[*w]) {
            let is_released = |(change, of): &(Change, Arc<Breakpoint>)| {
                *change == Change::Released && worker_of(&of.worker_id) == w
            };
            let is_released = changes.iter().any(is_released);
            none_released &= !is_released;
            let after = process.reports.holder_of(w);
            let expected = match process.session_with(w) {
                Some(_) => Some(false),
                None => must_release(before[w], after, gap),
            };
            assert!(
                expected.is_none_or(|expected| expected == is_released),
                "relay {relay} received {after:?} after {before:?} for worker {w}, and released it: {is_released}"
            );
        }
        assert_eq!(released.is_empty(), none_released, "{released:?}");
        self.record_changes(relay, changes);
    }

    /// Drops expired reports.
    pub(super) fn expire(&mut self) {
        let now = self.now();
        for relay in 0..self.relays.len() {
            let (process, ms) = (&self.relays[relay], self.ms);
            let Some(until) = process.reports.next_expiry().filter(|_| process.is_alive) else {
                continue;
            };
            let next = process.state.remote().next_expiry();
            let is_due = next.is_some_and(|next| next <= now.instant);
            assert_eq!(
                is_due,
                until <= ms,
                "relay {relay} drops at {next:?} a report that is valid until {until}"
            );
            let expired = |update: &mut RemoteHolds| update.expire(now.instant);
            self.update_reports(relay, true, expired, |reports| reports.expire(ms));
        }
    }

    /// Records when `changes` of a hold happened, and delivers them.
    pub(super) fn record_changes(&mut self, relay: usize, changes: Changes) {
        for (_, of) in &changes {
            self.relays[relay].changed_ms[worker_of(&of.worker_id)] = self.ms;
        }
        self.deliver_events(relay, changes);
    }

    /// Delivers `changes` to the subscriber of the events of `relay`, and checks that they fit its state.
    pub(super) fn deliver_events(&mut self, relay: usize, changes: Changes) {
        self.changed_relays |= 1 << relay;
        for (change, of) in changes {
            let w = worker_of(&of.worker_id);
            let (holder, feed) = (of.holder(), &mut self.relays[relay].feed[w]);
            let is_expected = match change {
                Change::Appeared => {
                    holder.is_none() && feed.as_ref().is_none_or(|f| f.holder().is_some())
                }
                Change::Attached => holder.is_some_and(|h| h.parked_until.is_none()),
                Change::Parked => holder.is_some_and(|h| h.parked_until.is_some()),
                Change::Released | Change::Died => feed.is_some(),
                _ => feed.as_ref().is_some_and(|f| f.holder() == holder),
            };
            assert!(is_expected, "relay {relay} sent {change:?} of {of:?}");
            *feed = (!matches!(change, Change::Released | Change::Died)).then_some(of);
            if matches!(change, Change::Attached | Change::Parked) {
                self.check_late_client(relay, w);
            }
        }
    }

    /// Checks that `relay` refuses a client whose list is outdated, and a claim that has ended.
    fn check_late_client(&mut self, relay: usize, w: usize) {
        const LATE_CLAIM: u64 = u64::MAX;
        let now = self.now();
        let process = &mut self.relays[relay];
        let Some(holder) = process.entry(name(w)).and_then(|b| b.holder().cloned()) else {
            return;
        };
        let id = id(w);
        let state = &mut process.state;
        if holder.is_here() || holder.parked_until.is_none() {
            let taken_over = state.take_over(id, LATE_CLAIM, now);
            assert!(
                taken_over.is_none(),
                "{holder:?} has worker {w}, and another claim took it over"
            );
        }
        let changes = state.release_claim(0, name(w), LATE_CLAIM, true, now);
        assert!(
            changes.is_empty(),
            "an unknown claim was released: {changes:?}"
        );
        let changes = state.held_by(0, name(w), LATE_CLAIM, holder.clone(), now);
        assert!(
            changes.is_empty(),
            "an unknown claim was shown: {changes:?}"
        );
        let refused = state.claim(id, LATE_CLAIM, holder.clone(), now);
        let by = match &refused {
            Err(ClaimError::InUse(by)) => Some(&**by),
            _ => None,
        };
        assert_eq!(by, Some(&holder), "worker {w} of relay {relay}");
    }

    /// Checks that the list and the events of `relay` follow from its reports and sessions.
    pub(super) fn check_relay(&self, relay: usize) {
        let process = &self.relays[relay];
        assert_eq!(
            process.state.remote().iter().count(),
            process.reports.len(),
            "relay {relay} has {:?}",
            process.state.remote()
        );
        for w in 0..self.shape.workers {
            let entry = process.entry(name(w));
            let shown = |b: &Arc<Breakpoint>| (b.stop, b.holder().cloned());
            let is_same = match (entry, &process.feed[w]) {
                (None, None) => true,
                (Some(a), Some(b)) => Arc::ptr_eq(a, b) || shown(a) == shown(b),
                _ => false,
            };
            let feed = &process.feed[w];
            assert!(
                is_same,
                "relay {relay} lists {entry:?}, and its events say {feed:?}"
            );
            let mut sessions = process.sessions.iter().filter(|(_, s)| s.worker == w);
            let session = sessions.next();
            assert!(
                sessions.next().is_none(),
                "relay {relay} has two sessions with worker {w}"
            );
            let Some(entry) = entry else {
                assert!(
                    session.is_none(),
                    "relay {relay} has {session:?}, and lists nothing"
                );
                continue;
            };
            let until = |phase| match phase {
                Phase::Parked(until) => Some(until),
                Phase::Opening | Phase::Attached | Phase::Detaching => None,
            };
            let expected = match session {
                Some((claim, s)) => Some((None, *claim, s.user, until(s.phase))),
                None => process.reports.holder_of(w).map(|row| {
                    let replica = Some(self.relays[row.relay].replica());
                    (replica, row.session, row.user, row.parked)
                }),
            };
            let holder = entry.holder();
            let is_match = match (expected, holder) {
                (None, None) => true,
                (Some((replica, session, user, parked)), Some(holder)) => {
                    let until = holder.parked_until.map(|until| unix_ms(until.time));
                    holder.replica == replica
                        && holder.session == session
                        && holder.subject.as_deref() == Some(USERS[user])
                        && until == parked
                }
                _ => false,
            };
            assert!(
                is_match,
                "{expected:?} has worker {w}, and relay {relay} shows {holder:?}"
            );
        }
    }
}

/// Whether the change from `before` to `after` releases the worker; `None` if it cannot be known.
fn must_release(before: OtherHolder, after: OtherHolder, gap: bool) -> Option<bool> {
    let (before, after) = match (before, after) {
        (None, _) => return Some(false),
        (Some(_), None) => return Some(true),
        (Some(before), Some(after)) => (before, after),
    };
    let is_same = (before.relay, before.session) == (after.relay, after.session);
    match before.stop == after.stop {
        _ if is_same => Some(false),
        // A session that resumed a park has the same stop; an observer may have missed the end of the park.
        true => before.parked.map(|_| false),
        false => (before.parked.is_none() || !gap).then_some(true),
    }
}

impl Process {
    /// Returns the session with the worker `w`.
    pub(super) fn session_with(&self, w: usize) -> Option<u64> {
        let mut sessions = self.sessions.iter();
        sessions
            .find(|(_, s)| s.worker == w)
            .map(|(claim, _)| *claim)
    }
}
