//! One agent's link, for everybody who asks it for something. [`super::serve`] is what answers.

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

/// How long an agent that another claims to be may take to show that it is there.
const PROBED: Duration = Duration::from_secs(3);

/// One agent's link, for everybody who asks it for something.
pub struct Link {
    /// Counts links of this process, from 1.
    pub(super) id: u64,
    pub(super) principal: Principal,
    pub(super) peer: SocketAddr,
    /// What it says of itself.
    pub(super) about: Announce,
    pub(super) since: Timestamp,
    pub(super) standing: Arc<AgentProcess>,
    pub(super) outbox: mpsc::Sender<LinkCommand>,
    pub(super) told: watch::Sender<Option<AgentLinkEnd>>,
    pub(super) heard: watch::Sender<Instant>,
    pub(super) state: Mutex<LinkState>,
}

#[derive(Default)]
pub(super) struct LinkState {
    nodes: Vec<RayNode>,
    pub(super) round_trip: Option<Duration>,
    pub(super) held: Arc<[HoldRow]>,
    /// Whether the agent keeps what is left of tasks that fail: it has not said so, or it does, or why not.
    pub(super) keeps_failures: Option<Option<Sentence>>,
    pub(super) queries: HashMap<Hex<8>, oneshot::Sender<Option<Name>>>,
}

/// What is to be sent.
pub(super) enum LinkCommand {
    Message(FromRelay),
    /// Asks whether the agent is there.
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
    /// Both are links of one process: of that only it knows, as the principal of that name.
    pub(super) fn is_of_same_agent(&self, other: &Self) -> bool {
        self.about.instance.is_same_secret(&other.about.instance)
            && self.principal.subject() == other.principal.subject()
    }

    /// The nodes that it speaks for.
    pub(super) fn nodes(&self) -> MappedMutexGuard<'_, Vec<RayNode>> {
        MutexGuard::map(self.state.lock(), |state| &mut state.nodes)
    }

    pub(super) fn set_nodes(&self, nodes: &[RayNode]) {
        self.state.lock().nodes = nodes.to_vec();
    }

    /// How long an answer to the last ping took.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.state.lock().round_trip
    }

    /// What sessions hold through the agent, by its last word.
    pub(super) fn held(&self) -> Arc<[HoldRow]> {
        Arc::clone(&self.state.lock().held)
    }

    /// Has `message` sent; `false`: too much waits already, or the link is over.
    pub(super) fn tell(&self, message: FromRelay) -> bool {
        self.outbox.try_send(LinkCommand::Message(message)).is_ok()
    }

    /// Has it end.
    pub fn end(&self, end: AgentLinkEnd) {
        self.told.send_if_modified(|told| {
            let first = told.is_none();
            told.get_or_insert(end);
            first
        });
    }

    /// The link is over.
    pub async fn closed(&self) {
        self.outbox.closed().await;
    }

    /// Whether the agent says something now that it is asked. Cancel safe.
    pub(super) async fn is_there(&self) -> bool {
        let asked = Instant::now();
        let mut heard = self.heard.subscribe();
        if self.outbox.try_send(LinkCommand::Probe).is_err() {
            return false;
        }
        let answered = heard.wait_for(|at| *at > asked);
        tokio::select! {
            answered = timeout(PROBED, answered) => matches!(answered, Ok(Ok(_))),
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
        if !self.tell(FromRelay::Locate { query, port, title }) {
            return None;
        }
        answer.await.ok().flatten()
    }

    pub(super) fn as_words(&self) -> String {
        let nodes: Vec<_> = self.nodes().iter().map(words).collect();
        nodes.join(", ")
    }
}

/// A node for people: `10.0.0.7 (1f2e3d4c…) of default`.
pub(super) fn words(node: &RayNode) -> String {
    let id = node.node_id.get(..8).unwrap_or(&node.node_id);
    format!("{} ({id}) of {}", node.address, node.cluster)
}
