//! Serves a link from the agent's announcement to its end.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use super::end::AgentLinkEnd;
use super::link::{Link, LinkCommand, describe};
use super::table::ClaimOutcome;
use super::{Agents, Carrier, Newcomer, NoStream, Socket, trust};
use ray_relay_access::audit::{Entry, EntryKind};
use ray_relay_access::identity::Principal;
use ray_relay_access::telemetry::metrics::LinkEnd;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::link::ControlLink;
use ray_relay_base::wire::tunnel::messages::{
    Announce, FromAgent, FromRelay, Hex, HoldRow, Node, PROTOCOL, PostMortem, Refusal,
};
use ray_relay_ray::hold::Holder;
use ray_relay_ray::ray::registry::RayNode;

/// The deadline from the connection to the announcement.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(10);

/// Deadline for the heads to list a node that is not known yet.
const NODE_LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);

/// Rate limit of an agent's messages: burst, and sustained per second.
const MAX_BURST: u32 = 1024;
const MAX_MESSAGES_PER_SECOND: u32 = 128;

/// Queue of outgoing messages.
const OUTBOX_CAPACITY: usize = 256;

/// How long a link outlives the shutdown at most, for workers that sessions still detach from.
const DETACH_TIMEOUT: Duration = Duration::from_secs(45);

/// Failed tasks that one agent keeps; beyond that, it drops the oldest of the job with most.
const MAX_FAILED_TASKS: u32 = 64;

/// Bytes that one agent keeps of failed tasks.
const MAX_FAILED_BYTES: u64 = 16 << 20;

/// How long an agent keeps a failed task, in milliseconds.
const FAILED_RETENTION_MS: u64 = 24 * 3_600_000;

/// Attempts to claim nodes while other links come and go.
const MAX_CLAIM_ATTEMPTS: usize = 4;

type AgentControlLink = ControlLink<Carrier, FromAgent, FromRelay>;

/// State of a link's loop.
struct Serving {
    link: Arc<Link>,
    outbox: mpsc::Receiver<LinkCommand>,
    end_reason: watch::Receiver<Option<AgentLinkEnd>>,
    nodes: watch::Receiver<Arc<[RayNode]>>,
}

impl Agents {
    /// Serves the link of an agent that was authenticated as `principal`, to its end.
    pub async fn serve(
        self: Arc<Self>,
        socket: Socket,
        principal: Principal,
        peer: SocketAddr,
        newcomer: Newcomer,
    ) {
        let mut wire = AgentControlLink::asking(socket, MAX_BURST, MAX_MESSAGES_PER_SECOND);
        let handshake = tokio::select! {
            handshake = self.handshake(&mut wire, &principal, peer) => handshake,
            over = principal.ended() => Err(AgentLinkEnd::Over(over)),
        };
        // A trusted agent has a slot in the table; a refused one counts as a newcomer until its link is closed.
        let mut newcomer = Some(newcomer);
        let end = match handshake {
            Err(end) => {
                self.refused(&end, &principal, peer).await;
                end
            }
            Ok(mut serving) => {
                newcomer.take();
                let _linked = self.metrics.agent_linked();
                let end = match self.recorded(&serving.link).await {
                    Ok(()) => {
                        self.send_revocations(&serving.link);
                        self.meets(&serving.link);
                        self.run(&mut wire, &mut serving).await
                    }
                    Err(end) => end,
                };
                self.audit_gone(&serving.link, &end).await;
                end
            }
        };
        self.metrics.agent_link(end.label());
        let why = end.to_string();
        let refused = end.is_refusal().then(|| FromRelay::Refused {
            reason: why.as_str().into(),
        });
        wire.close(refused, end.close_reason(), &why).await;
        drop(newcomer);
    }

    /// Audits the new `link`. No request is sent before: it would go unrecorded.
    async fn recorded(&self, link: &Link) -> Result<(), AgentLinkEnd> {
        let entry = self.entry(link).with("outcome", "linked");
        let recorded = self.audit.write(entry).await;
        recorded.map_err(|why| AgentLinkEnd::Unrecorded(why.to_string()))?;
        info!(
            agent = %link.about.hostname, version = %link.about.version, peer = %link.peer, nodes = link.node_list(), "agent linked"
        );
        Ok(())
    }

