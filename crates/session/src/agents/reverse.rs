//! Rendezvous of workers and listening debuggers: agents listen on a port of their nodes' loopback address for a user
//! at this relay, and report each worker that dials it.
//!
//! A rendezvous has a name, which belongs to its owner while it exists, and a port that is unique at this relay. Agents
//! listen in clusters where the owner may debug something; [`crate::reverse`] authorises each worker.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::link::Link;
use super::{Agents, NoStream, Socket, Tunnel};
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_base::wire::tunnel::awaited::{Awaited, Expected};
use ray_relay_base::wire::tunnel::messages::{
    self, ArrivalId, FromRelay, Hex, Meeting, Name, RendezvousId, Sentence,
};
use ray_relay_base::wire::tunnel::reverse::RendezvousName;
use ray_relay_ray::ray::registry::RayNode;

/// Rendezvous of one principal.
const MAX_PER_OWNER: usize = 16;

/// All rendezvous: one message lists them to an agent.
const MAX_RENDEZVOUS: usize = messages::MAX_ROWS;

/// Dialled workers of one rendezvous that wait to be served.
const MAX_ARRIVALS: usize = 16;

/// All rendezvous of this relay.
#[derive(Default)]
pub(super) struct ReverseLinks {
    entries: Mutex<HashMap<RendezvousId, ReverseEntry>>,
    /// Pending streams of `ray-relay reverse` commands, one for each worker.
    pub(super) streams: Awaited<Principal, CommandStream>,
}

struct ReverseEntry {
    name: RendezvousName,
    owner: Principal,
    port: u16,
    /// Fires when its owner starts it again.
    replaced: CancellationToken,
    /// Whether agents are notified of it.
    open: bool,
    arrivals: mpsc::Sender<DialledWorker>,
    /// State at each notified agent, by its link.
    answers: watch::Sender<HashMap<u64, RendezvousEvent>>,
}

/// State of a rendezvous at one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RendezvousEvent {
    /// It has not answered.
    Asked,
    /// It listens.
    Listens,
    /// It refused, with the reason.
    Refuses(Sentence),
}

/// The owner's handle of a rendezvous. Dropping it ends the rendezvous, and agents close its port.
pub(crate) struct Rendezvous {
    agents: Arc<Agents>,
    id: RendezvousId,
    /// Port that workers dial.
    pub port: u16,
    /// Workers that have dialled.
    pub(crate) arrivals: mpsc::Receiver<DialledWorker>,
    /// State at each agent.
    pub answers: watch::Receiver<HashMap<u64, RendezvousEvent>>,
    /// Fires when its owner starts it again.
    pub replaced: CancellationToken,
}

/// A worker that has dialled a rendezvous. Dropped, it is dismissed.
pub(crate) struct DialledWorker {
    link: Arc<Link>,
    id: ArrivalId,
    /// The worker's node, which the agent speaks for.
    pub node: RayNode,
    /// Ray's id of the worker, as reported by the agent.
    pub worker_id: Name,
}

impl Drop for DialledWorker {
    fn drop(&mut self) {
        // The agent ignores this if the connection was received already.
        self.link.try_send(FromRelay::Dismiss { arrival: self.id });
    }
}

/// An opened stream of a user's command.
pub struct CommandStream {
    pub socket: Socket,
    /// Dropping it signals that the stream is over.
    pub open: oneshot::Sender<()>,
}

/// The task that waits for a stream of a user's command.
pub struct Handover(oneshot::Sender<CommandStream>);

impl Handover {
    /// Hands `socket` over, and returns when the stream is over.
    pub async fn hand_over(self, socket: Socket) {
        let (open, closed) = oneshot::channel();
        if self.0.send(CommandStream { socket, open }).is_ok() {
            // Nothing is ever sent.
            let _ = closed.await;
        }
    }
}

/// Why a rendezvous was refused. `Display` is a sentence for its owner.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotMet {
    #[error("that name is in use; choose another one")]
    Name,
    #[error(
        "you have {MAX_PER_OWNER} rendezvous at this relay, the most that one person may have: end one"
    )]
    Yours,
    #[error("this relay is at its limit of rendezvous: try again later")]
    All,
    #[error(
        "no agent listens for workers: start agents with --reverse-ports on the nodes (`ray-relay node`), or wait until they are linked"
    )]
    NoAgent,
    #[error("port {0} is in no agent's --reverse-ports, which are {1}-{2}")]
    Range(u16, u16, u16),
    #[error("another rendezvous has port {0}; leave out --port, or name a free port of {1}-{2}")]
    Port(u16, u16, u16),
    #[error("all ports from {0} to {1} are in use")]
    Full(u16, u16),
    #[error("this relay's system provides no random numbers")]
    NoSecrets,
}

impl NotMet {
    /// Whether a retry may succeed: agents link later, and a lost connection frees its name and port after a while.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::NoAgent | Self::Name | Self::Port(..))
    }
}

/// Whether the agent of `link` should listen for `owner`.
fn concerns(link: &Link, owner: &Principal) -> bool {
    let access = owner.access();
    let nodes = link.nodes();
    nodes
        .iter()
        .any(|node| access.may_somewhere_on(Scope::Debug, &node.cluster))
}

