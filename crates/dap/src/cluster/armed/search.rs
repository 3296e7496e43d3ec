//! The search for jobs in which the lines of a cluster session are armed.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::breakpoint::Obstacles;
use crate::attach_selector::AttachSelector;
use crate::cluster::JobName;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_base::wire::json::put;
use ray_relay_base::wire::text::shortened;
use ray_relay_base::wire::tunnel::messages::ArmedLine;
use ray_relay_session::armed::{JobLease, WholeJob, live_jobs};
use ray_relay_session::context::Context;
use ray_relay_session::session::NoJob;
use ray_relay_session::session::audit::SessionAudit;

/// Jobs with armed lines at once.
pub(super) const MAX_JOBS: usize = 16;

/// Characters of an audited expression.
const MAX_AUDITED_CHARS: usize = 500;

/// The jobs whose tasks the breakpoints stop.
pub(super) enum Jobs {
    Named(Box<str>),
    /// Those that this principal has submitted through a relay.
    SubmittedBy(String),
    None,
}

impl Jobs {
    /// Those that `selector` names.
    pub(super) fn of(selector: &AttachSelector) -> Self {
        match (&selector.job, &selector.submitter) {
            (Some(job), _) => Self::Named(job.clone()),
            (None, Some(submitter)) if selector.mine => Self::SubmittedBy(submitter.clone()),
            _ => Self::None,
        }
    }
}

/// The result of a search.
#[derive(Default)]
pub(super) struct Found {
    pub(super) leases: Vec<JobLease>,
    pub(super) obstacles: Obstacles,
    /// Why jobs are not known, or not armed.
    pub(super) trouble: Option<String>,
}

/// One search for jobs in which to arm `lines`.
pub(super) struct JobSearch<'a> {
    pub(super) context: &'a Context,
    pub(super) principal: &'a Principal,
    pub(super) audit: &'a SessionAudit<'a>,
    pub(super) cluster: Option<String>,
    /// Jobs that have a lease, or are to have none.
    pub(super) known: HashSet<JobName>,
    pub(super) lines: Arc<[ArmedLine]>,
}

impl JobSearch<'_> {
    /// Arms them in the jobs called `name`.
    pub(super) async fn named(self, name: Box<str>) -> Found {
        match live_jobs(self.context, self.principal, &name).await {
            Ok(jobs) => self.armed(jobs).await,
            // It may be submitted later.
            Err(NoJob::Unknown(_)) => Found::default(),
            Err(why) => Found {
                trouble: Some(why.to_string()),
                ..Found::default()
            },
        }
    }

    /// Arms them in the jobs that `submitter` has submitted through a relay.
    pub(super) async fn submitted_by(self, submitter: String) -> Found {
        let access = self.principal.access();
        let on = |cluster: &str| access.may_somewhere_on(Scope::Debug, cluster);
        let registry = &self.context.registry;
        let jobs = registry.jobs_submitted_by(&submitter, on).await;
        self.armed(jobs.iter().filter_map(WholeJob::of).collect())
            .await
    }

    async fn armed(self, mut jobs: Vec<WholeJob>) -> Found {
        let is_of_cluster = |job: &WholeJob| {
            let cluster = self.cluster.as_ref();
            cluster.is_none_or(|cluster| **cluster == *job.cluster)
        };
        jobs.retain(|job| is_of_cluster(job) && !self.known.contains(&job_name(job)));
        jobs.truncate(MAX_JOBS);
        let mut found = Found::default();
        for job in jobs {
            if !job.may_arm(self.context, self.principal) {
                let scope = job.lacking(self.principal).word();
                let name = shortened(&job.name, 80);
                found.obstacles.forbidden = Some(format!(
                    "you need the permission `{scope}` for the whole job {name}; a rule for some of its tasks is not enough"
                ));
                continue;
            }
            let lines = permitted(&job, self.principal, &self.lines);
            found.obstacles.records |= lines.len() < self.lines.len();
            if lines.is_empty() {
                continue;
            }
            if let Err(why) = self.audit.arms(of_lines("arm", &job, &lines)).await {
                found.trouble = Some(why.to_string());
                continue;
            }
            let lease = JobLease::new(self.context, job, self.principal, lines).await;
            found.leases.push(lease);
        }
        found
    }
}

/// Those of `lines` that may be armed in `job`: no log messages where a rule has sessions recorded, because nothing
/// records these.
pub(super) fn permitted(
    job: &WholeJob,
    principal: &Principal,
    lines: &Arc<[ArmedLine]>,
) -> Arc<[ArmedLine]> {
    match job.rights(principal).obligations.record {
        false => Arc::clone(lines),
        true => {
            let stops = lines.iter().filter(|line| line.log.is_none());
            stops.cloned().collect()
        }
    }
}

/// The name of `job` for this crate.
pub(super) fn job_name(job: &WholeJob) -> JobName {
    JobName {
        cluster: Arc::clone(&job.cluster),
        id: job.job_id.clone(),
    }
}

/// The audit details of `command`.
pub(super) fn of_lines(command: &str, job: &WholeJob, lines: &[ArmedLine]) -> Map<String, Value> {
    let each = lines.iter().map(|line| {
        let mut one = json!({ "id": line.id, "file": &*line.file, "line": line.line });
        for (key, expression) in [("condition", &line.condition), ("log", &line.log)] {
            if let Some(expression) = expression {
                put(&mut one, key, shortened(expression, MAX_AUDITED_CHARS));
            }
        }
        one
    });
    let mut details = Map::new();
    details.insert("command".into(), command.into());
    details.insert("cluster".into(), (*job.cluster).into());
    details.insert("job_id".into(), job.job_id.clone().into());
    details.insert("lines".into(), each.collect());
    details
}
