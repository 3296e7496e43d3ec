//! The memory budget: one for everything that a client, a worker or a head may make the relay hold.
//!
//! A buffer reserves its memory before it grows ([`Account::take`], [`Reservation::resize`]), and releases it when
//! dropped. One principal may use at most a quarter. The last eighth is for those who hold little, so that an attach
//! still succeeds while others have used up their share. The responses of one cluster's head may use a quarter at most
//! too, across all clients. Unauthenticated connections have a part of their own, which admission control divides
//! between them.
//!
//! The cost of an idle object (a connection, a link, a session) is bounded by the number of such objects, and counted
//! in [`needed`]. The size of the whole budget follows from the process's memory limit ([`limit()`]).

mod limit;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

use self::limit::MIB;
pub use self::limit::{Needed, limit, needed};

/// The memory of a process without a known limit.
pub const DEFAULT_MEMORY_BYTES: usize = 2048 * MIB;

/// Largest part for unauthenticated connections.
const MAX_STRANGERS_BYTES: usize = 32 * MIB;

/// Owners that hold at most this much may use the reserve.
const MAX_RESERVE_USER_BYTES: usize = MIB;

/// The purpose of memory: the label of the metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryUse {
    /// Messages of debuggers and their clients.
    Messages,
    /// WebSockets of agents, users and dashboards.
    Links,
    /// Requests of HTTP in progress.
    Requests,
    /// Responses of heads that are read completely before they are forwarded.
    Answers,
}

impl MemoryUse {
    /// All purposes.
    pub const ALL: [Self; 4] = [Self::Messages, Self::Links, Self::Requests, Self::Answers];

    /// The label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Links => "links",
            Self::Requests => "requests",
            Self::Answers => "answers",
        }
    }
}

/// The budget is exhausted. `Display` is a sentence for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OutOfMemory {
    /// One principal has used its share.
    #[error(
        "your requests would take more than the {} MiB of this relay's memory that one person may have: wait until some are done, or have `listen.memory` raised", .most / MIB
    )]
    Yours {
        /// The share in bytes.
        most: usize,
    },
    /// The responses of one head have used their share.
    #[error(
        "the answers of this cluster's head would take more than the {} MiB of this relay's memory that one head may have: ask for less, wait until others are done, or have `listen.memory` raised", .most / MIB
    )]
    Cluster {
        /// The share in bytes.
        most: usize,
    },
    /// The whole budget is used.
    #[error(
        "this relay has no memory left for it at the moment: try again soon, or have `listen.memory` raised"
    )]
    All,
}

/// The memory of the relay. One for the process.
#[derive(Debug, Clone)]
pub struct Memory(Arc<Whole>);

#[derive(Debug)]
struct Whole {
    /// Limit of all authenticated owners together, in bytes.
    most: usize,
    strangers: usize,
    used: AtomicUsize,
    by_kind: [AtomicUsize; MemoryUse::ALL.len()],
    owners: Mutex<HashMap<OwnerKey, Weak<MemoryOwner>>>,
    freed: Notify,
    /// Number of tasks that wait for `freed`.
    waiting: AtomicUsize,
}

/// The name of an owner.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum OwnerKey {
    Principal(Arc<str>),
    Cluster(Arc<str>),
}

#[derive(Debug)]
struct MemoryOwner {
    whole: Arc<Whole>,
    /// `None`: authentication is off.
    key: Option<OwnerKey>,
    most: usize,
    used: AtomicUsize,
    /// The accounts that are charged instead: the owner's, and that of the cluster whose responses it holds, each
    /// within its limit.
    of: Option<(Arc<Self>, Arc<Self>)>,
}

/// The account of one principal or cluster. Cheap to clone; the default one is unlimited and not counted.
#[derive(Debug, Clone, Default)]
pub struct Account(Option<Arc<MemoryOwner>>);

/// Reserved memory, released when dropped.
#[derive(Debug)]
pub struct Reservation {
    account: Account,
    kind: MemoryUse,
    bytes: usize,
}