impl Agents {
    /// Creates the rendezvous `name` of `owner` on `port`, or by preference on the `wished` port. The same name gets
    /// the same port as long as that is free. An earlier one of the same user and name ends. No agent is notified
    /// before [`Rendezvous::open`].
    ///
    /// # Errors
    /// [`NotMet`].
    pub(crate) fn meet(
        self: &Arc<Self>,
        name: RendezvousName,
        owner: &Principal,
        port: Option<u16>,
        wished: Option<u16>,
    ) -> Result<Rendezvous, NotMet> {
        let ranges: Vec<_> = {
            let table = self.table.lock();
            let of_owner = table.all().filter(|link| concerns(link, owner));
            of_owner
                .filter_map(|link| link.about.reverse_ports)
                .collect()
        };
        let mut all = self.reverse.entries.lock();
        let same = all.iter().find(|(_, entry)| entry.name == name);
        let old = match same {
            Some((id, entry)) if entry.owner.is_same_authenticated_person(owner) => Some(*id),
            Some(_) => return Err(NotMet::Name),
            None => None,
        };
        let others = || all.iter().filter(|(id, _)| Some(**id) != old);
        if others().count() >= MAX_RENDEZVOUS {
            return Err(NotMet::All);
        }
        let of_owner =
            others().filter(|(_, entry)| entry.owner.is_same_authenticated_person(owner));
        if of_owner.count() >= MAX_PER_OWNER {
            return Err(NotMet::Yours);
        }
        let in_use = |port: u16| others().any(|(_, entry)| entry.port == port);
        let port = chosen(&name, &ranges, port, wished, in_use)?;
        let id = Hex::random().ok_or(NotMet::NoSecrets)?;
        let old = old.and_then(|old| Some((old, all.remove(&old)?)));
        let (arrivals, arriving) = mpsc::channel(MAX_ARRIVALS);
        let answers = watch::Sender::default();
        let replaced = CancellationToken::new();
        let rendezvous = Rendezvous {
            agents: Arc::clone(self),
            id,
            port,
            arrivals: arriving,
            answers: answers.subscribe(),
            replaced: replaced.clone(),
        };
        let entry = ReverseEntry {
            name,
            owner: owner.clone(),
            port,
            replaced,
            open: false,
            arrivals,
            answers,
        };
        all.insert(id, entry);
        drop(all);
        if let Some((id, entry)) = old {
            entry.replaced.cancel();
            self.unlisten(id, &entry);
        }
        Ok(rendezvous)
    }

    /// Has the agent of `link` listen for each rendezvous that concerns it.
    pub(super) fn meets(&self, link: &Arc<Link>) {
        let mut rendezvous = Vec::new();
        for (id, entry) in self.reverse.entries.lock().iter() {
            rendezvous.extend(entry.ask(*id, link));
        }
        listen(link, rendezvous);
    }

    /// Expects a stream of `person`'s command; `None`: the system's random source failed.
    pub fn expect(&self, person: &Principal) -> Option<Expected<'_, Principal, CommandStream>> {
        self.reverse.streams.expect(person.clone())
    }

    /// Takes the task that waits for the stream `id`, if it is `person`'s and `secret` is its secret. Works once.
    pub fn expected(&self, id: &str, secret: &str, person: &Principal) -> Option<Handover> {
        // A token may have been renewed since the link began.
        let is_it = |owner: &Principal| owner.subject() == person.subject();
        let (_, deliver) = self.reverse.streams.take(id, secret, is_it)?;
        Some(Handover(deliver))
    }

    fn unlisten(&self, rendezvous: RendezvousId, entry: &ReverseEntry) {
        let table = self.table.lock();
        for link in table.all() {
            if entry.answers.borrow().contains_key(&link.id) {
                link.try_send(FromRelay::Unlisten { rendezvous });
            }
        }
    }
}

fn listen(link: &Link, rendezvous: Vec<Meeting>) {
    if !rendezvous.is_empty() && !link.try_send(FromRelay::Listen { rendezvous }) {
        // Its queue is full, and the link is about to be given up.
        tracing::debug!(agent = %link.about.hostname, "an agent was not told of a rendezvous");
    }
}

impl ReverseEntry {
    /// The request to the agent of `link`, if it should listen and was not asked before.
    fn ask(&self, id: RendezvousId, link: &Link) -> Option<Meeting> {
        let (first, last) = link.about.reverse_ports?;
        if !self.open || !concerns(link, &self.owner) {
            return None;
        }
        let covers = (first..=last).contains(&self.port);
        let is_new = self.answers.send_if_modified(|answers| {
            let new = !answers.contains_key(&link.id);
            answers.entry(link.id).or_insert_with(|| match covers {
                true => RendezvousEvent::Asked,
                false => {
                    RendezvousEvent::Refuses("its --reverse-ports do not include that port".into())
                }
            });
            new
        });
        (is_new && covers).then_some(Meeting {
            rendezvous: id,
            port: self.port,
        })
    }
}

