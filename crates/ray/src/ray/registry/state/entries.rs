//! The live breakpoints of one cluster: indexed by key, by id, and by pending lookups; and their changes since the
//! last list.
//!
//! All of these change together and only here, so that none of them is ever searched or sorted as a whole: with
//! thousands of breakpoints, each of which gets its name separately, that would cost seconds.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tokio::time::Instant;

use crate::hold::Hold;
use crate::ray::registry::breakpoint::{Breakpoint, BreakpointId, State};
use crate::ray::registry::names::Found;
use crate::ray::registry::pending_lookups::PendingLookups;
use ray_relay_base::timestamp::Timestamp;

/// The subject of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::ray::registry) struct Target {
    pub(in crate::ray::registry) worker_id: Arc<str>,
    pub(in crate::ray::registry) stop: u64,
    pub(in crate::ray::registry) node_id: Arc<str>,
    pub(in crate::ray::registry) node_ip: std::net::IpAddr,
    pub(in crate::ray::registry) pid: u32,
    pub(in crate::ray::registry) driver: bool,
}

/// The live breakpoints of one cluster.
#[cfg_attr(test, derive(Clone))]
#[derive(Default)]
pub(super) struct Entries {
    by_key: BTreeMap<Arc<str>, Entry>,
    keys: HashMap<BreakpointId, Arc<str>>,
    /// Pending changes of the list, in this order.
    changed: Vec<Row>,
    /// Whether something has changed since this was last reset, or may have.
    touched: bool,
    /// The keys whose names are to be queried, by time.
    due: BTreeSet<(Instant, Arc<str>)>,
    /// The keys whose stacks are to be queried.
    unlocated: BTreeSet<Arc<str>>,
}

/// A change of the list.
#[cfg_attr(test, derive(Clone))]
pub(super) enum Row {
    /// This one was added.
    New(Arc<Breakpoint>),
    /// This one was removed.
    Gone(Arc<Breakpoint>),
}

/// One live breakpoint.
#[cfg_attr(test, derive(Clone))]
pub(super) struct Entry {
    breakpoint: Arc<Breakpoint>,
    /// Start of this stop or this hold: responses requested before are stale.
    pub(super) since: Instant,
    /// Its holder.
    pub(super) hold: Hold,
    /// Since when nothing listens on its port, by the last connection attempt.
    pub(super) unreachable: Option<Timestamp>,
    /// Set if a client requested it, though Ray does not list it: kept until then without a report from Ray.
    pub(super) asked_for: Option<Instant>,
    /// Whether the debugger ended the session that holds it without a reason from Ray.
    pub(super) unexplained: bool,
    /// Whether the session that holds it has reported its current location.
    pub(super) located: bool,
    driver: bool,
    pending: PendingLookups,
}

impl Entry {
    /// A free entry.
    pub(super) fn new(
        breakpoint: Arc<Breakpoint>,
        since: Instant,
        driver: bool,
        pending: PendingLookups,
    ) -> Self {
        Self {
            breakpoint,
            since,
            hold: Hold::default(),
            unreachable: None,
            asked_for: None,
            unexplained: false,
            located: false,
            driver,
            pending,
        }
    }

    pub(super) fn breakpoint(&self) -> &Arc<Breakpoint> {
        &self.breakpoint
    }

    /// The state of the entry while it is free.
    pub(super) fn free(&self) -> State {
        match self.unreachable {
            Some(since) => State::Unreachable { since },
            None if self.asked_for.is_some() => State::Unlisted,
            None => State::Paused,
        }
    }

    /// Whether another response about its names is pending.
    pub(super) fn wants_names(&self) -> bool {
        self.pending.names_due().is_some()
    }

    fn target(&self) -> Target {
        Target {
            worker_id: self.breakpoint.worker_id.clone(),
            stop: self.breakpoint.stop,
            node_id: self.breakpoint.node_id.clone(),
            node_ip: self.breakpoint.node_ip,
            pid: self.breakpoint.pid,
            driver: self.driver,
        }
    }
}

impl Entries {
    pub(super) fn get(&self, key: &str) -> Option<&Entry> {
        self.by_key.get(key)
    }

    /// The entry of `key`, for changing its holder and start; other changes have methods of their own.
    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut Entry> {
        self.touched = true;
        self.by_key.get_mut(key)
    }

    /// Whether anything but sent name queries has changed since [`Self::watch`].
    pub(super) fn is_touched(&self) -> bool {
        self.touched
    }

    /// Begins to track changes.
    pub(super) fn watch(&mut self) {
        self.touched = false;
    }

    /// The entry of the breakpoint `id`, with its key.
    pub(super) fn find(&self, id: BreakpointId) -> Option<(&Arc<str>, &Entry)> {
        self.by_key.get_key_value(self.keys.get(&id)?)
    }

