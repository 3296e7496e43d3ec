//! Timeouts of a job's collectives (NCCL, Gloo) that wait for a paused task of it.
//!
//! Ray knows nothing of collectives. So the job or the configuration sets the limit, and it counts from the stop: the
//! waiting collectives began no earlier than about then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::ray::registry::{Breakpoint, Snapshot, State};
use ray_relay_base::timestamp::Timestamp;

/// A cluster and one of its jobs.
pub type JobOf<'a> = (&'a str, &'a str);

/// The paused tasks of one job, while its others may wait for them.
#[derive(Debug, Clone)]
pub struct CollectiveTimeout<'a> {
    /// The one that has been paused longest, whose limit it is.
    pub first: &'a Arc<Breakpoint>,
    /// When the timeout of the waiting tasks ends.
    pub ends: Timestamp,
    /// The limit.
    pub limit: Duration,
}

impl Breakpoint {
    /// Whether it is paused, and no connected client could resume it at any moment.
    fn is_unattended(&self) -> bool {
        match &self.state {
            State::Paused | State::Unreachable { .. } => true,
            State::Attached(holder) => holder.parked_until.is_some(),
            State::Unlisted | State::Released { .. } | State::Died { .. } => false,
        }
    }

    /// When the collectives that wait for it time out, if it has a limit and is paused.
    pub fn collective_ends(&self) -> Option<Timestamp> {
        let limit = self
            .names
            .collective_timeout
            .filter(|_| self.is_unattended())?;
        Some(self.first_seen.after(limit))
    }
}

impl Snapshot {
    /// The jobs with paused tasks that `count` accepts, and a limit, each with its earliest timeout.
    pub fn collective_timeouts(
        &self,
        count: impl Fn(&Breakpoint) -> bool,
    ) -> BTreeMap<JobOf<'_>, CollectiveTimeout<'_>> {
        let mut jobs: BTreeMap<JobOf<'_>, CollectiveTimeout<'_>> = BTreeMap::new();
        for one in self.live.iter().filter(|one| count(one)) {
            let (Some(job), Some(limit)) = (&one.names.job_id, one.names.collective_timeout) else {
                continue;
            };
            let Some(ends) = one.collective_ends() else {
                continue;
            };
            let first = CollectiveTimeout {
                first: one,
                ends,
                limit,
            };
            let known = jobs
                .entry((&one.cluster, job))
                .or_insert_with(|| first.clone());
            if ends < known.ends {
                *known = first;
            }
        }
        jobs
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::ray::testing::{paused, snapshot};
    use ray_relay_base::timestamp::testing::at;

    fn rank(n: u8, job: &str, since: u64, limit: u64) -> Breakpoint {
        let mut rank = paused("step", n);
        rank.first_seen = at(since);
        rank.names_mut().job_id = Some(job.to_owned());
        rank.names_mut().collective_timeout = Some(Duration::from_secs(limit));
        rank
    }

    #[test]
    fn first_collective_timeout_counts_without_held_tasks() {
        let mut held = rank(4, "01000000", 10, 60);
        held.state = State::Attached(crate::ray::registry::Holder {
            since: at(20),
            ..crate::ray::registry::Holder::here(1, None, "an editor", None)
        });
        let mut unlimited = rank(5, "03000000", 10, 60);
        unlimited.names_mut().collective_timeout = None;
        let list = snapshot(vec![
            rank(1, "01000000", 100, 600),
            rank(2, "01000000", 50, 600),
            rank(3, "02000000", 10, 60),
            held.clone(),
            unlimited,
        ]);
        let jobs = list.collective_timeouts(|_| true);
        let timeouts: Vec<_> = jobs
            .iter()
            .map(|(job, timeout)| (job.1, timeout.ends, timeout.limit))
            .collect();
        let secs = Duration::from_secs;
        assert_eq!(
            timeouts,
            [
                ("01000000", at(650), secs(600)),
                ("02000000", at(70), secs(60))
            ]
        );
        // A parked task is paused, so its collective counts.
        if let State::Attached(holder) = &mut held.state {
            holder.parked_until = Some(at(9000));
        }
        assert_eq!(snapshot(vec![held]).collective_timeouts(|_| true).len(), 1);
    }
}
