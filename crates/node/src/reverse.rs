//! Debuggers that listen: workers of this node dial the agent on loopback, and a relay connects them to a user's
//! debugger.
//!
//! Only on ports of the range that the agent was started with, and only while a user waits there at a relay. Each
//! peer is verified first: a process that Ray does not list as a live worker of this node is not read from. No byte
//! of a worker leaves the agent before the relay has requested it.

mod resume;

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use rand::RngExt as _;
use tokio::io::AsyncWrite;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{Instrument as _, debug, info, info_span, warn};

use super::Agent;
use super::connect::Dialler;
use super::stream::{report_refusal, stream_for};
use super::verifier::UnverifiedPeer;
use ray_relay_base::dial::Stream;
use ray_relay_base::wire::tunnel::ByteStream;
use ray_relay_base::wire::tunnel::join::{ByteCount, join};
use ray_relay_base::wire::tunnel::messages::{
    ArrivalId, FromAgent, Hex, Meeting, Refusal, RendezvousArrival, RendezvousId, StreamGreeting,
    StreamId, written,
};
use ray_relay_base::wire::{read_through, tcp};

/// Ports that may be configured for an agent.
const MAX_PORTS: usize = 1000;

/// Workers that may wait at one rendezvous.
const MAX_WAITING_WORKERS: usize = 16;

/// How long to retry a port in use: a lost link releases its own ports in a moment.
const BIND_RETRY_TIMEOUT: Duration = Duration::from_secs(3);

/// The deadline for verifying a peer.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(15);

/// The deadline for the relay to request a worker that has arrived: the relay verifies the worker itself, and the
/// user's command dials a debugger first.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(40);

/// The deadline for sending the first message on a stream.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);

/// Idle time before keepalive probes to a worker.
const PROBE_AFTER: Duration = Duration::from_secs(10);

/// The relay's request for a waiting worker: the stream by which it continues.
#[derive(Debug)]
struct StreamClaim {
    stream: StreamId,
    secret: Hex<16>,
}

type Waiting = Arc<Mutex<HashMap<ArrivalId, oneshot::Sender<StreamClaim>>>>;

/// The rendezvous of one link's relay. Dropped, all its ports are closed and waiting workers resume.
#[derive(Default)]
pub(super) struct Reverse {
    listening: HashMap<RendezvousId, DropGuard>,
    waiting: Waiting,
}

impl Drop for Reverse {
    fn drop(&mut self) {
        self.waiting.lock().clear();
    }
}

/// Shared by all arrivals at one rendezvous.
#[derive(Clone)]
struct Site {
    agent: Arc<Agent>,
    dialler: Dialler,
    answers: mpsc::Sender<FromAgent>,
    waiting: Waiting,
    meeting: Meeting,
    over: CancellationToken,
}

/// The verified identity of a peer.
enum PeerIdentity {
    /// A worker of this node.
    Worker(RendezvousArrival),
    /// Not a Ray process.
    Stranger,
    /// The peer could not be identified.
    Unknown,
}

impl Reverse {
    /// Listens for each of `rendezvous`, and reports the result on the relay's link.
    pub(super) fn listen(
        &mut self,
        agent: &Arc<Agent>,
        dialler: &Dialler,
        answers: &mpsc::Sender<FromAgent>,
        rendezvous: Vec<Meeting>,
    ) {
        for meeting in rendezvous {
            let over = CancellationToken::new();
            let guard = over.clone().drop_guard();
            if self.listening.insert(meeting.rendezvous, guard).is_some() {
                debug!("a rendezvous is asked for again");
            }
            let site = Site {
                agent: Arc::clone(agent),
                dialler: dialler.clone(),
                answers: answers.clone(),
                waiting: Arc::clone(&self.waiting),
                meeting,
                over,
            };
            let span = info_span!("rendezvous", port = meeting.port);
            agent.tasks.spawn(site.keep().instrument(span));
        }
    }

    /// Stops listening: no user waits there any more.
    pub(super) fn unlisten(&mut self, rendezvous: &RendezvousId) {
        self.listening.remove(rendezvous);
    }

