//! One link: the agent introduces itself, the relay sends requests, the agent answers.
//!
//! Before the credential of a link expires, another link replaces it, with whatever the token and certificate files
//! hold by then. The older link stays until the relay has accepted the newer one, and its streams outlive it.

mod request;

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use hyper::HeaderMap;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::connect::{Dialler, Relay, RelayDialError};
use super::gossip::{self, ProcessLink};
use super::reverse::Reverse;
use super::{Agent, machine};
use ray_relay_base::dial::Stream;
use ray_relay_base::wire::link::{CloseReason, ControlLink, LinkError, SILENCE_TIMEOUT};
use ray_relay_base::wire::text::shortened;
use ray_relay_base::wire::tunnel::messages::{
    Announce, FromAgent, FromRelay, Hex, HoldRow, MAX_ROWS, Node, PROTOCOL, Replica, Revocations,
    StreamId,
};
use ray_relay_base::wire::tunnel::{LINK_PATH, LINK_PROTOCOL, link_config};

/// A credential that is valid for less is not renewed: the link ends with it and is established again.
const MIN_RENEWABLE_VALIDITY: Duration = Duration::from_secs(3);

/// Answers that may be queued for sending: beyond that, senders wait.
const MAX_QUEUED_ANSWERS: usize = 64;

/// The pause between two notices passed on from other relays: a relay accepts no more messages a second than an agent
/// has to send.
const NOTICE_INTERVAL: Duration = Duration::from_millis(100);

/// Messages that a relay may send within a second: more than it has requests.
const MAX_MESSAGES_PER_SECOND: u32 = 512;

/// Why a link ended. `Display` is for the log.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkEnded {
    #[error(transparent)]
    Connect(#[from] RelayDialError),
    #[error("{0}")]
    Lost(String),
    #[error("the relay was silent for {} s", SILENCE_TIMEOUT.as_secs())]
    Silent,
    #[error("the relay refuses this agent: {0}")]
    Refused(String),
    #[error(
        "the relay speaks version {0} of the agents' protocol, this agent version {PROTOCOL}: update the older of the two"
    )]
    Version(u32),
    #[error("another address leads to the same relay")]
    Duplicate,
    #[error("the agent ends")]
    Ending,
}

impl LinkEnded {
    fn close_reason(&self) -> CloseReason {
        match self {
            Self::Ending => CloseReason::Ending,
            Self::Duplicate => CloseReason::Left,
            Self::Silent => CloseReason::Silent,
            Self::Lost(_) | Self::Version(_) => CloseReason::Invalid,
            Self::Connect(_) | Self::Refused(_) => CloseReason::Refused,
        }
    }
}

impl From<LinkError> for LinkEnded {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Silent => Self::Silent,
            LinkError::Gone => Self::Lost("the connection to the relay is gone".to_owned()),
            LinkError::Closed(..) => Self::Lost(format!("the relay {error}")),
            error => Self::Lost(format!("the link broke: the relay {error}")),
        }
    }
}

/// Links to `relay` until the link ends. Returns whether the relay accepted the agent.
pub(super) async fn run(agent: Arc<Agent>, relay: Relay) -> (LinkEnded, bool) {
    let dialled = tokio::select! {
        dialled = Box::pin(AgentLink::dial(&agent, relay)) => dialled,
        () = agent.ending.cancelled() => return (LinkEnded::Ending, false),
    };
    let mut link = match dialled {
        Ok(link) => link,
        Err(error) => return (error.into(), false),
    };
    loop {
        match Box::pin(serve(link)).await {
            LinkOutcome::Renewed(newer) => link = *newer,
            LinkOutcome::Ended(ended, welcome) => return (ended, welcome),
        }
    }
}

/// How serving a link ended.
pub(super) enum LinkOutcome {
    /// This newer link replaces it.
    Renewed(Box<AgentLink<Stream>>),
    /// It ended; whether the relay had accepted the agent.
    Ended(LinkEnded, bool),
}

