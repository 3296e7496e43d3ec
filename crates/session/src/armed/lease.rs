//! The owner of a job's armed lines: a lease at the agent of each node of the cluster.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until, timeout};

use super::job::WholeJob;
use super::node::{NodeLease, NodeReport, RETRY_INTERVAL};
use crate::agents::Agents;
use crate::context::Context;
use ray_relay_access::identity::Principal;
use ray_relay_access::telemetry::request::RequestId;
use ray_relay_base::wire::tunnel::messages::{ArmReport, ArmedLine, Text, WorkerReport};
use ray_relay_ray::ray::registry::{BreakpointId, RayNode, Registry};

/// Reports of nodes that may be queued for the owner: beyond that, agents wait.
const MAX_QUEUED_REPORTS: usize = 64;

/// The pause between two questions whether the job still runs, and may be debugged.
const JOB_INTERVAL: Duration = Duration::from_secs(5);

/// Time limit for querying the heads for their nodes.
const NODES_TIMEOUT: Duration = Duration::from_secs(5);

/// Tasks that are paused on armed lines of one lease. At that number others pass the lines until one resumes. Those that
/// arrive in the moment that this takes stop as well.
pub const MAX_STOPPED_TASKS: usize = 256;

/// How long a task that has stopped may take to be listed.
const LISTED_TIMEOUT: Duration = Duration::from_secs(10);

/// What happens to the lines of a lease.
pub enum LeaseEvent {
    /// A worker of the node reports.
    Worker(RayNode, ArmReport),
    /// The lines are not armed at the node, or no more, for this reason. Reported once, until it changes.
    NotArmed(RayNode, String),
    /// Whether lines stop no more tasks: [`MAX_STOPPED_TASKS`] are paused on them.
    Full(bool),
    /// The lease has to end: drop it.
    Ended(LeaseEnd),
}

/// Why a lease ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseEnd {
    /// The job has ended.
    Job,
    /// The principal may not arm lines there any more.
    Revoked,
    /// A rule limits how long a session lasts.
    Limit,
}

impl LeaseEnd {
    /// The word for programs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Revoked => "revoked",
            Self::Limit => "limit",
        }
    }
}

impl fmt::Display for LeaseEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Job => "the job has ended",
            Self::Revoked => "you no longer have the permissions `debug` and `attach` for this job",
            Self::Limit => "the `session_limit` of the policy for this job is reached",
        })
    }
}

type JobQuery = Pin<Box<dyn Future<Output = bool> + Send>>;

/// Lines that are armed in all workers of a job, also in those that start later. Dropping it disarms them.
pub struct JobLease {
    job: WholeJob,
    principal: Principal,
    agents: Arc<Agents>,
    registry: Registry,
    /// As they were requested.
    lines: Arc<[ArmedLine]>,
    /// The beginning of the names of their counters, by which their hit counts continue when they are armed again.
    counters: RequestId,
    /// As they are armed: without those that stop, while [`MAX_STOPPED_TASKS`] are paused.
    armed: watch::Sender<Arc<[ArmedLine]>>,
    nodes: watch::Receiver<Arc<[RayNode]>>,
    /// The nodes with a task.
    tasked: HashSet<Arc<str>>,
    tasks: JoinSet<Arc<str>>,
    sender: mpsc::Sender<(RayNode, NodeReport)>,
    reports: mpsc::Receiver<(RayNode, NodeReport)>,
    /// The reason why lines are not armed at a node, as last reported.
    trouble: HashMap<Arc<str>, String>,
    /// The tasks that are paused on a line, and since when.
    stopped: HashMap<BreakpointId, Instant>,
    is_full: bool,
    search: Interval,
    ask: Interval,
    job_query: Option<JobQuery>,
    limit: Option<Instant>,
}

impl JobLease {
    /// Arms `lines`, at least one, in the workers of `job` for `principal`. The caller has checked the permission, and
    /// put it on record. Takes a moment where the relay knows no node yet.
    pub async fn new(
        context: &Context,
        job: WholeJob,
        principal: &Principal,
        lines: Arc<[ArmedLine]>,
    ) -> Self {
        let (sender, reports) = mpsc::channel(MAX_QUEUED_REPORTS);
        let limit = job.obligations(principal).session_limit;
        let mut lease = Self {
            principal: principal.clone(),
            agents: Arc::clone(&context.peers.agents),
            registry: context.registry.clone(),
            armed: watch::Sender::new(Arc::from([])),
            lines,
            counters: RequestId::random(),
            nodes: context.registry.watch_nodes(),
            tasked: HashSet::new(),
            tasks: JoinSet::new(),
            sender,
            reports,
            trouble: HashMap::new(),
            stopped: HashMap::new(),
            is_full: false,
            search: ticker(RETRY_INTERVAL),
            ask: ticker(JOB_INTERVAL),
            job_query: None,
            limit: limit.map(|limit| Instant::now() + limit),
            job,
        };
        if lease.live_nodes().is_empty() {
            _ = timeout(NODES_TIMEOUT, lease.registry.nodes_refreshed()).await;
        }
        lease.arm();
        lease
    }

