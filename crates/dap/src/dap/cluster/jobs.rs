//! How the jobs of announced workers ended, for the console of the cluster session.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use ray_relay_ray::ray::registry::Registry;

/// Jobs that are asked after at once, and jobs that are remembered.
const MAX: (usize, usize) = (8, 1_000);

/// A cluster and one of its jobs.
pub(in crate::dap) type JobName = (Arc<str>, String);

type JobQuery = Pin<Box<dyn Future<Output = (JobName, Option<String>)> + Send>>;

/// Asks after each job once. Lives in the task of its session.
pub(super) struct AskedJobs {
    registry: Registry,
    /// Told, or asked after now.
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

    /// A worker of `job` is gone: has it ended?
    pub(super) fn ask(&mut self, job: JobName) {
        if self.asking.len() >= MAX.0 || self.known.len() >= MAX.1 || self.known.contains(&job) {
            return;
        }
        self.known.insert(job.clone());
        let registry = self.registry.clone();
        self.asking.push(Box::pin(async move {
            let end = registry.job_end(&job.0, &job.1).await;
            (job, end)
        }));
    }

    /// Resolves with a sentence for each job that has ended, never where none is asked after. Cancel safe.
    pub(super) async fn ended(&mut self) -> String {
        loop {
            match self.asking.next().await {
                Some((_, Some(end))) => return end,
                // It runs on without that worker.
                Some((job, None)) => _ = self.known.remove(&job),
                None => std::future::pending().await,
            }
        }
    }
}
