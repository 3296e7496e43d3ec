//! Finds the other tasks of a job when one has stopped, and opens a debugger in each, for a cluster session with group
//! stop.
//!
//! Each of them is authorised and audited like a task that is selected individually.

use std::collections::BTreeMap;
use std::future::ready;
use std::mem;
use std::sync::Arc;

use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::time::timeout;

use super::AttachFlow;
use super::running::{QUERY_TIMEOUT, RunningProcess};
use crate::ClientOpening;
use crate::attach_selector::AttachSelector;
use crate::cluster::{JobName, Joined, StopsTogether};
use crate::selection::{AttachAnswer, ChildSessions, Hint};
use ray_relay_access::policy::Scope;
use ray_relay_ray::ray::registry::{
    Breakpoint, BreakpointId, Running, RunningQuery, State, WorkKind,
};
use ray_relay_session::session::audit::SessionAudit;
use ray_relay_view::listing::text::first_of;

/// Debuggers that are opened concurrently.
const MAX_OPENING: usize = 8;

/// Name of any task that keeps running, in a reason.
const ANY_TASK: &str = "the task";

impl<'a> AttachFlow<'a> {
    /// Replaces `answer` by a cluster session if it is the only paused task, the client has not named it, and others
    /// are to stop with it.
    pub(super) fn with_others(
        &self,
        answer: AttachAnswer,
        selector: &AttachSelector,
        hint: Hint,
        opened: &ClientOpening,
    ) -> AttachAnswer {
        let named = hint != Hint::None
            || selector.breakpoint.is_some()
            || selector.task.is_some()
            || selector.worker.is_some();
        let opens = opened.client.children != ChildSessions::None && !named;
        let stops = StopsTogether::new(selector, &self.principal);
        match &answer {
            AttachAnswer::Worker(only) if opens && stops.with(only) => AttachAnswer::Cluster,
            _ => answer,
        }
    }

