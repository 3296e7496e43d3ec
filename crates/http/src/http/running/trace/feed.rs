//! The owner of one trace: a lease at the agent of each node of the cluster, and the events for the client.
//!
//! Agents are always read, so a client that reads slowly delays no worker: it loses messages, and is told how many.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::job::TracedJob;
use crate::http::answer::Body;
use crate::http::events::{KEEP_ALIVE, end_event, last_event};
use crate::http::exchange::Exchange;
use crate::http::jobs;
use ray_relay_access::audit::Entry;
use ray_relay_access::identity::Principal;
use ray_relay_base::memory::Reservation;
use ray_relay_base::wire::tunnel::messages::{ArmReport, ArmedLine, LineStatus, WorkerReport};
use ray_relay_ray::ray::head::StreamedBodyError;
use ray_relay_ray::ray::registry::RayNode;
use ray_relay_session::context::Context;
use ray_relay_session::session::shares::QuotaPermit;

/// Events that may be queued for the client, and reports of agents for this owner.
const MAX_QUEUED_EVENTS: usize = 256;
const MAX_QUEUED_REPORTS: usize = 64;

/// Bytes that these take at most, with a message of 8 KiB in each, and some more around it.
pub(super) const MAX_QUEUED_BYTES: usize = (MAX_QUEUED_EVENTS + MAX_QUEUED_REPORTS) * 9 * 1024;

/// The pause between two searches for new nodes, and between two questions whether the job still runs.
const NODES_INTERVAL: Duration = Duration::from_secs(2);
const JOB_INTERVAL: Duration = Duration::from_secs(5);

/// Time limit for querying the heads for their nodes.
const NODES_TIMEOUT: Duration = Duration::from_secs(5);

/// One trace.
pub(super) struct Trace {
    ctx: Arc<Context>,
    principal: Principal,
    job: TracedJob,
    lines: Arc<[ArmedLine]>,
    closing: CancellationToken,
    nodes: watch::Receiver<Arc<[RayNode]>>,
    /// The nodes with a lease, or that are asked for one.
    armed: HashSet<Arc<str>>,
    /// The reason why lines are not armed at a node, as last sent to the client.
    trouble: HashMap<Arc<str>, String>,
    hits: u64,
    dropped: u64,
}

/// A report of a node's task to the owner.
enum NodeReport {
    Worker(ArmReport),
    /// The lines are not armed there, or no more.
    Trouble(String),
}

type FromNode = (RayNode, NodeReport);

/// Why a trace ended.
enum TraceEnd {
    ClientGone,
    Draining,
    /// With the last event.
    Told(String),
}

impl Trace {
    pub(super) fn new(
        exchange: &Exchange<'_>,
        principal: &Principal,
        job: TracedJob,
        line: ArmedLine,
    ) -> Self {
        Self {
            ctx: Arc::clone(exchange.ctx),
            principal: principal.clone(),
            job,
            lines: [line].into(),
            closing: exchange.connection.closing.clone(),
            nodes: exchange.ctx.registry.watch_nodes(),
            armed: HashSet::new(),
            trouble: HashMap::new(),
            hits: 0,
            dropped: 0,
        }
    }

    /// Starts the owner, which runs until the client drops the returned body. At the end it writes `at_end`.
    pub(super) fn start(self, at_end: Entry, share: (QuotaPermit, Reservation)) -> Body {
        let (sender, receiver) = mpsc::channel(MAX_QUEUED_EVENTS);
        // Not the connection's: that would wait for this, and hold the body meanwhile.
        let tasks = self.ctx.shutdown.tasks.clone();
        tasks.spawn(async move {
            self.run(sender, at_end).await;
            drop(share);
        });
        let frames = stream::unfold(receiver, |mut receiver| async move {
            let text: Bytes = receiver.recv().await?;
            Some((Ok::<_, StreamedBodyError>(Frame::data(text)), receiver))
        });
        StreamBody::new(frames).boxed_unsync()
    }