    /// Handshake: reads the agent's announcement and enters its link into the table. Cancel safe: the link is entered
    /// exactly when this returns.
    async fn handshake(
        &self,
        wire: &mut AgentControlLink,
        principal: &Principal,
        peer: SocketAddr,
    ) -> Result<Serving, AgentLinkEnd> {
        let nonce = Hex::random().ok_or(AgentLinkEnd::NoSecrets)?;
        wire.say(&FromRelay::Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").into(),
            replica: self.replica,
            nonce,
        })
        .await?;
        let announced = timeout(ANNOUNCE_TIMEOUT, announcement(wire));
        let announced = announced.await.unwrap_or(Err(AgentLinkEnd::Unannounced))?;
        if announced.protocol != PROTOCOL {
            return Err(AgentLinkEnd::Version(announced.protocol));
        }
        if !announced.nonce.is_same_secret(&nonce) {
            return Err(AgentLinkEnd::Replayed);
        }
        // From here on the registry polls the heads for nodes.
        let mut live = self.registry.watch_nodes();
        let trusted =
            |live: &[RayNode]| trust::nodes(&announced, live, peer.ip(), principal.access());
        let mut nodes = trusted(&live.borrow_and_update());
        if nodes.is_empty() {
            // The node may have joined a moment ago.
            let _ = timeout(NODE_LOOKUP_TIMEOUT, self.registry.nodes_refreshed()).await;
            nodes = trusted(&live.borrow_and_update());
        }
        if nodes.is_empty() {
            return Err(AgentLinkEnd::Untrusted(trust::none(&announced, peer.ip())));
        }
        let (outbox, outgoing) = mpsc::channel(OUTBOX_CAPACITY);
        let (end_reason, end_reasons) = watch::channel(None);
        let (id, process) = {
            let mut table = self.table.lock();
            (table.number(), table.process(announced.instance))
        };
        let link = Arc::new(Link {
            id,
            principal: principal.clone(),
            peer,
            about: announced,
            since: Timestamp::now(),
            process,
            outbox,
            end_reason,
            last_received: watch::Sender::new(Instant::now()),
            state: Mutex::default(),
        });
        // The first message sent, whatever is requested meanwhile.
        link.try_send(welcome(&nodes, &link.principal));
        link.try_send(self.retention());
        self.claim(&link, &nodes).await?;
        Ok(Serving {
            link,
            outbox: outgoing,
            end_reason: end_reasons,
            nodes: live,
        })
    }

    /// Claims `nodes` for `link`, unless another live agent speaks for them.
    async fn claim(&self, link: &Arc<Link>, nodes: &[RayNode]) -> Result<(), AgentLinkEnd> {
        for _ in 0..MAX_CLAIM_ATTEMPTS {
            let claim = self.table.lock().claim(link, nodes, Instant::now());
            let rivals = match claim {
                ClaimOutcome::Taken { replaced } => {
                    for old in replaced {
                        old.end(AgentLinkEnd::Replaced);
                    }
                    return Ok(());
                }
                ClaimOutcome::Full => return Err(AgentLinkEnd::Full),
                ClaimOutcome::Contested(node) => {
                    return Err(AgentLinkEnd::Contested(describe(&node)));
                }
                ClaimOutcome::Rivals(rivals) => rivals,
            };
            for rival in rivals {
                if rival.is_there().await {
                    return Err(self.contest(link, nodes, &rival));
                }
                // Its streams may well be alive: it had only three seconds to answer.
                rival.end(AgentLinkEnd::Silent);
                self.leave(&rival, &AgentLinkEnd::Broken);
            }
        }
        Err(AgentLinkEnd::Contested(
            "that others claim as well".to_owned(),
        ))
    }

    /// Two live agents claim the same node: neither is trusted.
    fn contest(&self, link: &Link, nodes: &[RayNode], rival: &Arc<Link>) -> AgentLinkEnd {
        let theirs = rival.nodes().clone();
        let both: Vec<_> = nodes.iter().filter(|node| theirs.contains(node)).collect();
        self.table
            .lock()
            .contest(both.iter().copied(), Instant::now());
        let which: Vec<_> = both.iter().map(|node| describe(node)).collect();
        let which = which.join(", ");
        for (one, other) in [(link, &**rival), (&**rival, link)] {
            warn!(
                node = which, agent = %one.about.hostname, peer = %one.peer, principal = ?one.principal,
                rival = %other.about.hostname, rival_peer = %other.peer, rival_principal = ?other.principal,
                "two agents claim the same node: both are refused"
            );
        }
        rival.end(AgentLinkEnd::Contested(which.clone()));
        for one in [link, &**rival] {
            one.process.cut.cancel();
        }
        AgentLinkEnd::Contested(which)
    }

    async fn run(&self, wire: &mut AgentControlLink, serving: &mut Serving) -> AgentLinkEnd {
        let Serving {
            link,
            outbox,
            end_reason,
            nodes,
        } = serving;
        let mut over = pin!(link.principal.ended());
        let mut ending = pin!(self.ending());
        loop {
            let ended = async { end_reason.wait_for(Option::is_some).await.ok()?.clone() };
            let done = tokio::select! {
                over = &mut over => Err(AgentLinkEnd::Over(over)),
                end = ended => Err(end.unwrap_or(AgentLinkEnd::Broken)),
                received = wire.next() => match received {
                    Ok(message) => {
                        link.last_received.send_replace(Instant::now());
                        link.state.lock().round_trip = wire.round_trip();
                        match message {
                            Some(message) => self.on_message(link, message).await,
                            None => Ok(()),
                        }
                    }
                    Err(error) => Err(error.into()),
                },
                Some(outgoing) = outbox.recv() => match outgoing {
                    LinkCommand::Message(message) => wire.say(&message).await.map_err(AgentLinkEnd::from),
                    LinkCommand::Probe => wire.probe().await.map_err(AgentLinkEnd::from),
                },
                Ok(()) = nodes.changed() => {
                    let live = Arc::clone(&nodes.borrow_and_update());
                    self.renew(wire, link, &live).await
                }
                () = &mut ending => Err(AgentLinkEnd::Ending),
            };
            if let Err(end) = done {
                return end;
            }
        }
    }

    /// Applies a change in the heads' lists of nodes.
    async fn renew(
        &self,
        wire: &mut AgentControlLink,
        link: &Arc<Link>,
        live: &[RayNode],
    ) -> Result<(), AgentLinkEnd> {
        let (announced, peer) = (&link.about, link.peer.ip());
        let nodes = trust::nodes(announced, live, peer, link.principal.access());
        if nodes == *link.nodes() {
            return Ok(());
        }
        if nodes.is_empty() {
            return Err(AgentLinkEnd::Untrusted(trust::none(announced, peer)));
        }
        self.claim(link, &nodes).await?;
        self.meets(link);
        let welcome = welcome(&nodes, &link.principal);
        self.update_holds(link.id, nodes, &link.held());
        wire.say(&welcome).await?;
        Ok(wire.say(&self.retention()).await?)
    }

    async fn on_message(&self, link: &Arc<Link>, message: FromAgent) -> Result<(), AgentLinkEnd> {
        match message {
            FromAgent::Announce(_) => {
                return Err(AgentLinkEnd::Garbage("a second announcement".to_owned()));
            }
            FromAgent::Refused {
                stream,
                kind,
                detail,
                holder,
            } => {
                let why = match holder.filter(|_| kind == Refusal::Held) {
                    Some(held) => NoStream::Held(Box::new(Holder::from(&*held))),
                    None => NoStream::Refused { kind, detail },
                };
                self.refuse_stream(link, &stream, why);
            }
            FromAgent::Located {
                query,
                found,
                node_id,
            } => {
                let asker = link.state.lock().queries.remove(&query);
                if let Some(asker) = asker {
                    // The requesting task may be gone.
                    let _ = asker.send(node_id.filter(|_| found));
                }
            }
            FromAgent::Held { workers } => {
                self.break_lost(link, &workers);
                let held: Arc<[_]> = workers.into();
                link.state.lock().held = Arc::clone(&held);
                self.update_holds(link.id, link.nodes().clone(), &held);
            }
            FromAgent::Relays { replicas } => self.update_relays(link.id, replicas),
            FromAgent::Revocations(revocations) => self.apply_revocations(link, revocations).await,
            FromAgent::Listening {
                rendezvous,
                refused,
            } => self.reverse.listening(link, &rendezvous, refused),
            FromAgent::Arrived(arrived) => self.reverse.arrived(link, arrived),
            FromAgent::Failed(report) => self.update_failures(link, report),
            FromAgent::Unknown => {}
        }
        Ok(())
    }

    /// Breaks streams that the agent has lost: it keeps workers parked that sessions of this relay still consider
    /// theirs. Here those streams would look healthy until an agent says otherwise.
    fn break_lost(&self, link: &Link, workers: &[HoldRow]) {
        let lost = |held: &&HoldRow| held.parked.is_some() && held.replica == self.replica;
        let sessions = link.process.sessions.lock();
        for held in workers.iter().filter(lost) {
            if let Some(cut) = sessions.get(&held.session) {
                cut.cancel();
            }
        }
    }

    /// Resolves when the relay has shut down and every worker is detached, some through this link.
    async fn ending(&self) {
        self.closed().await;
        self.leaving.close();
        let _ = timeout(DETACH_TIMEOUT, self.leaving.wait()).await;
    }

    /// Removes an ended link from the table, and fails all that waits for it.
    fn leave(&self, link: &Arc<Link>, end: &AgentLinkEnd) {
        let was_there = self.table.lock().leave(link, end, Timestamp::now());
        // If it is gone already, the agent has a newer one.
        if was_there && end.cuts() {
            link.process.cut.cancel();
        }
        self.forget_waiting(link);
        self.lose_holds(link.id, end, Instant::now());
        self.reverse.lose(link);
        self.lose_failures(link.id);
    }

    /// The agent's limits for keeping failed tasks.
    fn retention(&self) -> FromRelay {
        FromRelay::PostMortem(PostMortem {
            most: match self.keeps_failures {
                true => MAX_FAILED_TASKS,
                false => 0,
            },
            bytes: MAX_FAILED_BYTES,
            keep_ms: FAILED_RETENTION_MS,
        })
    }

    async fn audit_gone(&self, link: &Arc<Link>, end: &AgentLinkEnd) {
        self.leave(link, end);
        let agent = &link.about.hostname;
        match end.is_refusal() {
            true => {
                warn!(%agent, peer = %link.peer, nodes = link.node_list(), why = %end, "agent refused")
            }
            false => {
                info!(%agent, peer = %link.peer, nodes = link.node_list(), why = %end, "agent gone")
            }
        }
        let outcome = match end.is_refusal() {
            true => "refused",
            false => "gone",
        };
        let entry = self.entry(link).with("outcome", outcome);
        self.on_record(entry.with("why", end.to_string())).await;
    }

    async fn refused(&self, end: &AgentLinkEnd, principal: &Principal, peer: SocketAddr) {
        if matches!(
            end.label(),
            LinkEnd::Left | LinkEnd::Lost | LinkEnd::Drained
        ) {
            return;
        }
        warn!(%peer, ?principal, why = %end, "agent refused");
        let mut entry = Entry::new(EntryKind::Agent);
        entry.principal = Some(principal.clone());
        entry.peer = Some(peer);
        let entry = entry
            .with("outcome", "refused")
            .with("why", end.to_string());
        self.on_record(entry).await;
    }

    fn entry(&self, link: &Link) -> Entry {
        let nodes: Vec<_> = link.nodes().iter().map(describe).collect();
        let mut entry = Entry::new(EntryKind::Agent);
        entry.principal = Some(link.principal.clone());
        entry.peer = Some(link.peer);
        entry
            .with("link", link.id)
            .with("nodes", nodes)
            .with("host", &*link.about.hostname)
            .with("version", &*link.about.version)
    }

    /// Audits an event that has happened already.
    pub(super) async fn on_record(&self, entry: Entry) {
        if let Err(why) = self.audit.write(entry).await {
            warn!(%why, "what became of an agent is not on record");
        }
    }
}

async fn announcement(wire: &mut AgentControlLink) -> Result<Announce, AgentLinkEnd> {
    loop {
        match wire.next().await? {
            Some(FromAgent::Announce(announced)) => return Ok(announced),
            Some(FromAgent::Unknown) | None => {}
            Some(_) => {
                return Err(AgentLinkEnd::Garbage(
                    "it came before the announcement".to_owned(),
                ));
            }
        }
    }
}

fn welcome(nodes: &[RayNode], principal: &Principal) -> FromRelay {
    let node = |node: &RayNode| Node {
        cluster: (&*node.cluster).into(),
        node_id: (&*node.node_id).into(),
        address: node.address,
    };
    let good_for = |expires: SystemTime| {
        let remaining = expires
            .duration_since(SystemTime::now())
            .unwrap_or_default();
        u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX)
    };
    FromRelay::Welcome {
        nodes: nodes.iter().map(node).collect(),
        good_for_ms: principal.expires().map(good_for),
    }
}
