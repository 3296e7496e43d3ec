//! The lease at one node.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use crate::agents::Agents;
use crate::agents::arm::ArmedNode;
use crate::agents::inspect::NotInspected;
use ray_relay_base::wire::tunnel::messages::{ArmReport, ArmedLine};
use ray_relay_ray::ray::registry::RayNode;

/// The pause before a node without an agent is asked again.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// How long changed lines may take to be armed, before the previous ones are disarmed all the same.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(1);

/// A report of the node's task to its [`JobLease`](super::JobLease).
pub(super) enum NodeReport {
    Worker(ArmReport),
    /// The lines are not armed there, or no more.
    NotArmed(String),
}

/// Arms the lines at one node. Dropping its task disarms them there.
pub(super) struct NodeLease {
    pub(super) agents: Arc<Agents>,
    pub(super) node: RayNode,
    pub(super) job_id: String,
    pub(super) lines: watch::Receiver<Arc<[ArmedLine]>>,
    pub(super) sender: mpsc::Sender<(RayNode, NodeReport)>,
}

impl NodeLease {
    /// Passes on the reports of the node's workers until its agent has gone. Returns the node.
    pub(super) async fn run(mut self) -> Arc<str> {
        let why = match self.armed().await {
            Ok(()) => "the agent of the node has gone, and nothing is armed there until it is back"
                .to_owned(),
            Err(why) => why,
        };
        self.report(NodeReport::NotArmed(why)).await;
        sleep(RETRY_INTERVAL).await;
        self.node.node_id
    }

    async fn armed(&mut self) -> Result<(), String> {
        let mut current = None;
        loop {
            let next = self.replaced(current).await?;
            current = next;
            if !self.follow(&mut current).await? {
                return Ok(());
            }
        }
    }

    /// Arms the present lines. `previous` ones stay armed meanwhile, so that no task passes a line that is in both, but
    /// for [`CHANGE_TIMEOUT`] at most: some may have been removed. `None`: there is no line.
    async fn replaced(
        &mut self,
        mut previous: Option<ArmedNode>,
    ) -> Result<Option<ArmedNode>, String> {
        let lines = Arc::clone(&self.lines.borrow_and_update());
        if lines.is_empty() {
            self.drain(previous).await;
            return Ok(None);
        }
        let until = Instant::now() + CHANGE_TIMEOUT;
        let (agents, node) = (Arc::clone(&self.agents), self.node.clone());
        let job_id = self.job_id.clone();
        let arming = async move {
            let armed = agents.arm(&node.cluster, &node.node_id, &job_id, &lines);
            armed.await.map_err(|why| why.to_string())
        };
        tokio::pin!(arming);
        let mut next: Option<ArmedNode> = None;
        loop {
            let had = previous.is_some();
            if !had && let Some(next) = next {
                return Ok(Some(next));
            }
            tokio::select! {
                armed = &mut arming, if next.is_none() => next = Some(armed?),
                report = reported(&mut next) => {
                    // A worker has the new lines, or the agent has gone.
                    self.drain(previous.take()).await;
                    match report.map_err(|why| why.to_string())? {
                        Some(report) => self.report(NodeReport::Worker(report)).await,
                        None => return Ok(next),
                    }
                }
                report = reported(&mut previous), if had => match report {
                    Ok(Some(report)) => self.report(NodeReport::Worker(report)).await,
                    _ => previous = None,
                },
                () = sleep_until(until), if had => self.drain(previous.take()).await,
            }
        }
    }

    /// Disarms the lines, once what is reported already has been passed on.
    async fn drain(&self, armed: Option<ArmedNode>) {
        let Some(mut armed) = armed else { return };
        while let Some(Ok(Some(report))) = armed.next().now_or_never() {
            self.report(NodeReport::Worker(report)).await;
        }
    }

    /// Passes on reports until the lines change: true, or the agent has gone: false.
    async fn follow(&mut self, armed: &mut Option<ArmedNode>) -> Result<bool, String> {
        loop {
            tokio::select! {
                // The lease has ended, and aborts this task.
                changed = self.lines.changed() => return Ok(changed.is_ok()),
                report = reported(armed) => match report.map_err(|why| why.to_string())? {
                    Some(report) => self.report(NodeReport::Worker(report)).await,
                    None => return Ok(false),
                },
            }
        }
    }

    async fn report(&self, report: NodeReport) {
        // If the lease has ended, this task is aborted.
        _ = self.sender.send((self.node.clone(), report)).await;
    }
}

/// The next report of `armed`; never one of nothing.
async fn reported(armed: &mut Option<ArmedNode>) -> Result<Option<ArmReport>, NotInspected> {
    match armed {
        Some(armed) => armed.next().await,
        None => std::future::pending().await,
    }
}
