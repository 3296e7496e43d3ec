//! The search for jobs in which the lines of a cluster session are armed.

use std::collections::HashSet;

use crate::attach_selector::AttachSelector;
use crate::cluster::JobName;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_base::wire::text::shortened;
use ray_relay_ray::ray::registry::Job;
use ray_relay_session::armed::{WholeJob, live_jobs};
use ray_relay_session::context::Context;
use ray_relay_session::session::NoJob;

/// The jobs whose tasks the breakpoints stop.
pub(super) enum Jobs {
    Named(Box<str>),
    /// Those that this principal has submitted through a relay, or of these the one with that id.
    SubmittedBy(String, Option<Box<str>>),
    None,
}

impl Jobs {
    /// Those that `selector` names. A session for some tasks of a job would not open the others that stop.
    pub(super) fn of(selector: &AttachSelector) -> Self {
        let names_task = selector.task.is_some() || selector.worker.is_some();
        match (&selector.job, &selector.submitter) {
            _ if names_task || selector.breakpoint.is_some() => Self::None,
            (job, Some(submitter)) if selector.mine => {
                Self::SubmittedBy(submitter.clone(), job.clone())
            }
            (Some(job), _) if !selector.mine => Self::Named(job.clone()),
            _ => Self::None,
        }
    }
}

/// Why lines are not armed in the jobs of a session.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Obstacles {
    /// The permission that is missing for a job, or who has disarmed the lines, as a sentence.
    pub(super) forbidden: Option<String>,
    /// Whether a rule has sessions recorded, which log messages are not.
    pub(super) records: bool,
}

/// The result of a search.
#[derive(Default)]
pub(super) struct Found {
    /// Jobs in which the principal may arm lines.
    pub(super) jobs: Vec<WholeJob>,
    pub(super) forbidden: Option<String>,
    /// Why jobs are not known.
    pub(super) trouble: Option<String>,
}

/// One search.
pub(super) struct JobSearch<'a> {
    pub(super) context: &'a Context,
    pub(super) principal: &'a Principal,
    pub(super) cluster: Option<String>,
    /// Jobs that have a lease, or are to have none.
    pub(super) known: HashSet<JobName>,
    /// The most jobs to find.
    pub(super) room: usize,
}

impl JobSearch<'_> {
    /// Finds the jobs called `name`.
    pub(super) async fn named(self, name: Box<str>) -> Found {
        match live_jobs(self.context, self.principal, &name).await {
            Ok(jobs) => self.permitted(jobs),
            // It may be submitted later.
            Err(NoJob::Unknown(_)) => Found::default(),
            Err(why) => Found {
                trouble: Some(why.to_string()),
                ..Found::default()
            },
        }
    }

    /// Finds the jobs that `submitter` has submitted through a relay, or of these the one with the id `named`.
    pub(super) async fn submitted_by(self, submitter: String, named: Option<Box<str>>) -> Found {
        let access = self.principal.access();
        let on = |cluster: &str| access.may_somewhere_on(Scope::Debug, cluster);
        let registry = &self.context.registry;
        let mut jobs = registry.jobs_submitted_by(&submitter, on).await;
        jobs.retain(|job: &Job| named.as_ref().is_none_or(|name| job.has_id(name)));
        self.permitted(jobs.iter().filter_map(WholeJob::of).collect())
    }

    fn permitted(self, mut jobs: Vec<WholeJob>) -> Found {
        let is_of_cluster = |job: &WholeJob| {
            let cluster = self.cluster.as_ref();
            cluster.is_none_or(|cluster| **cluster == *job.cluster)
        };
        jobs.retain(|job| is_of_cluster(job) && !self.known.contains(&JobName::of_job(job)));
        let mut found = Found::default();
        jobs.retain(|job| {
            let may_arm = job.may_arm(self.context, self.principal);
            if !may_arm {
                let (scope, name) = (job.lacking(self.principal).word(), shortened(&job.name, 80));
                found.forbidden = Some(format!(
                    "you need the permission `{scope}` for the whole job {name}; a rule for some of its tasks is not enough"
                ));
            }
            may_arm
        });
        jobs.truncate(self.room);
        found.jobs = jobs;
        found
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::attach_selector::read_selector;
    use serde_json::{Value, json};

    fn jobs(relay: &Value) -> String {
        let mut selector = read_selector(&json!({ "rayRelay": relay })).unwrap();
        selector.submitter = Some("ann".to_owned());
        match Jobs::of(&selector) {
            Jobs::Named(name) => format!("named {name}"),
            Jobs::SubmittedBy(submitter, named) => format!("by {submitter} {named:?}"),
            Jobs::None => "none".to_owned(),
        }
    }

    #[test]
    fn session_stops_no_task_that_it_would_not_open() {
        assert_eq!(jobs(&json!({"all": true})), "none");
        assert_eq!(jobs(&json!({"all": true, "job": "s1"})), "named s1");
        assert_eq!(jobs(&json!({"all": "mine"})), "by ann None");
        // A colleague's job may have the same name.
        let mine = json!({"all": "mine", "job": "s1"});
        assert_eq!(jobs(&mine), "by ann Some(\"s1\")");
        for key in ["task", "worker"] {
            let narrowed = json!({"all": true, "job": "s1", key: "abcdef12"});
            assert_eq!(jobs(&narrowed), "none", "{key}");
        }
    }
}
