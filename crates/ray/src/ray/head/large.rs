//! Large responses: holding and parsing one uses memory and time of all clients, so they take turns.
//!
//! Each head has one in progress at a time, and all of them together [`MAX_HELD_RESPONSES`]. A head whose response took
//! long, because it arrived slowly or was long to parse, pauses for a multiple of that before the next. The memory is
//! charged to its cluster. Small responses skip all of this: a head that is slow, or sends too much, must not make
//! another one wait.

use std::error::Error;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Body;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

use ray_relay_base::memory::{Account, MemoryUse, Reservation};
use ray_relay_base::wire::text::innermost_cause;

/// Size in bytes from which a response is large: some hundred rows.
pub(super) const MIN_LARGE_BYTES: usize = 128 << 10;

/// Large responses of all heads that are held and parsed at a time.
const MAX_HELD_RESPONSES: usize = 2;

/// How long a response waits for its turn, and for memory.
const TURN_TIMEOUT: Duration = Duration::from_secs(3);

/// Pause of a head, as a multiple of the time of its last large response: it is busy a third of the time at most.
const REST_FACTOR: u32 = 2;

const MAX_REST_PERIOD: Duration = Duration::from_secs(10);

static HELD_RESPONSES: Semaphore = Semaphore::const_new(MAX_HELD_RESPONSES);

/// The turns of one head.
#[derive(Debug)]
pub(super) struct Turns {
    own: Arc<Semaphore>,
    /// End of its pause.
    rested: Mutex<Instant>,
    /// The account of its responses.
    account: OnceLock<Account>,
}

/// The turn of one response: of its head, and of all heads.
#[derive(Debug)]
struct HeadTurn {
    turns: Arc<Turns>,
    began: Instant,
    _own: OwnedSemaphorePermit,
    _all: SemaphorePermit<'static>,
}

/// A response's body, and its turn if it is large.
#[derive(Debug)]
pub struct HeadAnswer {
    /// The whole body.
    pub bytes: Bytes,
    turn: Option<HeadTurn>,
    /// Their memory.
    _reserved: Reservation,
}

/// The reason why a response was not read to its end.
#[derive(Debug)]
pub(super) enum NotRead {
    TooLarge,
    /// No turn or no memory became available.
    Crowded,
    /// The connection broke, with the innermost cause.
    Broken(String),
}

impl Turns {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            own: Arc::new(Semaphore::new(1)),
            rested: Mutex::new(Instant::now()),
            account: OnceLock::new(),
        })
    }

    /// Charges responses to `account` from now on; only the first call counts.
    pub(super) fn count(&self, account: Account) {
        let _ = self.account.set(account);
    }

    /// Reads all of `body`, at most `limit` bytes.
    pub(super) async fn read<B>(
        self: &Arc<Self>,
        body: B,
        limit: usize,
    ) -> Result<HeadAnswer, NotRead>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let mut body = std::pin::pin!(body);
        let account = self.account.get().cloned().unwrap_or_default();
        let (mut read, mut reserved) = (Vec::new(), account.empty(MemoryUse::Answers));
        let mut turn = None;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                let error: Box<dyn Error + Send + Sync> = error.into();
                NotRead::Broken(innermost_cause(error.as_ref()))
            })?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if read.len() + data.len() > limit {
                return Err(NotRead::TooLarge);
            }
            if turn.is_none() && read.len() + data.len() > MIN_LARGE_BYTES {
                let own = timeout(TURN_TIMEOUT, self.turn()).await;
                turn = own.ok().flatten();
                if turn.is_none() {
                    return Err(NotRead::Crowded);
                }
            }
            let needed = read.len() + data.len();
            if needed > read.capacity() {
                let announced = body.size_hint().upper().unwrap_or(u64::MAX);
                let all = usize::try_from(announced)
                    .map_or(limit, |remaining| needed.saturating_add(remaining));
                let larger = (2 * needed).min(all).min(limit);
                // Both exist while one is copied to the other.
                reserve(&mut reserved, read.capacity() + larger).await?;
                read.reserve_exact(larger - read.len());
                reserve(&mut reserved, larger).await?;
            }
            read.extend_from_slice(&data);
        }
        Ok(HeadAnswer {
            bytes: read.into(),
            turn,
            _reserved: reserved,
        })
    }

    /// Cancel safe. Never returns `None`: the semaphores are not closed.
    async fn turn(self: &Arc<Self>) -> Option<HeadTurn> {
        let own = Arc::clone(&self.own).acquire_owned().await.ok()?;
        let rested = *self.rested.lock();
        tokio::time::sleep_until(rested).await;
        let all = HELD_RESPONSES.acquire().await.ok()?;
        Some(HeadTurn {
            turns: Arc::clone(self),
            began: Instant::now(),
            _own: own,
            _all: all,
        })
    }
}

/// Acquires `bytes` of memory, waiting if necessary.
async fn reserve(reserved: &mut Reservation, bytes: usize) -> Result<(), NotRead> {
    if reserved.resize_beyond(2 * MIN_LARGE_BYTES, bytes).is_ok() {
        return Ok(());
    }
    let held = reserved.resize_within(bytes, TURN_TIMEOUT).await;
    held.map_err(|_| NotRead::Crowded)
}

impl Drop for HeadTurn {
    fn drop(&mut self) {
        let rest = (self.began.elapsed() * REST_FACTOR).min(MAX_REST_PERIOD);
        *self.turns.rested.lock() = Instant::now() + rest;
    }
}

impl HeadAnswer {
    /// Applies `read` to the bytes; on a blocking thread if there are many.
    ///
    /// # Errors
    /// The errors of `read`, or the end of the process.
    pub(super) async fn read<T: Send + 'static>(
        self,
        read: impl FnOnce(&[u8]) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        if self.turn.is_none() {
            return read(&self.bytes);
        }
        // The turn is kept until the bytes are parsed, even if no task waits for the result any more.
        let read = tokio::task::spawn_blocking(move || read(&self.bytes));
        read.await.unwrap_or_else(|error| Err(error.to_string()))
    }
}
