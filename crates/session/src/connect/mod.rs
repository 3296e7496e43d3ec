//! Connections through `ray-relay connect`: one link each, which outlives its transport.
//!
//! A command opens a link ahead of time. Once a client connects at its end, the link's stream is
//! [served](Links::arrived) like a connection to the one port, of a principal that is authenticated already. If the
//! transport is lost, the stream waits: neither end notices, and no other client can take it over. The command resumes
//! it as the same user, with the secret that it received. A link is over when both sides have ended it, when no command
//! has resumed it for `connect.resume`, or when its principal's credential expires or is revoked. A newer credential
//! with the same rights postpones its expiry.
//!
//! Bounds: links in all and of one principal (`connect.max_links`), the bytes of each ([`UP_WINDOW_BYTES`], [`DOWN_WINDOW_BYTES`]).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::SinkExt;
use parking_lot::Mutex;
use tokio::io::{DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_util::either::Either;
use tracing::{Instrument as _, debug, info};

use crate::agents::Socket;
use crate::session::shares::{QuotaExceeded, QuotaPermit, Quotas};
use ray_relay_access::connection;
use ray_relay_access::connection::summary::Summary;
use ray_relay_access::identity::{Principal, Renewal};
use ray_relay_base::config;
use ray_relay_base::memory::Memory;
use ray_relay_base::shutdown::Shutdown;
use ray_relay_base::wire::resumed::messages::{LinkId, LinkSecret, Opener, ResumeMessage};
use ray_relay_base::wire::resumed::{
    Cut, DOUBT_TIMEOUT, DOWN_WINDOW_BYTES, LinkHandle, LinkedStream, Phase, UP_WINDOW_BYTES, carry,
};
use ray_relay_base::wire::tunnel::messages::{Replica, written};

/// How long a new link may lack a transport before a client has connected at its end.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the sessions of a link may take to end in order once its credential has expired or was revoked.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Buffer of an in-process connection, in bytes for each direction.
const PIPE_BYTES: usize = 16 * 1024;

/// Queue of streams to be served.
const MAX_ARRIVING: usize = 64;

/// A connection inside another one: a client at the other end of a link, or a terminal of the page.
pub struct InnerConnection {
    /// Its bytes.
    pub stream: ArrivedStream,
    /// The principal that opened the link, or the page.
    pub principal: Principal,
    /// The address that it was opened from.
    pub peer: SocketAddr,
}

/// Byte stream of a link, or of a terminal of the page, which another task carries.
pub type ArrivedStream = Either<LinkedStream, DuplexStream>;

/// All links. One for the process.
#[derive(Debug)]
pub struct Links {
    table: Mutex<HashMap<LinkId, Arc<ResumableLink>>>,
    quotas: Arc<Quotas>,
    resume: Duration,
    replica: Replica,
    memory: Memory,
    shutdown: Shutdown,
    arriving: mpsc::Sender<InnerConnection>,
    arrived: tokio::sync::Mutex<mpsc::Receiver<InnerConnection>>,
}

/// A link that a command can resume.
#[derive(Debug)]
struct ResumableLink {
    id: LinkId,
    secret: LinkSecret,
    begun: ResumeMessage,
    opener: Option<Opener>,
    principal: Principal,
    renewal: Renewal,
    link: Arc<LinkHandle>,
    _permit: QuotaPermit,
}

/// Why a link is not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkRefusal {
    /// The limit of links is reached.
    Crowded(QuotaExceeded),
    /// The system's random source failed.
    NoSecrets,
}

/// A transport for a link, before its WebSocket is open.
pub struct Transport {
    held: Arc<ResumableLink>,
    /// Bytes that the command has received; `None`: the link is new.
    received: Option<u64>,
}

impl Links {
    /// Creates an empty table.
    pub fn new(
        config: &config::Connect,
        replica: Replica,
        memory: Memory,
        shutdown: Shutdown,
    ) -> Self {
        let (arriving, arrived) = mpsc::channel(MAX_ARRIVING);
        Self {
            table: Mutex::default(),
            quotas: Quotas::new(config.max_links, (config.max_links / 4).max(1)),
            resume: config.resume,
            replica,
            memory,
            shutdown,
            arriving,
            arrived: tokio::sync::Mutex::new(arrived),
        }
    }

    /// Identifies this relay to a command that resumes a link of another one.
    pub fn replica(&self) -> Replica {
        self.replica
    }

