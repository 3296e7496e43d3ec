//! The reports that each relay has received, next to its core, in the simplest form: its list and events must follow
//! from them.

use std::sync::Arc;

use super::relay::{Phase, Process};
use super::world::{PEOPLE, SILENT, World, id, name, worker_of};
use crate::hold::{RemoteHolds, Touched};
use crate::ray::registry::breakpoint::Breakpoint;
use crate::ray::registry::state::Changes;
use crate::ray::registry::{Change, ClaimError};
use ray_relay_base::timestamp::unix_ms;

/// The holder of a worker, with a fact that only the simulation knows: the stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) worker: usize,
    pub(super) person: usize,
    /// The relay and the claim of the session.
    pub(super) relay: usize,
    pub(super) session: u64,
    pub(super) stop: u32,
    /// Until when it is parked.
    pub(super) parked: Option<u64>,
}

/// The last word of everybody to the relay `own`.
#[derive(Clone)]
pub(super) struct Words {
    own: usize,
    agents: [Option<AgentReport>; 2],
}

#[derive(Clone)]
struct AgentReport {
    link: u64,
    rows: Arc<[Row]>,
    /// For how many names of its cluster it was said.
    names: usize,
    /// Until when it stands, where its link broke.
    until: Option<u64>,
}

/// Another holder of a worker.
type HolderSeen = Option<Row>;

impl Words {
    pub(super) fn new(own: usize) -> Self {
        Self {
            own,
            agents: [None, None],
        }
    }

    pub(super) fn hear(&mut self, agent: usize, link: u64, rows: Arc<[Row]>, names: usize) {
        self.agents[agent] = Some(AgentReport {
            link,
            rows,
            names,
            until: None,
        });
    }

    /// The link has ended at `ms`; its agent's word `stands` for the documented time, or not.
    pub(super) fn leave(&mut self, link: u64, stands: bool, ms: u64) {
        for agent in &mut self.agents {
            match agent {
                Some(word) if word.link == link && stands => word.until = Some(ms + SILENT),
                Some(word) if word.link == link => *agent = None,
                _ => {}
            }
        }
    }

    pub(super) fn expire(&mut self, ms: u64) {
        for agent in &mut self.agents {
            let until = agent.as_ref().and_then(|word| word.until);
            if until.is_some_and(|until| until <= ms) {
                *agent = None;
            }
        }
    }

    pub(super) fn told(&self, w: usize) -> HolderSeen {
        let rows = &self.agents[w % 2].as_ref()?.rows;
        { rows.iter() }
            .find(|row| row.worker == w && self.is_others(row))
            .copied()
    }

    /// It is not by a session of the relay's own.
    fn is_others(&self, row: &Row) -> bool {
        row.relay != self.own || row.parked.is_some()
    }

    /// When something stands no longer.
    fn next_expiry(&self) -> Option<u64> {
        let until = |agent: &Option<AgentReport>| agent.as_ref().and_then(|word| word.until);
        self.agents.iter().filter_map(until).min()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.agents
            .iter()
            .flatten()
            .all(|word| word.rows.is_empty())
    }

    /// How much of what was said stands.
    pub(super) fn len(&self) -> usize {
        let mut all = 0;
        for word in self.agents.iter().flatten() {
            all += word.names * word.rows.iter().filter(|row| self.is_others(row)).count();
        }
        all
    }

    /// The link of the last word of `agent`.
    pub(super) fn link(&self, agent: usize) -> Option<u64> {
        self.agents[agent].as_ref().map(|word| word.link)
    }
}

impl World {
    /// The core of `relay` hears what `said` does, which comes to `what`; `gap`: something may have been said between this and
    /// what was said last.
    pub(super) fn hear(
        &mut self,
        relay: usize,
        gap: bool,
        said: impl FnOnce(&mut RemoteHolds) -> Touched,
        what: impl FnOnce(&mut Words),
    ) {
        let now = self.now();
        let process = &mut self.relays[relay];
        let before = [0, 1].map(|w| process.words.told(w));
        let was_listed = [0, 1].map(|w| process.entry(name(w)).is_some());
        what(&mut process.words);
        let (changes, over) = process.state.update_remote(said, now);
        let mut none_is_over = true;
        for w in (0..2).filter(|w| was_listed[*w]) {
            let is_over = |(change, of): &(Change, Arc<Breakpoint>)| {
                *change == Change::Released && worker_of(&of.worker_id) == w
            };
            let is_over = changes.iter().any(is_over);
            none_is_over &= !is_over;
            let after = process.words.told(w);
            let must = match process.session_with(w) {
                Some(_) => Some(false),
                None => ends(before[w], after, gap),
            };
            assert!(
                must.is_none_or(|must| must == is_over),
                "relay {relay} was told of worker {w}: {after:?} after {before:?}, and has it as over: {is_over}"
            );
        }
        assert_eq!(over.is_empty(), none_is_over, "{over:?}");
        self.took(relay, changes);
    }

