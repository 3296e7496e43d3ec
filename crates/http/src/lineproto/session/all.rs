//! One prompt for many paused tasks.
//!
//! Each task has a session of its own over the relay's debugger protocol, as with `ray-relay debug --all`. That session
//! decides about permissions, audit, output and parking. This module checks the permission `terminal`, as for one task.

use std::collections::BTreeMap;

use serde_json::json;
use tokio::io::AsyncRead;

use super::TerminalSession;
use crate::lineproto::prompt;
use crate::lineproto::several::{GroupOutcome, converse};
use ray_relay_access::telemetry::metrics::{Outcome, SessionProtocol};
use ray_relay_base::memory::MemoryUse;
use ray_relay_base::shutdown::DRAINING;
use ray_relay_base::wire::text::replaced;
use ray_relay_debugger::pdb::Options;
use ray_relay_ray::ray::registry::BreakpointId;
use ray_relay_session::session::state::SessionState;
use ray_relay_session::session::{audit, find_jobs, visible};
use ray_relay_view::group::live::open_all;
use ray_relay_view::group::members::{Meant, MeantTasks};
use ray_relay_view::group::prompt::PromptGroup;
use ray_relay_view::listing::job::{JobKey, MeantJob};
use ray_relay_view::listing::json;
use ray_relay_view::listing::select::{ListSelection, arranged};

/// Maximum number of tasks at one prompt.
const MAX_TASKS: usize = 256;

/// Bytes of one command's output that are stored for all tasks together, and those needed to fold equal answers.
const MAX_OUTPUT_BYTES: usize = 2 << 20;
const FOLDING_BYTES: usize = 2 * MAX_OUTPUT_BYTES;

impl<R: AsyncRead + Unpin> TerminalSession<'_, '_, R> {
    /// Runs one prompt for the tasks selected by `words` from the list, ordered by `choice`, until none remains.
    ///
    /// # Errors
    /// The connection is closed.
    pub(super) async fn all(&mut self, words: &str, choice: &ListSelection) -> Result<(), Outcome> {
        let (mut members, group) = match self.select_tasks(words, choice).await {
            Ok(selected) => selected,
            Err(why) => {
                self.out.text(&format!("*** {}\n", replaced(&why))).await;
                return Ok(());
            }
        };
        let account = self.context.account(&self.principal);
        let _folding = match account.take(MemoryUse::Messages, MAX_OUTPUT_BYTES + FOLDING_BYTES) {
            Ok(reservation) => reservation,
            Err(short) => {
                self.out.text(&format!("*** {short}\n")).await;
                return Ok(());
            }
        };
        self.session
            .set_state(SessionProtocol::Terminal, SessionState::Connecting);
        self.out.text(&members.legend()).await;
        let refused = self.not_permitted(&members).await;
        let room = MAX_OUTPUT_BYTES / members.len();
        let (context, peer, out) = (self.context, self.connection.peer, &self.out);
        let principal = &self.principal;
        let dial = |at: usize, id: String| {
            let (refused, account) = (refused.get(&at).cloned(), account.clone());
            let (relay, principal) = (json!({"breakpoint": id, "group": group}), principal.clone());
            async move {
                if let Some(why) = refused {
                    return Err(why);
                }
                let near = context.peers.links.dial(&principal, peer).await;
                let options = Options {
                    relay,
                    ..prompt::options(true, account)
                };
                Ok((near.ok_or_else(|| DRAINING.to_owned())?, options))
            }
        };
        let opened = tokio::select! {
            opened = open_all(&members, room, dial) => opened,
            // Before the first stop is shown, a client that disconnects leaves the tasks waiting.
            () = out.closed() => return Err(Outcome::Client),
        };
        let (mut group, arrived) = PromptGroup::gathered(&mut members, opened, room);
        self.out.text(&arrived).await;
        if group.is_over() {
            self.out.notice("none of them can be debugged now").await;
            return Ok(());
        }
        self.session
            .set_state(SessionProtocol::Terminal, SessionState::Attached);
        match Box::pin(converse(&mut group, self.input, &self.out)).await {
            GroupOutcome::Over => Ok(()),
            GroupOutcome::Lost => {
                self.out.final_notice("this connection was closed without a word about the tasks: each is parked for you, where sessions are kept, or runs on");
                Err(Outcome::Client)
            }
        }
    }

    /// Returns the tasks that `words` select, and the id of the audit line that records them.
    ///
    /// # Errors
    /// A sentence: no task matches, too many do, or they cannot be recorded.
    async fn select_tasks(
        &mut self,
        words: &str,
        choice: &ListSelection,
    ) -> Result<(MeantTasks, String), String> {
        let (mut selection, job) = Meant::read(words)?;
        if let Some(name) = job {
            selection.job = Some(self.known_job(&name, selection.cluster.as_deref()).await?);
        }
        let permitted = visible(&self.principal, &self.context.registry.snapshot());
        let list = arranged(json::list(&permitted), choice);
        let members = MeantTasks::of(&list, &selection).map_err(|why| why.to_string())?;
        if members.len() > MAX_TASKS {
            return Err(format!(
                "{} tasks are too many for one prompt, which has room for {MAX_TASKS}: `all job=ID` or `all ranks=0-{}` are some",
                members.len(),
                MAX_TASKS - 1
            ));
        }
        let ids: Vec<BreakpointId> = members
            .ids()
            .into_iter()
            .filter_map(|id| id.parse().ok())
            .collect();
        self.groups = self.groups.saturating_add(1);
        let request = self.session.summary().id().of_request(self.groups);
        let log = &self.context.audit;
        let on_record = audit::means_all(
            log,
            self.session,
            &self.principal,
            prompt::CLIENT,
            request,
            &ids,
        );
        Box::pin(on_record).await.map_err(|why| why.to_string())?;
        Ok((members, request.to_string()))
    }

    /// Returns the job called `name`, of `cluster` if that is given.
    ///
    /// # Errors
    /// A sentence: there is none, there are several, or a head does not answer.
    async fn known_job(&self, name: &str, cluster: Option<&str>) -> Result<MeantJob, String> {
        let registry = &self.context.registry;
        let found = find_jobs(registry, &self.principal, name).await;
        let jobs = found.map_err(|why| why.to_string())?;
        let keys = jobs.into_iter().filter_map(|job| {
            Some(JobKey {
                cluster: job.cluster.to_string(),
                job_id: job.job_id?,
            })
        });
        let job = MeantJob::known(name, keys);
        job.only(cluster, ", or add cluster=NAME")
            .map_err(|why| why.to_string())?;
        Ok(job)
    }

    /// Returns the `members`, by index, on which this principal may have no prompt, with the reason. Records each.
    async fn not_permitted(&self, members: &MeantTasks) -> BTreeMap<usize, String> {
        let all = self.context.registry.snapshot();
        let mut refused = BTreeMap::new();
        for (at, id) in members.ids().into_iter().enumerate() {
            let Some(breakpoint) = id.parse().ok().and_then(|id| all.find(id)) else {
                continue;
            };
            if let Err(why) = self.authorised(breakpoint) {
                self.denied(breakpoint.id, &why).await;
                refused.insert(at, why.to_string());
            }
        }
        refused
    }
}