impl Memory {
    /// A budget that divides `bytes`, of which the memory that is always in use is no part ([`needed`]).
    pub fn new(bytes: usize) -> Self {
        let strangers = (bytes / 8).min(MAX_STRANGERS_BYTES);
        Self(Arc::new(Whole {
            most: bytes.saturating_sub(strangers),
            strangers,
            used: AtomicUsize::new(0),
            by_kind: MemoryUse::ALL.map(|_| AtomicUsize::new(0)),
            owners: Mutex::default(),
            freed: Notify::new(),
            waiting: AtomicUsize::new(0),
        }))
    }

    /// Limit of all unauthenticated connections together, in bytes.
    pub fn anonymous_limit(&self) -> usize {
        self.0.strangers
    }

    /// Limit of one principal, and of one cluster's responses, in bytes.
    pub fn owner_limit(&self) -> usize {
        self.0.most / 4
    }

    /// Memory in use for `kind` now, in bytes.
    pub fn used(&self, kind: MemoryUse) -> usize {
        self.0.by_kind[kind as usize].load(Ordering::Relaxed)
    }

    /// The account of `subject`. `None`: authentication is off. Each call then returns a new account, with the
    /// whole budget as its limit; the reserve remains for accounts that hold little.
    pub fn account(&self, subject: Option<&str>) -> Account {
        match subject {
            Some(subject) => self.of(OwnerKey::Principal(subject.into())),
            None => Account(Some(self.owner(None, self.0.most))),
        }
    }

    /// The account of the responses of the cluster `name`'s head.
    pub fn cluster(&self, name: &str) -> Account {
        self.of(OwnerKey::Cluster(name.into()))
    }

    fn of(&self, key: OwnerKey) -> Account {
        let mut owners = self.0.owners.lock();
        if let Some(owner) = owners.get(&key).and_then(Weak::upgrade) {
            return Account(Some(owner));
        }
        let owner = self.owner(Some(key.clone()), self.owner_limit());
        owners.insert(key, Arc::downgrade(&owner));
        Account(Some(owner))
    }

    fn owner(&self, key: Option<OwnerKey>, most: usize) -> Arc<MemoryOwner> {
        Arc::new(MemoryOwner {
            whole: Arc::clone(&self.0),
            key,
            most,
            used: AtomicUsize::new(0),
            of: None,
        })
    }
}

impl Drop for MemoryOwner {
    fn drop(&mut self) {
        let Some(key) = &self.key else { return };
        let mut owners = self.whole.owners.lock();
        // Another owner may have been inserted by now.
        if owners
            .get(key)
            .is_some_and(|there| there.strong_count() == 0)
        {
            owners.remove(key);
        }
    }
}

impl MemoryOwner {
    /// Charges `bytes` to its own limit, and returns the new total.
    fn reserve(&self, bytes: usize) -> Result<usize, OutOfMemory> {
        let mine = self.used.fetch_add(bytes, Ordering::SeqCst) + bytes;
        if mine <= self.most {
            return Ok(mine);
        }
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        let most = self.most;
        Err(match self.key {
            Some(OwnerKey::Cluster(_)) => OutOfMemory::Cluster { most },
            Some(OwnerKey::Principal(_)) | None => OutOfMemory::Yours { most },
        })
    }

    fn take(&self, bytes: usize) -> Result<(), OutOfMemory> {
        if let Some((owner, cluster)) = &self.of {
            cluster.reserve(bytes)?;
            return owner.take(bytes).inspect_err(|_| {
                cluster.used.fetch_sub(bytes, Ordering::Relaxed);
            });
        }
        let whole = &self.whole;
        let mine = self.reserve(bytes)?;
        let most = match mine <= MAX_RESERVE_USER_BYTES {
            true => whole.most,
            false => whole.most - whole.most / 8,
        };
        if whole.used.fetch_add(bytes, Ordering::SeqCst) + bytes > most {
            whole.used.fetch_sub(bytes, Ordering::Relaxed);
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(OutOfMemory::All);
        }
        Ok(())
    }

    /// The same, ignoring the limits.
    fn insist(&self, bytes: usize) {
        if let Some((owner, cluster)) = &self.of {
            cluster.used.fetch_add(bytes, Ordering::Relaxed);
            return owner.insist(bytes);
        }
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.whole.used.fetch_add(bytes, Ordering::Relaxed);
    }