/// Serves `link` until it is over.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut link: AgentLink<S>,
) -> LinkOutcome {
    let ended = match link.run().await {
        Ok(newer) => return LinkOutcome::Renewed(Box::new(newer)),
        Err(ended) => ended,
    };
    if matches!(ended, LinkEnded::Silent) {
        link.lost.cancel();
    }
    let why = ended.to_string();
    link.wire.close(None, ended.close_reason(), &why).await;
    LinkOutcome::Ended(ended, link.nodes.is_some())
}

pub(super) struct AgentLink<S> {
    agent: Arc<Agent>,
    wire: ControlLink<S, FromRelay, FromAgent>,
    dialler: Dialler,
    answers: mpsc::Sender<FromAgent>,
    to_send: mpsc::Receiver<FromAgent>,
    /// Ensures that no other link of this agent leads to the same relay process.
    process_link: Option<ProcessLink>,
    /// Streams being opened, which the relay may cancel.
    opening: HashMap<StreamId, CancellationToken>,
    replica: Replica,
    /// The nodes that the agent may speak for, once the relay has accepted it.
    nodes: Option<Vec<Node>>,
    /// Whether the relay has sent how many failed tasks to keep.
    sends_failures: bool,
    /// The rendezvous of the relay, for workers that dial their debugger.
    reverse: Reverse,
    /// Cancelled when the relay has gone silent. Its streams are equally dead then, but may themselves be waiting for
    /// a debugger or a user.
    lost: CancellationToken,
    /// When the link's credential expires.
    valid_until: Option<Instant>,
    /// When to attempt a newer link.
    renew_at: Option<Instant>,
}

/// Updates that the agent sends to a relay without a request.
struct Announcements {
    held: watch::Receiver<Arc<[HoldRow]>>,
    relays: watch::Receiver<Vec<Replica>>,
    notices: gossip::GossipReader,
    /// Changes of the stored black boxes.
    failed: watch::Receiver<u64>,
    /// When the next notice of another relay may be passed on.
    next_notice_at: Instant,
}

impl AgentLink<Stream> {
    async fn dial(agent: &Arc<Agent>, relay: Relay) -> Result<Self, RelayDialError> {
        let dialler = Dialler::new(relay).await?;
        let socket = dialler
            .open(LINK_PATH, LINK_PROTOCOL, HeaderMap::new(), link_config())
            .await?;
        Ok(Self::new(Arc::clone(agent), socket, dialler))
    }