    /// Pauses the running tasks of `job`, `room` at most. Yields those that do as they come, then those that do not; if
    /// dropped, no more debuggers are opened. `client` is the client's name.
    pub(crate) fn stop_others(
        &'a self,
        job: JobName,
        room: usize,
        audit: SessionAudit<'a>,
        client: String,
    ) -> BoxStream<'a, Joined> {
        let job_id = job.id.clone();
        let found = async move {
            match self.others(&job, room).await {
                Ok((others, note)) if others.is_empty() => (Vec::new(), note),
                Ok((others, note)) => {
                    let ids: Vec<_> = others
                        .iter()
                        .filter_map(RunningProcess::first)
                        .map(id)
                        .collect();
                    match audit.group(&client, "stop", Some(&job.id), &ids).await {
                        Ok(()) => (others, note),
                        // Fail closed: nothing is opened without an audit record.
                        Err(why) => (Vec::new(), Some(why.to_string())),
                    }
                }
                Err(why) => (Vec::new(), Some(why)),
            }
        };
        let joining = move |(others, why): (Vec<RunningProcess>, Option<String>)| {
            let count = others.len();
            let name = job_id.clone();
            let tell = move |text: String| Joined::Told(format!("job {name}: {text}"));
            let why = why.map(&tell);
            let begins = (count > 0).then(|| {
                tell(format!(
                    "{count} other {} at the next line of Python, and {} on when this session ends; a debugger is opened in each, which listens on its node's loopback address until the worker ends",
                    if count == 1 { "task stops" } else { "tasks stop" },
                    if count == 1 { "runs" } else { "run" },
                ))
            });
            let notices = stream::iter([begins, why].into_iter().flatten());
            let joins = stream::iter(others).map(move |process| self.join(process));
            let joins = joins.buffer_unordered(MAX_OPENING).map(Some);
            let joined = joins.chain(stream::iter([None]));
            let joined = joined.scan(NotJoined::default(), move |not, one| {
                ready(Some(match one {
                    Some(Ok(opened)) => vec![Joined::Opened(opened)],
                    Some(Err((task, why))) => {
                        not.add(task, why);
                        Vec::new()
                    }
                    None => mem::take(not).sentences().map(&tell).collect(),
                }))
            });
            notices.chain(joined.flat_map(stream::iter))
        };
        stream::once(found).flat_map(joining).boxed()
    }

    /// The unlisted running processes of `job` in which the principal may open debuggers, and a sentence if that is not
    /// all.
    async fn others(
        &self,
        job: &JobName,
        room: usize,
    ) -> Result<(Vec<RunningProcess>, Option<String>), String> {
        let on = |name: &str| *name == *job.cluster;
        let query = RunningQuery {
            on: &on,
            job: Some(&job.id),
        };
        let found = timeout(QUERY_TIMEOUT, self.context.registry.running(&query)).await;
        let found = found.map_err(|_| {
            "the others run on: the Ray head does not say in time which there are".to_owned()
        })?;
        let trouble = found.iter().find_map(|one| one.trouble.clone());
        let list = self.context.registry.snapshot();
        let access = self.principal.access();
        let seen = |one: &Running| {
            let scopes = access.rights_on_running(one).scopes;
            scopes.contains(Scope::List) || scopes.contains(Scope::View)
        };
        let stands = |one: &Running| {
            list.find(id(one))
                .is_some_and(|listed| listed.state != State::Unlisted)
        };
        let mut processes: BTreeMap<String, RunningProcess> = BTreeMap::new();
        for one in found.into_iter().flat_map(|found| found.rows) {
            // Drivers wait for their tasks, and replicas for requests.
            let counts = !matches!(one.what, WorkKind::Driver | WorkKind::Replica);
            if counts && !stands(&one) {
                let process = processes.entry(one.worker_id.clone()).or_default();
                process.running.push(one);
            }
        }
        processes.retain(|_, process| process.running.iter().any(seen));
        let known = processes.len();
        let may = |one: &Running| {
            let rights = access.rights_on_running(one);
            self.context.may_open_debugger(rights.scopes)
        };
        processes.retain(|_, process| process.running.iter().all(may));
        let allowed = processes.len();
        let others: Vec<RunningProcess> = processes.into_values().take(room).collect();
        let mut sentences = Vec::new();
        if allowed < known {
            sentences.push(format!(
                "{} of its tasks run on: to stop them takes the permission `attach` besides `debug` on them; {}",
                known - allowed,
                self.principal.remedy(Scope::Attach)
            ));
        }
        if others.len() < allowed {
            sentences.push(format!(
                "{} of its tasks run on: a cluster session has so many sessions at most",
                allowed - others.len()
            ));
        }
        sentences.extend(trouble.map(|why| format!("not all of its tasks are known: {why}")));
        Ok((
            others,
            (!sentences.is_empty()).then(|| sentences.join("; ")),
        ))
    }

    /// Opens a debugger in `process`.
    ///
    /// # Errors
    /// Its name, and why it keeps running, in words that are the same for all.
    async fn join(&self, process: RunningProcess) -> Result<Arc<Breakpoint>, (String, String)> {
        let reason = Some("its group stops together");
        let opening = async {
            let first = process
                .first()
                .ok_or_else(|| "nothing runs there".to_owned())?;
            let record = self.put_on_record(first, reason).await;
            record.map_err(|why| why.to_string())?;
            let opened = self.open(first, ANY_TASK).await;
            opened.map_err(|why| why.to_string())?;
            let listed = self.listed(first, ANY_TASK).await;
            let listed = listed.map_err(|why| why.to_string())?;
            let same = self.verify_same(&process, ANY_TASK, &listed).await;
            same.map_err(|why| why.to_string())?;
            Ok::<_, String>(listed)
        };
        let opened = opening.boxed().await;
        opened.map_err(|why| (process.title(), why))
    }
}

/// Tasks that keep running, by reason.
#[derive(Default)]
struct NotJoined(BTreeMap<String, Vec<String>>);

impl NotJoined {
    fn add(&mut self, task: String, why: String) {
        self.0.entry(why).or_default().push(task);
    }

    /// A sentence for each reason.
    fn sentences(self) -> impl Iterator<Item = String> {
        self.0.into_iter().map(|(why, mut tasks)| {
            tasks.sort();
            let names: Vec<&str> = tasks.iter().map(String::as_str).collect();
            match names[..] {
                [only] => format!("{only} runs on: {why}"),
                _ => {
                    let count = names.len();
                    let names = first_of(&names, count);
                    format!("{count} of its tasks run on ({names}): {why}")
                }
            }
        })
    }
}

/// The breakpoint id of the worker that runs `one`.
fn id(one: &Running) -> BreakpointId {
    BreakpointId::derive(&one.cluster, &one.worker_id)
}