    /// The lines, as they were requested.
    pub fn lines(&self) -> &[ArmedLine] {
        &self.lines
    }

    /// The job.
    pub fn job(&self) -> &WholeJob {
        &self.job
    }

    /// Replaces the lines. Those with the same content stay armed without a gap.
    pub fn set_lines(&mut self, lines: Arc<[ArmedLine]>) {
        self.lines = lines;
        self.arm();
    }

    /// Waits until the lines are disarmed as far as this relay has to do with it: agents then know.
    pub async fn disarm(mut self) {
        self.tasks.shutdown().await;
    }

    /// Waits for the next event. Cancel safe.
    pub async fn next(&mut self, context: &Context) -> LeaseEvent {
        loop {
            let limit = async {
                match self.limit {
                    Some(limit) => sleep_until(limit).await,
                    None => std::future::pending().await,
                }
            };
            let has_ended = async {
                match &mut self.job_query {
                    Some(query) => query.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some((node, report)) = self.reports.recv() => {
                    if let Some(event) = self.reported(node, report) {
                        return event;
                    }
                }
                Some(ended) = self.tasks.join_next() => {
                    // Its node is found again at the next search.
                    if let Ok(node_id) = ended {
                        self.tasked.remove(&node_id);
                    }
                }
                _ = self.search.tick() => {
                    self.start_nodes();
                    if let Some(event) = self.count_stopped() {
                        return event;
                    }
                }
                _ = self.ask.tick() => {
                    if !self.job.may_arm(context, &self.principal) {
                        return LeaseEvent::Ended(LeaseEnd::Revoked);
                    }
                    let (registry, job) = (self.registry.clone(), self.job.job());
                    let query = async move { registry.has_ended(&job).await };
                    self.job_query.get_or_insert_with(|| Box::pin(query));
                }
                ended = has_ended => {
                    self.job_query = None;
                    if ended {
                        return LeaseEvent::Ended(LeaseEnd::Job);
                    }
                }
                () = limit => return LeaseEvent::Ended(LeaseEnd::Limit),
            }
        }
    }

    fn reported(&mut self, node: RayNode, report: NodeReport) -> Option<LeaseEvent> {
        match report {
            NodeReport::Worker(report) => {
                self.trouble.remove(&node.node_id);
                if let WorkerReport::Stop { .. } = report.report {
                    let id = BreakpointId::derive(&self.job.cluster, &report.worker_id);
                    self.stopped.insert(id, Instant::now());
                    // The next search tells that there are too many.
                    if self.stopped.len() >= MAX_STOPPED_TASKS {
                        self.search.reset_immediately();
                    }
                }
                Some(LeaseEvent::Worker(node, report))
            }
            NodeReport::NotArmed(reason) => {
                let node_id = Arc::clone(&node.node_id);
                let known = self.trouble.insert(node_id, reason.clone());
                (known.as_ref() != Some(&reason)).then_some(LeaseEvent::NotArmed(node, reason))
            }
        }
    }

    /// The live nodes of the cluster, as its head lists them.
    fn live_nodes(&self) -> Vec<RayNode> {
        let nodes = self.nodes.borrow();
        let live = nodes.iter().filter(|node| node.cluster == self.job.cluster);
        live.cloned().collect()
    }

    /// Starts with each node that has no task.
    fn start_nodes(&mut self) {
        for node in self.live_nodes() {
            if !self.tasked.insert(Arc::clone(&node.node_id)) {
                continue;
            }
            let lease = NodeLease {
                agents: Arc::clone(&self.agents),
                node,
                job_id: self.job.job_id.clone(),
                lines: self.armed.subscribe(),
                sender: self.sender.clone(),
            };
            self.tasks.spawn(lease.run());
        }
    }

    /// Forgets the tasks that have resumed. Has lines stop no more tasks at the limit, and again below it.
    fn count_stopped(&mut self) -> Option<LeaseEvent> {
        let list = self.registry.snapshot();
        self.stopped
            .retain(|id, since| since.elapsed() < LISTED_TIMEOUT || list.find(*id).is_some());
        let is_full = self.stopped.len() >= MAX_STOPPED_TASKS;
        if is_full == self.is_full {
            return None;
        }
        self.is_full = is_full;
        self.arm();
        Some(LeaseEvent::Full(is_full))
    }

    fn arm(&mut self) {
        let stays = |line: &&ArmedLine| !self.is_full || line.log.is_some();
        let counted = |line: &ArmedLine| ArmedLine {
            counter: Some(Text::new(&format!("{}-{}", self.counters, line.id))),
            ..line.clone()
        };
        let armed: Arc<[ArmedLine]> = self.lines.iter().filter(stays).map(counted).collect();
        self.armed.send_if_modified(|known| {
            let is_other = *known != armed;
            *known = armed;
            is_other
        });
    }
}

fn ticker(every: Duration) -> Interval {
    let mut ticker = interval(every);
    ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticker
}