    /// Establishes another link with the process `replica` of `relay`, up to its acceptance by the relay.
    async fn newer(agent: Arc<Agent>, relay: Relay, replica: Replica) -> Result<Self, LinkEnded> {
        let mut link = Self::dial(&agent, relay).await?;
        let nonce = link.hello().await?;
        if link.replica != replica {
            return Err(LinkEnded::Duplicate);
        }
        link.announce(nonce).await?;
        while link.nodes.is_none() {
            if let Some(message) = link.wire.next().await? {
                link.message(message).await?;
            }
        }
        Ok(link)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AgentLink<S> {
    pub(super) fn new(agent: Arc<Agent>, socket: WebSocketStream<S>, dialler: Dialler) -> Self {
        let (answers, to_send) = mpsc::channel(MAX_QUEUED_ANSWERS);
        Self {
            agent,
            wire: ControlLink::answering(socket, MAX_MESSAGES_PER_SECOND, MAX_MESSAGES_PER_SECOND),
            dialler,
            answers,
            to_send,
            process_link: None,
            opening: HashMap::new(),
            replica: Hex([0; 8]),
            nodes: None,
            sends_failures: false,
            reverse: Reverse::default(),
            lost: CancellationToken::new(),
            valid_until: None,
            renew_at: None,
        }
    }

    /// Runs the link, until a newer link replaces this one, or to the end.
    async fn run(&mut self) -> Result<AgentLink<Stream>, LinkEnded> {
        if self.process_link.is_none() {
            let nonce = self.hello().await?;
            let process_link = self.agent.gossip.claim(self.replica);
            self.process_link = Some(process_link.ok_or(LinkEnded::Duplicate)?);
            self.announce(nonce).await?;
        }
        let mut updates = Announcements {
            held: self.agent.held.watch(),
            relays: self.agent.gossip.relays(),
            notices: self.agent.gossip.reader(self.replica),
            failed: self.agent.black_boxes.watch(),
            next_notice_at: Instant::now(),
        };
        updates.held.mark_changed();
        updates.failed.mark_changed();
        updates.relays.mark_changed();
        loop {
            self.serve_until_renewal(&mut updates, true).await?;
            let (agent, replica) = (Arc::clone(&self.agent), self.replica);
            let mut newer = Box::pin(AgentLink::newer(agent, self.dialler.relay.clone(), replica));
            let renewal = tokio::select! {
                renewal = &mut newer => renewal,
                served = self.serve_until_renewal(&mut updates, false) => match served {
                    Err(ended) if !matches!(ended, LinkEnded::Ending) => {
                        // The relay ends this one before it makes the agent welcome on the other.
                        let renewal = timeout(SILENCE_TIMEOUT, newer).await;
                        Ok(renewal.ok().and_then(Result::ok).ok_or(ended)?)
                    }
                    served => served.and(Err(LinkEnded::Ending)),
                },
            };
            match renewal {
                Ok(mut newer) => {
                    newer.process_link = self.process_link.take();
                    newer.lost = self.lost.clone();
                    debug!("a newer link has taken the place of this one");
                    return Ok(newer);
                }
                Err(LinkEnded::Ending) => return Err(LinkEnded::Ending),
                Err(why) => debug!(%why, "link renewal failed"),
            }
            self.schedule_renewal();
        }
    }

    /// Records the nodes that the relay has accepted the agent for, and how long its credential is still valid.
    fn accepted(&mut self, nodes: Vec<Node>, good_for_ms: Option<u64>) {
        if self.nodes.as_ref() != Some(&nodes) {
            let list = nodes
                .iter()
                .map(|node| format!("{} at {} of {}", node.node_id, node.address, node.cluster));
            let list = list.collect::<Vec<_>>().join(", ");
            info!(nodes = list, "linked to a relay");
        }
        self.nodes = Some(nodes);
        let good_for = good_for_ms.map(Duration::from_millis);
        self.valid_until = good_for.and_then(|good| Instant::now().checked_add(good));
        self.schedule_renewal();
    }

    /// Schedules the attempt of a link with a newer credential, early enough for some more attempts.
    fn schedule_renewal(&mut self) {
        let now = Instant::now();
        let remaining = self
            .valid_until
            .map(|until| until.saturating_duration_since(now));
        self.renew_at = remaining
            .filter(|remaining| *remaining >= MIN_RENEWABLE_VALIDITY)
            .map(|remaining| now + remaining * 2 / 3);
    }

    /// Receives which relay process this is, and the nonce that the announcement has to repeat.
    async fn hello(&mut self) -> Result<Hex<16>, LinkEnded> {
        let Some(hello) = self.wire.next().await? else {
            return Err(LinkEnded::Lost(
                "the relay did not introduce itself".to_owned(),
            ));
        };
        let FromRelay::Hello {
            protocol,
            version,
            replica,
            nonce,
        } = hello
        else {
            return Err(LinkEnded::Lost(
                "the relay did not introduce itself first".to_owned(),
            ));
        };
        if protocol != PROTOCOL {
            return Err(LinkEnded::Version(protocol));
        }
        debug!(%version, "a relay has introduced itself");
        self.replica = replica;
        Ok(nonce)
    }

    async fn announce(&mut self, nonce: Hex<16>) -> Result<(), LinkEnded> {
        let announcement = self.announcement(nonce).await;
        Ok(self.wire.say(&announcement).await?)
    }

    async fn announcement(&self, nonce: Hex<16>) -> FromAgent {
        let location = self.agent.verifier.location();
        let mut addresses = location.addresses();
        addresses.truncate(MAX_ROWS);
        let reverse_ports = self.agent.reverse_ports.clone();
        FromAgent::Announce(Announce {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").into(),
            nonce,
            instance: self.agent.instance,
            node_id: location.node_id.as_deref().map(Into::into),
            addresses,
            hostname: machine::hostname().as_str().into(),
            architecture: std::env::consts::ARCH.into(),
            pid: std::process::id(),
            sees_processes: self.agent.verifier.sees_processes().await,
            reverse_ports: reverse_ports.map(RangeInclusive::into_inner),
            keeps: true,
            keeps_prompts: true,
            keeps_subprocesses: true,
            inspects: true,
            arms: true,
        })
    }

    /// Serves the link until it is to be renewed, or ends.
    async fn serve_until_renewal(
        &mut self,
        updates: &mut Announcements,
        renews: bool,
    ) -> Result<(), LinkEnded> {
        let ending = self.agent.ending.clone();
        loop {
            let welcome = self.nodes.is_some();
            let renew_at = self.renew_at.filter(|_| renews);
            tokio::select! {
                () = ending.cancelled() => return Err(LinkEnded::Ending),
                () = sleep_until(renew_at.unwrap_or_else(Instant::now)), if renew_at.is_some() => return Ok(()),
                _ = updates.held.changed(), if welcome => {
                    let held = Arc::clone(&updates.held.borrow_and_update());
                    let workers = held.iter().take(MAX_ROWS).cloned().collect();
                    self.wire.say(&FromAgent::Held { workers }).await?;
                }
                _ = updates.relays.changed(), if welcome => {
                    let replicas = gossip::few(&updates.relays.borrow_and_update());
                    self.wire.say(&FromAgent::Relays { replicas }).await?;
                }
                _ = updates.failed.changed(), if welcome && self.sends_failures => {
                    if let Some(report) = self.agent.black_boxes.report() {
                        self.wire.say(&FromAgent::Failed(report)).await?;
                    }
                }
                notice = updates.notices.next_after(updates.next_notice_at), if welcome => {
                    self.wire.say(&FromAgent::Revocations(Revocations::clone(&notice))).await?;
                    updates.next_notice_at = Instant::now() + NOTICE_INTERVAL;
                }
                // The link itself has a sender, so the channel never closes.
                Some(answer) = self.to_send.recv() => {
                    if let FromAgent::Refused { stream, .. } = &answer {
                        self.opening.remove(stream);
                    }
                    self.wire.say(&answer).await?;
                }
                message = self.wire.next() => {
                    if let Some(message) = message? {
                        self.message(message).await?;
                    }
                }
            }
        }
    }

    async fn message(&mut self, message: FromRelay) -> Result<(), LinkEnded> {
        match message {
            FromRelay::Welcome { nodes, good_for_ms } => self.accepted(nodes, good_for_ms),
            FromRelay::Refused { reason } => {
                return Err(LinkEnded::Refused(shortened(&reason, 512)));
            }
            FromRelay::Open(open) => return self.open(open).await,
            FromRelay::Inspect(request) => return self.inspect(request).await,
            FromRelay::Arm(request) => return self.arm(request).await,
            FromRelay::PostMortem(settings) => {
                if let Some(nodes) = &self.nodes {
                    self.agent.black_boxes.configure(settings, nodes);
                    self.sends_failures = true;
                }
            }
            FromRelay::Locate { query, port, title } => self.locate(query, port, title),
            FromRelay::LetRun(let_run) => self.agent.held.resume_task(&let_run),
            FromRelay::Cancel { stream } => {
                if let Some(opening) = self.opening.remove(&stream) {
                    opening.cancel();
                }
            }
            // Notices of a relay that has not accepted the agent are ignored.
            FromRelay::Revocations(notice) if self.nodes.is_some() => {
                self.agent.gossip.put(self.replica, notice);
            }
            FromRelay::Revocations(_) => {}
            FromRelay::Listen { rendezvous } => {
                let (agent, dialler) = (&self.agent, &self.dialler);
                self.reverse
                    .listen(agent, dialler, &self.answers, rendezvous);
            }
            FromRelay::Unlisten { rendezvous } => self.reverse.unlisten(&rendezvous),
            FromRelay::Receive {
                stream,
                secret,
                arrival,
            } => {
                if let Some(refused) = self.reverse.receive(&arrival, stream, secret) {
                    return Ok(self.wire.say(&refused).await?);
                }
            }
            FromRelay::Dismiss { arrival } => self.reverse.dismiss(&arrival),
            FromRelay::Hello { .. } => {
                return Err(LinkEnded::Lost(
                    "the relay introduced itself twice".to_owned(),
                ));
            }
            FromRelay::Unknown => {
                debug!("the relay sent a message that this version does not know")
            }
        }
        Ok(())
    }
}
