//! Opens a debugger in a running task that asked for none, for permitted users and audited before. The worker is then a
//! breakpoint like any other, for one session.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::AttachFlow;
use crate::attach_selector::AttachSelector;
use ray_relay_access::policy::{Pattern, Scope, Scopes};
use ray_relay_base::wire::dap::conversation::Conversation;
use ray_relay_base::wire::dap::message::notice;
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_base::wire::text::shortened;
use ray_relay_ray::ray::registry::{
    Breakpoint, BreakpointId, Running, RunningIn, RunningQuery, State,
};
use ray_relay_session::agents::{NotInspected, WorkerAt};
use ray_relay_session::session::audit;
use ray_relay_session::session::refusal::SessionRefusal;
use ray_relay_view::listing::running::is_called;
use ray_relay_view::listing::text::first_of;

/// Deadline for the heads to list running tasks.
pub(super) const QUERY_TIMEOUT: Duration = Duration::from_secs(20);

/// Deadline for a debugger to listen: on a busy node its import takes some seconds, and so does gdb to enter a worker
/// without the hook.
const OPEN_TIMEOUT: Duration = Duration::from_secs(45);

/// Number of and pause between queries to Ray for the port of a debugger that was just opened.
const LIST_RETRIES: (u32, Duration) = (10, Duration::from_millis(300));

/// The process to open a debugger in, with all tasks that run in it.
#[derive(Default)]
pub(super) struct RunningProcess {
    pub(super) running: Vec<Running>,
}

impl RunningProcess {
    pub(super) fn first(&self) -> Option<&Running> {
        self.running.first()
    }

    pub(super) fn title(&self) -> String {
        self.first().map_or_else(String::new, title)
    }
}

/// Locates `running` for its agent. A refusal calls it `name`.
fn worker_at<'a>(running: &'a Running, name: &str) -> Result<WorkerAt<'a>, SessionRefusal> {
    let pid = running.pid.ok_or_else(|| {
        SessionRefusal::Unreachable(format!(
            "Ray does not say which process {name} is; try again in a moment"
        ))
    })?;
    Ok(WorkerAt {
        cluster: &running.cluster,
        node_id: &running.node_id,
        worker_id: &running.worker_id,
        pid,
    })
}

fn title(running: &Running) -> String {
    let mut title = match &running.names.actor_name {
        Some(actor) => format!("{} [{actor}]", running.name()),
        None => running.name().to_owned(),
    };
    if let Some(rank) = running.names.rank {
        title += &format!(" rank {rank}");
    }
    if let Some(pid) = running.pid {
        title += &format!(" · pid {pid}");
    }
    if let Some(ip) = running.node_ip {
        title += &format!(" @ {ip}");
    }
    title
}

