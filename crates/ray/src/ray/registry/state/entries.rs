//! The live breakpoints of one cluster: by key, by id, and by what is still to be looked up about them; and what of them
//! has changed since the list was made.
//!
//! All of these change together and here alone, so that none of them is ever searched or sorted as a whole: with
//! thousands of breakpoints each of which is named by itself, that would cost seconds.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tokio::time::Instant;

use crate::hold::Hold;
use crate::ray::registry::breakpoint::{Breakpoint, BreakpointId, State};
use crate::ray::registry::names::Found;
use crate::ray::registry::pending_lookups::PendingLookups;
use ray_relay_base::timestamp::Timestamp;

/// Who a lookup is about.
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
    /// What changes in the list, in this order.
    changed: Vec<Row>,
    /// Something was changed since this was last unset, or may have been.
    touched: bool,
    /// The keys whose names are to be asked for, by when.
    due: BTreeSet<(Instant, Arc<str>)>,
    /// The keys whose stack is to be looked at.
    unlocated: BTreeSet<Arc<str>>,
}

/// What changes in the list.
#[cfg_attr(test, derive(Clone))]
pub(super) enum Row {
    /// This one is there from now on.
    New(Arc<Breakpoint>),
    /// This one is not.
    Gone(Arc<Breakpoint>),
}

/// One live breakpoint.
#[cfg_attr(test, derive(Clone))]
pub(super) struct Entry {
    breakpoint: Arc<Breakpoint>,
    /// Since when this stop or this hold stands: answers asked for before then are stale.
    pub(super) since: Instant,
    /// Who has it.
    pub(super) hold: Hold,
    /// Since when nothing listens on its port, by the last dial.
    pub(super) unreachable: Option<Timestamp>,
    /// A client asked for it, though Ray does not list it: kept until then without a word from Ray.
    pub(super) asked_for: Option<Instant>,
    /// Whether the debugger ended the session that holds it, and Ray does not say why.
    pub(super) unexplained: bool,
    /// The session that holds it has said where it is stopped now.
    pub(super) located: bool,
    driver: bool,
    pending: PendingLookups,
}

impl Entry {
    /// An entry that is free.
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

    /// What it is while it is free.
    pub(super) fn free(&self) -> State {
        match self.unreachable {
            Some(since) => State::Unreachable { since },
            None if self.asked_for.is_some() => State::Unlisted,
            None => State::Paused,
        }
    }

    /// Another answer about its names is awaited.
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

    /// The entry of `key`, for changing who holds it and since when; the rest has methods of its own.
    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut Entry> {
        self.touched = true;
        self.by_key.get_mut(key)
    }

    /// Whether anything but names that are asked for has changed since [`Self::watch`].
    pub(super) fn is_touched(&self) -> bool {
        self.touched
    }

    /// Begins to take note of changes.
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

    /// The ids of all.
    pub(super) fn ids(&self) -> impl Iterator<Item = BreakpointId> {
        self.keys.keys().copied()
    }

    /// What has changed in the list since this was last called.
    pub(super) fn take_changed(&mut self) -> Vec<Row> {
        std::mem::take(&mut self.changed)
    }

    /// Puts `entry` in, in place of one of the same key.
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

    /// The breakpoint `key` is `next` from now on.
    pub(super) fn set(&mut self, key: &str, next: Breakpoint) -> Option<Arc<Breakpoint>> {
        let entry = self.by_key.get_mut(key)?;
        self.touched = true;
        let next = Arc::new(next);
        let old = std::mem::replace(&mut entry.breakpoint, Arc::clone(&next));
        self.changed.push(Row::Gone(old));
        self.changed.push(Row::New(Arc::clone(&next)));
        Some(next)
    }

    /// The worker of `key` has stopped in another task, as `next`, of which all is to be looked up.
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

    /// Takes note of an answer about the names of `key`; `None` where the head had none.
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

    /// All whose names are to be asked for at `now`, marked as asked for.
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

    /// When names are to be asked for next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// One whose stack is to be looked at, marked as asked for.
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
    /// That all its indexes say the same, which no caller can see at once.
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
