//! Large answers: to hold and to read one takes memory and time of all clients, so they take turns.
//!
//! Of one head one is under way at a time, and of all of them [`AT_ONCE`]; and a head whose answer took long, because it was
//! slow to come or long to read, rests for a multiple of that before the next. What it takes to hold is taken from the memory of
//! its cluster. What is small goes by all of this: a head that is slow, or says too much, is no reason for another to wait.

use std::error::Error;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Body;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

use ray_relay_base::memory::{Account, MemoryUse, Taken};
use ray_relay_base::wire::text::innermost_cause;

/// An answer is large from this size in bytes on: some hundred rows.
pub(super) const LARGE: usize = 128 << 10;

/// Large answers of all heads that are held and read at a time.
const AT_ONCE: usize = 2;

/// How long an answer waits for its turn, and for memory.
const TURN_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a head rests, as a multiple of the time that its last large answer took: it has a third at most.
const REST: u32 = 2;

const MAX_REST_PERIOD: Duration = Duration::from_secs(10);

static ALL: Semaphore = Semaphore::const_new(AT_ONCE);

/// The turns of one head.
#[derive(Debug)]
pub(super) struct Turns {
    own: Arc<Semaphore>,
    /// Until when it rests.
    rested: Mutex<Instant>,
    /// What their answers are taken from.
    account: OnceLock<Account>,
}

/// The turn of one answer: of its head's, and of all.
#[derive(Debug)]
struct HeadTurn {
    turns: Arc<Turns>,
    began: Instant,
    _own: OwnedSemaphorePermit,
    _all: SemaphorePermit<'static>,
}

/// An answer's body, and its turn where it is large.
#[derive(Debug)]
pub struct HeadAnswer {
    /// All of it.
    pub bytes: Bytes,
    turn: Option<HeadTurn>,
    /// The memory that they take.
    _taken: Taken,
}

/// Why an answer was not read to its end.
#[derive(Debug)]
pub(super) enum NotRead {
    TooLarge,
    /// No turn came, or no memory.
    Crowded,
    /// The connection broke, by the innermost cause.
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

    /// From now on answers are taken from `account`, once and for all.
    pub(super) fn count(&self, account: Account) {
        let _ = self.account.set(account);
    }

    /// All of `body`, at most `limit` bytes.
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
        let (mut read, mut taken) = (Vec::new(), account.nothing(MemoryUse::Answers));
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
            if turn.is_none() && read.len() + data.len() > LARGE {
                let own = timeout(TURN_TIMEOUT, self.turn()).await;
                turn = own.ok().flatten();
                if turn.is_none() {
                    return Err(NotRead::Crowded);
                }
            }
            let needed = read.len() + data.len();
            if needed > read.capacity() {
                let announced = body.size_hint().upper().unwrap_or(u64::MAX);
                let all =
                    usize::try_from(announced).map_or(limit, |left| needed.saturating_add(left));
                let larger = (2 * needed).min(all).min(limit);
                // Both are there while the one is copied to the other.
                hold(&mut taken, read.capacity() + larger).await?;
                read.reserve_exact(larger - read.len());
                hold(&mut taken, larger).await?;
            }
            read.extend_from_slice(&data);
        }
        Ok(HeadAnswer {
            bytes: read.into(),
            turn,
            _taken: taken,
        })
    }

    /// Cancel safe. `None` never comes: a semaphore is not closed.
    async fn turn(self: &Arc<Self>) -> Option<HeadTurn> {
        let own = Arc::clone(&self.own).acquire_owned().await.ok()?;
        let rested = *self.rested.lock();
        tokio::time::sleep_until(rested).await;
        let all = ALL.acquire().await.ok()?;
        Some(HeadTurn {
            turns: Arc::clone(self),
            began: Instant::now(),
            _own: own,
            _all: all,
        })
    }
}

/// Has `bytes` of memory, once they are there.
async fn hold(taken: &mut Taken, bytes: usize) -> Result<(), NotRead> {
    if taken.resize_beyond(2 * LARGE, bytes).is_ok() {
        return Ok(());
    }
    let held = taken.resize_within(bytes, TURN_TIMEOUT).await;
    held.map_err(|_| NotRead::Crowded)
}

impl Drop for HeadTurn {
    fn drop(&mut self) {
        let rest = (self.began.elapsed() * REST).min(MAX_REST_PERIOD);
        *self.turns.rested.lock() = Instant::now() + rest;
    }
}

impl HeadAnswer {
    /// What `read` makes of the bytes; where they are many, on a thread that does nothing else.
    ///
    /// # Errors
    /// Those of `read`, and where the process ends.
    pub(super) async fn read<T: Send + 'static>(
        self,
        read: impl FnOnce(&[u8]) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        if self.turn.is_none() {
            return read(&self.bytes);
        }
        // With its turn, which ends when it has been read, also where no task waits for it any more.
        let read = tokio::task::spawn_blocking(move || read(&self.bytes));
        read.await.unwrap_or_else(|error| Err(error.to_string()))
    }
}
