//! The list of breakpoints at one moment: immutable, swapped whole, read by all.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ray::registry::breakpoint::{Breakpoint, BreakpointId};
use crate::ray::registry::list::List;

/// Characters of a whole worker id.
pub(super) const WORKER_ID: usize = 56;

/// The last response of a cluster's head.
#[derive(Debug, Clone)]
pub struct ClusterStatus {
    /// Name in the configuration, or `NAMESPACE.NAME` of a discovered cluster.
    pub name: Arc<str>,
    /// The RayJob for which the cluster was created, if there is one.
    pub ray_job: Option<Arc<str>>,
    /// `ray_version` of `/api/version`, once known.
    pub ray_version: Option<String>,
    /// When the last successful poll was answered; `None` before the first.
    pub polled: Option<Instant>,
    /// The reason why the last poll failed, as a sentence with the next step; `None` while polls succeed.
    pub trouble: Option<String>,
    /// Whether its head does not serve yet, according to discovery.
    pub pending: bool,
    /// The reason why the list lacks some breakpoints although polls succeed, as a sentence with the next step.
    pub incomplete: Option<String>,
}

/// The state of the search for clusters in addition to those of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Search {
    /// The scope of the search, in words.
    pub scope: Arc<str>,
    /// The scope for users who may not know everything there.
    pub brief: Arc<str>,
    /// The reason why the scope is smaller than requested, as a sentence with the next step.
    pub narrowed: Option<Arc<str>>,
    /// Whether new clusters cannot be discovered. The reason is in the list as a cluster of its own, for users who may
    /// see it.
    pub is_blind: bool,
    /// Clusters that were discovered and are not watched, sorted by name.
    pub left_out: Vec<LeftOut>,
}

/// A cluster that was discovered and is not watched.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeftOut {
    /// `NAMESPACE.NAME`.
    pub name: Arc<str>,
    /// The reason.
    pub why: Arc<str>,
}

/// All breakpoints of all clusters at one moment. Cheap to clone: unchanged parts are shared with the previous list.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Paused and attached ones, the one that has waited longest first.
    pub live: List,
    /// Recently ended ones, newest first, bounded: for a good answer to a client that comes too late.
    pub ended: Arc<[Arc<Breakpoint>]>,
    /// The state of each cluster, those of the configuration first and in its order; the first of them is the default
    /// cluster. The others are sorted by name.
    pub clusters: Arc<[ClusterStatus]>,
    /// The search for other clusters; `None`: it is off.
    pub search: Option<Arc<Search>>,
}

impl Snapshot {
    /// The live breakpoint `id`.
    pub fn find(&self, id: BreakpointId) -> Option<&Arc<Breakpoint>> {
        self.live.find(id)
    }

    /// The id of the breakpoint of `worker`, if that is a whole worker id: in the cluster that has it in this list,
    /// otherwise in the first.
    pub fn id_of(&self, worker: &str) -> Option<BreakpointId> {
        let is_whole = worker.len() == WORKER_ID;
        let ids = || {
            let clusters = self.clusters.iter().filter(|_| is_whole);
            clusters.map(|cluster| BreakpointId::derive(&cluster.name, worker))
        };
        let listed = ids().find(|id| self.find(*id).is_some());
        listed.or_else(|| ids().next())
    }

    /// The same list with the breakpoint `id` alone, live and ended. If it is missing, the first one takes its place,
    /// so that a permission check takes equally long whether or not it exists.
    pub fn of_one(&self, id: BreakpointId) -> Arc<Self> {
        let live = self.find(id).or_else(|| self.live.first());
        let ended = self.find_ended(id).or_else(|| self.ended.first());
        self.with(live, ended)
    }

    /// The same list with the breakpoint `id` alone, live and ended, if it is there.
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

    /// The breakpoints that sessions hold.
    pub fn held(&self) -> impl Iterator<Item = &Arc<Breakpoint>> {
        // They come last ([`Breakpoint::order`]).
        let held = self.live.iter().rev();
        held.take_while(|b| b.holder().is_some())
    }

    /// The breakpoint `id` if it ended a short while ago.
    pub fn find_ended(&self, id: BreakpointId) -> Option<&Arc<Breakpoint>> {
        self.ended.iter().find(|b| b.id == id)
    }

    /// The breakpoints to which a debugger could attach now, the one that has waited longest first.
    pub fn paused(&self) -> impl Iterator<Item = &Arc<Breakpoint>> {
        self.live.iter().filter(|b| b.is_paused())
    }

    /// Age of the oldest cluster's last successful response; `None` while one has never responded.
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
    fn list_of_one_falls_back_to_another_breakpoint() {
        let (first, second) = (paused("square", 1), paused("cube", 2));
        let list = snapshot(vec![first.clone(), second.clone()]);
        assert_eq!(list.id_of(&second.worker_id), Some(second.id));
        assert_eq!(list.id_of(&second.worker_id[..20]), None);
        assert!(list.of_one(second.id).live.iter().eq([&second.into()]));
        let unknown = "ff".repeat(28);
        let id = list.id_of(&unknown).unwrap();
        assert_eq!(id, BreakpointId::derive("default", &unknown));
        let single = list.of_one(id);
        assert!(single.find(id).is_none() && single.live.iter().eq([&first.into()]));
    }
}
