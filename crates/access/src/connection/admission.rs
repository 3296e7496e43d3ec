//! Admission control: which connections stay when there is not room for all.
//!
//! A connection whose client has shown no credential is a stranger. Strangers share a small number of places and their part
//! of [`Memory`], whatever they speak and however many they are; what each of them may make the relay hold is counted
//! in full beforehand ([`ConnectionPermit::weigh`]). No connection queues: where there is no room, the stranger that
//! has stood still for longest is given up, of the address that takes most. So a client with a credential gets in
//! behind any number of silent connections, also where a port-forward makes one address of all of them.
//!
//! A client that shows a credential ([`ConnectionPermit::recognised`]) is never given up, and takes what is held from an account of
//! [`Memory`] that is its own. Of one principal there are at most a quarter of
//! the places, and an eighth is always left for newcomers.
//!
//! What carries the links and streams of agents has bounds of its own and takes none of these places ([`ConnectionPermit::set_apart`]).
//!
//! The listener holds a [`Guard`] for each connection; what is behind it has the [`ConnectionPermit`] in its
//! [`ConnectionInfo`](crate::connection::ConnectionInfo). Nothing in here waits while it holds the lock.

mod table;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::table::{AdmissionError, ConnectionTable};
use crate::identity::Principal;
use ray_relay_base::memory::Memory;

/// What any connection costs before a byte of it is looked at: its task and the beginnings of its buffers.
const AT_FIRST: usize = 8 * 1024;

/// How long a stranger may stand still while more than half of the places for strangers are taken.
const PRESSURED_IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections beyond the limit that have been given up and are not gone yet, and which part of that limit they are at most.
const LEAVING: usize = 256;
const LEAVING_PART: usize = 4;

/// Why a client with a credential is not admitted. `Display` is a sentence for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Crowded {
    /// One principal has as many connections as it may have.
    #[error(
        "you have {most} connections to this relay, the most that one person may have: close some of them (`GET /relay/v1/sessions` lists sessions)"
    )]
    Yours {
        /// The largest number of connections of one principal.
        most: usize,
    },
    /// The relay has as many connections as it takes.
    #[error(
        "this relay is at its limit of connections: try again in a moment, or have `listen.max_connections` raised"
    )]
    Full,
    /// The connection was given up for another in the same moment.
    #[error("this relay is busy: try again")]
    GivenUp,
}

/// All connections of a relay.
#[derive(Debug)]
pub struct Admission {
    table: Mutex<ConnectionTable>,
    /// Told whenever a connection has gone.
    gone: Notify,
    most: usize,
    started: Instant,
}

/// The place of one connection. Cheap to clone; the default one is that of a connection that is not counted.
#[derive(Debug, Clone, Default)]
pub struct ConnectionPermit(Option<Arc<Seat>>);

#[derive(Debug)]
struct Seat {
    admission: Arc<Admission>,
    id: u64,
    given_up: CancellationToken,
    moved: Arc<AtomicU64>,
    /// Whether the client needs no credential, because authentication is off.
    served: AtomicBool,
}

/// Gives the place back when the connection has ended.
#[derive(Debug)]
pub struct Guard(ConnectionPermit);

impl Admission {
    /// An admission of at most `most` connections at a time, of strangers and of others. All strangers together may make the
    /// relay hold what `memory` has for them.
    pub fn new(most: usize, memory: &Memory) -> Arc<Self> {
        Arc::new(Self {
            table: Mutex::new(ConnectionTable::new(most, memory.anonymous_limit())),
            gone: Notify::new(),
            most,
            started: Instant::now(),
        })
    }

