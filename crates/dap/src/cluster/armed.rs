//! Breakpoints of a cluster session in jobs whose code has none: they are armed in all workers of the jobs that the
//! session names, and a task that stops on one opens as a session like any other.
//!
//! Breakpoints that are left over in an editor must stop no colleague's job: a session that takes all tasks and names no
//! job arms nothing. The lines are disarmed when this is dropped.

mod armed_job;
mod breakpoint;
mod progress;
mod search;
mod source;

use std::collections::{BTreeMap, HashSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, select_all};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use self::armed_job::{ArmedJob, permitted};
use self::breakpoint::EditorBreakpoint;
use self::progress::Progress;
use self::search::{Found, JobSearch, Jobs, Obstacles};
use self::source::{FolderMap, Narrowed, SetBreakpoints};
use super::jobs::JobName;
use crate::attach_selector::AttachSelector;
use ray_relay_access::identity::Principal;
use ray_relay_base::wire::dap::message::{Request, event, notice};
use ray_relay_base::wire::dap::names::Event;
use ray_relay_base::wire::json::typed;
use ray_relay_base::wire::text::{replaced, shortened};
use ray_relay_base::wire::tunnel::messages::{
    ArmReport, ArmedLine, MAX_ARMED_BYTES, MAX_ARMED_LINES, WorkerReport, written,
};
use ray_relay_ray::ray::registry::RayNode;
use ray_relay_session::armed::{LeaseEvent, MAX_STOPPED_TASKS, WholeJob};
use ray_relay_session::context::Context;
use ray_relay_session::session::ArmedSummary;
use ray_relay_session::session::audit::SessionAudit;

/// The pause between two searches for jobs that the session names: it doubles while nothing is found, up to the most.
const SEARCH_INTERVAL: Duration = Duration::from_secs(2);
const MAX_SEARCH_INTERVAL: Duration = Duration::from_secs(15);

/// Jobs with armed lines at once.
const MAX_JOBS: usize = 16;

/// The delay before changes are shown, so that workers that are armed together make one message.
const SHOW_DELAY: Duration = Duration::from_millis(200);

/// Why lines are armed no more.
const ENDED: &str = "a user has disarmed the breakpoints in running jobs with `ray-relay sessions end`; start the session again to arm them";

type Search<'a> = Pin<Box<dyn Future<Output = Found> + Send + 'a>>;

/// What has happened to the lines, for [`ArmedBreakpoints::handle`].
pub(super) struct Happened(Change);

enum Change {
    /// A lease reports; its place among them.
    Lease(LeaseEvent, usize),
    Found(Found),
    /// Changes are to be shown.
    ShowDue,
    /// A user has requested that the lines be disarmed.
    EndRequested,
}

/// See the module.
pub(super) struct ArmedBreakpoints<'a> {
    context: &'a Context,
    principal: &'a Principal,
    audit: &'a SessionAudit<'a>,
    jobs: Jobs,
    cluster: Option<String>,
    folders: FolderMap,
    narrowed: Narrowed,
    /// By the path of their file, as the editor has it.
    breakpoints: BTreeMap<String, Vec<EditorBreakpoint>>,
    last_id: u32,
    /// Whether the client has configured: then lines are armed.
    is_open: bool,
    armed: Vec<ArmedJob>,
    obstacles: Obstacles,
    /// Jobs whose lease has ended, which is not begun again.
    over: HashSet<JobName>,
    search_at: Instant,
    pause: Duration,
    searching: Option<Search<'a>>,
    progress: Progress,
    trouble: Option<String>,
    show_at: Option<Instant>,
    end_requested: CancellationToken,
}

impl<'a> ArmedBreakpoints<'a> {
    /// `arguments` are those of the session's `attach`, with the `selector` in them.
    pub(super) fn new(
        context: &'a Context,
        principal: &'a Principal,
        audit: &'a SessionAudit<'a>,
        arguments: &Value,
        selector: &AttachSelector,
    ) -> Self {
        Self {
            context,
            principal,
            audit,
            jobs: Jobs::of(selector),
            cluster: selector.cluster.clone(),
            folders: FolderMap::read(arguments, selector.local_root.clone()),
            narrowed: Narrowed {
                ranks: selector.ranks.clone(),
                once: selector.once,
            },
            breakpoints: BTreeMap::new(),
            last_id: 0,
            is_open: false,
            armed: Vec::new(),
            obstacles: Obstacles::default(),
            over: HashSet::new(),
            search_at: Instant::now(),
            pause: SEARCH_INTERVAL,
            searching: None,
            progress: Progress::default(),
            trouble: None,
            show_at: None,
            end_requested: audit.session().asked_to_end(),
        }
    }

