//! The lease at one node.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use crate::agents::Agents;
use crate::agents::arm::ArmedNode;
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
            let mut next = self.arm().await?;
            // The previous lines stay armed meanwhile, so that no task passes a line that is in both.
            if let (Some(next), Some(_)) = (&mut next, &current) {
                let first = timeout(CHANGE_TIMEOUT, next.next()).await;
                match first.unwrap_or(Ok(None)) {
                    Ok(Some(report)) => self.report(NodeReport::Worker(report)).await,
                    // It has ended, or no worker has lines there.
                    Ok(None) => {}
                    Err(why) => return Err(why.to_string()),
                }
            }
            current = next;
            if !self.follow(&mut current).await? {
                return Ok(());
            }
        }
    }

    /// `None`: there is no line.
    async fn arm(&mut self) -> Result<Option<ArmedNode>, String> {
        let lines = Arc::clone(&self.lines.borrow_and_update());
        if lines.is_empty() {
            return Ok(None);
        }
        let node = &self.node;
        let armed = self
            .agents
            .arm(&node.cluster, &node.node_id, &self.job_id, &lines);
        armed.await.map(Some).map_err(|why| why.to_string())
    }

    /// Passes on reports until the lines change: true, or the agent has gone: false.
    async fn follow(&mut self, armed: &mut Option<ArmedNode>) -> Result<bool, String> {
        loop {
            let next = async {
                match armed {
                    Some(armed) => armed.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // The lease has ended, and aborts this task.
                changed = self.lines.changed() => return Ok(changed.is_ok()),
                report = next => match report.map_err(|why| why.to_string())? {
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
