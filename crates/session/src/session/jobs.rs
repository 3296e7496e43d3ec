//! Finds the job that a user names, among those that the user may know of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::visible::{SEEING_SCOPES, visible};
use ray_relay_access::identity::Principal;
use ray_relay_base::wire::text::{one_line, shortened};
use ray_relay_ray::ray::registry::{
    Job, JobsCalled, Names, Registry, Running, RunningQuery, WorkKind,
};

/// Longest name in an error, in characters.
const MAX_NAME_CHARS: usize = 80;

/// Jobs that an error names one by one.
const MAX_NAMED_JOBS: usize = 8;

/// Why a name stands for no job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoJob {
    /// There is none, or the user may not know of it.
    #[error(
        "no job is called {0}; name it by its submission id, its job id or the name of a Ray Train run"
    )]
    Unknown(String),
    /// A Ray Train run of that name was started several times, and these are running.
    #[error("several jobs run {name}: {jobs}; name one of them")]
    Several {
        /// The name.
        name: String,
        /// The names of the jobs.
        jobs: String,
    },
    /// A head did not answer.
    #[error("the relay cannot tell whether there is a job called {name}: {trouble}")]
    Unclear {
        /// The name.
        name: String,
        /// The reason, as a sentence.
        trouble: String,
    },
}

/// Finds the jobs that `name` stands for: in each cluster the one that runs, and those that have ended. A job that
/// `principal` may not know of is treated as missing. The caller bounds the wait. Cancel safe.
///
/// # Errors
/// [`NoJob`].
pub async fn find_jobs(
    registry: &Registry,
    principal: &Principal,
    name: &str,
) -> Result<Vec<Job>, NoJob> {
    let found = registry.jobs_called(name, |cluster| sees_some(principal, cluster));
    let JobsCalled { jobs, trouble } = found.await;
    let list = visible(principal, &registry.snapshot());
    let is_listed = |job: &Job| {
        let mut tasks = list.live.iter().chain(list.ended.iter());
        tasks.any(|one| one.cluster == job.cluster && one.names.job_id == job.job_id)
    };
    let by_policy = |job: &&Job| is_listed(job) || sees(principal, &nothing_of(job));
    let mut known: Vec<Job> = jobs.iter().filter(by_policy).cloned().collect();
    if known.is_empty() {
        known = with_seen_tasks(registry, principal, name, &jobs).await;
    }
    let name = shortened(&one_line(name), MAX_NAME_CHARS);
    match (known.is_empty(), trouble) {
        (true, Some(trouble)) => Err(NoJob::Unclear { name, trouble }),
        (true, None) => Err(NoJob::Unknown(name)),
        (false, _) => one_per_cluster(&known, name).map(|()| known),
    }
}

/// Those of `jobs`, which are called `name`, of which `principal` sees a running task. A name without a job takes as
/// many queries as a hidden job, so that it is answered alike.
async fn with_seen_tasks(
    registry: &Registry,
    principal: &Principal,
    name: &str,
    jobs: &[Job],
) -> Vec<Job> {
    let mut ids: BTreeSet<&str> = jobs
        .iter()
        .filter_map(|job| job.job_id.as_deref())
        .collect();
    if jobs.is_empty() {
        ids.insert(name);
    }
    let mut seen = Vec::new();
    for id in ids {
        let is_there = |job: &Job, cluster: &str| {
            *job.cluster == *cluster && job.job_id.as_deref() == Some(id)
        };
        let on = |cluster: &str| {
            sees_some(principal, cluster)
                && (jobs.is_empty() || jobs.iter().any(|job| is_there(job, cluster)))
        };
        let query = RunningQuery {
            on: &on,
            job: Some(id),
        };
        for one in registry.running(&query).await {
            let mut rows = one.rows.iter();
            let task = rows.find(|running| sees(principal, running));
            seen.extend(task.and_then(|task| Job::of_names(&one.cluster, &task.names)));
        }
    }
    seen
}

/// # Errors
/// [`NoJob::Several`]: more than one of `jobs` runs in a cluster.
fn one_per_cluster(jobs: &[Job], name: String) -> Result<(), NoJob> {
    let mut running: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for job in jobs.iter().filter(|job| !job.ended) {
        running.entry(&job.cluster).or_default().push(job.name());
    }
    match running.into_values().find(|jobs| jobs.len() > 1) {
        None => Ok(()),
        Some(several) => Err(NoJob::Several {
            name,
            jobs: several[..several.len().min(MAX_NAMED_JOBS)].join(", "),
        }),
    }
}

/// A task of `job` of which nothing else is known: only a rule for all tasks of the job selects it.
fn nothing_of(job: &Job) -> Running {
    Running {
        cluster: Arc::clone(&job.cluster),
        what: WorkKind::Driver,
        group: String::new(),
        names: Names {
            job_id: job.job_id.clone(),
            submission_id: job.submission_id.clone(),
            ..Names::default()
        },
        node_id: String::new(),
        node_ip: None,
        worker_id: String::new(),
        pid: None,
        started: None,
    }
}

fn sees(principal: &Principal, running: &Running) -> bool {
    let rights = principal.access().rights_on_running(running);
    SEEING_SCOPES
        .into_iter()
        .any(|scope| rights.scopes.contains(scope))
}

fn sees_some(principal: &Principal, cluster: &str) -> bool {
    let access = principal.access();
    let mut scopes = SEEING_SCOPES.into_iter();
    scopes.any(|scope| access.may_somewhere_on(scope, cluster))
}
