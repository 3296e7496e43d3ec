//! Which jobs are asked for one by one, and how a job ended, asked when its workers have.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::ray::registry::rows::JobRow;
use crate::ray::registry::{Registry, query};
use crate::wire::text::one_line;

/// How long the head may take to know: the supervisor of a submitted job looks after its driver once a second.
const PATIENCE: Duration = Duration::from_secs(10);

/// Jobs that are asked for one by one where a head has more tasks than it tells at once.
const MAX_JOBS: usize = 20;

/// The pause between two questions for the job.
const PAUSE: Duration = Duration::from_secs(1);

impl Registry {
    /// How `job` of `cluster` ended, as part of a sentence: `job 02000000 has ended`, and where Ray can know it how
    /// (`raysubmit_k3f (job 02000000) has ended: SUCCEEDED`). `None` where it runs on, or the head does not say within ten
    /// seconds. Cancel safe.
    pub async fn job_end(&self, cluster: &str, job: &str) -> Option<String> {
        let head = self.shared.clusters.named(cluster)?.head.clone()?;
        let until = Instant::now() + PATIENCE;
        loop {
            match query::jobs(&head).await {
                Ok(rows) => {
                    let end = rows.iter().find(|row| row.job_id == job).and_then(end);
                    if end.is_some() {
                        return end;
                    }
                }
                Err(error) => tracing::debug!(%error, "cannot ask how a job ended"),
            }
            if Instant::now() >= until {
                return None;
            }
            sleep(PAUSE).await;
        }
    }
}

/// Those of `jobs` that run, the newest first, as many as are asked for one by one; and whether that is all.
pub(super) fn newest_running(jobs: &[JobRow]) -> (Vec<JobRow>, bool) {
    let runs = |job: &&JobRow| job.status == "RUNNING" && !job.job_id.is_empty();
    let mut running: Vec<&JobRow> = jobs.iter().filter(runs).collect();
    // Job ids count up.
    running.sort_by(|a, b| b.job_id.cmp(&a.job_id));
    let all = running.len() <= MAX_JOBS;
    (running.into_iter().take(MAX_JOBS).cloned().collect(), all)
}

fn end(row: &JobRow) -> Option<String> {
    let over = matches!(row.status.as_str(), "SUCCEEDED" | "FAILED" | "STOPPED");
    let job = one_line(&row.job_id);
    over.then(|| match one_line(&row.submission_id) {
        // Ray does not know how a driver of its own went, and says that it did.
        none if none.is_empty() => format!("job {job} has ended"),
        submission => format!("{submission} (job {job}) has ended: {}", row.status),
    })
}
