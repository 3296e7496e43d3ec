//! The outcome of a job, queried when its workers have ended.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::ray::registry::rows::JobRow;
use crate::ray::registry::{Registry, query};
use ray_relay_base::wire::text::one_line;

/// How long the head may take to know: the supervisor of a submitted job checks its driver once a second.
const JOB_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause between two queries for the job.
const QUERY_PAUSE: Duration = Duration::from_secs(1);

impl Registry {
    /// The outcome of `job` of `cluster`, as part of a sentence: `job 02000000 has ended`, and with the status if Ray
    /// knows it (`raysubmit_k3f (job 02000000) has ended: SUCCEEDED`). `None` if it runs on, or the head does not tell
    /// within ten seconds. Cancel safe.
    pub async fn job_end(&self, cluster: &str, job: &str) -> Option<String> {
        let head = self.shared.clusters.named(cluster)?.head.clone()?;
        let until = Instant::now() + JOB_TIMEOUT;
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
            sleep(QUERY_PAUSE).await;
        }
    }
}

fn end(row: &JobRow) -> Option<String> {
    let over = matches!(row.status.as_str(), "SUCCEEDED" | "FAILED" | "STOPPED");
    let job = one_line(&row.job_id);
    over.then(|| match one_line(&row.submission_id) {
        // Ray does not know the outcome of a driver that was not submitted, but claims to.
        none if none.is_empty() => format!("job {job} has ended"),
        submission => format!("{submission} (job {job}) has ended: {}", row.status),
    })
}