    async fn run(mut self, client: mpsc::Sender<Bytes>, at_end: Entry) {
        let mut armed = JoinSet::new();
        let end = self.follow(&client, &mut armed).await;
        // Each task drops its lease.
        armed.shutdown().await;
        if let TraceEnd::Told(event) = end {
            _ = timeout(KEEP_ALIVE, client.send(event.into())).await;
        }
        let at_end = at_end.with("hits", self.hits);
        if self.ctx.audit.write(at_end.clone()).await.is_err() {
            self.ctx.audit.owe(at_end);
        }
    }

    async fn follow(
        &mut self,
        client: &mpsc::Sender<Bytes>,
        armed: &mut JoinSet<Arc<str>>,
    ) -> TraceEnd {
        let (sender, mut reports) = mpsc::channel::<FromNode>(MAX_QUEUED_REPORTS);
        let over = job_over(
            Arc::clone(&self.ctx),
            self.principal.clone(),
            self.job.clone(),
        );
        tokio::pin!(over);
        let obligations = self.job.rights(&self.principal).obligations;
        let limit = obligations.session_limit;
        let limit = limit.map(|limit| Instant::now() + limit);
        if self.live_nodes().is_empty() {
            _ = timeout(NODES_TIMEOUT, self.ctx.registry.nodes_refreshed()).await;
        }
        let (mut search, mut keep_alive) = (ticker(NODES_INTERVAL), ticker(KEEP_ALIVE));
        loop {
            tokio::select! {
                () = client.closed() => return TraceEnd::ClientGone,
                () = self.closing.cancelled() => return TraceEnd::Draining,
                ended = self.principal.ended() => return TraceEnd::Told(end_event(ended)),
                end = &mut over => return TraceEnd::Told(end),
                () = until(limit) => {
                    let sentence = "a rule of yours limits how long a session on this job may last";
                    return TraceEnd::Told(last_event("limit", sentence));
                }
                Some((node, report)) = reports.recv() => self.report(client, &node, report),
                Some(ended) = armed.join_next() => {
                    // Tried again at the next search.
                    if let Ok(node_id) = ended {
                        self.armed.remove(&node_id);
                    }
                }
                _ = search.tick() => self.arm_nodes(armed, &sender),
                _ = keep_alive.tick() => {
                    // One that is full is alive as well.
                    _ = client.try_send(Bytes::from_static(b": alive\n\n"));
                }
            }
        }
    }

    /// The live nodes of the cluster, as its head lists them.
    fn live_nodes(&self) -> Vec<RayNode> {
        let nodes = self.nodes.borrow();
        let live = nodes.iter().filter(|node| node.cluster == self.job.cluster);
        live.cloned().collect()
    }

    /// Starts a lease at each node that has none.
    fn arm_nodes(&mut self, armed: &mut JoinSet<Arc<str>>, sender: &mpsc::Sender<FromNode>) {
        for node in self.live_nodes() {
            if !self.armed.insert(Arc::clone(&node.node_id)) {
                continue;
            }
            let lease = NodeLease {
                ctx: Arc::clone(&self.ctx),
                node,
                job_id: self.job.job_id.clone(),
                lines: Arc::clone(&self.lines),
                sender: sender.clone(),
            };
            armed.spawn(lease.run());
        }
    }

    /// Passes `report` on to the client, if it has room.
    fn report(&mut self, client: &mpsc::Sender<Bytes>, node: &RayNode, report: NodeReport) {
        let (worker, text) = match report {
            NodeReport::Worker(ArmReport {
                pid,
                worker_id,
                report,
            }) => {
                self.trouble.remove(&node.node_id);
                self.hits += u64::from(matches!(report, WorkerReport::Hit { .. }));
                (
                    json!({ "pid": pid, "worker_id": &*worker_id }),
                    event(report),
                )
            }
            NodeReport::Trouble(reason) => {
                let known = self
                    .trouble
                    .insert(Arc::clone(&node.node_id), reason.clone());
                if known.as_ref() == Some(&reason) {
                    return;
                }
                (json!({}), Some(("refused", json!({ "reason": reason }))))
            }
        };
        let Some((name, details)) = text else { return };
        let mut data = Map::new();
        data.insert("node_id".to_owned(), (*node.node_id).into());
        data.insert("node".to_owned(), node.address.to_string().into());
        for part in [worker, details] {
            if let Value::Object(part) = part {
                data.extend(part);
            }
        }
        self.send(client, name, &Value::Object(data));
    }

