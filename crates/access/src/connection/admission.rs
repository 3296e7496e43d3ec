//! Admission control: decides which connections stay if there is no room for all.
//!
//! A connection whose client has presented no credential is a stranger. All strangers share a small number of slots
//! and a part of [`Memory`], whatever they speak and however many they are. The memory that each of them may use is
//! charged in full beforehand ([`ConnectionPermit::weigh`]). No connection queues: if there is no room, a stranger is
//! dropped, namely the one idle for longest from the address that uses most. So a client with a credential gets in
//! despite any number of silent connections, even if a port-forward makes one address of all of them.
//!
//! A client that presents a credential ([`ConnectionPermit::recognised`]) is never dropped, and uses its own account
//! of [`Memory`]. One principal has at most a quarter of the slots, and an eighth is always left for newcomers.
//!
//! Connections for the links and streams of agents have bounds of their own and use none of these slots
//! ([`ConnectionPermit::set_apart`]).
//!
//! The listener holds a [`Guard`] for each connection; later stages have the [`ConnectionPermit`] in its
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

/// The cost of any connection before a byte of it is read: its task and its initial buffers.
const BASE_CONNECTION_BYTES: usize = 8 * 1024;

/// How long a stranger may be idle while more than half of the strangers' slots are in use.
const PRESSURED_IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Dropped connections that may still be closing beyond the limit of connections: at most this many, and at most one
/// for every `CLOSING_DIVISOR` connections of that limit.
const MAX_CLOSING_CONNECTIONS: usize = 256;
const CLOSING_DIVISOR: usize = 4;

/// Why a client with a credential is not admitted. `Display` is a sentence for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Crowded {
    /// The principal has reached its limit of connections.
    #[error(
        "you have {most} connections to this relay, the most that one person may have: close some of them (`GET /relay/v1/sessions` lists sessions)"
    )]
    Yours {
        /// The limit of connections of one principal.
        most: usize,
    },
    /// The relay has reached its limit of connections.
    #[error(
        "this relay is at its limit of connections: try again in a moment, or have `listen.max_connections` raised"
    )]
    Full,
    /// The connection was dropped for another one at the same moment.
    #[error("this relay is busy: try again")]
    GivenUp,
}

/// All connections of a relay.
#[derive(Debug)]
pub struct Admission {
    table: Mutex<ConnectionTable>,
    /// Notified whenever a connection has ended.
    gone: Notify,
    max_connections: usize,
    started: Instant,
}

/// The permit of one connection. Cheap to clone. The default one belongs to a connection that is not counted.
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

/// Releases the slot when the connection has ended.
#[derive(Debug)]
pub struct Guard(ConnectionPermit);

impl Admission {
    /// Creates an admission control for at most `max_connections` connections at a time, of strangers and others. All
    /// strangers together may use as much memory as `memory` reserves for them.
    pub fn new(max_connections: usize, memory: &Memory) -> Arc<Self> {
        Arc::new(Self {
            table: Mutex::new(ConnectionTable::new(
                max_connections,
                memory.anonymous_limit(),
            )),
            gone: Notify::new(),
            max_connections,
            started: Instant::now(),
        })
    }

    /// Admits a connection from `peer`, and drops another one if necessary.
    pub fn admit(self: &Arc<Self>, peer: IpAddr) -> Guard {
        let moved = Arc::new(AtomicU64::new(self.now()));
        let given_up = CancellationToken::new();
        let (now, cost) = (self.now(), BASE_CONNECTION_BYTES);
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

    /// Waits until dropped connections have closed, so that their descriptors are free again.
    pub async fn settled(&self) {
        loop {
            let gone = self.gone.notified();
            let closing =
                (self.max_connections / CLOSING_DIVISOR).clamp(1, MAX_CLOSING_CONNECTIONS);
            if self.table().len() < self.max_connections + closing {
                return;
            }
            gone.await;
        }
    }

    /// Returns the number of connections, and of strangers among them.
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
    /// Charges the memory that this connection may use from now on, in bytes, on top of the cost of every connection.
    /// Strangers are dropped for it, as the last one this connection.
    pub fn weigh(&self, bytes: usize) {
        if let Some(seat) = &self.0 {
            let mut table = seat.admission.table();
            table.weigh(seat.id, BASE_CONNECTION_BYTES + bytes);
            table.make_room(seat.id, seat.admission.now());
        }
    }

    /// Marks its client as `principal`. From then on it is never dropped. This includes anonymous clients while
    /// authentication is off.
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

    /// Marks its client as served without a credential, because authentication is off. It remains a stranger.
    pub fn served(&self) {
        if let Some(seat) = &self.0 {
            if !seat.served.swap(true, Ordering::Relaxed) {
                seat.admission.table().serve(seat.id);
            }
            self.moved();
        }
    }

    /// Records activity. It counts only for served clients: one that still has to present a credential is idle from
    /// the beginning, however many bytes it sends.
    pub fn moved(&self) {
        if let Some(seat) = &self.0
            && seat.served.load(Ordering::Relaxed)
        {
            seat.moved.store(seat.admission.now(), Ordering::Relaxed);
        }
    }

    /// Excludes it as a link of an agent or one of its streams, which are counted and bounded by `agents`. Call it
    /// once the client is recognised.
    pub fn set_apart(&self) {
        if let Some(seat) = &self.0 {
            seat.admission.table().set_apart(seat.id);
            seat.admission.gone.notify_one();
        }
    }

    /// Whether the client has to present a credential, and has not yet.
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