    fn release(&self, bytes: usize) {
        if let Some((owner, cluster)) = &self.of {
            cluster.used.fetch_sub(bytes, Ordering::SeqCst);
            return owner.release(bytes);
        }
        self.used.fetch_sub(bytes, Ordering::SeqCst);
        self.whole.used.fetch_sub(bytes, Ordering::SeqCst);
        // A waiting task increments the counter before it checks.
        if self.whole.waiting.load(Ordering::SeqCst) > 0 {
            self.whole.freed.notify_waiters();
        }
    }
}

impl Account {
    /// The same account for responses of the head behind `cluster`, which is charged as well.
    #[must_use]
    pub fn for_answers_of(self, cluster: &Self) -> Self {
        let (Some(owner), Some(cluster)) = (&self.0, &cluster.0) else {
            return self;
        };
        Self(Some(Arc::new(MemoryOwner {
            whole: Arc::clone(&owner.whole),
            key: None,
            most: usize::MAX,
            used: AtomicUsize::new(0),
            of: Some((Arc::clone(owner), Arc::clone(cluster))),
        })))
    }

    /// Reserves this many bytes.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn take(&self, kind: MemoryUse, bytes: usize) -> Result<Reservation, OutOfMemory> {
        let mut reservation = self.empty(kind);
        reservation.resize(bytes)?;
        Ok(reservation)
    }

    /// An empty reservation, to be resized.
    pub fn empty(&self, kind: MemoryUse) -> Reservation {
        Reservation {
            account: self.clone(),
            kind,
            bytes: 0,
        }
    }
}

impl Reservation {
    /// Changes the amount to `bytes`. A decrease always succeeds.
    ///
    /// # Errors
    /// [`OutOfMemory`]: the amount is unchanged.
    pub fn resize(&mut self, bytes: usize) -> Result<(), OutOfMemory> {
        let Some(owner) = self.account.0.as_ref().filter(|_| bytes != self.bytes) else {
            return Ok(());
        };
        let kind = &owner.whole.by_kind[self.kind as usize];
        if let Some(more) = bytes.checked_sub(self.bytes) {
            owner.take(more)?;
            kind.fetch_add(more, Ordering::Relaxed);
        } else {
            owner.release(self.bytes - bytes);
            kind.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
        Ok(())
    }

    /// The same, ignoring the limits: for small amounts that must succeed.
    pub fn insist(&mut self, bytes: usize) {
        if self.resize(bytes).is_ok() {
            return;
        }
        if let Some(owner) = &self.account.0 {
            let more = bytes.saturating_sub(self.bytes);
            owner.insist(more);
            owner.whole.by_kind[self.kind as usize].fetch_add(more, Ordering::Relaxed);
            self.bytes = bytes;
        }
    }

    /// The same as [`resize`](Self::resize), but up to `little` always succeeds.
    ///
    /// # Errors
    /// [`OutOfMemory`]: the amount is unchanged.
    pub fn resize_beyond(&mut self, little: usize, bytes: usize) -> Result<(), OutOfMemory> {
        if bytes <= little {
            self.insist(bytes);
            return Ok(());
        }
        self.resize(bytes)
    }

    /// The same as [`resize`](Self::resize), waiting up to `patience` for memory. Cancel safe.
    ///
    /// # Errors
    /// [`OutOfMemory`]: no memory was released in time.
    pub async fn resize_within(
        &mut self,
        bytes: usize,
        patience: Duration,
    ) -> Result<(), OutOfMemory> {
        let Err(mut short) = self.resize(bytes) else {
            return Ok(());
        };
        let Some(whole) = self
            .account
            .0
            .as_ref()
            .map(|owner| Arc::clone(&owner.whole))
        else {
            return Ok(());
        };
        let _waits = Waits::new(&whole);
        let got = async {
            loop {
                let freed = whole.freed.notified();
                match self.resize(bytes) {
                    Ok(()) => return,
                    Err(still) => short = still,
                }
                freed.await;
            }
        };
        let got = timeout(patience, got).await;
        got.map_err(|_| short)
    }

    /// The reserved amount, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Counts a task as waiting for memory, until dropped.
struct Waits<'a>(&'a Whole);

impl<'a> Waits<'a> {
    fn new(whole: &'a Whole) -> Self {
        whole.waiting.fetch_add(1, Ordering::SeqCst);
        Self(whole)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // A decrease always succeeds.
        let _ = self.resize(0);
    }
}

#[cfg(test)]
mod tests;