    /// Answers a `setBreakpoints` request, and arms its lines in place of those that the file had.
    pub(super) async fn set(&mut self, request: &Request) -> Vec<Value> {
        let SetBreakpoints {
            source,
            breakpoints,
        } = typed(&request.arguments);
        let Some(path) = source.path.filter(|_| !matches!(self.jobs, Jobs::None)) else {
            return vec![request.breakpoints_pending()];
        };
        let mut known = self.breakpoints.remove(&path).unwrap_or_default();
        let mut all = Vec::new();
        for requested in breakpoints {
            // One that has not changed keeps its number, and so what is known of it.
            let same = known.iter().position(|one| one.requested == requested);
            all.push(match same {
                Some(same) => known.swap_remove(same),
                None => {
                    self.last_id += 1;
                    EditorBreakpoint::new(self.last_id, requested)
                }
            });
        }
        if !all.is_empty() {
            self.breakpoints.insert(path.clone(), all);
        }
        let mut messages = self.arm().await;
        let mut answers = Vec::new();
        for one in self.breakpoints.get_mut(&path).into_iter().flatten() {
            let now = one.now(&self.progress, &self.jobs, &self.obstacles);
            answers.push(now.message(one.id));
            one.shown = Some(now);
        }
        messages.push(request.success(json!({ "breakpoints": answers })));
        messages
    }

    /// The client has configured: from now on lines are armed.
    pub(super) fn open(&mut self) {
        self.is_open = true;
        self.search_soon();
    }

    /// Has `folder` of the editor stand for the folder that the job runs in.
    pub(super) async fn map_to(&mut self, folder: &str) -> Vec<Value> {
        self.folders.map_to(folder);
        self.arm().await
    }

    /// Whether lines are armed.
    pub(super) fn is_armed(&self) -> bool {
        !self.armed.is_empty()
    }

    /// Disarms all lines, and puts that on record.
    pub(super) async fn close(&mut self) {
        self.is_open = false;
        self.searching = None;
        let all = std::mem::take(&mut self.armed);
        self.end(all).await;
        self.summarize();
    }

    /// Waits for the next thing that happens. Cancel safe.
    pub(super) async fn next(&mut self) -> Happened {
        loop {
            let may_search = self.is_open && self.searching.is_none();
            let event = async {
                if self.armed.is_empty() {
                    return std::future::pending().await;
                }
                let each = self.armed.iter_mut();
                let each = each.map(|job| Box::pin(job.lease.next(self.context)));
                let (event, at, _) = select_all(each).await;
                (event, at)
            };
            let found = async {
                match &mut self.searching {
                    Some(search) => search.await,
                    None => std::future::pending().await,
                }
            };
            let show_at = self.show_at.unwrap_or_else(Instant::now);
            tokio::select! {
                (event, at) = event => return Happened(Change::Lease(event, at)),
                found = found => {
                    self.searching = None;
                    return Happened(Change::Found(found));
                }
                () = sleep_until(show_at), if self.show_at.is_some() => return Happened(Change::ShowDue),
                () = self.end_requested.cancelled(), if self.is_open => {
                    return Happened(Change::EndRequested);
                }
                () = sleep_until(self.search_at), if may_search => self.start_search(),
            }
        }
    }

    /// Handles what has happened, and returns the messages to the client.
    pub(super) async fn handle(&mut self, happened: Happened) -> Vec<Value> {
        match happened.0 {
            Change::Lease(event, at) => {
                let messages = self.on_event(event, at).await;
                // The first one that is ready is taken, so each is the first once.
                let step = usize::from(self.armed.len() > 1);
                self.armed.rotate_left(step);
                messages
            }
            Change::Found(found) => self.on_found(found).await,
            Change::ShowDue => self.show(),
            Change::EndRequested => {
                self.close().await;
                self.obstacles.forbidden = Some(ENDED.to_owned());
                self.show_soon();
                vec![notice(ENDED, true)]
            }
        }
    }