    /// Takes in a connection from `peer`, at the cost of another one where that has to be.
    pub fn admit(self: &Arc<Self>, peer: IpAddr) -> Guard {
        let moved = Arc::new(AtomicU64::new(self.now()));
        let given_up = CancellationToken::new();
        let (now, cost) = (self.now(), AT_FIRST);
        let mut table = self.table();
        let id = table.enter(peer, moved.clone(), given_up.clone(), cost);
        table.make_room(id, now);
        if table.is_tight() {
            table.hurry(now.saturating_sub(millis(PRESSURED_IDLE_TIMEOUT)));
        }
        drop(table);
        Guard(ConnectionPermit(Some(Arc::new(Seat {
            admission: Arc::clone(self),
            id,
            given_up,
            moved,
            served: AtomicBool::new(false),
        }))))
    }

    /// Waits until those that were given up are gone, so that their descriptors are free again.
    pub async fn settled(&self) {
        loop {
            let gone = self.gone.notified();
            let leaving = (self.most / LEAVING_PART).clamp(1, LEAVING);
            if self.table().len() < self.most + leaving {
                return;
            }
            gone.await;
        }
    }

    /// How many connections there are, and how many of them are strangers'.
    #[cfg(any(test, feature = "testing"))]
    pub fn counts(&self) -> (usize, usize) {
        let table = self.table();
        (table.len(), table.strangers())
    }

    fn now(&self) -> u64 {
        millis(self.started.elapsed())
    }

    fn table(&self) -> MutexGuard<'_, ConnectionTable> {
        self.table.lock()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Guard {
    pub fn place(&self) -> ConnectionPermit {
        self.0.clone()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(seat) = &self.0.0 {
            seat.admission.table().leave(seat.id);
            seat.admission.gone.notify_one();
        }
    }
}

impl ConnectionPermit {
    /// What this connection may make the relay hold from now on, in bytes, on top of what every connection costs.
    /// Strangers are given up for it, in the end this one.
    pub fn weigh(&self, bytes: usize) {
        if let Some(seat) = &self.0 {
            let mut table = seat.admission.table();
            table.weigh(seat.id, AT_FIRST + bytes);
            table.make_room(seat.id, seat.admission.now());
        }
    }

    /// Its client is `principal`. From then on it is not given up any more. For an anonymous client, because none
    /// is authenticated here, that is so as well.
    ///
    /// # Errors
    /// [`Crowded`].
    pub fn recognised(&self, principal: &Principal) -> Result<(), Crowded> {
        let Some(seat) = &self.0 else {
            return Ok(());
        };
        let subject = (!principal.is_anonymous()).then(|| principal.subject());
        let known = seat
            .admission
            .table()
            .know(seat.id, subject, Instant::now());
        known.map_err(|why| match why {
            AdmissionError::TooMany(most) => Crowded::Yours { most },
            AdmissionError::Full => Crowded::Full,
            AdmissionError::Gone => Crowded::GivenUp,
        })
    }

    /// Its client is served without a credential, because authentication is off here. It stays a stranger.
    pub fn served(&self) {
        if let Some(seat) = &self.0 {
            if !seat.served.swap(true, Ordering::Relaxed) {
                seat.admission.table().serve(seat.id);
            }
            self.moved();
        }
    }

    /// Something went through just now. It counts for those who are served: a client that still has to show a credential
    /// stands still from the beginning, however many bytes come.
    pub fn moved(&self) {
        if let Some(seat) = &self.0
            && seat.served.load(Ordering::Relaxed)
        {
            seat.moved.store(seat.admission.now(), Ordering::Relaxed);
        }
    }

    /// It is the link of an agent, or one of its streams: counted and bounded by `agents`, and no longer here. To be
    /// called once its client is recognised.
    pub fn set_apart(&self) {
        if let Some(seat) = &self.0 {
            seat.admission.table().set_apart(seat.id);
            seat.admission.gone.notify_one();
        }
    }

    /// Whether the client would have to show a credential, and has not.
    pub fn owes_a_credential(&self) -> bool {
        let Some(seat) = &self.0 else {
            return false;
        };
        !seat.served.load(Ordering::Relaxed) && seat.admission.table().is_strange(seat.id)
    }

    /// Resolves when the connection has to make room for others. Cancel safe.
    pub async fn given_up(&self) {
        match &self.0 {
            Some(seat) => seat.given_up.cancelled().await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests;
