//! Finds the job that a user names, among those that the user may know of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::visible::{SEEING_SCOPES, visible};
use ray_relay_access::identity::Principal;
use ray_relay_base::wire::text::{one_line, shortened};
use ray_relay_ray::ray::registry::{
    Breakpoint, CalledJob, Job, JobsCalled, NameKind, Names, Registry, Running, RunningQuery,
    WorkKind, is_job_id,
};

/// Time limit for the heads to list their jobs.
const HEADS_TIMEOUT: Duration = Duration::from_secs(8);

/// Longest name in an error, in characters.
const MAX_NAME_CHARS: usize = 80;

/// Jobs that an error names one by one.
const MAX_NAMED_JOBS: usize = 8;

/// Jobs of one name whose tasks are queried, the newest first.
const MAX_SEEN_JOBS: usize = 8;

/// An id that no job has: Ray counts them up.
const NO_JOB_ID: &str = "ffffffff";

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
/// `principal` may not know of is treated as missing, and then its names do not hide those of others. A job id takes
/// precedence over a submission id, and that over the name of a run. Cancel safe.
///
/// # Errors
/// [`NoJob`], also if the heads take longer than [`HEADS_TIMEOUT`].
pub async fn find_jobs(
    registry: &Registry,
    principal: &Principal,
    name: &str,
) -> Result<Vec<Job>, NoJob> {
    let search = JobSearch {
        registry,
        principal,
        name,
    };
    let found = timeout(HEADS_TIMEOUT, search.called()).await;
    let found = found.unwrap_or_else(|_| JobsCalled {
        jobs: Vec::new(),
        trouble: Some("the Ray heads do not list their jobs in time".to_owned()),
    });
    let name = shortened(&one_line(name), MAX_NAME_CHARS);
    let Some(best) = found.jobs.iter().map(|one| one.by).min() else {
        return Err(match found.trouble {
            Some(trouble) => NoJob::Unclear { name, trouble },
            None => NoJob::Unknown(name),
        });
    };
    let ranked = found.jobs.into_iter().filter(|one| one.by == best);
    let jobs: Vec<Job> = ranked.map(|one| one.job).collect();
    one_per_cluster(&jobs, name).map(|()| jobs)
}

/// The search of a principal for the jobs called by a name.
struct JobSearch<'a> {
    registry: &'a Registry,
    principal: &'a Principal,
    name: &'a str,
}

impl JobSearch<'_> {
    /// Those with that id, or else those with a run of that name.
    async fn called(&self) -> JobsCalled {
        let (registry, name) = (self.registry, self.name);
        let on = |cluster: &str| sees_some(self.principal, cluster);
        let mut found = self.known(registry.jobs_with_id(name, on).await).await;
        if found.jobs.is_empty() {
            let of_run = self.known(registry.jobs_of_run(name, on).await).await;
            found.jobs = of_run.jobs;
            found.trouble = found.trouble.or(of_run.trouble);
        }
        found
    }

    /// Those of `called` of which the principal may know.
    async fn known(&self, called: JobsCalled) -> JobsCalled {
        let list = visible(self.principal, &self.registry.snapshot());
        let is_listed = |job: &Job| {
            let mut tasks = list.live.iter().chain(list.ended.iter());
            let is_its = |one: &Arc<Breakpoint>| {
                one.cluster == job.cluster && one.names.job_id == job.job_id
            };
            job.job_id.is_some() && tasks.any(is_its)
        };
        let by_policy =
            |one: &CalledJob| is_listed(&one.job) || sees(self.principal, &nothing_of(&one.job));
        let is_missing = called.jobs.is_empty();
        let (jobs, hidden): (Vec<_>, Vec<_>) = called.jobs.into_iter().partition(by_policy);
        let mut known = JobsCalled {
            jobs,
            trouble: called.trouble,
        };
        // An old job does not hide the one that runs now.
        let has_running = known.jobs.iter().any(|one| !one.job.ended);
        if !has_running && (is_missing || !hidden.is_empty()) {
            self.add_seen(&mut known, hidden).await;
        }
        known
    }

    /// Adds to `known` those of `hidden` of which the principal sees a running task. A name without a job takes as many
    /// queries as one hidden job, so that it is answered alike.
    async fn add_seen(&self, known: &mut JobsCalled, mut hidden: Vec<CalledJob>) {
        // A run may have been started often, and tasks of an ended job are unlikely.
        hidden.retain(|one| one.by != NameKind::TrainRun || !one.job.ended);
        // Job ids count up.
        hidden.sort_by(|a, b| b.job.job_id.cmp(&a.job.job_id));
        let mut clusters_of: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for one in hidden.iter().take(MAX_SEEN_JOBS) {
            if let Some(id) = &one.job.job_id {
                clusters_of.entry(id).or_default().insert(&one.job.cluster);
            }
        }
        let is_unknown = clusters_of.is_empty();
        if is_unknown {
            // A head refuses to list the tasks of another name.
            let id = if is_job_id(self.name) {
                self.name
            } else {
                NO_JOB_ID
            };
            clusters_of.insert(id, BTreeSet::new());
        }
        for (id, clusters) in clusters_of {
            let on = |cluster: &str| {
                sees_some(self.principal, cluster) && (is_unknown || clusters.contains(cluster))
            };
            let query = RunningQuery {
                on: &on,
                job: Some(id),
            };
            for one in self.registry.running(&query).await {
                let mut rows = one.rows.iter();
                let task = rows.find(|running| sees(self.principal, running));
                let job = task.and_then(|task| Job::of_names(&one.cluster, &task.names));
                match job {
                    Some(job) => {
                        let mut hidden = hidden.iter();
                        let same = hidden.find(|known| known.job.is(&job));
                        let by = same.map_or(NameKind::JobId, |known| known.by);
                        known.jobs.push(CalledJob { job, by });
                    }
                    None => known.trouble = known.trouble.take().or(one.trouble),
                }
            }
        }
    }
}

/// # Errors
/// [`NoJob::Several`]: more than one of `jobs` runs in a cluster.
fn one_per_cluster(jobs: &[Job], name: String) -> Result<(), NoJob> {
    let mut running: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for job in jobs.iter().filter(|job| !job.ended) {
        let of_cluster = running.entry(&job.cluster).or_default();
        of_cluster.push(job.described());
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