    /// Sends an event, behind the number of those that were dropped before.
    fn send(&mut self, client: &mpsc::Sender<Bytes>, name: &str, data: &Value) {
        if self.dropped > 0 {
            let dropped = event_text("dropped", &json!({ "messages": self.dropped }));
            if client.try_send(dropped).is_ok() {
                self.dropped = 0;
            }
        }
        if client.try_send(event_text(name, data)).is_err() {
            self.dropped += 1;
        }
    }
}

/// The name and the data of the event for `report`, if there is one.
fn event(report: WorkerReport) -> Option<(&'static str, Value)> {
    Some(match report {
        WorkerReport::Status { lines } => {
            let LineStatus {
                state,
                at,
                hits,
                dropped,
                error,
                ..
            } = lines.into_iter().next()?;
            let data = json!({ "state": state, "at": at, "hits": hits, "dropped": dropped, "error": error });
            ("status", data)
        }
        WorkerReport::Hit {
            time_ms,
            rank,
            thread,
            text,
            ..
        } => {
            let data =
                json!({ "time_ms": time_ms, "rank": rank, "thread": thread, "text": &*text });
            ("hit", data)
        }
        WorkerReport::Refused { reason } => ("refused", json!({ "reason": &*reason })),
        WorkerReport::Gone => ("gone", json!({})),
        WorkerReport::Unknown => return None,
    })
}

fn event_text(name: &str, data: &Value) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}

/// The lease at one node. Dropping its task disarms the lines there.
struct NodeLease {
    ctx: Arc<Context>,
    node: RayNode,
    job_id: String,
    lines: Arc<[ArmedLine]>,
    sender: mpsc::Sender<FromNode>,
}

impl NodeLease {
    /// Passes on the reports of the node's workers until its agent has gone. Returns the node.
    async fn run(self) -> Arc<str> {
        let why = match self.armed().await {
            Ok(()) => {
                "the agent of the node has gone, and the line is not armed there until it is back"
                    .to_owned()
            }
            Err(why) => why,
        };
        self.report(NodeReport::Trouble(why)).await;
        // A node without an agent is asked at this pace.
        sleep(NODES_INTERVAL).await;
        self.node.node_id
    }

    async fn armed(&self) -> Result<(), String> {
        let node = &self.node;
        let agents = &self.ctx.peers.agents;
        let armed = agents.arm(&node.cluster, &node.node_id, &self.job_id, &self.lines);
        let mut armed = armed.await.map_err(|why| why.to_string())?;
        while let Some(report) = armed.next().await.map_err(|why| why.to_string())? {
            self.report(NodeReport::Worker(report)).await;
        }
        Ok(())
    }

    async fn report(&self, report: NodeReport) {
        // If the owner has ended, this task is aborted.
        _ = self.sender.send((self.node.clone(), report)).await;
    }
}

/// Resolves with the last event when the job has ended, or `principal` may not trace it any more.
async fn job_over(ctx: Arc<Context>, principal: Principal, job: TracedJob) -> String {
    let mut ask = ticker(JOB_INTERVAL);
    loop {
        ask.tick().await;
        if !job.may_trace(&ctx, &principal) {
            let error = "you may not open debuggers in this job any more";
            return last_event("revoked", error);
        }
        // A head that does not answer leaves it open.
        let found = jobs::find(&ctx, &principal, &job.job_id)
            .await
            .unwrap_or_default();
        let mut of_cluster = found.iter().filter(|one| one.cluster == job.cluster);
        if of_cluster.any(|one| one.ended) {
            return last_event("job", "the job has ended");
        }
    }
}

async fn until(limit: Option<Instant>) {
    match limit {
        Some(limit) => sleep_until(limit).await,
        None => std::future::pending().await,
    }
}

fn ticker(every: Duration) -> Interval {
    let mut ticker = interval(every);
    ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticker
}
