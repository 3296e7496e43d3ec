//! The holder of a breakpoint: each step of its [`Hold`], and its effect on the list and the events.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::hold::{Hold, Holder, MergeStep, RemoteHold, RemoteHolds, Touched};
use crate::ray::registry::breakpoint::{Breakpoint, BreakpointId, State as Life};
use crate::ray::registry::change::{Change, ClaimError};
use crate::ray::registry::entered::EnteredBreakpoint;
use crate::ray::registry::state::entries::Entry;
use crate::ray::registry::state::lost::{MAX_UNEXPLAINED_WORKERS, UNEXPLAINED};
use crate::ray::registry::state::{Changes, Claimed, Cluster, ClusterState, Now, State};

impl State {
    /// Assigns the breakpoint `id` to the claim `claim` of `holder`.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub(in crate::ray::registry) fn claim(
        &mut self,
        id: BreakpointId,
        claim: u64,
        holder: Holder,
        now: Now,
    ) -> Result<Claimed, ClaimError> {
        let Some((cluster, key)) = self.find(id) else {
            let mut ended = self.ended.iter();
            return Err(match ended.find(|(_, breakpoint)| breakpoint.id == id) {
                Some((_, breakpoint)) => ClaimError::Ended(Arc::clone(breakpoint)),
                None => ClaimError::Unknown,
            });
        };
        let entry = self.clusters[cluster].entries.get_mut(&key);
        let entry = entry.ok_or(ClaimError::Unknown)?;
        let step = entry.hold.take(claim, holder).map_err(ClaimError::InUse)?;
        let claimed = self.claimed(cluster, &key, step, now);
        claimed.ok_or(ClaimError::Unknown)
    }

    /// Inserts a `breakpoint` that its head no longer lists, unless it is there, and assigns it to the claim `claim` of
    /// `holder`, whatever others report.
    ///
    /// # Errors
    /// [`ClaimError`]: another session of this relay has it.
    pub(in crate::ray::registry) fn restore(
        &mut self,
        cluster: Cluster,
        breakpoint: Breakpoint,
        claim: u64,
        holder: Holder,
        now: Now,
    ) -> Result<Claimed, ClaimError> {
        let id = breakpoint.id;
        let mut changes = match self.find(id) {
            Some(_) => Changes::new(),
            None => self.insert(cluster, breakpoint, now),
        };
        let claimed = match self.take_over(id, claim, now) {
            Some(claimed) => claimed,
            None => self.claim(id, claim, holder, now)?,
        };
        let (cluster, breakpoint, claimed) = claimed;
        changes.extend(claimed);
        Ok((cluster, breakpoint, changes))
    }

    /// Assigns the breakpoint `id`, which is parked at an agent, to the claim `claim`; `None`: it is not parked, or a
    /// session of this relay holds it already.
    pub(in crate::ray::registry) fn take_over(
        &mut self,
        id: BreakpointId,
        claim: u64,
        now: Now,
    ) -> Option<Claimed> {
        let (cluster, key) = self.find(id)?;
        let entry = self.clusters[cluster].entries.get_mut(&key)?;
        let step = entry.hold.take_over(claim)?;
        self.claimed(cluster, &key, step, now)
    }

    /// Completes a claim of `key` that resulted in `step`.
    fn claimed(
        &mut self,
        cluster: Cluster,
        key: &str,
        step: MergeStep,
        now: Now,
    ) -> Option<Claimed> {
        let changes = self.step(cluster, key, step, now);
        let entry = self.clusters[cluster].entries.get(key)?;
        Some((cluster, Arc::clone(entry.breakpoint()), changes))
    }

    /// Shows `holder` as the holder of `key` under `claim`.
    pub(in crate::ray::registry) fn held_by(
        &mut self,
        cluster: Cluster,
        key: &str,
        claim: u64,
        holder: Holder,
        now: Now,
    ) -> Changes {
        self.change(cluster, key, now, |hold| hold.show(claim, holder))
    }

    /// Releases a claimed breakpoint; `ran`: its task may have resumed, so that it is over until a poll shows it
    /// paused again. Otherwise it waits as before, as the same stop.
    pub(in crate::ray::registry) fn release_claim(
        &mut self,
        cluster: Cluster,
        key: &str,
        claim: u64,
        ran: bool,
        now: Now,
    ) -> Changes {
        self.change(cluster, key, now, |hold| hold.release(claim, ran))
    }

    /// Applies `update` to the remote reports. Returns the clusters in which a hold has ended, too.
    pub(in crate::ray::registry) fn update_remote(
        &mut self,
        update: impl FnOnce(&mut RemoteHolds) -> Touched,
        now: Now,
    ) -> (Changes, BTreeSet<Cluster>) {
        let (mut changes, mut over) = (Changes::new(), BTreeSet::new());
        for hold in update(&mut self.remote) {
            let Some(cluster) = self.cluster_of(&hold) else {
                continue;
            };
            changes.extend(self.list_entered(cluster, &hold, now));
            for key in self.clusters[cluster].keys_of(&hold) {
                let joined = self.join_remote(cluster, &key, now);
                if joined.iter().any(|(change, _)| *change == Change::Released) {
                    over.insert(cluster);
                }
                changes.extend(joined);
            }
        }
        (changes, over)
    }

    /// Lists the breakpoint of `hold` that Ray has forgotten because it was entered, if others report it as parked and
    /// describe it.
    fn list_entered(&mut self, cluster: Cluster, hold: &RemoteHold, now: Now) -> Changes {
        let read = || {
            let entered = hold.held.parked.as_ref()?.entered.as_deref()?;
            Some(EnteredBreakpoint::read(entered)?.breakpoint())
        };
        let state = &self.clusters[cluster];
        let reported = hold.held.kind.is_registered() && self.remote.iter().any(|one| one == hold);
        let fits = |breakpoint: &Breakpoint| {
            breakpoint.worker().is(&hold.node, &hold.held)
                && !state.is_full()
                && !state.entries.contains(breakpoint.key())
        };
        match read().filter(|breakpoint| reported && fits(breakpoint)) {
            Some(breakpoint) => self.insert(cluster, breakpoint, now),
            None => Changes::new(),
        }
    }

    /// The remote reports of holds.
    pub(in crate::ray::registry) fn remote(&self) -> &RemoteHolds {
        &self.remote
    }

    /// The listed breakpoint of `hold`; `None` if it is not listed, or if there are several candidates.
    pub(in crate::ray::registry) fn listed(&self, hold: &RemoteHold) -> Option<&Arc<Breakpoint>> {
        let state = &self.clusters[self.cluster_of(hold)?];
        match &*state.keys_of(hold) {
            [key] => Some(state.entries.get(key)?.breakpoint()),
            _ => None,
        }
    }

    /// Remote holds without a listed breakpoint. Legacy breakpoints are excluded: Ray forgets them once they are
    /// entered.
    pub(in crate::ray::registry) fn unlisted(&self) -> Vec<RemoteHold> {
        let is_unlisted = |hold: &&RemoteHold| {
            !hold.held.kind.is_registered()
                && self.cluster_of(hold).is_some()
                && self.listed(hold).is_none()
        };
        self.remote.iter().filter(is_unlisted).cloned().collect()
    }

    fn cluster_of(&self, hold: &RemoteHold) -> Option<Cluster> {
        let mut clusters = self.clusters.iter();
        clusters.position(|cluster| cluster.name == hold.node.cluster)
    }

    /// Merges the remote hold of `key`.
    pub(super) fn join_remote(&mut self, cluster: Cluster, key: &str, now: Now) -> Changes {
        let state = &mut self.clusters[cluster];
        let Some(entry) = state.entries.get(key) else {
            return Changes::new();
        };
        let remote = self.remote.of(&entry.breakpoint().worker());
        // If several could be meant, it is not known which.
        let remote = remote.filter(|hold| state.keys_of(hold).len() == 1);
        let remote = remote.cloned();
        self.change(cluster, key, now, |hold| hold.set_remote(remote))
    }

    /// Applies a step to `key`'s hold, and updates the list and the events.
    fn change(
        &mut self,
        cluster: Cluster,
        key: &str,
        now: Now,
        step: impl FnOnce(&mut Hold) -> MergeStep,
    ) -> Changes {
        let entry = self.clusters[cluster].entries.get_mut(key);
        let step = entry.map_or(MergeStep::Same, |entry| step(&mut entry.hold));
        self.step(cluster, key, step, now)
    }

    /// Updates the list and the events after a step of `key`'s hold.
    fn step(&mut self, cluster: Cluster, key: &str, step: MergeStep, now: Now) -> Changes {
        let state = &mut self.clusters[cluster];
        let Some(entry) = state.entries.get_mut(key) else {
            return Changes::new();
        };
        let (life, change) = match step {
            MergeStep::Same => return Changes::new(),
            MergeStep::Over if entry.unreachable.is_none() => {
                state.gone.insert(key.to_owned(), now.instant);
                if entry.unexplained && state.unexplained.len() < MAX_UNEXPLAINED_WORKERS {
                    let until = now.instant + UNEXPLAINED;
                    state.unexplained.insert(key.to_owned(), until);
                }
                let mut changes = Changes::new();
                self.release(cluster, key, now, &mut changes);
                return changes;
            }
            MergeStep::Held(holder) => held(entry, holder, now),
            // If nothing listens, no client can have detached it: it is unchanged, or another's.
            MergeStep::Free | MergeStep::Over => match entry.hold.holder().cloned() {
                Some(holder) => held(entry, holder, now),
                None => free(entry, now),
            },
        };
        let next = Breakpoint {
            state: life,
            ..Breakpoint::clone(entry.breakpoint())
        };
        self.dirty = true;
        let next = state.entries.set(key, next);
        next.map(|breakpoint| (change, breakpoint))
            .into_iter()
            .collect()
    }
}

