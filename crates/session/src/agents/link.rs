//! One agent's link, shared by all callers. [`super::serve`] runs it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};

use super::end::AgentLinkEnd;
use super::table::AgentProcess;
use ray_relay_access::identity::Principal;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::tunnel::messages::{Announce, FromRelay, HoldRow, Name, Sentence};
use ray_relay_base::wire::tunnel::text::Hex;
use ray_relay_ray::ray::registry::RayNode;

/// Deadline for an agent to answer a probe when another claims its node.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// One agent's link, shared by all callers. [`super::serve`] runs it.
pub struct Link {
    /// Counts links of this process, from 1.
    pub(super) id: u64,
    pub(super) principal: Principal,
    pub(super) peer: SocketAddr,
    /// Its announcement.
    pub(super) about: Announce,
    pub(super) since: Timestamp,
    pub(super) process: Arc<AgentProcess>,
    pub(super) outbox: mpsc::Sender<LinkCommand>,
    pub(super) end_reason: watch::Sender<Option<AgentLinkEnd>>,
    pub(super) last_received: watch::Sender<Instant>,
    pub(super) state: Mutex<LinkState>,
}

#[derive(Default)]
pub(super) struct LinkState {
    nodes: Vec<RayNode>,
    pub(super) round_trip: Option<Duration>,
    pub(super) held: Arc<[HoldRow]>,
    /// Whether the agent keeps failed tasks. `None`: it has not reported; `Some(None)`: it does; otherwise the reason
    /// why it does not.
    pub(super) keeps_failures: Option<Option<Sentence>>,
    pub(super) queries: HashMap<Hex<8>, oneshot::Sender<Option<Name>>>,
}

/// A command to the task that runs the link.
pub(super) enum LinkCommand {
    Message(FromRelay),
    /// Probes whether the agent answers.
    Probe,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Link {
    /// Whether both links belong to one agent process: same instance secret, same principal.
    pub(super) fn is_of_same_agent(&self, other: &Self) -> bool {
        self.about.instance.is_same_secret(&other.about.instance)
            && self.principal.subject() == other.principal.subject()
    }

    /// Nodes that the agent speaks for.
    pub(super) fn nodes(&self) -> MappedMutexGuard<'_, Vec<RayNode>> {
        MutexGuard::map(self.state.lock(), |state| &mut state.nodes)
    }

    pub(super) fn set_nodes(&self, nodes: &[RayNode]) {
        self.state.lock().nodes = nodes.to_vec();
    }

    /// Round trip of the last ping.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.state.lock().round_trip
    }

    /// Workers that sessions hold through the agent, by its last report.
    pub(super) fn held(&self) -> Arc<[HoldRow]> {
        Arc::clone(&self.state.lock().held)
    }

    /// Queues `message`; `false`: the queue is full, or the link is over.
    pub(super) fn try_send(&self, message: FromRelay) -> bool {
        self.outbox.try_send(LinkCommand::Message(message)).is_ok()
    }

    /// Ends the link; the first reason counts.
    pub fn end(&self, end: AgentLinkEnd) {
        self.end_reason.send_if_modified(|reason| {
            let first = reason.is_none();
            reason.get_or_insert(end);
            first
        });
    }

    /// Resolves when the link is over.
    pub async fn closed(&self) {
        self.outbox.closed().await;
    }

    /// Whether the agent answers a probe. Cancel safe.
    pub(super) async fn is_there(&self) -> bool {
        let probed_at = Instant::now();
        let mut last_received = self.last_received.subscribe();
        if self.outbox.try_send(LinkCommand::Probe).is_err() {
            return false;
        }
        let answered = last_received.wait_for(|at| *at > probed_at);
        tokio::select! {
            answered = timeout(PROBE_TIMEOUT, answered) => matches!(answered, Ok(Ok(_))),
            () = self.closed() => false,
        }
    }

    /// Asks which of the agent's nodes has a process of that `title` listening on `port`. Cancel safe.
    pub(super) async fn locate(&self, port: u16, title: &str) -> Option<Name> {
        let query = Hex::random()?;
        let (found, answer) = oneshot::channel();
        {
            let mut state = self.state.lock();
            state.queries.retain(|_, asker| !asker.is_closed());
            if state.queries.len() >= super::MAX_WAITING_STREAMS {
                return None;
            }
            state.queries.insert(query, found);
        }
        let title = title.into();
        if !self.try_send(FromRelay::Locate { query, port, title }) {
            return None;
        }
        answer.await.ok().flatten()
    }

    pub(super) fn node_list(&self) -> String {
        let nodes: Vec<_> = self.nodes().iter().map(describe).collect();
        nodes.join(", ")
    }
}

/// Formats a node for users: `10.0.0.7 (1f2e3d4c…) of default`.
pub(super) fn describe(node: &RayNode) -> String {
    let id = node.node_id.get(..8).unwrap_or(&node.node_id);
    format!("{} ({id}) of {}", node.address, node.cluster)
}