    /// Resolves with the next connection at the end of a link. Cancel safe; for one caller.
    pub async fn arrived(&self) -> InnerConnection {
        match self.arrived.lock().await.recv().await {
            Some(arrived) => arrived,
            // Unreachable: `self` holds a sender.
            None => std::future::pending().await,
        }
    }

    /// Has `arrived` served like a connection to the one port; returns whether the relay accepted it in time.
    pub async fn deliver(&self, arrived: InnerConnection) -> bool {
        let sent = timeout(OPEN_TIMEOUT, self.arriving.send(arrived)).await;
        matches!(sent, Ok(Ok(())))
    }

    /// Opens an in-process connection to the one port, as if `principal` had connected from `peer`: it gets a session
    /// like any other. `None`: the relay is shutting down.
    pub async fn dial(&self, principal: &Principal, peer: SocketAddr) -> Option<DuplexStream> {
        let (near, far) = duplex(PIPE_BYTES);
        let arrived = InnerConnection {
            stream: Either::Right(far),
            principal: principal.clone(),
            peer,
        };
        self.deliver(arrived).await.then_some(near)
    }

    /// Ends detached links of an earlier run of the same command, which nothing will resume.
    fn leave_earlier(&self, principal: &Principal, opener: Opener) {
        let abandoned: Vec<_> = {
            let table = self.table.lock();
            let earlier = |held: &&Arc<ResumableLink>| {
                held.is_of(principal) && held.opener.is_some_and(|of| opener.follows(&of))
            };
            table.values().filter(earlier).cloned().collect()
        };
        for held in abandoned {
            let is_detached = matches!(&*held.link.phase().borrow(), Phase::Detached(_));
            if is_detached {
                info!("a link is dropped: its command was restarted");
                held.link.break_off("the command was restarted");
            }
        }
    }

    /// Opens a link for `principal`, requested by the command `opener` on the connection `summary`.
    ///
    /// # Errors
    /// [`LinkRefusal`].
    pub fn begin(
        self: &Arc<Self>,
        principal: &Principal,
        summary: &Summary,
        opener: Option<Opener>,
    ) -> Result<Transport, LinkRefusal> {
        if let Some(opener) = opener {
            self.leave_earlier(principal, opener);
        }
        let permit = self.quotas.take(principal).map_err(LinkRefusal::Crowded)?;
        let id = LinkId::random().ok_or(LinkRefusal::NoSecrets)?;
        let secret = LinkSecret::random().ok_or(LinkRefusal::NoSecrets)?;
        let (principal, renewal) = principal.renewable();
        let account = self.memory.account(principal.known_subject().as_deref());
        let (link, stream) = LinkHandle::counted(DOWN_WINDOW_BYTES, UP_WINDOW_BYTES, &account);
        let begun = ResumeMessage::Begun {
            link: id,
            secret,
            replica: self.replica,
            held: self.resume.as_secs(),
        };
        let held = Arc::new(ResumableLink {
            id,
            secret,
            begun,
            opener,
            principal,
            renewal,
            link,
            _permit: permit,
        });
        self.table.lock().insert(id, Arc::clone(&held));
        let task = Arc::clone(self).keep(Arc::clone(&held), stream, summary.peer());
        // Owned by the tracker; ends with the link, and by `abort`.
        let task = task.instrument(connection::span(summary));
        self.shutdown.tasks.spawn(task);
        Ok(Transport {
            held,
            received: None,
        })
    }

    /// A new transport for the link `id`, if `secret` is its secret and `principal` its owner, who has `received` so
    /// many bytes. `None` for every kind of mismatch.
    pub fn resume(
        &self,
        id: &str,
        secret: &str,
        principal: &Principal,
        received: u64,
    ) -> Option<Transport> {
        let (id, secret) = (LinkId::parse(id)?, LinkSecret::parse(secret)?);
        let held = Arc::clone(self.table.lock().get(&id)?);
        if !held.secret.is_same_secret(&secret) || !held.is_of(principal) {
            return None;
        }
        held.renewal.renew(principal);
        Some(Transport {
            held,
            received: Some(received),
        })
    }