/// The state of `entry` while `holder` has it.
fn held(entry: &mut Entry, holder: Holder, now: Now) -> (Life, Change) {
    if entry.breakpoint().holder().is_none() {
        entry.since = now.instant;
    }
    let change = match holder.parked_until {
        Some(_) => Change::Parked,
        None => Change::Attached,
    };
    (Life::Attached(holder), change)
}

/// The state of `entry` when it is free again.
fn free(entry: &mut Entry, now: Now) -> (Life, Change) {
    entry.since = now.instant;
    let life = entry.free();
    let change = match life {
        Life::Unreachable { .. } => Change::Unreachable,
        _ => Change::Appeared,
    };
    (life, change)
}

impl ClusterState {
    /// The keys of the breakpoints that `hold` may be about. For a legacy one of Ray before 2.40, which does not
    /// report its node, there may be several.
    fn keys_of(&self, hold: &RemoteHold) -> Vec<Arc<str>> {
        let is_it = |breakpoint: &Breakpoint| breakpoint.worker().is(&hold.node, &hold.held);
        match hold.held.kind.is_registered() {
            true => {
                let fitting = self.entries.iter();
                let fitting = fitting.filter(|(_, entry)| is_it(entry.breakpoint()));
                fitting.map(|(key, _)| Arc::clone(key)).collect()
            }
            false => {
                let key: Arc<str> = (&*hold.held.worker_id).into();
                let entry = self.entries.get(&key);
                let fits = entry.is_some_and(|entry| is_it(entry.breakpoint()));
                fits.then_some(key).into_iter().collect()
            }
        }
    }
}
