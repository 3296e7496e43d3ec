//! Jobs: which one a name stands for, and the outcome of one whose workers have ended.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use crate::ray::head::{HeadClient, HeadError};
use crate::ray::registry::breakpoint::Names;
use crate::ray::registry::rows::JobRow;
use crate::ray::registry::{Registry, query};
use ray_relay_base::wire::text::one_line;

/// How long the head may take to know: the supervisor of a submitted job checks its driver once a second.
const JOB_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause between two queries for the job.
const QUERY_PAUSE: Duration = Duration::from_secs(1);

/// A job, and the names that users give it in commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Name of the cluster.
    pub cluster: Arc<str>,
    /// Ray's id, such as `02000000`; `None` until its driver runs.
    pub job_id: Option<String>,
    /// The id that it was submitted with; `None` for a driver that was started by hand.
    pub submission_id: Option<String>,
    /// Whether it has ended.
    pub ended: bool,
}

impl Job {
    /// The job of a task with these `names`; `None` if it is not known.
    pub fn of_names(cluster: &Arc<str>, names: &Names) -> Option<Self> {
        Some(Self {
            cluster: Arc::clone(cluster),
            job_id: Some(names.job_id.clone()?),
            submission_id: names.submission_id.clone(),
            ended: false,
        })
    }

    fn of_row(cluster: &Arc<str>, row: &JobRow) -> Self {
        let known = |id: &str| Some(one_line(id)).filter(|id| !id.is_empty());
        Self {
            cluster: Arc::clone(cluster),
            job_id: known(&row.job_id),
            submission_id: known(&row.submission_id),
            ended: row.ended(),
        }
    }

    /// Its name for users: the submission id, or Ray's job id if there is none.
    pub fn name(&self) -> &str {
        let name = self.submission_id.as_deref().or(self.job_id.as_deref());
        name.unwrap_or_default()
    }
}

/// The jobs that a name stands for.
#[derive(Debug, Default)]
pub struct JobsCalled {
    /// One for each cluster, unless a Ray Train run of that name was started several times.
    pub jobs: Vec<Job>,
    /// Why a head did not answer, as a sentence: there may be more.
    pub trouble: Option<String>,
}

impl Registry {
    /// The jobs of the clusters `on` that `name` stands for, as a job id, a submission id or the name of a Ray Train
    /// run. Those that have ended are included, as long as Ray lists them or the relay lists their tasks. The caller
    /// bounds the wait. Cancel safe.
    pub async fn jobs_called(&self, name: &str, on: impl Fn(&str) -> bool) -> JobsCalled {
        let mut found = JobsCalled::default();
        let list = self.snapshot();
        for one in list.live.iter().chain(list.ended.iter()) {
            let is_new = |job: &Job| {
                let mut known = found.jobs.iter();
                known.all(|other| (&other.cluster, &other.job_id) != (&job.cluster, &job.job_id))
            };
            if on(&one.cluster) && one.names.is_of_job(name) {
                let job = Job::of_names(&one.cluster, &one.names).filter(is_new);
                found.jobs.extend(job);
            }
        }
        let mut clusters = self.shared.clusters.present();
        clusters.retain(|cluster| on(&cluster.name));
        let answers = join_all(clusters.iter().map(|cluster| async {
            let head = cluster.head.as_ref()?;
            Some((&cluster.name, rows_called(head, name).await))
        }));
        for (cluster, answer) in answers.await.into_iter().flatten() {
            match answer {
                Ok(rows) => {
                    // The head knows more of them, such as whether they have ended.
                    let listed = rows.iter().map(|row| Job::of_row(cluster, row));
                    let listed: Vec<Job> = listed.collect();
                    let is_listed = |known: &Job| {
                        listed.iter().any(|job| {
                            (&job.cluster, &job.job_id) == (&known.cluster, &known.job_id)
                        })
                    };
                    found.jobs.retain(|known| !is_listed(known));
                    found.jobs.extend(listed);
                }
                Err(why) => found.trouble = Some(format!("cluster {cluster}: {why}")),
            }
        }
        found
    }

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

/// The jobs of `head` that `name` stands for.
async fn rows_called(head: &HeadClient, name: &str) -> Result<Vec<JobRow>, HeadError> {
    let mut rows = query::jobs(head).await?;
    let is_its_id = |row: &JobRow| row.job_id == name || row.submission_id == name;
    if rows.iter().any(is_its_id) {
        rows.retain(is_its_id);
        return Ok(rows);
    }
    let mut runs = query::train_runs(head).await;
    runs.retain(|run| run.name == name);
    rows.retain(|row| runs.iter().any(|run| run.job_id == row.job_id));
    Ok(rows)
}

fn end(row: &JobRow) -> Option<String> {
    let job = one_line(&row.job_id);
    row.ended().then(|| match one_line(&row.submission_id) {
        // Ray does not know the outcome of a driver that was not submitted, but claims to.
        none if none.is_empty() => format!("job {job} has ended"),
        submission => format!("{submission} (job {job}) has ended: {}", row.status),
    })
}