impl ReverseLinks {
    /// Stores the agent's answer about a rendezvous.
    pub(super) fn listening(
        &self,
        link: &Link,
        rendezvous: &RendezvousId,
        refused: Option<Sentence>,
    ) {
        if let Some(entry) = self.entries.lock().get(rendezvous) {
            entry.answers.send_if_modified(|answers| {
                let answer = answers.get_mut(&link.id);
                answer.is_some_and(|answer| {
                    *answer = refused.map_or(RendezvousEvent::Listens, RendezvousEvent::Refuses);
                    true
                })
            });
        }
    }

    /// Queues a worker that has dialled at the agent of `link`.
    pub(super) fn arrived(&self, link: &Arc<Link>, arrived: messages::RendezvousArrival) {
        let is_it = |node: &&RayNode| *node.node_id == *arrived.node_id;
        let node = link.nodes().iter().find(is_it).cloned();
        let arrival = node.map(|node| DialledWorker {
            link: Arc::clone(link),
            id: arrived.arrival,
            node,
            worker_id: arrived.worker_id,
        });
        let all = self.entries.lock();
        let entry = all.get(&arrived.rendezvous);
        let entry = entry.filter(|entry| entry.answers.borrow().contains_key(&link.id));
        let arrivals = entry.map(|entry| entry.arrivals.clone());
        drop(all);
        match (arrival, arrivals) {
            // Dismissed if the queue is full.
            (Some(arrival), Some(arrivals)) => drop(arrivals.try_send(arrival)),
            (Some(arrival), None) => drop(arrival),
            (None, _) => {
                let arrival = arrived.arrival;
                link.try_send(FromRelay::Dismiss { arrival });
            }
        }
    }

    /// Forgets the answers of a link that has ended.
    pub(super) fn lose(&self, link: &Link) {
        for entry in self.entries.lock().values() {
            let lose =
                |answers: &mut HashMap<u64, RendezvousEvent>| answers.remove(&link.id).is_some();
            entry.answers.send_if_modified(lose);
        }
    }
}

impl Rendezvous {
    /// Has current and future agents listen.
    pub(crate) fn open(&self) {
        let links: Vec<_> = self.agents.table.lock().all().cloned().collect();
        let mut all = self.agents.reverse.entries.lock();
        let Some(entry) = all.get_mut(&self.id) else {
            return;
        };
        entry.open = true;
        let meetings: Vec<_> = links
            .iter()
            .filter_map(|link| Some((link, entry.ask(self.id, link)?)))
            .collect();
        drop(all);
        for (link, meeting) in meetings {
            listen(link, vec![meeting]);
        }
    }
}

impl Drop for Rendezvous {
    fn drop(&mut self) {
        let entry = self.agents.reverse.entries.lock().remove(&self.id);
        if let Some(entry) = entry {
            self.agents.unlisten(self.id, &entry);
        }
    }
}

impl DialledWorker {
    /// Opens a stream with the worker's bytes. The caller has authorised it: [`crate::reverse`] alone calls this.
    ///
    /// # Errors
    /// [`NoStream`]; takes at most `patience`.
    pub(crate) async fn receive(
        &self,
        agents: &Agents,
        patience: Duration,
    ) -> Result<Tunnel, NoStream> {
        let arrival = self.id;
        let receive = |stream, secret| FromRelay::Receive {
            stream,
            secret,
            arrival,
        };
        agents.streamed(&self.link, None, receive, patience).await
    }
}

/// Chooses the port of the rendezvous `name` in the `ranges` of agents.
pub fn chosen(
    name: &RendezvousName,
    ranges: &[(u16, u16)],
    port: Option<u16>,
    wished: Option<u16>,
    in_use: impl Fn(u16) -> bool,
) -> Result<u16, NotMet> {
    // The most frequent range; among equals the lowest, independent of the order of links.
    let count = |range: &(u16, u16)| ranges.iter().filter(|other| *other == range).count();
    let by_count = |range: &&(u16, u16)| (count(range), std::cmp::Reverse(**range));
    let (first, last) = *ranges.iter().max_by_key(by_count).ok_or(NotMet::NoAgent)?;
    let covered = |port: &u16| ranges.iter().any(|(a, b)| (*a..=*b).contains(port));
    if let Some(port) = port {
        return match (covered(&port), in_use(port)) {
            (false, _) => Err(NotMet::Range(port, first, last)),
            (true, true) => Err(NotMet::Port(port, first, last)),
            (true, false) => Ok(port),
        };
    }
    if let Some(wished) = wished.filter(|port| covered(port) && !in_use(*port)) {
        return Ok(wished);
    }
    let ports = u64::from(last.saturating_sub(first)) + 1;
    let start = hash(name) % ports;
    let mut tried = (0..ports).map(|step| first + ((start + step) % ports) as u16);
    tried
        .find(|port| !in_use(*port))
        .ok_or(NotMet::Full(first, last))
}

/// Stable for a name at every relay, so that programs need not change.
fn hash(name: &RendezvousName) -> u64 {
    // FNV-1a, stable across releases.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in name.to_string().bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash
}