    pub(super) fn contains(&self, key: &str) -> bool {
        self.by_key.contains_key(key)
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Entry)> {
        self.by_key.iter()
    }

    /// The ids of all entries.
    pub(super) fn ids(&self) -> impl Iterator<Item = BreakpointId> {
        self.keys.keys().copied()
    }

    /// Removes and returns the changes of the list since the last call.
    pub(super) fn take_changed(&mut self) -> Vec<Row> {
        std::mem::take(&mut self.changed)
    }

    /// Inserts `entry`, replacing one of the same key.
    pub(super) fn insert(&mut self, entry: Entry) {
        self.touched = true;
        let key = entry.breakpoint.shared_key();
        self.remove(&key);
        let breakpoint = &entry.breakpoint;
        self.keys.insert(breakpoint.id, Arc::clone(&key));
        self.changed.push(Row::New(Arc::clone(breakpoint)));
        if let Some(at) = entry.pending.names_due() {
            self.due.insert((at, Arc::clone(&key)));
        }
        if entry.pending.wants_location() {
            self.unlocated.insert(Arc::clone(&key));
        }
        self.by_key.insert(key, entry);
    }

    pub(super) fn remove(&mut self, key: &str) -> Option<Entry> {
        let (key, entry) = self.by_key.remove_entry(key)?;
        self.touched = true;
        let id = entry.breakpoint.id;
        if self.keys.get(&id) == Some(&key) {
            self.keys.remove(&id);
        }
        self.changed.push(Row::Gone(Arc::clone(&entry.breakpoint)));
        if let Some(at) = entry.pending.names_due() {
            self.due.remove(&(at, Arc::clone(&key)));
        }
        self.unlocated.remove(&key);
        Some(entry)
    }

    /// Replaces the breakpoint `key` by `next`.
    pub(super) fn set(&mut self, key: &str, next: Breakpoint) -> Option<Arc<Breakpoint>> {
        let entry = self.by_key.get_mut(key)?;
        self.touched = true;
        let next = Arc::new(next);
        let old = std::mem::replace(&mut entry.breakpoint, Arc::clone(&next));
        self.changed.push(Row::Gone(old));
        self.changed.push(Row::New(Arc::clone(&next)));
        Some(next)
    }

    /// Records that the worker of `key` has stopped in another task, as `next`, for which all lookups are due.
    pub(super) fn begin_anew(
        &mut self,
        key: &str,
        next: Breakpoint,
        now: Instant,
    ) -> Option<Arc<Breakpoint>> {
        let next = Arc::new(next);
        let mut entry = self.remove(key)?;
        entry.breakpoint = Arc::clone(&next);
        entry.pending = PendingLookups::new(now);
        self.insert(entry);
        Some(next)
    }

    /// Records a response about the names of `key`; `None` if the head had none.
    pub(super) fn names_answered(&mut self, key: &str, found: Option<&Found>, now: Instant) {
        let Some((key, _)) = self.by_key.get_key_value(key) else {
            return;
        };
        let key = Arc::clone(key);
        let Some(entry) = self.by_key.get_mut(&key) else {
            return;
        };
        let before = entry.pending.names_due();
        entry.pending.names_answered(found, now);
        let after = entry.pending.names_due();
        if let Some(at) = before {
            self.due.remove(&(at, Arc::clone(&key)));
        }
        if let Some(at) = after {
            self.due.insert((at, key));
        }
    }

    /// All whose names are due at `now`, marked as sent.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Target> {
        let mut due = Vec::new();
        while let Some((at, key)) = self.due.pop_first() {
            if at > now {
                self.due.insert((at, key));
                break;
            }
            if let Some(entry) = self.by_key.get_mut(&key)
                && entry.pending.take_names(now)
            {
                due.push(entry.target());
            }
        }
        due
    }

    /// When the next names are due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// One whose stack is due, marked as sent.
    pub(super) fn take_unlocated(&mut self) -> Option<Target> {
        while let Some(key) = self.unlocated.pop_first() {
            if let Some(entry) = self.by_key.get_mut(&key)
                && entry.pending.take_location()
            {
                return Some(entry.target());
            }
        }
        None
    }
}

#[cfg(test)]
impl Entries {
    /// Checks that all its indexes are consistent, which no caller can see at once.
    pub(super) fn check(&self) {
        for (key, entry) in &self.by_key {
            assert!(self.find(entry.breakpoint.id).is_some());
            let due = entry.pending.names_due();
            assert_eq!(
                self.due.iter().find(|(_, k)| k == key).map(|(at, _)| *at),
                due
            );
            assert_eq!(self.unlocated.contains(key), entry.pending.wants_location());
        }
        assert!(self.due.len() <= self.by_key.len() && self.keys.len() <= self.by_key.len());
    }
}