impl AttachFlow<'_> {
    /// Opens a debugger in the running task that `selector` names, and resolves the selector to its breakpoint. A task
    /// that is paused already has one, and nothing is opened.
    pub(super) async fn open_running<S>(
        &self,
        selector: AttachSelector,
        client: &mut Conversation<S>,
    ) -> Result<AttachSelector, SessionRefusal>
    where
        S: PeerStream,
    {
        let may = |scope| self.principal.access().may_anywhere(scope);
        let scopes = [Scope::Debug, Scope::Attach];
        let somewhere = scopes.into_iter().filter(|scope| may(*scope));
        if !self
            .context
            .may_open_debugger(somewhere.fold(Scopes::NONE, Scopes::with))
        {
            return Err(self.may_not("what runs here"));
        }
        let process = self.selected(&selector).await?;
        let Some(first) = process.first() else {
            return Err(SessionRefusal::Nothing("nothing runs there".to_owned()));
        };
        let id = BreakpointId::derive(&first.cluster, &first.worker_id);
        let list = self.context.registry.snapshot();
        let waits = list.find(id).filter(|listed| {
            *listed.worker_id == *first.worker_id && listed.state != State::Unlisted
        });
        let found = |running| AttachSelector {
            breakpoint: Some(id),
            task: None,
            worker: None,
            running,
            ..selector.clone()
        };
        if waits.is_some() {
            return Ok(found(false));
        }
        let may = |one: &Running| {
            let rights = self.principal.access().rights_on_running(one);
            self.context.may_open_debugger(rights.scopes)
        };
        if !process.running.iter().all(may) {
            return Err(self.may_not(&process.title()));
        }
        self.put_on_record(first, selector.reason.as_deref())
            .await?;
        let name = process.title();
        let at = worker_at(first, &name)?;
        let text = format!(
            "opens a debugger in {name}, which takes some seconds; the task stops at its next line of Python, and runs on when you detach. The debugger itself cannot be closed again: it listens on its node's loopback address until the worker ends"
        );
        if self.context.peers.agents.may_open(&at) {
            // The session notices a lost client.
            _ = client.send(&notice(&text, false)).await;
        }
        self.open(first, &name).await?;
        let opened = self.listed(first, &name).await?;
        self.verify_same(&process, &name, &opened).await?;
        Ok(found(true))
    }

    /// The one process that `selector` names, among those that the principal may see.
    async fn selected(&self, selector: &AttachSelector) -> Result<RunningProcess, SessionRefusal> {
        let access = self.principal.access();
        let on = |cluster: &str| {
            selector.cluster.as_ref().is_none_or(|one| one == cluster)
                && [Scope::List, Scope::View]
                    .into_iter()
                    .any(|scope| access.may_somewhere_on(scope, cluster))
        };
        let query = RunningQuery { on: &on, job: None };
        let found = timeout(QUERY_TIMEOUT, self.context.registry.running(&query)).await;
        let found = found.map_err(|_| {
            SessionRefusal::Unreachable(
                "the Ray heads do not say in time what runs; try again in a moment".to_owned(),
            )
        })?;
        let pattern = selector.task.as_deref().map(Pattern::new);
        let is_meant = |one: &Running| {
            let scopes = access.rights_on_running(one).scopes;
            (scopes.contains(Scope::List) || scopes.contains(Scope::View))
                && pattern.as_ref().is_none_or(|name| is_called(one, name))
                && (selector.job.as_deref()).is_none_or(|job| one.names.is_of_job(job))
                && (selector.worker.as_deref()).is_none_or(|id| one.worker_id.starts_with(id))
        };
        let mut processes: BTreeMap<(Arc<str>, String), (RunningProcess, bool)> = BTreeMap::new();
        let trouble = found.iter().find_map(|one| one.trouble.clone());
        for one in found.into_iter().flat_map(|found: RunningIn| found.rows) {
            let key = (Arc::clone(&one.cluster), one.worker_id.clone());
            let (process, selected) = processes.entry(key).or_insert_with(|| {
                let running = Vec::new();
                (RunningProcess { running }, false)
            });
            *selected |= is_meant(&one);
            process.running.push(one);
        }
        let mut selected: Vec<RunningProcess> = processes
            .into_values()
            .filter_map(|(process, selected)| selected.then_some(process))
            .collect();
        let what = match (&selector.task, &selector.worker) {
            (Some(task), _) => format!("is called \"{}\"", shortened(task, 60)),
            (None, Some(worker)) => format!("has the worker id {}", shortened(worker, 60)),
            (None, None) => "fits".to_owned(),
        };
        match (selected.pop(), selected.len()) {
            (Some(only), 0) => Ok(only),
            (Some(last), others) => {
                selected.push(last);
                let named = |one: &Running| {
                    let worker = shortened(&one.worker_id, 12);
                    format!("{} (worker {worker})", title(one))
                };
                let named: Vec<_> = selected
                    .iter()
                    .filter_map(RunningProcess::first)
                    .map(named)
                    .collect();
                let names: Vec<&str> = named.iter().map(String::as_str).collect();
                Err(SessionRefusal::Nothing(format!(
                    "{} processes run what {what}, and a debugger is opened in one: {}; name one by its worker id",
                    others + 1,
                    first_of(&names, names.len())
                )))
            }
            (None, _) => Err(SessionRefusal::Nothing(match trouble {
                Some(trouble) => {
                    format!("nothing that is known to run {what}, and not all is known: {trouble}")
                }
                None => format!(
                    "nothing that runs {what}; `ray-relay tasks` shows what does, a second after it has begun"
                ),
            })),
        }
    }

    fn may_not(&self, place: &str) -> SessionRefusal {
        SessionRefusal::Forbidden(format!(
            "{} may not open a debugger in {place}, which asked for none: that takes the permission `attach` besides `debug`; {}",
            self.principal.subject(),
            self.principal.remedy(Scope::Attach)
        ))
    }

    pub(super) async fn put_on_record(
        &self,
        running: &Running,
        reason: Option<&str>,
    ) -> Result<(), SessionRefusal> {
        let mut details = serde_json::Map::new();
        let known = [
            ("cluster", Some(&*running.cluster)),
            ("worker_id", Some(&*running.worker_id)),
            ("node_id", Some(&*running.node_id)),
            ("name", Some(running.name())),
            ("job_id", running.names.job_id.as_deref()),
            ("task_id", running.names.task_id.as_deref()),
            ("actor_id", running.names.actor_id.as_deref()),
            ("reason", reason),
        ];
        for (key, value) in known {
            if let Some(value) = value {
                details.insert(key.into(), value.into());
            }
        }
        if let Some(pid) = running.pid {
            details.insert("pid".into(), pid.into());
        }
        let (context, principal) = (self.context, &self.principal);
        // Fail closed: nothing is opened without an audit record.
        audit::opens_debugger(&context.audit, self.session, principal, details)
            .await
            .map_err(|why| SessionRefusal::Unable(why.to_string()))
    }

    /// Has the agent of its node open the debugger. A refusal calls it `name`, here and in the functions below.
    pub(super) async fn open(&self, running: &Running, name: &str) -> Result<(), SessionRefusal> {
        let at = worker_at(running, name)?;
        let agents = &self.context.peers.agents;
        let opened = agents.open_debugger(&at, OPEN_TIMEOUT).await;
        let sentence = |why: &NotInspected| format!("no debugger can be opened in {name}: {why}");
        match opened {
            Ok(_) => Ok(()),
            Err(why @ NotInspected::Forbidden(_)) => Err(SessionRefusal::Forbidden(sentence(&why))),
            Err(why @ NotInspected::Gone(_)) => Err(SessionRefusal::Nothing(sentence(&why))),
            Err(why @ NotInspected::NoAgent(_)) => Err(SessionRefusal::Unreachable(format!(
                "{}; it takes one, as `ray-relay deploy` puts on each node",
                sentence(&why)
            ))),
            Err(why) => Err(SessionRefusal::Unreachable(sentence(&why))),
        }
    }

    /// The worker's breakpoint, once Ray lists the port of its debugger.
    pub(super) async fn listed(
        &self,
        running: &Running,
        name: &str,
    ) -> Result<Arc<Breakpoint>, SessionRefusal> {
        let registry = &self.context.registry;
        let (times, pause) = LIST_RETRIES;
        for _ in 0..times {
            let found = registry.look_again(Some(&running.cluster), &running.worker_id);
            let found = found.await.and_then(|id| {
                let list = registry.snapshot();
                list.find(id).cloned()
            });
            if let Some(found) = found {
                return Ok(found);
            }
            sleep(pause).await;
        }
        Err(SessionRefusal::Nothing(format!(
            "a debugger was opened in {name}, but Ray lists none there: the worker has just ended, as far as Ray knows; `ray-relay tasks` shows what runs"
        )))
    }

    /// Whether Ray still lists a task of `process` as running there.
    async fn still_runs(&self, process: &RunningProcess) -> Result<bool, SessionRefusal> {
        let Some(first) = process.first() else {
            return Ok(false);
        };
        let on = |cluster: &str| *cluster == *first.cluster;
        let job = first.names.job_id.as_deref();
        let query = RunningQuery { on: &on, job };
        let found = timeout(QUERY_TIMEOUT, self.context.registry.running(&query)).await;
        let silent = || {
            SessionRefusal::Unreachable(
                "the Ray head does not say what the worker runs now; try again in a moment"
                    .to_owned(),
            )
        };
        let found = found.map_err(|_| silent())?;
        let is_there = |one: &Running| {
            let tasks = process.running.iter().map(|one| &one.names.task_id);
            one.worker_id == first.worker_id && tasks.clone().any(|task| *task == one.names.task_id)
        };
        let complete = found.iter().all(|one| one.complete);
        match found.iter().flat_map(|one| &one.rows).any(is_there) {
            false if !complete => Err(silent()),
            runs => Ok(runs),
        }
    }

    /// Checks that the worker still runs the selected task, and that the principal may open a debugger in what it is
    /// now.
    pub(super) async fn verify_same(
        &self,
        process: &RunningProcess,
        name: &str,
        opened: &Breakpoint,
    ) -> Result<(), SessionRefusal> {
        let has_ended = match &opened.names.task_id {
            Some(_) => {
                let mut tasks = process.running.iter().map(|one| &one.names.task_id);
                !opened.names.provisional && !tasks.any(|one| *one == opened.names.task_id)
            }
            // Drivers and Serve replicas have no task id.
            None => {
                let tasks = process.running.iter().map(|one| &one.names.task_id);
                tasks.clone().all(Option::is_some) && !self.still_runs(process).await?
            }
        };
        if has_ended {
            return Err(SessionRefusal::Nothing(format!(
                "{name} has ended while its debugger was opened, and its worker runs nothing or something else; `ray-relay tasks` shows what runs"
            )));
        }
        let rights = self.principal.access().rights(opened);
        match self.context.may_open_debugger(rights.scopes) {
            true => Ok(()),
            false => Err(self.may_not(name)),
        }
    }
}