    /// The lines of all breakpoints, within the limits of a request.
    fn lines(&mut self) -> Arc<[ArmedLine]> {
        let (mut lines, mut bytes) = (Vec::new(), 0);
        for (path, breakpoints) in &mut self.breakpoints {
            let paths = self.folders.paths(path);
            for one in breakpoints {
                one.place(paths.as_ref(), &self.narrowed);
                let Ok(line) = &one.line else { continue };
                bytes += written(line).len();
                if lines.len() >= MAX_ARMED_LINES || bytes > MAX_ARMED_BYTES {
                    one.line = Err(
                        "a session has at most 64 breakpoints, with 128 KiB of conditions and messages: remove or disable some",
                    );
                    continue;
                }
                lines.push(line.clone());
            }
        }
        lines.into()
    }

    /// Arms the present lines in the jobs that are found.
    async fn arm(&mut self) -> Vec<Value> {
        self.show_soon();
        self.search_soon();
        let all = self.lines();
        let (mut ended, mut refused) = (Vec::new(), None);
        for at in (0..self.armed.len()).rev() {
            let lines = permitted(self.armed[at].lease.job(), self.principal, &all);
            self.obstacles.records |= lines.len() < all.len();
            match lines.is_empty() {
                true => ended.push(self.armed.swap_remove(at)),
                false => {
                    refused = self.armed[at]
                        .set(self.audit, lines)
                        .await
                        .err()
                        .or(refused)
                }
            }
        }
        self.end(ended).await;
        self.summarize();
        let sentence = |why| format!("new breakpoints are not armed, because {why}");
        let refused = refused.map(|why| notice(&sentence(why), true));
        Vec::from_iter(refused)
    }

    /// Shows the armed lines in the list of sessions.
    fn summarize(&self) {
        let Some(first) = self.armed.first() else {
            return self.audit.session().set_armed(None);
        };
        let each = self.armed.iter().map(|armed| armed.lease.job());
        let summary = each.fold(ArmedSummary::of(first.lease.lines()), |summary, job| {
            summary.in_job(&job.name, &job.cluster)
        });
        self.audit.session().set_armed(Some(summary));
        self.count_hits();
    }

    fn count_hits(&self) {
        let hits = self.armed.iter().map(ArmedJob::hits).sum();
        self.audit.session().set_hits(hits);
    }

    fn search_soon(&mut self) {
        (self.search_at, self.pause) = (Instant::now(), SEARCH_INTERVAL);
    }

    fn start_search(&mut self) {
        self.search_at = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(MAX_SEARCH_INTERVAL);
        let is_found = matches!(self.jobs, Jobs::Named(_)) && self.is_armed();
        if self.breakpoints.is_empty() || is_found || self.armed.len() >= MAX_JOBS {
            return;
        }
        let mut known = self.over.clone();
        known.extend(
            self.armed
                .iter()
                .map(|armed| JobName::of_job(armed.lease.job())),
        );
        let search = JobSearch {
            context: self.context,
            principal: self.principal,
            cluster: self.cluster.clone(),
            known,
            room: MAX_JOBS - self.armed.len(),
        };
        self.searching = match &self.jobs {
            Jobs::None => None,
            Jobs::Named(name) => Some(Box::pin(search.named(name.clone()))),
            Jobs::SubmittedBy(submitter, named) => Some(Box::pin(
                search.submitted_by(submitter.clone(), named.clone()),
            )),
        };
    }

    /// Arms the lines in the jobs that a search has found.
    async fn on_found(&mut self, found: Found) -> Vec<Value> {
        let (all, mut trouble) = (self.lines(), found.trouble);
        let obstacles = Obstacles {
            records: self.records(&found.jobs),
            forbidden: found.forbidden,
        };
        for job in found.jobs {
            let lines = permitted(&job, self.principal, &all);
            if lines.is_empty() {
                continue;
            }
            let armed = ArmedJob::new(self.context, self.principal, self.audit, job, lines).await;
            match armed {
                Ok(armed) => self.armed.push(armed),
                Err(why) => trouble = Some(why.to_string()),
            }
        }
        if self.obstacles != obstacles {
            self.obstacles = obstacles;
            self.show_soon();
        }
        self.summarize();
        let is_new = trouble != self.trouble;
        self.trouble = trouble;
        let trouble = self.trouble.iter().filter(|_| is_new);
        trouble
            .map(|why| notice(&format!("breakpoints are not armed: {why}"), false))
            .collect()
    }

