//! The job whose lines are armed, and the rights of a principal on it.

use std::sync::Arc;

use crate::context::Context;
use crate::session::{NoJob, find_jobs};
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::{Scope, Scopes, SessionObligations};
use ray_relay_ray::ray::registry::{Job, Names, Running};

/// A running job as a whole. Any task may reach a line, so a rule for some of its tasks or nodes alone does not count.
#[derive(Debug, Clone)]
pub struct WholeJob {
    /// Name of its cluster.
    pub cluster: Arc<str>,
    /// Ray's id.
    pub job_id: String,
    /// Its name for users: the submission id, or Ray's id if there is none.
    pub name: String,
    whole: Running,
}

impl WholeJob {
    /// `None`: the job has ended, or its driver does not run yet.
    pub fn of(job: &Job) -> Option<Self> {
        let job_id = job.job_id.clone().filter(|_| !job.ended)?;
        let names = Names {
            job_id: Some(job_id.clone()),
            submission_id: job.submission_id.clone(),
            ..Names::default()
        };
        Some(Self {
            cluster: Arc::clone(&job.cluster),
            job_id,
            name: job.name().to_owned(),
            whole: Running::whole_job(Arc::clone(&job.cluster), names),
        })
    }

    fn scopes(&self, principal: &Principal) -> Scopes {
        principal.access().rights_on_running(&self.whole).scopes
    }

    /// Whether sessions of `principal` on it are to be recorded, which log messages are not.
    pub fn is_recorded(&self, principal: &Principal) -> bool {
        self.obligations(principal).record
    }

    /// The obligations of `principal` on it, also by rules for some of its tasks: any of these may reach a line.
    pub(super) fn obligations(&self, principal: &Principal) -> SessionObligations {
        principal.access().obligations_in_job(&self.whole)
    }

    /// As the registry names it.
    pub(super) fn job(&self) -> Job {
        Job {
            cluster: Arc::clone(&self.cluster),
            job_id: Some(self.job_id.clone()),
            submission_id: self.whole.names.submission_id.clone(),
            ended: false,
        }
    }

    /// Whether `principal` may run code in whatever task of the job reaches a line, or stop it there.
    pub fn may_arm(&self, context: &Context, principal: &Principal) -> bool {
        context.may_open_debugger(self.scopes(principal))
    }

    /// The permission that `principal` lacks to arm lines.
    pub fn lacking(&self, principal: &Principal) -> Scope {
        match self.scopes(principal).contains(Scope::Debug) {
            true => Scope::Attach,
            false => Scope::Debug,
        }
    }
}

/// The running jobs that `name` stands for, at most one in each cluster, of which `principal` may know.
///
/// # Errors
/// [`NoJob`].
pub async fn live_jobs(
    context: &Context,
    principal: &Principal,
    name: &str,
) -> Result<Vec<WholeJob>, NoJob> {
    let found = find_jobs(&context.registry, principal, name).await?;
    Ok(found.iter().filter_map(WholeJob::of).collect())
}