    /// Hands a worker to the relay that requests it. Returns the refusal if the worker waits no longer.
    pub(super) fn receive(
        &self,
        arrival: &ArrivalId,
        stream: StreamId,
        secret: Hex<16>,
    ) -> Option<FromAgent> {
        let waiting = self.waiting.lock().remove(arrival);
        let received = waiting.is_some_and(|one| one.send(StreamClaim { stream, secret }).is_ok());
        (!received).then(|| FromAgent::Refused {
            stream,
            kind: Refusal::NotAWorker,
            detail: "that worker waits no longer".into(),
            holder: None,
        })
    }

    /// Drops a worker that the relay has no user for.
    pub(super) fn dismiss(&self, arrival: &ArrivalId) {
        self.waiting.lock().remove(arrival);
    }
}

impl Site {
    async fn keep(self) {
        let ending = self.agent.ending.clone();
        let over = self.over.clone();
        tokio::select! {
            () = self.listen() => {}
            () = over.cancelled() => {}
            () = ending.cancelled() => {}
        }
    }

    async fn listen(&self) {
        let Meeting { rendezvous, port } = self.meeting;
        let listener = bind(self.agent.reverse_ports.as_ref(), port).await;
        let refused = listener.as_ref().err().map(|why| why.as_str().into());
        let listening = FromAgent::Listening {
            rendezvous,
            refused,
        };
        _ = self.answers.send(listening).await;
        let listener = match listener {
            Ok(listener) => listener,
            Err(why) => return warn!(why, "refused a relay's rendezvous"),
        };
        info!("listens for workers whose debugger listens elsewhere");
        let stream_slots = Arc::new(Semaphore::new(MAX_WAITING_WORKERS));
        loop {
            // Workers beyond the limit wait in the kernel's queue: a worker whose connection is closed early waits
            // for ever.
            let Ok(slot) = Arc::clone(&stream_slots).acquire_owned().await else {
                return;
            };
            let (mut stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    debug!(%error, "a connection was not accepted");
                    sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let stream_slot = Arc::clone(&self.agent.stream_slots).acquire_owned();
            let Ok(Ok(stream_slot)) = timeout(CLAIM_TIMEOUT, stream_slot).await else {
                warn!(%peer, "the agent is at its limit of streams: a worker's connection is closed");
                resume::resume_worker(&mut stream).await;
                continue;
            };
            let site = self.clone();
            let arriving = async move {
                Box::pin(site.arrive(stream, peer, slot)).await;
                drop(stream_slot);
            };
            self.agent.tasks.spawn(arriving.in_current_span());
        }
    }

    /// Serves one connection to its end. `slot` is its slot among the waiting workers.
    async fn arrive<P>(self, mut stream: TcpStream, peer: SocketAddr, slot: P) {
        let arrived = match self.identify(&stream, peer).await {
            PeerIdentity::Worker(arrived) => arrived,
            PeerIdentity::Stranger => return,
            // It may be a worker, which would wait for ever.
            PeerIdentity::Unknown => return resume::resume_worker(&mut stream).await,
        };
        if tcp::tune(&stream, PROBE_AFTER).is_err() {
            return;
        }
        info!(worker = %arrived.worker_id, "a worker has dialled");
        let mut worker = Worker {
            stream: &mut stream,
            was_written: false,
        };
        let (worker_id, arrival) = (arrived.worker_id.clone(), arrived.arrival);
        let claimed = tokio::select! {
            claimed = Box::pin(self.claimed(arrived)) => claimed,
            () = self.over.cancelled() => None,
            () = self.agent.ending.cancelled() => None,
        };
        self.waiting.lock().remove(&arrival);
        drop(slot);
        if let Some(relay) = claimed {
            let passed = ByteCount::default();
            tokio::select! {
                joined = join(&mut worker, relay, &passed) => debug!(?joined, "the connection is over"),
                () = self.agent.ending.cancelled() => {}
            }
        }
        let untouched = !worker.was_written;
        if untouched {
            resume::resume_worker(&mut stream).await;
        }
        info!(worker = %worker_id, let_run = untouched, "a worker's connection is over");
    }

    /// Identifies the peer.
    async fn identify(&self, stream: &TcpStream, peer: SocketAddr) -> PeerIdentity {
        let Ok(local) = stream.local_addr() else {
            return PeerIdentity::Stranger;
        };
        let identifying = timeout(
            VERIFY_TIMEOUT,
            self.agent.verifier.identify_peer(peer, local),
        );
        let result = tokio::select! {
            result = identifying => result,
            () = self.over.cancelled() => return PeerIdentity::Unknown,
        };
        match result {
            Ok(Ok(resident)) => PeerIdentity::Worker(RendezvousArrival {
                rendezvous: self.meeting.rendezvous,
                arrival: Hex(rand::rng().random()),
                worker_id: resident.worker_id.as_str().into(),
                node_id: resident.node_id.as_str().into(),
            }),
            Ok(Err(stranger)) => {
                warn!(%peer, why = %stranger, "a connection is closed unheard");
                match stranger {
                    UnverifiedPeer::NotAWorker(_) => PeerIdentity::Stranger,
                    _ => PeerIdentity::Unknown,
                }
            }
            Err(_) => {
                warn!(%peer, "a connection is closed unheard: Ray did not say in time whose it is");
                PeerIdentity::Unknown
            }
        }
    }

    /// Announces `arrived` and returns the stream for it, once the relay has requested it.
    async fn claimed(&self, arrived: RendezvousArrival) -> Option<ByteStream<Stream>> {
        let (sender, claim) = oneshot::channel();
        let arrival = arrived.arrival;
        self.waiting.lock().insert(arrival, sender);
        self.answers.send(FromAgent::Arrived(arrived)).await.ok()?;
        let StreamClaim { stream, secret } = timeout(CLAIM_TIMEOUT, claim).await.ok()?.ok()?;
        let relay = match stream_for(&self.dialler, stream, &secret).await {
            Ok(relay) => relay,
            Err(refused) => {
                report_refusal(stream, refused, &self.answers).await;
                return None;
            }
        };
        let mut relay = ByteStream::new(relay);
        let sent = timeout(
            GREETING_TIMEOUT,
            relay.say(written(&StreamGreeting::Dialled)),
        )
        .await;
        matches!(sent, Ok(Ok(()))).then_some(relay)
    }
}

/// Parses a range of ports, such as `7700-7799`.
///
/// # Errors
/// A sentence that describes a valid range: ports from 1024 on, at most 1,000 of them.
pub fn reverse_ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.trim().split_once('-').unwrap_or((text, text));
    let port = |text: &str| text.trim().parse().ok().filter(|port| *port >= 1024);
    match (port(first), port(last)) {
        (Some(first), Some(last)) if first <= last && usize::from(last - first) < MAX_PORTS => {
            Ok(first..=last)
        }
        _ => Err(format!(
            "write a range of at most {MAX_PORTS} ports from 1024 on, such as 7700-7799"
        )),
    }
}

