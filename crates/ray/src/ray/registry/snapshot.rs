//! The list of breakpoints at one moment: immutable, swapped whole, read by all.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ray::registry::breakpoint::{Breakpoint, BreakpointId};
use crate::ray::registry::list::List;

/// Characters of a whole worker id.
pub(super) const WORKER_ID: usize = 56;

/// How a cluster's head answered last.
#[derive(Debug, Clone)]
pub struct ClusterStatus {
    /// Name in the configuration, or `NAMESPACE.NAME` of a cluster that was found.
    pub name: Arc<str>,
    /// The RayJob that the cluster was made for, where one was.
    pub ray_job: Option<Arc<str>>,
    /// `ray_version` of `/api/version`, once known.
    pub ray_version: Option<String>,
    /// When the last poll that succeeded was answered; `None` before the first.
    pub polled: Option<Instant>,
    /// Why the last poll failed, as a sentence with the next step; `None` while polls succeed.
    pub trouble: Option<String>,
    /// It was found, and its head does not serve yet: so says what found it.
    pub pending: bool,
    /// Why the list lacks some breakpoints although polls succeed, as a sentence with the next step.
    pub incomplete: Option<String>,
}

/// How clusters beside those of the configuration are looked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Search {
    /// Where, in words.
    pub scope: Arc<str>,
    /// The same for who may not know of everything there.
    pub brief: Arc<str>,
    /// Why that is less than what is asked for, as a sentence with the next step.
    pub narrowed: Option<Arc<str>>,
    /// What is new cannot be told. Why stands in the list as a cluster of its own, for who may know of that.
    pub is_blind: bool,
    /// Those that were found and are not watched, in the order of their names.
    pub left_out: Vec<LeftOut>,
}

/// A cluster that was found and is not watched.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeftOut {
    /// `NAMESPACE.NAME`.
    pub name: Arc<str>,
    /// Why it is not.
    pub why: Arc<str>,
}

/// All breakpoints of all clusters at one moment. Cheap to clone: what has not changed is shared with the list before.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Paused and attached ones, the one that has waited longest first.
    pub live: List,
    /// Those that ended a short while ago, newest first, bounded: for a good answer to a client
    /// that comes too late.
    pub ended: Arc<[Arc<Breakpoint>]>,
    /// State of each cluster, those of the configuration first and in its order; the first of them is the default cluster. The
    /// others are in the order of their names.
    pub clusters: Arc<[ClusterStatus]>,
    /// How others are looked for; `None`: they are not.
    pub search: Option<Arc<Search>>,
}

impl Snapshot {
    /// The live breakpoint `id`.
    pub fn find(&self, id: BreakpointId) -> Option<&Arc<Breakpoint>> {
        self.live.find(id)
    }

    /// The id of the breakpoint of `worker`, where that is a whole worker id: of the cluster that has it in this list, or else
    /// of the first.
    pub fn id_of(&self, worker: &str) -> Option<BreakpointId> {
        let is_whole = worker.len() == WORKER_ID;
        let ids = || {
            let clusters = self.clusters.iter().filter(|_| is_whole);
            clusters.map(|cluster| BreakpointId::derive(&cluster.name, worker))
        };
        let listed = ids().find(|id| self.find(*id).is_some());
        listed.or_else(|| ids().next())
    }

    /// The same list with the breakpoint `id` alone, live and ended. Where it is not there the first one stands in for it, so
    /// that as many are judged for a principal that names one whether or not there is such a one.
    pub fn of_one(&self, id: BreakpointId) -> Arc<Self> {
        let live = self.find(id).or_else(|| self.live.first());
        let ended = self.find_ended(id).or_else(|| self.ended.first());
        self.with(live, ended)
    }

    /// The same list with the breakpoint `id` alone, live and ended, where it is there.
    pub fn only(&self, id: BreakpointId) -> Arc<Self> {
        self.with(self.find(id), self.find_ended(id))
    }

    fn with(&self, live: Option<&Arc<Breakpoint>>, ended: Option<&Arc<Breakpoint>>) -> Arc<Self> {
        Arc::new(Self {
            live: live.cloned().into_iter().collect(),
            ended: ended.cloned().into_iter().collect(),
            clusters: Arc::clone(&self.clusters),
            search: self.search.clone(),
        })
    }

    /// Those that sessions hold.
    pub fn held(&self) -> impl Iterator<Item = &Arc<Breakpoint>> {
        // They are the last ones ([`Breakpoint::order`]).
        let held = self.live.iter().rev();
        held.take_while(|b| b.holder().is_some())
    }

    /// The breakpoint `id` if it ended a short while ago.
    pub fn find_ended(&self, id: BreakpointId) -> Option<&Arc<Breakpoint>> {
        self.ended.iter().find(|b| b.id == id)
    }

    /// Those that a debugger could attach to now, the one that has waited longest first.
    pub fn paused(&self) -> impl Iterator<Item = &Arc<Breakpoint>> {
        self.live.iter().filter(|b| b.is_paused())
    }

    /// Age of the oldest cluster's last good answer; `None` while one has never answered.
    pub fn age(&self, now: Instant) -> Option<Duration> {
        self.clusters
            .iter()
            .map(|c| c.polled.map(|at| now.saturating_duration_since(at)))
            .try_fold(Duration::ZERO, |oldest, age| Some(oldest.max(age?)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::ray::registry::BreakpointId;
    use crate::ray::testing::{paused, snapshot};

    #[test]
    fn a_whole_worker_id_names_one_breakpoint_and_another_stands_in_where_there_is_none() {
        let (first, second) = (paused("square", 1), paused("cube", 2));
        let list = snapshot(vec![first.clone(), second.clone()]);
        assert_eq!(list.id_of(&second.worker_id), Some(second.id));
        assert_eq!(list.id_of(&second.worker_id[..20]), None);
        assert!(list.of_one(second.id).live.iter().eq([&second.into()]));
        let unknown = "ff".repeat(28);
        let id = list.id_of(&unknown).unwrap();
        assert_eq!(id, BreakpointId::derive("default", &unknown));
        let alone = list.of_one(id);
        assert!(alone.find(id).is_none() && alone.live.iter().eq([&first.into()]));
    }
}
