//! Jobs: which one a name stands for, and the outcome of one whose workers have ended.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use crate::ray::head::{HeadClient, HeadError};
use crate::ray::registry::breakpoint::Names;
use crate::ray::registry::names::submitter_of;
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

    /// Its names and its cluster, for messages about several jobs.
    pub fn described(&self) -> String {
        let cluster = &self.cluster;
        match (&self.submission_id, &self.job_id) {
            (Some(submission), Some(id)) => format!("{submission} (job {id}) on {cluster}"),
            (Some(one), None) | (None, Some(one)) => format!("{one} on {cluster}"),
            (None, None) => format!("a job on {cluster}"),
        }
    }

    /// Whether `name` is its job id or its submission id.
    pub fn has_id(&self, name: &str) -> bool {
        self.id_kind(name).is_some()
    }

    fn id_kind(&self, name: &str) -> Option<NameKind> {
        if self.job_id.as_deref() == Some(name) {
            return Some(NameKind::JobId);
        }
        (self.submission_id.as_deref() == Some(name)).then_some(NameKind::SubmissionId)
    }

    /// Whether both are the same job of the same cluster.
    pub fn is(&self, other: &Self) -> bool {
        self.job_id.is_some() && (&self.cluster, &self.job_id) == (&other.cluster, &other.job_id)
    }
}

/// Which of a job's names it was called by. The first takes precedence: users choose the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameKind {
    /// Ray's job id.
    JobId,
    /// The id that it was submitted with.
    SubmissionId,
    /// The name of a Ray Train run.
    TrainRun,
}

/// A job that a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CalledJob {
    /// The job.
    pub job: Job,
    /// By which of its names.
    pub by: NameKind,
}

/// The jobs that a name stands for.
#[derive(Debug, Default)]
pub struct JobsCalled {
    /// In any order, each once.
    pub jobs: Vec<CalledJob>,
    /// Why a head did not answer, as a sentence: there may be more.
    pub trouble: Option<String>,
}

impl Registry {
    /// The jobs of the clusters `on` that have `name` as their job id or submission id. Those that have ended are
    /// included, as long as Ray lists them or the relay lists their tasks. The caller bounds the wait. Cancel safe.
    pub async fn jobs_with_id(&self, name: &str, on: impl Fn(&str) -> bool) -> JobsCalled {
        self.jobs_called(name, false, on).await
    }

    /// The same of the jobs that have a Ray Train run called `name`.
    pub async fn jobs_of_run(&self, name: &str, on: impl Fn(&str) -> bool) -> JobsCalled {
        self.jobs_called(name, true, on).await
    }

    /// The running jobs of the clusters `on` that the principal `submitter` has submitted through a relay, as far as
    /// the heads tell. Cancel safe.
    pub async fn jobs_submitted_by(&self, submitter: &str, on: impl Fn(&str) -> bool) -> Vec<Job> {
        let mut clusters = self.shared.clusters.present();
        clusters.retain(|cluster| on(&cluster.name));
        let answers = join_all(clusters.iter().map(|cluster| async {
            let rows = query::jobs(cluster.head.as_ref()?).await.ok()?;
            let own = rows
                .iter()
                .filter(|row| !row.ended() && submitter_of(row).as_deref() == Some(submitter));
            let own = own.map(|row| Job::of_row(&cluster.name, row));
            Some(own.collect::<Vec<_>>())
        }));
        answers.await.into_iter().flatten().flatten().collect()
    }

    /// Whether the head of its cluster tells that `job`, with its job id, has ended: it lists it so, does not list it, or
    /// lists another job of that id (a head that was restarted counts anew). Cancel safe.
    pub async fn has_ended(&self, job: &Job) -> bool {
        let cluster = self.shared.clusters.named(&job.cluster);
        let Some(head) = cluster.and_then(|cluster| cluster.head.clone()) else {
            return false;
        };
        // A head that does not answer leaves it open.
        let Ok(rows) = query::jobs(&head).await else {
            return false;
        };
        let listed = rows.iter().map(|row| Job::of_row(&job.cluster, row));
        let mut same = listed.filter(|one| one.is(job));
        let is_running = |one: Job| !one.ended && one.submission_id == job.submission_id;
        !same.any(is_running)
    }

