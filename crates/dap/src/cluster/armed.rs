//! Breakpoints of a cluster session in jobs whose code has none: they are armed in all workers of the jobs that the
//! session names, and a task that stops on one opens as a session like any other.
//!
//! Breakpoints that are left over in an editor must stop no colleague's job: a session that takes all tasks and names no
//! job arms nothing. The lines are disarmed when this is dropped.

mod breakpoint;
mod progress;
mod search;
mod source;

use std::collections::{BTreeMap, HashSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_all;
use serde_json::{Value, json};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;

use self::breakpoint::{EditorBreakpoint, Obstacles};
use self::progress::Progress;
use self::search::{Found, JobSearch, Jobs, MAX_JOBS, job_name, of_lines, permitted};
use self::source::{FolderMap, Narrowed, SetBreakpoints};
use super::conversation::Asker;
use super::jobs::JobName;
use crate::attach_selector::AttachSelector;
use ray_relay_access::identity::Principal;
use ray_relay_base::wire::dap::message::{Request, event, notice};
use ray_relay_base::wire::dap::names::Event;
use ray_relay_base::wire::text::{replaced, shortened};
use ray_relay_base::wire::tunnel::messages::{ArmReport, ArmedLine, MAX_ARMED_LINES, WorkerReport};
use ray_relay_ray::ray::registry::RayNode;
use ray_relay_session::armed::{JobLease, LeaseEvent, MAX_STOPPED_TASKS};
use ray_relay_session::context::Context;
use ray_relay_session::session::ArmedSummary;
use ray_relay_session::session::audit::SessionAudit;

/// The pause between two searches for jobs that the session names.
const SEARCH_INTERVAL: Duration = Duration::from_secs(2);

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
    leases: Vec<JobLease>,
    obstacles: Obstacles,
    /// Jobs whose lease has ended, which is not begun again.
    over: HashSet<JobName>,
    search: Interval,
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
        asker: Asker<'a>,
        arguments: &Value,
        selector: &AttachSelector,
    ) -> Self {
        let mut search = interval(SEARCH_INTERVAL);
        search.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            context,
            principal: asker.principal,
            audit: asker.audit,
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
            leases: Vec::new(),
            obstacles: Obstacles::default(),
            over: HashSet::new(),
            search,
            searching: None,
            progress: Progress::default(),
            trouble: None,
            show_at: None,
            end_requested: asker.audit.session().asked_to_end(),
        }
    }

    /// Answers a `setBreakpoints` request, and arms its lines in place of those that the file had.
    pub(super) async fn set(&mut self, request: &Request) -> Vec<Value> {
        let SetBreakpoints {
            source,
            breakpoints,
        } = SetBreakpoints::read(&request.arguments);
        let Some(path) = source.path.filter(|_| !matches!(self.jobs, Jobs::None)) else {
            return vec![request.breakpoints_pending()];
        };
        let mut known = self.breakpoints.remove(&path).unwrap_or_default();
        let others: usize = self.breakpoints.values().map(Vec::len).sum();
        let paths = self.folders.paths(&path);
        let mut all = Vec::new();
        for requested in breakpoints {
            // One that has not changed keeps its number, and so what is known of it.
            let same = known.iter().position(|one| one.requested == requested);
            let one = match same {
                Some(same) => known.swap_remove(same),
                None => {
                    self.last_id += 1;
                    let mut one = EditorBreakpoint::new(self.last_id, requested);
                    match others + all.len() < MAX_ARMED_LINES {
                        true => one.place(paths.as_ref(), &self.narrowed),
                        false => {
                            one.line =
                                Err("a session has at most 64 breakpoints: remove or disable some")
                        }
                    }
                    one
                }
            };
            all.push(one);
        }
        if !all.is_empty() {
            self.breakpoints.insert(path.clone(), all);
        }
        let mut messages = self.arm().await;
        let mut answer = request.breakpoints_pending();
        let of_file = self.breakpoints.get_mut(&path).into_iter().flatten();
        let answered = answer["body"]["breakpoints"].as_array_mut();
        for (answered, one) in answered.into_iter().flatten().zip(of_file) {
            let now = one.now(&self.progress, &self.jobs, &self.obstacles);
            now.put_into(answered, one.id);
            one.shown = Some(now);
        }
        messages.push(answer);
        messages
    }

    /// The client has configured: from now on lines are armed.
    pub(super) fn open(&mut self) {
        self.is_open = true;
        self.search.reset_immediately();
    }

    /// Has `folder` of the editor stand for the folder that the job runs in.
    pub(super) async fn map_to(&mut self, folder: &str) -> Vec<Value> {
        self.folders.map_to(folder);
        for (path, breakpoints) in &mut self.breakpoints {
            let paths = self.folders.paths(path);
            for one in breakpoints {
                one.place(paths.as_ref(), &self.narrowed);
            }
        }
        self.arm().await
    }

    /// Disarms all lines, and puts that on record.
    pub(super) async fn close(&mut self) {
        self.is_open = false;
        self.searching = None;
        for lease in std::mem::take(&mut self.leases) {
            self.end(lease).await;
        }
        self.summarize();
    }

    /// Waits for the next thing that happens. Cancel safe.
    pub(super) async fn next(&mut self) -> Happened {
        loop {
            let may_search = self.is_open && self.searching.is_none();
            let event = async {
                if self.leases.is_empty() {
                    return std::future::pending().await;
                }
                let each = self.leases.iter_mut();
                let each = each.map(|lease| Box::pin(lease.next(self.context)));
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
                _ = self.search.tick(), if may_search => {
                    self.start_search();
                }
            }
        }
    }

    /// Handles what has happened, and returns the messages to the client.
    pub(super) async fn handle(&mut self, happened: Happened) -> Vec<Value> {
        match happened.0 {
            Change::Lease(event, at) => self.on_event(event, at).await,
            Change::Found(found) => self.on_found(found),
            Change::ShowDue => self.show(),
            Change::EndRequested => {
                self.close().await;
                self.obstacles.forbidden = Some(ENDED.to_owned());
                self.show_soon();
                vec![notice(ENDED, true)]
            }
        }
    }

    fn lines(&self) -> Arc<[ArmedLine]> {
        let all = self.breakpoints.values().flatten();
        all.filter_map(|one| one.line.as_ref().ok())
            .cloned()
            .collect()
    }

    /// Arms the present lines in the jobs with a lease.
    async fn arm(&mut self) -> Vec<Value> {
        self.show_soon();
        let all = self.lines();
        let mut refused = None;
        for at in (0..self.leases.len()).rev() {
            let job = self.leases[at].job();
            let lines = permitted(job, self.principal, &all);
            self.obstacles.records |= lines.len() < all.len();
            let recorded = self.audit.arms(of_lines("arm", job, &lines)).await;
            if lines.is_empty() || recorded.is_err() {
                let lease = self.leases.swap_remove(at);
                self.end(lease).await;
            } else {
                self.leases[at].set_lines(lines);
            }
            refused = recorded.err().or(refused);
        }
        self.summarize();
        let sentence = |why| format!("the breakpoints are not armed, because {why}");
        let refused = refused.map(|why| notice(&sentence(why), true));
        Vec::from_iter(refused)
    }

    /// Shows the armed lines in the list of sessions.
    fn summarize(&self) {
        let lines = self.lines();
        let each = self.leases.iter().map(JobLease::job);
        let summary = each.fold(ArmedSummary::of(&*lines), |summary, job| {
            summary.in_job(&job.name, &job.cluster)
        });
        let is_armed = !self.leases.is_empty();
        self.audit.session().set_armed(is_armed.then_some(summary));
    }

    fn start_search(&mut self) {
        let lines = self.lines();
        let is_found = matches!(self.jobs, Jobs::Named(_)) && !self.leases.is_empty();
        if lines.is_empty() || is_found || self.leases.len() >= MAX_JOBS {
            return;
        }
        let mut known = self.over.clone();
        known.extend(self.leases.iter().map(|lease| job_name(lease.job())));
        let search = JobSearch {
            context: self.context,
            principal: self.principal,
            audit: self.audit,
            cluster: self.cluster.clone(),
            known,
            lines,
        };
        self.searching = match &self.jobs {
            Jobs::None => None,
            Jobs::Named(name) => Some(Box::pin(search.named(name.clone()))),
            Jobs::SubmittedBy(submitter) => Some(Box::pin(search.submitted_by(submitter.clone()))),
        };
    }

    fn on_found(&mut self, found: Found) -> Vec<Value> {
        let all = self.lines();
        for mut lease in found.leases {
            // They may have changed meanwhile.
            let lines = permitted(lease.job(), self.principal, &all);
            if !lines.is_empty() {
                lease.set_lines(lines);
                self.leases.push(lease);
            }
        }
        if self.obstacles != found.obstacles {
            self.obstacles = found.obstacles;
            self.show_soon();
        }
        self.summarize();
        let is_new = found.trouble != self.trouble;
        self.trouble = found.trouble;
        let trouble = self.trouble.iter().filter(|_| is_new);
        trouble
            .map(|why| notice(&format!("breakpoints are not armed: {why}"), false))
            .collect()
    }

    async fn on_event(&mut self, event: LeaseEvent, at: usize) -> Vec<Value> {
        let job = job_name(self.leases[at].job());
        let text = match event {
            LeaseEvent::Worker(node, report) => {
                self.progress.report(&job, &node, &report);
                return Vec::from_iter(self.reported(&node, &report));
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
                let lease = self.leases.swap_remove(at);
                let name = shortened(&lease.job().name, 80);
                self.end(lease).await;
                self.over.insert(job);
                self.summarize();
                self.show_soon();
                format!("breakpoints are disarmed in {name}: {end}")
            }
        };
        vec![notice(&text, false)]
    }

    fn reported(&mut self, node: &RayNode, report: &ArmReport) -> Option<Value> {
        let (WorkerReport::Hit { id, .. } | WorkerReport::Stop { id, .. }) = &report.report else {
            self.show_soon();
            return None;
        };
        let all = self.breakpoints.values().flatten();
        let hits = all.map(|one| self.progress.hits(one.id)).sum();
        self.audit.session().set_hits(hits);
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

    /// Ends a lease, with the hits of its lines on record.
    async fn end(&mut self, lease: JobLease) {
        let mut details = of_lines("disarm", lease.job(), &self.lines());
        let all = self.breakpoints.values().flatten();
        let hits = all.map(|one| (one.id.to_string(), self.progress.hits(one.id).into()));
        details.insert("hits".into(), Value::Object(hits.collect()));
        self.progress.ended(&job_name(lease.job()));
        lease.disarm().await;
        self.audit.disarmed(details).await;
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
                let mut breakpoint = json!({});
                now.put_into(&mut breakpoint, one.id);
                let changed = json!({"reason": "changed", "breakpoint": breakpoint});
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
