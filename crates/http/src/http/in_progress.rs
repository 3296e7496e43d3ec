//! Memory reservation of a request in progress, from its authentication until the last byte of its answer is sent.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use ray_relay_base::memory::{Account, MemoryUse, OutOfMemory, Reservation};

/// Memory that each request in progress adds to a connection, in bytes: a head, a pending answer, and the connection to
/// the Ray head.
pub(super) const REQUEST_WEIGHT: usize = 112 * 1024;

/// How long a request waits for memory.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(10);

/// Requests per connection that may wait for memory; further ones are refused at once.
const MAX_WAITING_REQUESTS: usize = 2;

/// Memory reservation of one request, made once its principal is known. It is released when the request ends.
#[derive(Debug, Clone)]
pub(super) struct InProgress {
    reservation: Arc<Mutex<Option<Reservation>>>,
    waits: bool,
}

impl InProgress {
    /// Creates the reservation for one of `requests` on its connection.
    pub(super) fn new(requests: usize) -> Self {
        Self {
            reservation: Arc::default(),
            waits: requests <= MAX_WAITING_REQUESTS,
        }
    }

    /// Reserves memory from `account`. Cancel safe.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(super) async fn belongs_to(&self, account: &Account) -> Result<(), OutOfMemory> {
        let mut reservation = account.empty(MemoryUse::Requests);
        let time_limit = match self.waits {
            true => MEMORY_TIMEOUT,
            false => Duration::ZERO,
        };
        reservation
            .resize_within(REQUEST_WEIGHT, time_limit)
            .await?;
        *self.reservation.lock() = Some(reservation);
        Ok(())
    }
}