    async fn jobs_called(&self, name: &str, run: bool, on: impl Fn(&str) -> bool) -> JobsCalled {
        let mut found = JobsCalled {
            jobs: self.listed_jobs(name, run, &on),
            trouble: None,
        };
        let mut clusters = self.shared.clusters.present();
        clusters.retain(|cluster| on(&cluster.name));
        let answers = join_all(clusters.iter().map(|cluster| async {
            let head = cluster.head.as_ref()?;
            let called = match run {
                true => jobs_of_run(head, &cluster.name, name).await,
                false => jobs_with_id(head, &cluster.name, name).await,
            };
            Some((&cluster.name, called))
        }));
        for (cluster, answer) in answers.await.into_iter().flatten() {
            match answer {
                Ok(called) => {
                    // The head knows more of them, such as whether they have ended.
                    let is_of_head = |known: &CalledJob| {
                        let mut called = called.iter();
                        called.any(|one| one.job.is(&known.job))
                    };
                    found.jobs.retain(|known| !is_of_head(known));
                    found.jobs.extend(called);
                }
                Err(why) => found.trouble = Some(format!("cluster {cluster}: {why}")),
            }
        }
        found
    }

    /// The jobs called `name` whose tasks the relay lists. One has ended if none of its tasks is paused.
    fn listed_jobs(&self, name: &str, run: bool, on: impl Fn(&str) -> bool) -> Vec<CalledJob> {
        let list = self.snapshot();
        let live = list.live.iter().map(|one| (one, false));
        let all = live.chain(list.ended.iter().map(|one| (one, true)));
        let mut found: Vec<CalledJob> = Vec::new();
        for (one, ended) in all.filter(|(one, _)| on(&one.cluster)) {
            let Some(job) = Job::of_names(&one.cluster, &one.names) else {
                continue;
            };
            let is_of_run = one.names.train_run.as_deref() == Some(name);
            let by = match run {
                true => is_of_run.then_some(NameKind::TrainRun),
                false => job.id_kind(name),
            };
            let is_new = found.iter().all(|known| !known.job.is(&job));
            if let Some(by) = by.filter(|_| is_new) {
                let job = Job { ended, ..job };
                found.push(CalledJob { job, by });
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

/// The jobs of `head` with `name` as their job id or submission id.
async fn jobs_with_id(
    head: &HeadClient,
    cluster: &Arc<str>,
    name: &str,
) -> Result<Vec<CalledJob>, HeadError> {
    let rows = query::jobs(head).await?;
    let jobs = rows.iter().map(|row| Job::of_row(cluster, row));
    let called = jobs.filter_map(|job| {
        Some(CalledJob {
            by: job.id_kind(name)?,
            job,
        })
    });
    Ok(called.collect())
}

/// The jobs of `head` with a Ray Train run called `name`.
async fn jobs_of_run(
    head: &HeadClient,
    cluster: &Arc<str>,
    name: &str,
) -> Result<Vec<CalledJob>, HeadError> {
    let mut runs = query::train_runs(head).await?;
    runs.retain(|run| run.name == name && !run.job_id.is_empty());
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let rows = query::jobs(head).await?;
    let is_of_run = |row: &&JobRow| runs.iter().any(|run| run.job_id == row.job_id);
    let called = rows.iter().filter(is_of_run).map(|row| CalledJob {
        job: Job::of_row(cluster, row),
        by: NameKind::TrainRun,
    });
    Ok(called.collect())
}

fn end(row: &JobRow) -> Option<String> {
    let job = one_line(&row.job_id);
    row.ended().then(|| match one_line(&row.submission_id) {
        // Ray does not know the outcome of a driver that was not submitted, but claims to.
        none if none.is_empty() => format!("job {job} has ended"),
        submission => format!("{submission} (job {job}) has ended: {}", row.status),
    })
}
