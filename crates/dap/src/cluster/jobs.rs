//! Reports how the jobs of announced workers ended, in the console of the cluster session.

use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use ray_relay_debugger::pdb::ComparisonKey;
use ray_relay_ray::ray::registry::{Breakpoint, Registry};
use ray_relay_session::armed::WholeJob;

/// Concurrent job queries, and remembered jobs.
const MAX_JOBS: (usize, usize) = (8, 1_000);

/// A job of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct JobName {
    pub(crate) cluster: Arc<str>,
    /// Its id.
    pub(crate) id: String,
}

impl JobName {
    /// The job of `breakpoint`, if known.
    pub(super) fn of(breakpoint: &Breakpoint) -> Option<Self> {
        Some(Self {
            id: breakpoint.names.job_id.clone()?,
            cluster: Arc::clone(&breakpoint.cluster),
        })
    }

    pub(super) fn of_job(job: &WholeJob) -> Self {
        Self {
            id: job.job_id.clone(),
            cluster: Arc::clone(&job.cluster),
        }
    }
}

/// Keys by which the answers to one request are compared, one for each job: with a shared key, a job's tasks could
/// guess the values of another's.
#[derive(Default)]
pub(super) struct JobKeys(HashMap<JobName, ComparisonKey>);

impl JobKeys {
    /// The key of `job`; for an unknown job a new one each time.
    pub(super) fn of(&mut self, job: Option<JobName>) -> ComparisonKey {
        match job {
            Some(job) => *self.0.entry(job).or_insert_with(ComparisonKey::draw),
            None => ComparisonKey::draw(),
        }
    }
}

type JobQuery = Pin<Box<dyn Future<Output = (JobName, Option<String>)> + Send>>;

/// Queries each job once. Lives in the task of its session.
pub(super) struct AskedJobs {
    registry: Registry,
    /// Jobs that are reported, or queried now.
    known: HashSet<JobName>,
    asking: FuturesUnordered<JobQuery>,
}

impl AskedJobs {
    pub(super) fn new(registry: Registry) -> Self {
        Self {
            registry,
            known: HashSet::new(),
            asking: FuturesUnordered::new(),
        }
    }

    /// A worker of `job` is gone: queries whether the job has ended.
    pub(super) fn ask(&mut self, job: JobName) {
        if self.asking.len() >= MAX_JOBS.0
            || self.known.len() >= MAX_JOBS.1
            || self.known.contains(&job)
        {
            return;
        }
        self.known.insert(job.clone());
        let registry = self.registry.clone();
        self.asking.push(Box::pin(async move {
            let end = registry.job_end(&job.cluster, &job.id).await;
            (job, end)
        }));
    }

    /// Resolves with a sentence for each job that has ended; never without a query. Cancel safe.
    pub(super) async fn ended(&mut self) -> String {
        loop {
            match self.asking.next().await {
                Some((_, Some(end))) => return end,
                // The job continues without that worker.
                Some((job, None)) => _ = self.known.remove(&job),
                None => std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_job_has_a_separate_key() {
        let job = |cluster: &str, id: &str| {
            Some(JobName {
                cluster: cluster.into(),
                id: id.to_owned(),
            })
        };
        let mut keys = JobKeys::default();
        let key = keys.of(job("a", "01000000"));
        assert!(key == keys.of(job("a", "01000000")));
        for other in [job("a", "02000000"), job("b", "01000000"), None] {
            assert!(key != keys.of(other));
        }
        assert!(keys.of(None) != keys.of(None));
    }
}
