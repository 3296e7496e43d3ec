//! Armed lines: log messages and stops in all workers of a job that have the hook, also in those that start later.
//!
//! One stream of a relay is one lease. The tasks that hold the hooks' connections belong to it, and when it closes,
//! or its relay has gone silent, they are aborted, and the hooks disarm. The program that arms lines
//! (`arm/engine`) goes with each request, so that workers which arm nothing do not hold it.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::Agent;
use super::door::ArmedMarker;
use super::hook::{ArmRequest, ArmedHook, NamedSocket, NoAnswer, OtherWorker, sockets};
use super::stream::{Requester, report_refusal, stream_for};
use super::verifier::Refused;
use ray_relay_base::dial::Stream;
use ray_relay_base::wire::tunnel::ByteStream;
use ray_relay_base::wire::tunnel::messages::{
    Arm, ArmReport, ArmedLine, FromAgent, MAX_ARMED_LINES, Name, Refusal, Sentence, StreamGreeting,
    WorkerReport, written,
};

/// The program that arms lines in a worker.
const ENGINE_SOURCE: &str = concat!(
    include_str!("arm/engine/code.py"),
    include_str!("arm/engine/line.py"),
    include_str!("arm/engine/engine.py"),
    include_str!("arm/engine/stop.py"),
    include_str!("arm/engine/serve.py"),
);

/// The pause between two searches for new workers, and for new sessions of Ray.
const SCAN_INTERVAL: Duration = Duration::from_millis(200);
const SESSIONS_INTERVAL: Duration = Duration::from_secs(2);

/// The pause before a worker whose hook did not answer is asked again.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// How often a socket at which nothing listens is tried, at each search: it exists a moment before its worker listens,
/// and stays where a worker was killed.
const MAX_CONNECT_ATTEMPTS: u32 = 10;

/// Workers of one lease.
const MAX_WORKERS: usize = 1024;

/// Reports that may be queued for the relay: beyond that, hooks wait, and drop messages.
const MAX_QUEUED_REPORTS: usize = 256;

/// How long a relay may take to receive a report.
const RELAY_TIMEOUT: Duration = Duration::from_secs(15);

/// Serves the request until its lease ends, or reports on the relay's link why not.
pub(super) async fn serve(
    agent: Arc<Agent>,
    requester: Requester,
    request: Arm,
    cancelled: CancellationToken,
    answers: mpsc::Sender<FromAgent>,
) {
    let opened = async {
        if request.lines.is_empty() || request.lines.len() > MAX_ARMED_LINES {
            let detail = format!("a request arms 1 to {MAX_ARMED_LINES} lines");
            return Err(Refused::new(Refusal::Other, &detail));
        }
        stream_for(&requester.dialler, request.stream, &request.secret).await
    };
    let opened = tokio::select! {
        opened = opened => opened,
        () = cancelled.cancelled() => return,
        () = agent.ending.cancelled() => Err(Refused::new(Refusal::Busy, "the agent is about to end")),
    };
    let mut relay = match opened {
        Ok(relay) => ByteStream::new(relay),
        Err(refused) => return report_refusal(request.stream, refused, &answers).await,
    };
    if relay.say(written(&StreamGreeting::Dialled)).await.is_err() {
        return;
    }
    info!(job = %request.job_id, lines = request.lines.len(), "lines are armed");
    let mut lease = Lease::new(&agent, &request);
    tokio::select! {
        why = lease.run(&mut relay) => debug!(why, "a lease has ended"),
        () = requester.lost.cancelled() => debug!("a lease has ended with its relay"),
        () = agent.ending.cancelled() => {}
    }
    drop(lease);
    info!(job = %request.job_id, "lines are disarmed");
    _ = timeout(RELAY_TIMEOUT, relay.shutdown()).await;
}

/// The workers in which the lines of one request are armed.
struct Lease<'a> {
    agent: &'a Arc<Agent>,
    node_id: Name,
    job_id: Name,
    /// The second line for each hook.
    payload: Arc<str>,
    sender: mpsc::Sender<ArmReport>,
    reports: mpsc::Receiver<ArmReport>,
    workers: JoinSet<(NamedSocket, Tried)>,
    /// The sockets that were tried.
    tried: HashMap<NamedSocket, Tried>,
    /// The folders of Ray's sessions, each marked so that new workers wait for their lines.
    folders: HashMap<PathBuf, Option<ArmedMarker>>,
    folders_until: Instant,
}

/// The state of a socket that was tried.
#[derive(Debug, Clone, Copy)]
enum Tried {
    /// It is armed or being tried, or is of no interest.
    Settled,
    /// Nothing listened there, so often.
    Silent(u32),
    /// Its hook did not answer; to be asked again then.
    Again(Instant),
}

impl Tried {
    fn is_due(self, now: Instant) -> bool {
        match self {
            Self::Settled => false,
            Self::Silent(attempts) => attempts < MAX_CONNECT_ATTEMPTS,
            Self::Again(at) => now >= at,
        }
    }
}

/// A payload of a hook: the program and what it is to arm.
#[derive(serde::Serialize)]
struct Payload<'a> {
    engine: &'a str,
    lines: &'a [ArmedLine],
}