/// Listens on `port` of loopback, if that is one of `ports`.
async fn bind(ports: Option<&RangeInclusive<u16>>, port: u16) -> Result<TcpListener, String> {
    if !ports.is_some_and(|ports| ports.contains(&port)) {
        return Err(format!("port {port} is not in its --reverse-ports"));
    }
    let until = Instant::now() + BIND_RETRY_TIMEOUT;
    loop {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                sleep(BIND_RETRY_TIMEOUT / 20).await;
            }
            Err(error) => return Err(format!("port {port}: {error}")),
        }
    }
}

/// A worker that has dialled. It waits without end for its debugger's first message, even after the connection has
/// ended. Without that message its half is not shut down, and the worker is resumed instead.
struct Worker<'a> {
    stream: &'a mut TcpStream,
    /// Whether bytes of a debugger were written to it.
    was_written: bool,
}

read_through!([] Worker<'_> { Self { stream, .. } => stream });

impl AsyncWrite for Worker<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.was_written = true;
        Pin::new(&mut *self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.was_written {
            true => Pin::new(&mut *self.stream).poll_shutdown(cx),
            false => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn reverse_port_range_is_bounded_and_unprivileged() {
        assert_eq!(reverse_ports("7700-7799").unwrap(), 7700..=7799);
        assert_eq!(reverse_ports(" 7700 ").unwrap(), 7700..=7700);
        assert_eq!(reverse_ports("7000-7999").unwrap().count(), 1000);
        for text in [
            "",
            "-",
            "7799-7700",
            "7000-8000",
            "80-90",
            "x-y",
            "7700-70000",
        ] {
            assert!(reverse_ports(text).is_err(), "{text}");
        }
    }
}
