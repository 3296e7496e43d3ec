//! What a request in progress may make the relay hold, from when it is known whose it is until the last byte of its answer is gone.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use ray_relay_base::memory::{Account, MemoryUse, OutOfMemory, Reservation};

/// What each request in progress adds to a connection, in bytes: a head, an answer under way, and the connection to the Ray head.
pub(super) const REQUEST_WEIGHT: usize = 112 * 1024;

/// How long a request waits for memory.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(10);

/// Requests at a time on one connection that wait: those beyond are told at once.
const WAIT: usize = 2;

/// The memory of one request, for who finds out whose it is. It goes with the request, and is given back at its end.
#[derive(Debug, Clone)]
pub(super) struct InProgress {
    taken: Arc<Mutex<Option<Reservation>>>,
    waits: bool,
}

impl InProgress {
    /// One of `requests` on its connection.
    pub(super) fn new(requests: usize) -> Self {
        Self {
            taken: Arc::default(),
            waits: requests <= WAIT,
        }
    }

    /// Takes what it needs from `account`. Cancel safe.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(super) async fn belongs_to(&self, account: &Account) -> Result<(), OutOfMemory> {
        let mut taken = account.empty(MemoryUse::Requests);
        let patience = match self.waits {
            true => MEMORY_TIMEOUT,
            false => Duration::ZERO,
        };
        taken.resize_within(REQUEST_WEIGHT, patience).await?;
        *self.taken.lock() = Some(taken);
        Ok(())
    }
}