    /// Takes back what no longer stands.
    pub(super) fn expire(&mut self) {
        let now = self.now();
        for relay in 0..self.relays.len() {
            let (process, ms) = (&self.relays[relay], self.ms);
            let Some(until) = process.words.next_expiry().filter(|_| process.is_alive) else {
                continue;
            };
            let next = process.state.remote().next_expiry();
            let is_due = next.is_some_and(|next| next <= now.instant);
            assert_eq!(
                is_due,
                until <= ms,
                "relay {relay} takes back at {next:?} what stands until {until}"
            );
            let expired = |said: &mut RemoteHolds| said.expire(now.instant);
            self.hear(relay, true, expired, |words| words.expire(ms));
        }
    }

    /// The core of `relay` has told `changes`, which came by what was done with a hold.
    pub(super) fn took(&mut self, relay: usize, changes: Changes) {
        for (_, of) in &changes {
            self.relays[relay].changed[worker_of(&of.worker_id)] = self.ms;
        }
        self.heard(relay, changes);
    }

    /// Delivers `changes` to the follower of the events of `relay`.
    pub(super) fn heard(&mut self, relay: usize, changes: Changes) {
        self.touched |= 1 << relay;
        for (change, of) in changes {
            let w = worker_of(&of.worker_id);
            let (holder, feed) = (of.holder(), &mut self.relays[relay].feed[w]);
            let is_fit = match change {
                Change::Appeared => {
                    holder.is_none() && feed.as_ref().is_none_or(|f| f.holder().is_some())
                }
                Change::Attached => holder.is_some_and(|h| h.parked_until.is_none()),
                Change::Parked => holder.is_some_and(|h| h.parked_until.is_some()),
                Change::Released | Change::Died => feed.is_some(),
                _ => feed.as_ref().is_some_and(|f| f.holder() == holder),
            };
            assert!(is_fit, "relay {relay} tells {change:?} of {of:?}");
            *feed = (!matches!(change, Change::Released | Change::Died)).then_some(of);
            if matches!(change, Change::Attached | Change::Parked) {
                self.come_late(relay, w);
            }
        }
    }

    /// A client comes to `relay` by a list in which the worker was free, and one with a claim that is over.
    fn come_late(&mut self, relay: usize, w: usize) {
        const LATE: u64 = u64::MAX;
        let now = self.now();
        let process = &mut self.relays[relay];
        let Some(holder) = process.entry(name(w)).and_then(|b| b.holder().cloned()) else {
            return;
        };
        let id = id(w);
        let state = &mut process.state;
        if holder.is_here() || holder.parked_until.is_none() {
            let taken = state.take_over(id, LATE, now);
            assert!(
                taken.is_none(),
                "{holder:?} has worker {w}, and it is gone on with"
            );
        }
        let changes = state.release_claim(0, name(w), LATE, true, now);
        assert!(
            changes.is_empty(),
            "nobody's claim is given back: {changes:?}"
        );
        let changes = state.held_by(0, name(w), LATE, holder.clone(), now);
        assert!(changes.is_empty(), "nobody's claim is shown: {changes:?}");
        let refused = state.claim(id, LATE, holder.clone(), now);
        let by = match &refused {
            Err(ClaimError::InUse(by)) => Some(&**by),
            _ => None,
        };
        assert_eq!(by, Some(&holder), "worker {w} of relay {relay}");
    }

    /// That the list of `relay` and its events are what it was told and what it has.
    pub(super) fn check_relay(&self, relay: usize) {
        let process = &self.relays[relay];
        assert_eq!(
            process.state.remote().iter().count(),
            process.words.len(),
            "relay {relay} has heard {:?}",
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
                "relay {relay} lists {entry:?}, and has told {feed:?}"
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
                Phase::Opening | Phase::Attached | Phase::Leaving => None,
            };
            let must = match session {
                Some((claim, s)) => Some((None, *claim, s.person, until(s.phase))),
                None => process.words.told(w).map(|row| {
                    let replica = Some(self.relays[row.relay].replica());
                    (replica, row.session, row.person, row.parked)
                }),
            };
            let holder = entry.holder();
            let is_so = match (must, holder) {
                (None, None) => true,
                (Some((replica, session, person, parked)), Some(holder)) => {
                    let until = holder.parked_until.map(|until| unix_ms(until.time));
                    holder.replica == replica
                        && holder.session == session
                        && holder.subject.as_deref() == Some(PEOPLE[person])
                        && until == parked
                }
                _ => false,
            };
            assert!(
                is_so,
                "{must:?} has worker {w}, and relay {relay} shows {holder:?}"
            );
        }
    }
}

/// Whether what was told first is over by what is told then; `None`: it cannot be known.
fn ends(before: HolderSeen, after: HolderSeen, gap: bool) -> Option<bool> {
    let (before, after) = match (before, after) {
        (None, _) => return Some(false),
        (Some(_), None) => return Some(true),
        (Some(before), Some(after)) => (before, after),
    };
    let is_same = (before.relay, before.session) == (after.relay, after.session);
    match before.stop == after.stop {
        _ if is_same => Some(false),
        // A session that resumes a park has the same stop, as far as those know that were not notified of its end.
        true => before.parked.map(|_| false),
        false => (before.parked.is_none() || !gap).then_some(true),
    }
}

impl Process {
    /// The session with the worker `w`.
    pub(super) fn session_with(&self, w: usize) -> Option<u64> {
        let mut sessions = self.sessions.iter();
        sessions
            .find(|(_, s)| s.worker == w)
            .map(|(claim, _)| *claim)
    }
}