    /// Whether sessions on a job with a lease, or on one of `more`, are recorded.
    fn records(&self, more: &[WholeJob]) -> bool {
        let armed = self.armed.iter().map(|armed| armed.lease.job());
        let mut jobs = armed.chain(more);
        jobs.any(|job| job.is_recorded(self.principal))
    }

    async fn on_event(&mut self, event: LeaseEvent, at: usize) -> Vec<Value> {
        let job = JobName::of_job(self.armed[at].lease.job());
        let text = match event {
            LeaseEvent::Worker(node, report) => {
                self.progress.report(&job, &node, &report);
                return Vec::from_iter(self.reported(at, &node, &report));
            }
            LeaseEvent::NotArmed(node, reason) => {
                self.progress.not_armed(&job, &node, &reason);
                self.show_soon();
                return Vec::new();
            }
            LeaseEvent::Full(true) => format!(
                "{MAX_STOPPED_TASKS} tasks are paused on breakpoints of this session, the maximum; others pass them until you resume one"
            ),
            LeaseEvent::Full(false) => "tasks stop on breakpoints again".to_owned(),
            LeaseEvent::Ended(end) => {
                let armed = self.armed.swap_remove(at);
                let name = shortened(&armed.lease.job().name, 80);
                self.end(vec![armed]).await;
                self.over.insert(job);
                self.summarize();
                self.show_soon();
                format!("breakpoints are disarmed in {name}: {end}")
            }
        };
        vec![notice(&text, false)]
    }

    fn reported(&mut self, at: usize, node: &RayNode, report: &ArmReport) -> Option<Value> {
        let (WorkerReport::Hit { id, .. } | WorkerReport::Stop { id, .. }) = &report.report else {
            self.show_soon();
            return None;
        };
        self.armed[at].count(*id);
        self.count_hits();
        let WorkerReport::Hit { rank, text, .. } = &report.report else {
            return None;
        };
        let (path, line) = self.breakpoints.iter().find_map(|(path, all)| {
            let one = all.iter().find(|one| one.id == *id)?;
            Some((path, one.requested.line))
        })?;
        let from = match rank {
            Some(rank) => format!("rank {rank}"),
            None => format!("pid {} on {}", report.pid, node.address),
        };
        let lines = text.split('\n');
        let output: String = lines
            .map(|text| format!("{from}  {}\n", replaced(text)))
            .collect();
        let body =
            json!({"category": "stdout", "output": output, "source": {"path": path}, "line": line});
        Some(event(Event::Output, body))
    }

    /// Disarms the lines in these jobs, and then puts that on record.
    async fn end(&mut self, jobs: Vec<ArmedJob>) {
        for armed in &jobs {
            self.progress.ended(&JobName::of_job(armed.lease.job()));
        }
        for details in join_all(jobs.into_iter().map(ArmedJob::disarm)).await {
            self.audit.disarmed(details).await;
        }
    }

    fn show_soon(&mut self) {
        self.show_at
            .get_or_insert_with(|| Instant::now() + SHOW_DELAY);
    }

    /// The events for breakpoints that have changed.
    fn show(&mut self) -> Vec<Value> {
        self.show_at = None;
        let mut messages = Vec::new();
        let files = self.breakpoints.iter_mut();
        for (path, one) in files.flat_map(|(path, all)| all.iter_mut().map(move |one| (path, one)))
        {
            let now = one.now(&self.progress, &self.jobs, &self.obstacles);
            if one.shown.as_ref() != Some(&now) {
                let changed = json!({"reason": "changed", "breakpoint": now.message(one.id)});
                messages.push(event(Event::Breakpoint, changed));
                one.shown = Some(now);
            }
            let dropped = self.progress.dropped(one.id);
            if dropped > one.dropped {
                let text = format!(
                    "dropped {} messages of {}:{}: each worker sends at most 50 a second; add a condition or a hit count",
                    dropped - one.dropped,
                    path.rsplit(['/', '\\']).next().unwrap_or(path),
                    one.requested.line
                );
                messages.push(notice(&text, false));
                one.dropped = dropped;
            }
        }
        messages
    }
}