    /// Runs a link to its end.
    async fn keep(
        self: Arc<Self>,
        held: Arc<ResumableLink>,
        stream: LinkedStream,
        peer: SocketAddr,
    ) {
        let link = &held.link;
        if self.opened(&held).await {
            debug!(?peer, "a client has connected through a link");
            let arrived = InnerConnection {
                stream: Either::Left(stream),
                principal: held.principal.clone(),
                peer,
            };
            if !self.deliver(arrived).await {
                link.break_off("the relay has no time for it");
            }
            tokio::select! {
                () = self.over(&held) => {}
                () = self.shutdown.abort.cancelled() => link.break_off("the relay was shut down"),
            }
        }
        self.table.lock().remove(&held.id);
        debug!("a link has ended");
    }

    /// Resolves to whether a client connects at the end of a link before it is over.
    async fn opened(&self, held: &ResumableLink) -> bool {
        let lost = async {
            let mut phase = held.link.phase();
            loop {
                let now = phase.borrow_and_update().clone();
                let late = async {
                    match now {
                        Phase::Attached => std::future::pending().await,
                        Phase::Detached(since) => sleep_until(since + OPEN_TIMEOUT).await,
                        Phase::Done | Phase::Broken(_) => {}
                    }
                };
                tokio::select! {
                    () = late => return,
                    changed = phase.changed() => if changed.is_err() { return },
                }
            }
        };
        let why = tokio::select! {
            () = held.link.used() => return true,
            () = lost => "no client has connected",
            _ = held.principal.ended() => "your credential has expired",
            // New clients belong to the successor process, if there is one.
            () = self.shutdown.drain.cancelled() => "the relay is being shut down",
            () = self.shutdown.abort.cancelled() => "the relay was shut down",
        };
        held.link.break_off(why);
        false
    }

    /// Resolves when a link in use is over, broken off here if it did not end by itself.
    async fn over(&self, held: &ResumableLink) {
        let link = &held.link;
        let mut phase = link.phase();
        let mut ended = pin!(async {
            let why = held.principal.ended().await;
            sleep(END_TIMEOUT).await;
            why
        });
        let mut closed = pin!(async {
            self.shutdown.closed.cancelled().await;
            sleep(END_TIMEOUT).await;
        });
        let mut doubted = link.doubted();
        // Set once the relay's end has finished writing and the rest is on its way.
        let mut left_until = None;
        loop {
            let lost_until = match &*phase.borrow_and_update() {
                Phase::Done | Phase::Broken(_) => return,
                Phase::Attached => None,
                Phase::Detached(_) if link.owes_nothing() => return,
                Phase::Detached(since) => Some(*since + self.resume),
            };
            let doubted_until = doubted.borrow_and_update().map(|at| at + DOUBT_TIMEOUT);
            let nobody_until = lost_until.and(doubted_until);
            let until = [lost_until, left_until, nobody_until].into_iter().flatten();
            let until = until.min();
            let late = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = phase.changed() => if changed.is_err() { return },
                Ok(()) = doubted.changed() => {}
                () = link.closed(), if left_until.is_none() => {
                    left_until = Some(Instant::now() + self.resume.max(END_TIMEOUT));
                }
                () = late => {
                    let why = match nobody_until.is_some() && nobody_until == until {
                        true => "its room was wanted while no client was connected",
                        false => "it was not resumed in time",
                    };
                    info!(resume_s = self.resume.as_secs(), %why, "a link is dropped");
                    return link.break_off(why);
                }
                why = &mut ended => return link.break_off(&why.to_string()),
                () = &mut closed => return link.break_off("the relay was shut down"),
            }
        }
    }
}

impl ResumableLink {
    /// Whether `principal` is the user who opened it, by any credential.
    fn is_of(&self, principal: &Principal) -> bool {
        self.principal.subject() == principal.subject()
            && self.principal.is_anonymous() == principal.is_anonymous()
    }
}

impl Transport {
    /// Carries its link until this transport is lost or replaced.
    pub async fn carry(self, mut socket: Socket) {
        let Self { held, received } = self;
        // From here on the previous transport is fenced off.
        let Ok(attachment) = held.link.attach(received.unwrap_or_default()) else {
            return;
        };
        let first = match received {
            Some(_) => {
                info!("a link was resumed");
                let received = attachment.received;
                ResumeMessage::Resumed { received }
            }
            None => held.begun,
        };
        match timeout(OPEN_TIMEOUT, socket.send(Message::text(written(&first)))).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        }
        if let Cut::Lost(why) = carry(attachment, socket).await {
            info!(%why, "the transport of a link is lost");
        }
    }
}

#[cfg(test)]
mod tests;