impl<'a> Lease<'a> {
    fn new(agent: &'a Arc<Agent>, request: &Arm) -> Self {
        let (sender, reports) = mpsc::channel(MAX_QUEUED_REPORTS);
        let payload = Payload {
            engine: ENGINE_SOURCE,
            lines: &request.lines,
        };
        Self {
            agent,
            node_id: request.node_id.clone(),
            job_id: request.job_id.clone(),
            payload: written(&payload).into(),
            sender,
            reports,
            workers: JoinSet::new(),
            tried: HashMap::new(),
            folders: HashMap::new(),
            folders_until: Instant::now(),
        }
    }

    /// Arms the lines in each worker that appears, and passes reports to `relay`, until that closes. Returns why it
    /// ended.
    async fn run(&mut self, relay: &mut ByteStream<Stream>) -> &'static str {
        let mut scan = interval(SCAN_INTERVAL);
        scan.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut byte = [0];
        loop {
            tokio::select! {
                // A relay sends nothing but the end.
                _ = relay.read(&mut byte) => return "the relay has closed it",
                Some(report) = self.reports.recv() => {
                    let line = written(&report) + "\n";
                    match timeout(RELAY_TIMEOUT, relay.write_all(line.as_bytes())).await {
                        Ok(Ok(())) => {}
                        Ok(Err(_)) => return "the relay is gone",
                        Err(_) => return "the relay does not read",
                    }
                }
                Some(ended) = self.workers.join_next() => {
                    if let Ok((socket, tried)) = ended {
                        self.tried.insert(socket, tried);
                    }
                }
                _ = scan.tick() => self.scan().await,
            }
        }
    }

    /// Starts with each worker that has appeared since.
    async fn scan(&mut self) {
        let now = Instant::now();
        if now >= self.folders_until {
            let sessions = self.agent.verifier.sessions().await;
            let live: HashSet<PathBuf> = sessions.into_iter().map(|one| one.folder).collect();
            self.folders.retain(|folder, _| live.contains(folder));
            for marker in self.folders.values().flatten() {
                marker.renew();
            }
            for folder in live {
                let marked = |folder: &PathBuf| self.agent.armed.mark(folder, &self.node_id);
                let entry = self.folders.entry(folder);
                entry.or_insert_with_key(marked);
            }
            self.folders_until = now + SESSIONS_INTERVAL;
        }
        let mut found = HashSet::new();
        for folder in self.folders.keys() {
            found.extend(sockets(folder.clone()).await);
        }
        self.tried.retain(|socket, _| found.contains(socket));
        for socket in found {
            let tried = self.tried.get(&socket).copied();
            let is_due = tried.is_none_or(|tried| tried.is_due(now));
            if is_due && self.workers.len() < MAX_WORKERS {
                self.tried.insert(socket.clone(), Tried::Settled);
                let attempts = match tried {
                    Some(Tried::Silent(attempts)) => attempts,
                    _ => 0,
                };
                let worker = Worker {
                    agent: Arc::clone(self.agent),
                    node_id: self.node_id.clone(),
                    job_id: self.job_id.clone(),
                    payload: Arc::clone(&self.payload),
                    sender: self.sender.clone(),
                };
                self.workers.spawn(worker.arm(socket, attempts));
            }
        }
    }
}

/// One worker of a lease.
struct Worker {
    agent: Arc<Agent>,
    node_id: Name,
    job_id: Name,
    payload: Arc<str>,
    sender: mpsc::Sender<ArmReport>,
}

impl Worker {
    /// Arms the lines there, if the worker belongs to the job, until it ends. `attempts` have found nothing that
    /// listens. Cancel safe: when it is dropped, the hook's connection closes.
    async fn arm(self, socket: NamedSocket, attempts: u32) -> (NamedSocket, Tried) {
        let pid = socket.number;
        let Some(stream) = socket.connect(&self.agent.verifier).await else {
            return (socket, Tried::Silent(attempts + 1));
        };
        let tried = match self.armed(stream).await {
            Ok(Ok(hook)) => {
                self.forward(hook, pid).await;
                Tried::Settled
            }
            // It has ended, or is of no interest.
            Ok(Err(OtherWorker)) | Err(NoAnswer::Closed) => Tried::Settled,
            Err(why) => {
                let reason = Sentence::new(&why.to_string());
                let refused = WorkerReport::Refused { reason };
                self.report(pid, &Name::default(), refused).await;
                match why {
                    NoAnswer::Silent | NoAnswer::Stopped => {
                        Tried::Again(Instant::now() + RETRY_INTERVAL)
                    }
                    _ => Tried::Settled,
                }
            }
        };
        (socket, tried)
    }

    async fn armed(&self, stream: UnixStream) -> Result<Result<ArmedHook, OtherWorker>, NoAnswer> {
        let request = ArmRequest {
            what: "arm",
            node_id: &self.node_id,
            job_id: &self.job_id,
        };
        ArmedHook::arm(stream, &request, &self.payload).await
    }

    async fn forward(&self, mut hook: ArmedHook, pid: u32) {
        let worker_id = hook.worker_id.clone();
        while let Some(report) = hook.next().await {
            let refused = matches!(report, WorkerReport::Refused { .. });
            self.report(pid, &worker_id, report).await;
            if refused {
                return;
            }
        }
        self.report(pid, &worker_id, WorkerReport::Gone).await;
    }

    async fn report(&self, pid: u32, worker_id: &Name, report: WorkerReport) {
        let report = ArmReport {
            pid,
            worker_id: worker_id.clone(),
            report,
        };
        // If the lease has ended, this task is aborted.
        _ = self.sender.send(report).await;
    }
}
